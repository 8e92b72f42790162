// Every fusion, on and off. What is off by itself leaves the others on.
//
// RUN: split-file %s %t
// RUN: moira-opt %t/gather.mlir --moe-form-kernels | FileCheck %s --check-prefix=GATHER
// RUN: moira-opt %t/gather.mlir --moe-form-kernels=disable-fusion=gather | FileCheck %s --check-prefix=NO-GATHER
// RUN: moira-opt %t/gate-up.mlir --moe-form-kernels | FileCheck %s --check-prefix=GATE-UP
// RUN: moira-opt %t/gate-up.mlir --moe-form-kernels=disable-fusion=gate-up | FileCheck %s --check-prefix=NO-GATE-UP
// RUN: moira-opt %t/activation.mlir --moe-form-kernels | FileCheck %s --check-prefix=ACTIVATION
// RUN: moira-opt %t/activation.mlir --moe-form-kernels=disable-fusion=activation | FileCheck %s --check-prefix=NO-ACTIVATION
// RUN: moira-opt %t/bias.mlir --moe-form-kernels | FileCheck %s --check-prefix=BIAS
// RUN: moira-opt %t/bias.mlir --moe-form-kernels=disable-fusion=bias --remarks-filter-missed=moe-form-kernels \
// RUN:   --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=NO-BIAS
// RUN: moira-opt %t/pair-weights.mlir --moe-form-kernels | FileCheck %s --check-prefix=PAIR
// RUN: moira-opt %t/pair-weights.mlir --moe-form-kernels=disable-fusion=pair-weights | FileCheck %s --check-prefix=NO-PAIR
// RUN: not moira-opt %t/gather.mlir --moe-form-kernels=disable-fusion=gather,none 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not moira-opt %t/gather.mlir --moe-to-kernels=disable-fusion=none 2>&1 | FileCheck %s --check-prefix=ERROR
// ERROR: error: disable-fusion: expected one of gather, gate-up, activation, bias, pair-weights, got 'none'

// The pipelines hand the option on.
// RUN: moira-opt %t/gather.mlir --moe-to-kernels='disable-fusion=gather,bias entry=shared' | FileCheck %s --check-prefix=PIPELINE
// PIPELINE: moe.dispatch
// PIPELINE-NOT: gather(

