// RUN: moira-opt %s -verify-diagnostics \
// RUN:     --pass-pipeline='builtin.module(func.func(moe-schedule{kind=ring}))'

// expected-error @+1 {{expected kind equal or groups, got 'ring'}}
func.func @f() {
  return
}
