// RUN: moira-opt %s -canonicalize -cse --moe-form-kernels="hidden-blocks=4" | FileCheck %s --check-prefixes=CHECK,FUSED
// RUN: moira-opt %s -canonicalize -cse --moe-form-kernels="hidden-blocks=4 disable-fusion=activation" | FileCheck %s --check-prefixes=CHECK,APART
// RUN: moira-opt %s -canonicalize -cse --moe-form-kernels="hidden-blocks=3" | FileCheck %s --check-prefix=UNEVEN

// Blocks of the hidden dimension, whatever becomes of an expert: kernels, with
// the activation or apart from it, or a loop, whose product is cut. Three do not
// divide 16.

// CHECK-LABEL: func.func @kernels
// FUSED: moe.grouped_matmul {{.*}} attributes {hidden = #moe.hidden<4 of n>}
// FUSED: math.tanh
// APART: moe.grouped_matmul {{.*}} attributes {hidden = #moe.hidden<4 of n>}
// APART: scf.for
// APART: math.tanh
// CHECK: moe.grouped_matmul {{.*}} attributes {hidden = #moe.hidden<4 of k>}
// UNEVEN-NOT: moe.hidden
func.func @kernels(%x: tensor<?x8xf32>, %logits: tensor<?x2xf32>,
    %g: tensor<2x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<2x6x16xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x2xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<2xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<2xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<2xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<2xi32> -> tensor<?x8xf32>
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%g, %d : tensor<2x16x8xf32>, tensor<2x6x16xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %ge : tensor<?x8xf32>, tensor<16x8xf32>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %h = math.tanh %a : tensor<?x16xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x16xf32>, tensor<6x16xf32>) outs(%z6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}

// A bias that is computed in the body: no kernel starts from it.

// CHECK-LABEL: func.func @loop
// CHECK-NOT: moe.grouped_matmul
// CHECK: scf.for
// CHECK-COUNT-5: linalg.generic {{.*}}"reduction"
// CHECK-NOT: linalg.generic {{.*}}"reduction"
// CHECK: arith.addf
// CHECK: scf.yield
func.func @loop(%x: tensor<?x8xf32>, %logits: tensor<?x2xf32>,
    %g: tensor<2x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<2x6x16xf32> {moe.param = #moe.param<"down{}">},
    %b: tensor<2x6xf32> {moe.param = #moe.param<"bias{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x2xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<2xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<2xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<2xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<2xi32> -> tensor<?x8xf32>
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%g, %d, %b : tensor<2x16x8xf32>, tensor<2x6x16xf32>, tensor<2x6xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>, %be: tensor<6xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %ge : tensor<?x8xf32>, tensor<16x8xf32>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %h = math.tanh %a : tensor<?x16xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %be2 = math.tanh %be : tensor<6xf32>
    %z6 = linalg.broadcast ins(%be2 : tensor<6xf32>) outs(%e6 : tensor<?x6xf32>) dimensions = [0]
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x16xf32>, tensor<6x16xf32>) outs(%z6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}