//--- gather.mlir
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Two kernels read one dispatch: they share the map, and the dispatch goes.
// GATHER-LABEL: func @shared(
// GATHER-SAME: %[[X:.*]]: tensor<?x8xf32>, %[[SLOTS:.*]]: tensor<?x2xi32>, %[[SIZES:.*]]: tensor<4xi32>, %[[BOUND:.*]]: index
// GATHER-NOT: moe.dispatch
// GATHER: %[[TOKENS:.*]] = moe.sources %[[SLOTS]], %[[BOUND]] : tensor<?x2xi32> -> tensor<?xi32>
// GATHER: moe.grouped_matmul rows(%[[X]] : tensor<?x8xf32>) groups(%[[SIZES]] : tensor<4xi32>) {{.*}} gather(%[[TOKENS]] : tensor<?xi32>) -> tensor<?x6xf32>
// GATHER: moe.grouped_matmul rows(%[[X]] : tensor<?x8xf32>) groups(%[[SIZES]] : tensor<4xi32>) {{.*}} gather(%[[TOKENS]] : tensor<?xi32>) -> tensor<?x5xf32>
// GATHER: tensor.dim %[[TOKENS]]
// NO-GATHER-LABEL: func @shared(
// NO-GATHER-NOT: moe.sources
// NO-GATHER: %[[ROWS:.*]] = moe.dispatch
// NO-GATHER: moe.grouped_matmul rows(%[[ROWS]] : tensor<?x8xf32>)
// NO-GATHER-NOT: gather(
// NO-GATHER: moe.grouped_matmul rows(%[[ROWS]] : tensor<?x8xf32>)
// NO-GATHER-NOT: gather(
func.func @shared(%x: tensor<?x8xf32>, %slots: tensor<?x2xi32>, %sizes: tensor<4xi32>, %bound: index,
    %a: tensor<4x6x8xf32>, %b: tensor<4x5x8xf32>) -> (tensor<?x6xf32>, tensor<?x5xf32>, index) {
  %rows = moe.dispatch %x, %slots, %sizes, %bound : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %y:2 = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%a, %b : tensor<4x6x8xf32>, tensor<4x5x8xf32>) -> tensor<?x6xf32>, tensor<?x5xf32> {
  ^bb0(%r: tensor<?x8xf32>, %wa: tensor<6x8xf32>, %wb: tensor<5x8xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %ea = tensor.empty(%n) : tensor<?x6xf32>
    %za = linalg.fill ins(%zero : f32) outs(%ea : tensor<?x6xf32>) -> tensor<?x6xf32>
    %eb = tensor.empty(%n) : tensor<?x5xf32>
    %zb = linalg.fill ins(%zero : f32) outs(%eb : tensor<?x5xf32>) -> tensor<?x5xf32>
    %p = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%r, %wa : tensor<?x8xf32>, tensor<6x8xf32>) outs(%za : tensor<?x6xf32>) -> tensor<?x6xf32>
    %q = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%r, %wb : tensor<?x8xf32>, tensor<5x8xf32>) outs(%zb : tensor<?x5xf32>) -> tensor<?x5xf32>
    moe.yield %p, %q : tensor<?x6xf32>, tensor<?x5xf32>
  }
  %c0 = arith.constant 0 : index
  %dim = tensor.dim %rows, %c0 : tensor<?x8xf32>
  return %y#0, %y#1, %dim : tensor<?x6xf32>, tensor<?x5xf32>, index
}

// A static number of rows is that of the map.
// GATHER-LABEL: func @static(
// GATHER: moe.sources {{.*}} : tensor<3x2xi32> -> tensor<6xi32>
// GATHER: moe.grouped_matmul rows(%{{.*}} : tensor<3x8xf32>) {{.*}} gather(%{{.*}} : tensor<6xi32>) -> tensor<6x5xf32>
func.func @static(%x: tensor<3x8xf32>, %slots: tensor<3x2xi32>, %sizes: tensor<4xi32>, %w: tensor<4x5x8xf32>) -> tensor<6x5xf32> {
  %bound = arith.constant 6 : index
  %rows = moe.dispatch %x, %slots, %sizes, %bound : tensor<3x8xf32>, tensor<3x2xi32>, tensor<4xi32> -> tensor<6x8xf32>
  %y = moe.grouped_matmul rows(%rows : tensor<6x8xf32>) groups(%sizes : tensor<4xi32>) weights(%w : tensor<4x5x8xf32>) nk -> tensor<6x5xf32> {
  ^bb0(%acc: f32):
    moe.yield %acc : f32
  }
  return %y : tensor<6x5xf32>
}

