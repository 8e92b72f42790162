// RUN: moira-opt %s --moe-token-blocks=ranks=0 -verify-diagnostics
// RUN: not moira-opt %s --moe-shard=ranks=-1 2>&1 | FileCheck %s
// RUN: not moira-opt %s --moe-shard="ranks=2 entry=nobody" 2>&1 | FileCheck %s --check-prefix=ENTRY

// CHECK: error: expected no negative ranks and spare slots, got -1 and 0
// ENTRY: error: expected a function 'nobody' with a body as entry, got none

// expected-error @+1 {{expected at least one rank, got 0}}
module {
  func.func @none() {
    return
  }
}
