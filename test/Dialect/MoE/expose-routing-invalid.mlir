// RUN: moira-opt %s -moe-expose-routing -split-input-file -verify-diagnostics

func.func @loop(%l: tensor<?x4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @+1 {{expected to stand at the top level of 'loop', to expose its routing}}
    %0:2 = moe.gate %l router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  }
  return
}

// -----

func.func @callee(%l: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %0:2 = moe.gate %l router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#1 : tensor<?x2xf32>
}
func.func @caller(%l: tensor<?x4xf32>) -> tensor<?x2xf32> {
  // expected-error @+1 {{expected no call of 'callee', whose routing is to be exposed}}
  %0 = call @callee(%l) : (tensor<?x4xf32>) -> tensor<?x2xf32>
  return %0 : tensor<?x2xf32>
}