// Rows that are read otherwise, too, or times weights, or padded are copied.
// GATHER-LABEL: func @kept(
// GATHER-NOT: moe.sources
// GATHER-COUNT-4: moe.dispatch
// GATHER-NOT: gather(
// GATHER: return
func.func @kept(%x: tensor<?x8xf32>, %slots: tensor<?x2xi32>, %sizes: tensor<4xi32>, %bound: index, %v: tensor<?x2xf32>,
    %w: tensor<4x8x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<4x?x8xf32>) {
  %a = moe.dispatch %x, %slots, %sizes, %bound : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %0 = moe.grouped_matmul rows(%a : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>) weights(%w : tensor<4x8x8xf32>) nk -> tensor<?x8xf32> {
  ^bb0(%acc: f32):
    moe.yield %acc : f32
  }
  %b = moe.dispatch %x, %slots, %sizes, %bound : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %1 = moe.grouped_matmul rows(%b : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>) weights(%w : tensor<4x8x8xf32>) nk elements(%b : tensor<?x8xf32>) -> tensor<?x8xf32> {
  ^bb0(%acc: f32, %element: f32):
    %sum = arith.addf %acc, %element : f32
    moe.yield %sum : f32
  }
  %c = moe.dispatch %x, %slots, %sizes, %bound weights(%v : tensor<?x2xf32>) : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %2 = moe.grouped_matmul rows(%c : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>) weights(%w : tensor<4x8x8xf32>) nk -> tensor<?x8xf32> {
  ^bb0(%acc: f32):
    moe.yield %acc : f32
  }
  %d = moe.dispatch %x, %slots, %sizes, %bound : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xf32>
  %3 = moe.grouped_matmul rows(%d : tensor<4x?x8xf32>) groups(%sizes : tensor<4xi32>) weights(%w : tensor<4x8x8xf32>) nk -> tensor<4x?x8xf32> {
  ^bb0(%acc: f32):
    moe.yield %acc : f32
  }
  return %a, %0, %1, %2, %3 : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<4x?x8xf32>
}

//--- gate-up.mlir
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// GATE-UP-LABEL: func @two_weights(
// GATE-UP: moe.grouped_matmul {{.*}} weights(%{{.*}}, %{{.*}} : tensor<4x6x8xf32>, tensor<4x6x8xf32>)
// GATE-UP-NOT: moe.grouped_matmul
// NO-GATE-UP-LABEL: func @two_weights(
// NO-GATE-UP-SAME: %[[G:[a-z0-9]*]]: tensor<4x6x8xf32>, %[[U:[a-z0-9]*]]: tensor<4x6x8xf32>)
// NO-GATE-UP: %[[UP:.*]] = moe.grouped_matmul {{.*}} weights(%[[U]] : tensor<4x6x8xf32>) nk -> tensor<?x6xf32>
// NO-GATE-UP: moe.grouped_matmul {{.*}} weights(%[[G]] : tensor<4x6x8xf32>) nk elements(%[[UP]] : tensor<?x6xf32>) -> tensor<?x6xf32>
// NO-GATE-UP: math.tanh
// NO-GATE-UP-NOT: scf.for
func.func @two_weights(%x: tensor<?x8xf32>, %sizes: tensor<4xi32>, %g: tensor<4x6x8xf32>, %u: tensor<4x6x8xf32>) -> tensor<?x6xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%g, %u : tensor<4x6x8xf32>, tensor<4x6x8xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %wg: tensor<6x8xf32>, %wu: tensor<6x8xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x6xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x6xf32>) -> tensor<?x6xf32>
    %p = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%r, %wg : tensor<?x8xf32>, tensor<6x8xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    %q = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%r, %wu : tensor<?x8xf32>, tensor<6x8xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    %t = math.tanh %p : tensor<?x6xf32>
    %m = arith.mulf %t, %q : tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  return %y : tensor<?x6xf32>
}

