// A layer of four experts on two ranks, sharded by hand, on its way to code. Each
// rank has two experts; rows travel once.

// RUN: moira-opt %s --moe-verify-phase=phase=sharded -o /dev/null
// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-number-layers,moe-schedule{kind=groups},cse))' \
// RUN:   | moira-opt --moe-verify-phase=phase=scheduled | FileCheck %s --check-prefix=SCHEDULED
// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-number-layers,moe-schedule,cse))' -o %t
// RUN: moira-opt %t --moe-to-kernels | FileCheck %s --check-prefix=KERNELS
// RUN: moira-opt %t --moe-to-bufferized | FileCheck %s --check-prefix=BUFFERIZED
// RUN: moira-opt %t --moe-to-target | FileCheck %s --check-prefix=TARGET

// Without chunks a transfer is waited for where it stands.
// RUN: moira-opt %s --moe-to-bufferized | FileCheck %s --check-prefix=WHOLE
// RUN: moira-opt %s --moe-to-target -o /dev/null

// WHOLE-LABEL: @main_decode
// WHOLE: %[[T:.*]] = moe.start_exchange to_experts
// WHOLE-NEXT: moe.wait %[[T]]
// WHOLE: %[[T:.*]] = moe.start_exchange to_tokens
// WHOLE-NEXT: moe.wait %[[T]]

// SCHEDULED: %[[D:.*]] = moe.chunks groups {layer = 0 : i64}
// SCHEDULED: scf.for %[[I:.*]] = %{{.*}} to %[[D]]
// SCHEDULED: moe.receive_sizes {{.*}} groups chunk(%[[I]] of %[[D]])
// SCHEDULED: moe.exchange to_experts {{.*}} groups chunk(%[[I]] of %[[D]]) {{.*}}moe.queue = "communication"
// SCHEDULED: moe.expert
// SCHEDULED: moe.exchange to_tokens {{.*}} groups chunk(%[[I]] of %[[D]]) init(%{{.*}} : tensor<?x8xf32>)

// Kernels are formed in the loop.
// KERNELS-LABEL: @main_decode
// KERNELS: scf.for
// KERNELS: moe.exchange to_experts
// KERNELS: moe.grouped_matmul {{.*}} panels
// KERNELS: moe.grouped_matmul {{.*}} panels
// KERNELS: moe.exchange to_tokens
// KERNELS: scf.yield
// KERNELS: moe.variants @main [@main_decode, @main_prefill]

// No row is copied: a chunk's results go where they are sent from.
// BUFFERIZED-LABEL: @main_decode
// BUFFERIZED-NOT: memref.copy
// BUFFERIZED: %[[D:.*]] = moe.chunks equal
// BUFFERIZED: scf.for %{{.*}} to %[[D]]
// BUFFERIZED: moe.start_exchange to_experts
// BUFFERIZED: scf.for %{{.*}} to %[[D]]
// BUFFERIZED: moe.wait
// BUFFERIZED: moe.grouped_matmul
// BUFFERIZED: %[[OUT:.*]] = memref.view
// BUFFERIZED: moe.grouped_matmul {{.*}} outs(%[[OUT]] : memref<?x8xf32>)
// BUFFERIZED: moe.start_exchange to_tokens %{{.*}}, %[[OUT]],
// BUFFERIZED: scf.for %{{.*}} to %[[D]]
// BUFFERIZED: moe.wait
// BUFFERIZED-NOT: memref.copy
// BUFFERIZED: moe.combine

// TARGET: moira.manifest
// TARGET-SAME: \22placement\22:{\22copies\22:1,\22experts\22:4,\22shards\22:1,\22slots\22:2}
// TARGET-SAME: \22ranks\22:2
// TARGET-SAME: \22schedule\22:\22equal\22
// TARGET-LABEL: llvm.func @moira_step_main_decode
// Rows of other ranks are not known from the shapes of this one's.
// TARGET-LABEL: llvm.func @moira_workspace_main_decode
// TARGET: %[[UNKNOWN:.*]] = llvm.mlir.constant(-1 : i64)
// TARGET: llvm.return %[[UNKNOWN]]

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
func.func @main(%x: tensor<?x8xf32>,
    %router: tensor<4x8xf32> {moe.param = #moe.param<"router">},
    %up: tensor<2x16x8xf32> {moe.param = #moe.param<"experts.{}.up">},
    %down: tensor<2x8x16xf32> {moe.param = #moe.param<"experts.{}.down">})
    -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %tokens = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%tokens) : tensor<?x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %router : tensor<?x8xf32>, tensor<4x8xf32>)
      outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
  %ids, %scores = moe.gate %logits router<normalize = sum_plus_eps>
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %places, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : tensor<4xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %home = moe.dispatch %x, %places, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>

  %matrix = moe.gather_counts %sizes : tensor<4xi32> -> tensor<2x4xi32>
  %groups, %n = moe.receive_sizes %matrix
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away = moe.exchange to_experts %home, %matrix, %n
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  %out = moe.expert rows(%away : tensor<?x8xf32>) groups(%groups : tensor<2xi32>)
      per_expert(%up, %down : tensor<2x16x8xf32>, tensor<2x8x16xf32>)
      -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %rows = tensor.dim %r, %i0 : tensor<?x8xf32>
    %he = tensor.empty(%rows) : tensor<?x16xf32>
    %hz = linalg.fill ins(%f0 : f32) outs(%he : tensor<?x16xf32>) -> tensor<?x16xf32>
    %h = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %u : tensor<?x8xf32>, tensor<16x8xf32>)
        outs(%hz : tensor<?x16xf32>) -> tensor<?x16xf32>
    %a = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%h : tensor<?x16xf32>) outs(%he : tensor<?x16xf32>) {
    ^bb0(%v: f32, %o: f32):
      %m = arith.maximumf %v, %f0 : f32
      linalg.yield %m : f32
    } -> tensor<?x16xf32>
    %oe = tensor.empty(%rows) : tensor<?x8xf32>
    %oz = linalg.fill ins(%f0 : f32) outs(%oe : tensor<?x8xf32>) -> tensor<?x8xf32>
    %y = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%a, %d : tensor<?x16xf32>, tensor<8x16xf32>)
        outs(%oz : tensor<?x8xf32>) -> tensor<?x8xf32>
    moe.yield %y : tensor<?x8xf32>
  }
  %back = moe.exchange to_tokens %out, %matrix, %bound
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  %result = moe.combine %back, %places weights(%scores : tensor<?x2xf32>)
      : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return %result : tensor<?x8xf32>
}
