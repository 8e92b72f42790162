// Losses over ranks: those of rank, of blocks and of all tokens.
//
// RUN: moira-run %s --no-cache --tokens 12 --output %t.one.safetensors
// RUN: %python %S/../Tools/Inputs/show.py %t.one.safetensors | FileCheck %s --check-prefixes=CHECK,ONE
// RUN: moira-run %s --no-cache --verify --ranks 3 --tokens=8,0,4 --output %t.three.safetensors | FileCheck %s --check-prefix=VERIFY
// RUN: %python %S/../Tools/Inputs/show.py %t.three.safetensors | FileCheck %s --check-prefixes=CHECK,THREE
// RUN: moira-run %s --no-cache --verify --ranks 2 --tokens=0,0 --output %t.none.safetensors
// RUN: %python %S/../Tools/Inputs/show.py %t.none.safetensors | FileCheck %s --check-prefix=NONE

// VERIFY: verify passed
// VERIFY: 100.00 % bit-identical

// The means over ranks with tokens differ, the losses of all tokens and of blocks
// that no rank cuts do not.
// ONE-DAG: result1 F32 [] 1.12109
// THREE-DAG: result1 F32 [] 1.21422
// CHECK-DAG: result2 F32 [] 1.12109
// ONE-DAG: result3 F32 [] 0.0927972
// THREE-DAG: result3 F32 [] 0.418712
// CHECK-DAG: result4 F32 [] 0.0927972
// ONE-DAG: result5 F32 [] 5.17197
// THREE-DAG: result5 F32 [] 4.98588
// CHECK-DAG: result6 F32 [] 1.46292
// NONE-DAG: result1 F32 [] 0{{$}}
// NONE-DAG: result2 F32 [] 0{{$}}
// NONE-DAG: result3 F32 [] 0{{$}}
// NONE-DAG: result4 F32 [] 0{{$}}
// NONE-DAG: result5 F32 [] 0{{$}}
// NONE-DAG: result6 F32 [] 0{{$}}

func.func @main(%l: tensor<?x6xf32>, %we: tensor<6x4x6xf32> {moe.param = #moe.param<"w">}) -> (tensor<?x4xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) {
  %ids, %w = moe.gate %l router<> : tensor<?x6xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %0 = moe.loss switch %l ids(%ids : tensor<?x2xi32>) : tensor<?x6xf32> -> tensor<f32>
  %1 = moe.loss switch %l ids(%ids : tensor<?x2xi32>) scope global : tensor<?x6xf32> -> tensor<f32>
  %2 = moe.loss load_importance %l ids(%ids : tensor<?x2xi32>) {noise = 1.0 : f64} : tensor<?x6xf32> -> tensor<f32>
  %3 = moe.loss load_importance %l ids(%ids : tensor<?x2xi32>) scope global {noise = 1.0 : f64} : tensor<?x6xf32> -> tensor<f32>
  %4 = moe.loss z %l : tensor<?x6xf32> -> tensor<f32>
  %5 = moe.loss gshard %l ids(%ids : tensor<?x2xi32>) scope block {length = 4 : i64} : tensor<?x6xf32> -> tensor<f32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<6xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<6xi32>) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<6xi32>, index
  %rows = moe.dispatch %l, %slots, %sizes, %bound : tensor<?x6xf32>, tensor<?x2xi32>, tensor<6xi32> -> tensor<?x6xf32>
  %o = moe.expert rows(%rows : tensor<?x6xf32>) groups(%sizes : tensor<6xi32>) per_expert(%we : tensor<6x4x6xf32>) -> tensor<?x4xf32> {
  ^bb0(%r: tensor<?x6xf32>, %e: tensor<4x6xf32>):
    %i0 = arith.constant 0 : index
    %z = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x6xf32>
    %em = tensor.empty(%n) : tensor<?x4xf32>
    %f = linalg.fill ins(%z : f32) outs(%em : tensor<?x4xf32>) -> tensor<?x4xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %e : tensor<?x6xf32>, tensor<4x6xf32>) outs(%f : tensor<?x4xf32>) -> tensor<?x4xf32>
    moe.yield %m : tensor<?x4xf32>
  }
  %y = moe.combine %o, %slots weights(%w : tensor<?x2xf32>) : tensor<?x4xf32>, tensor<?x2xi32> -> tensor<?x4xf32>
  return %y, %0, %1, %2, %3, %4, %5 : tensor<?x4xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}