// Both in turns in one weight.
// GATE-UP-LABEL: func @interleaved(
// GATE-UP: moe.grouped_matmul {{.*}} weights(%{{.*}}, %{{.*}} : tensor<4x6x8xf32>, tensor<4x6x8xf32>)
// GATE-UP-NOT: moe.grouped_matmul
// NO-GATE-UP-LABEL: func @interleaved(
// NO-GATE-UP: %[[ODD:.*]] = tensor.extract_slice %{{.*}}[0, 1, 0] [4, 6, 8] [1, 2, 1]
// NO-GATE-UP: %[[UP:.*]] = moe.grouped_matmul {{.*}} weights(%[[ODD]] : tensor<4x6x8xf32>) nk -> tensor<?x6xf32>
// NO-GATE-UP: %[[EVEN:.*]] = tensor.extract_slice %{{.*}}[0, 0, 0] [4, 6, 8] [1, 2, 1]
// NO-GATE-UP: moe.grouped_matmul {{.*}} weights(%[[EVEN]] : tensor<4x6x8xf32>) nk elements(%[[UP]] : tensor<?x6xf32>) -> tensor<?x6xf32>
func.func @interleaved(%x: tensor<?x8xf32>, %sizes: tensor<4xi32>, %w: tensor<4x12x8xf32>) -> tensor<?x6xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x12x8xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<12x8xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x12xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x12xf32>) -> tensor<?x12xf32>
    %p = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%r, %we : tensor<?x8xf32>, tensor<12x8xf32>) outs(%z : tensor<?x12xf32>) -> tensor<?x12xf32>
    %g = tensor.extract_slice %p[0, 0] [%n, 6] [1, 2] : tensor<?x12xf32> to tensor<?x6xf32>
    %u = tensor.extract_slice %p[0, 1] [%n, 6] [1, 2] : tensor<?x12xf32> to tensor<?x6xf32>
    %m = arith.mulf %g, %u : tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  return %y : tensor<?x6xf32>
}

// Outside experts.
// GATE-UP-LABEL: func @dense(
// GATE-UP: moe.grouped_matmul {{.*}} weights(%{{.*}}, %{{.*}} :
// NO-GATE-UP-LABEL: func @dense(
// NO-GATE-UP: moe.grouped_matmul {{.*}} weights(%{{[a-z0-9_]*}} : tensor<1x4x8xf32>)
// NO-GATE-UP: moe.grouped_matmul {{.*}} weights(%{{[a-z0-9_]*}} : tensor<1x4x8xf32>) nk elements(
// NO-GATE-UP: arith.mulf
func.func @dense(%x: tensor<6x8xf32>, %g: tensor<4x8xf32>, %u: tensor<4x8xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<6x4xf32>) -> tensor<6x4xf32>
  %a = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %g : tensor<6x8xf32>, tensor<4x8xf32>) outs(%z : tensor<6x4xf32>) -> tensor<6x4xf32>
  %b = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %u : tensor<6x8xf32>, tensor<4x8xf32>) outs(%z : tensor<6x4xf32>) -> tensor<6x4xf32>
  %h = arith.mulf %a, %b : tensor<6x4xf32>
  return %h : tensor<6x4xf32>
}

