// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-cut-hidden{blocks=0}))' -verify-diagnostics

// expected-error @+1 {{expected at least one hidden block, got 0}}
func.func @none() {
  return
}
