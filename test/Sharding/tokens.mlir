// RUN: moira-opt %s > %t.whole
// RUN: moira-opt %s --moe-shard=ranks=2 --moe-fold-replicates | diff %t.whole -

// Dense parts of a program treat tokens one by one: every rank runs them as they
// are, on its own tokens.

func.func @main(%x: tensor<?x8xf32>, %ids: tensor<?xi32>, %table: tensor<16x8xf32>,
    %w: tensor<8x8xf32> {moe.param = #moe.param<"w">}, %steps: index)
    -> (tensor<?x8xf32>, tensor<?x16xf32>, tensor<8xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%t) : tensor<?x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>

  // A residual block, transposed and back.
  %p = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x8xf32>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = arith.addf %x, %p : tensor<?x8xf32>
  %te = tensor.empty(%t) : tensor<8x?xf32>
  %rt = linalg.transpose ins(%r : tensor<?x8xf32>) outs(%te : tensor<8x?xf32>) permutation = [1, 0]
  %rtt = linalg.transpose ins(%rt : tensor<8x?xf32>) outs(%e : tensor<?x8xf32>) permutation = [1, 0]

  // Sums and a softmax over features, slices of features.
  %e1 = tensor.empty(%t) : tensor<?xf32>
  %z1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.reduce { arith.addf } ins(%rtt : tensor<?x8xf32>) outs(%z1 : tensor<?xf32>) dimensions = [1]
  %b = linalg.broadcast ins(%sum : tensor<?xf32>) outs(%e : tensor<?x8xf32>) dimensions = [1]
  %n = arith.divf %rtt, %b : tensor<?x8xf32>
  %soft = linalg.softmax dimension(1) ins(%n : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %half = tensor.extract_slice %soft[0, 4] [%t, 4] [1, 1] : tensor<?x8xf32> to tensor<?x4xf32>
  %put = tensor.insert_slice %half into %n[0, 0] [%t, 4] [1, 1] : tensor<?x4xf32> into tensor<?x8xf32>
  %heads = tensor.expand_shape %put [[0], [1, 2]] output_shape [%t, 2, 4] : tensor<?x8xf32> into tensor<?x2x4xf32>
  %flat = tensor.collapse_shape %heads [[0], [1, 2]] : tensor<?x2x4xf32> into tensor<?x8xf32>

  // A number per token is a column, and the other way round.
  %column = tensor.expand_shape %sum [[0, 1]] output_shape [%t, 1] : tensor<?xf32> into tensor<?x1xf32>
  %exp = math.exp %column : tensor<?x1xf32>
  %number = tensor.collapse_shape %exp [[0, 1]] : tensor<?x1xf32> into tensor<?xf32>

  // As many layers as the program is asked for.
  %y = scf.for %i = %c0 to %steps step %c1 iter_args(%a = %flat) -> tensor<?x8xf32> {
    %m = linalg.matmul ins(%a, %w : tensor<?x8xf32>, tensor<8x8xf32>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
    scf.yield %m : tensor<?x8xf32>
  }
  %few = arith.cmpi ult, %steps, %c4 : index
  %v = scf.if %few -> tensor<?x8xf32> {
    scf.yield %y : tensor<?x8xf32>
  } else {
    %m = math.tanh %y : tensor<?x8xf32>
    scf.yield %m : tensor<?x8xf32>
  }
  %both = tensor.concat dim(1) %v, %x : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x16xf32>

  // What all ranks have alike may be reduced.
  %ez = arith.constant dense<0.0> : tensor<8xf32>
  %all = linalg.reduce { arith.addf } ins(%table : tensor<16x8xf32>) outs(%ez : tensor<8xf32>) dimensions = [0]
  return %v, %both, %all, %number : tensor<?x8xf32>, tensor<?x16xf32>, tensor<8xf32>, tensor<?xf32>
}