//--- activation.mlir
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// A clamp, a vector per expert, a rounding, and a product of the rounded rows.
// ACTIVATION-LABEL: func @clamp(
// ACTIVATION: moe.grouped_matmul {{.*}} vectors(%{{.*}} : tensor<4x6xf32>) -> tensor<?x6xbf16>
// ACTIVATION: arith.addf
// ACTIVATION: arith.minimumf
// ACTIVATION: arith.maximumf
// ACTIVATION: arith.truncf
// ACTIVATION: moe.grouped_matmul {{.*}} -> tensor<?x8xbf16>
// ACTIVATION-NOT: scf.for
// NO-ACTIVATION-LABEL: func @clamp(
// NO-ACTIVATION-SAME: %[[V:[a-z0-9]*]]: tensor<4x6xf32>
// NO-ACTIVATION: %[[SUMS:.*]] = moe.grouped_matmul {{.*}} nk -> tensor<?x6xf32> attributes {layer = 0 : i64} {
// NO-ACTIVATION-NEXT: ^bb0(%[[ACC:.*]]: f32):
// NO-ACTIVATION-NEXT: moe.yield %[[ACC]]
// NO-ACTIVATION: %[[H:.*]]:2 = scf.for
// NO-ACTIVATION-DAG: tensor.extract_slice %[[SUMS]]
// NO-ACTIVATION-DAG: tensor.extract_slice %[[V]]
// NO-ACTIVATION: arith.minimumf
// NO-ACTIVATION: tensor.insert_slice {{.*}} tensor<?x6xbf16> into tensor<?x6xbf16>
// NO-ACTIVATION: %[[O:.*]] = moe.grouped_matmul rows(%[[H]]#0 : tensor<?x6xbf16>) {{.*}} -> tensor<?x8xf32>
// NO-ACTIVATION: scf.for
// NO-ACTIVATION: arith.truncf
func.func @clamp(%x: tensor<?x8xbf16>, %sizes: tensor<4xi32>, %w: tensor<4x6x8xbf16>, %v: tensor<4x6xf32>, %d: tensor<4x8x6xbf16>) -> tensor<?x8xbf16> {
  %y = moe.expert rows(%x : tensor<?x8xbf16>) groups(%sizes : tensor<4xi32>)
      per_expert(%w, %v, %d : tensor<4x6x8xbf16>, tensor<4x6xf32>, tensor<4x8x6xbf16>) -> tensor<?x8xbf16> attributes {layer = 0 : i64} {
  ^bb0(%r: tensor<?x8xbf16>, %we: tensor<6x8xbf16>, %ve: tensor<6xf32>, %de: tensor<8x6xbf16>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %high = arith.constant dense<7.0> : tensor<6xf32>
    %n = tensor.dim %r, %c0 : tensor<?x8xbf16>
    %e = tensor.empty(%n) : tensor<?x6xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x6xf32>) -> tensor<?x6xf32>
    %p = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%r, %we : tensor<?x8xbf16>, tensor<6x8xbf16>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    %eh = tensor.empty(%n) : tensor<?x6xbf16>
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%p, %ve, %high : tensor<?x6xf32>, tensor<6xf32>, tensor<6xf32>) outs(%eh : tensor<?x6xbf16>) {
    ^bb0(%a: f32, %b: f32, %most: f32, %out: bf16):
      %sum = arith.addf %a, %b : f32
      %least = arith.negf %most : f32
      %c = arith.minimumf %sum, %most : f32
      %f = arith.maximumf %c, %least : f32
      %t = arith.truncf %f : f32 to bf16
      linalg.yield %t : bf16
    } -> tensor<?x6xbf16>
    %e2 = tensor.empty(%n) : tensor<?x8xf32>
    %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x8xf32>) -> tensor<?x8xf32>
    %o = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%h, %de : tensor<?x6xbf16>, tensor<8x6xbf16>) outs(%z2 : tensor<?x8xf32>) -> tensor<?x8xf32>
    %t = arith.truncf %o : tensor<?x8xf32> to tensor<?x8xbf16>
    moe.yield %t : tensor<?x8xbf16>
  }
  return %y : tensor<?x8xbf16>
}

//--- bias.mlir
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// The bias begins the chain, so that it cannot be added later instead.
// NO-BIAS-COUNT-2: remark: {{.*}}'linalg.matmul' stays: a product that starts from a bias, whose fusion is disabled
// BIAS-LABEL: func @expert(
// BIAS: moe.grouped_matmul {{.*}} bias(%{{.*}} : tensor<4x6xf32>) -> tensor<?x6xf32>
// NO-BIAS-LABEL: func @expert(
// NO-BIAS-NOT: moe.grouped_matmul
// NO-BIAS: scf.for
// NO-BIAS: math.fma
func.func @expert(%x: tensor<?x8xf32>, %sizes: tensor<4xi32>, %w: tensor<4x6x8xf32>, %b: tensor<4x6xf32>) -> tensor<?x6xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w, %b : tensor<4x6x8xf32>, tensor<4x6xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<6x8xf32>, %be: tensor<6xf32>):
    %c0 = arith.constant 0 : index
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x6xf32>
    %z = linalg.broadcast ins(%be : tensor<6xf32>) outs(%e : tensor<?x6xf32>) dimensions = [0]
    %p = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%r, %we : tensor<?x8xf32>, tensor<6x8xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %p : tensor<?x6xf32>
  }
  return %y : tensor<?x6xf32>
}

// BIAS-LABEL: func @dense(
// BIAS: moe.grouped_matmul {{.*}} bias(
// NO-BIAS-LABEL: func @dense(
// NO-BIAS-NOT: moe.grouped_matmul
// NO-BIAS: math.fma
func.func @dense(%x: tensor<6x8xf32>, %w: tensor<4x8xf32>, %b: tensor<4xf32>) -> tensor<6x4xf32> {
  %e = tensor.empty() : tensor<6x4xf32>
  %z = linalg.broadcast ins(%b : tensor<4xf32>) outs(%e : tensor<6x4xf32>) dimensions = [0]
  %a = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %w : tensor<6x8xf32>, tensor<4x8xf32>) outs(%z : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %a : tensor<6x4xf32>
}

//--- pair-weights.mlir
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m, 0)>

// What does not read the weight stays in the kernel.
// PAIR-LABEL: func @expert(
// PAIR: moe.grouped_matmul {{.*}} scalars(%{{.*}} : tensor<?xf32>) -> tensor<?x6xbf16>
// PAIR: math.tanh
// PAIR: arith.mulf
// PAIR: arith.truncf
// PAIR-NOT: scf.for
// NO-PAIR-LABEL: func @expert(
// NO-PAIR: %[[ROWS:.*]] = moe.grouped_matmul {{.*}} -> tensor<?x6xf32> {
// NO-PAIR: math.tanh
// NO-PAIR-NEXT: moe.yield
// NO-PAIR: scf.for
// NO-PAIR: tensor.extract_slice %[[ROWS]]
// NO-PAIR: arith.mulf
// NO-PAIR: arith.truncf
func.func @expert(%x: tensor<?x8xf32>, %pair: tensor<?x1xf32>, %sizes: tensor<4xi32>, %w: tensor<4x6x8xf32>) -> tensor<?x6xbf16> {
  %y = moe.expert rows(%x, %pair : tensor<?x8xf32>, tensor<?x1xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x6x8xf32>) -> tensor<?x6xbf16> {
  ^bb0(%r: tensor<?x8xf32>, %s: tensor<?x1xf32>, %we: tensor<6x8xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x6xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x6xf32>) -> tensor<?x6xf32>
    %p = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%r, %we : tensor<?x8xf32>, tensor<6x8xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    %t = math.tanh %p : tensor<?x6xf32>
    %m = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%t, %s : tensor<?x6xf32>, tensor<?x1xf32>) outs(%e : tensor<?x6xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %0 = arith.mulf %a, %b : f32
      linalg.yield %0 : f32
    } -> tensor<?x6xf32>
    %q = arith.truncf %m : tensor<?x6xf32> to tensor<?x6xbf16>
    moe.yield %q : tensor<?x6xbf16>
  }
  return %y : tensor<?x6xbf16>
}

// PAIR-LABEL: func @dense(
// PAIR: moe.grouped_matmul {{.*}} scalars(
// NO-PAIR-LABEL: func @dense(
// NO-PAIR: %[[ROWS:.*]] = moe.grouped_matmul
// NO-PAIR: math.tanh
// NO-PAIR: linalg.generic {{.*}} ins(%[[ROWS]],
func.func @dense(%x: tensor<6x8xf32>, %w: tensor<4x8xf32>, %s: tensor<6x1xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<6x4xf32>) -> tensor<6x4xf32>
  %a = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %w : tensor<6x8xf32>, tensor<4x8xf32>) outs(%z : tensor<6x4xf32>) -> tensor<6x4xf32>
  %t = math.tanh %a : tensor<6x4xf32>
  %m = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t, %s : tensor<6x4xf32>, tensor<6x1xf32>) outs(%e : tensor<6x4xf32>) {
  ^bb0(%b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %b, %c : f32
    linalg.yield %0 : f32
  } -> tensor<6x4xf32>
  return %m : tensor<6x4xf32>
}
