// The kernels and the decomposed program agree in every bit: gate and up in
// turns in one bf16 parameter, biases, a second rows operand, one value per row,
// a shared weight, a third weight, and a body that stays a loop.

// RUN: split-file %s %t
// RUN: moira-run %t/gpt-oss.mlir --no-cache --tokens=37 --verify | FileCheck %s
// RUN: moira-run %t/gpt-oss.mlir --no-cache --tokens=3 --variant=decode --verify | FileCheck %s
// RUN: moira-run %t/operands.mlir --no-cache --tokens=37 --verify | FileCheck %s
// RUN: moira-run %t/loops.mlir --no-cache --tokens=37 --verify | FileCheck %s
// RUN: moira-run %t/dense.mlir --no-cache --tokens=37 --verify | FileCheck %s
// CHECK: verify passed: {{37 of 37|3 of 3}} rows
// CHECK: values 100.00 % bit-identical

//--- gpt-oss.mlir
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
func.func @main(%x: tensor<?x24xbf16>, %router: tensor<4x24xbf16> {moe.param = #moe.param<"router">},
    %w: tensor<4x40x24xbf16> {moe.param = #moe.param<"gate_up", transpose>},
    %b: tensor<4x40xbf16> {moe.param = #moe.param<"gate_up_bias">},
    %down: tensor<4x24x20xbf16> {moe.param = #moe.param<"down.{}">},
    %db: tensor<4x24xbf16> {moe.param = #moe.param<"down_bias">}) -> tensor<?x24xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x24xbf16>
  %le = tensor.empty(%t) : tensor<?x4xf32>
  %lz = linalg.fill ins(%zero : f32) outs(%le : tensor<?x4xf32>) -> tensor<?x4xf32>
  %logits = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %router : tensor<?x24xbf16>, tensor<4x24xbf16>) outs(%lz : tensor<?x4xf32>) -> tensor<?x4xf32>
  %ids, %weights = moe.gate %logits router<after_top_k> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound : tensor<?x24xbf16>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x24xbf16>
  %y = moe.expert rows(%rows : tensor<?x24xbf16>) groups(%sizes : tensor<4xi32>)
      per_expert(%w, %b, %down, %db : tensor<4x40x24xbf16>, tensor<4x40xbf16>, tensor<4x24x20xbf16>, tensor<4x24xbf16>) -> tensor<?x24xbf16> {
  ^bb0(%r: tensor<?x24xbf16>, %we: tensor<40x24xbf16>, %be: tensor<40xbf16>, %d: tensor<24x20xbf16>, %dbe: tensor<24xbf16>):
    %i0 = arith.constant 0 : index
    %n = tensor.dim %r, %i0 : tensor<?x24xbf16>
    %e2 = tensor.empty(%n) : tensor<?x40xf32>
    %wide = arith.extf %be : tensor<40xbf16> to tensor<40xf32>
    %init = linalg.broadcast ins(%wide : tensor<40xf32>) outs(%e2 : tensor<?x40xf32>) dimensions = [0]
    %gu = linalg.contract indexing_maps = [#mk, #nk, #mn] ins(%r, %we : tensor<?x24xbf16>, tensor<40x24xbf16>) outs(%init : tensor<?x40xf32>) -> tensor<?x40xf32>
    %g = tensor.extract_slice %gu[0, 0] [%n, 20] [1, 2] : tensor<?x40xf32> to tensor<?x20xf32>
    %u = tensor.extract_slice %gu[0, 1] [%n, 20] [1, 2] : tensor<?x40xf32> to tensor<?x20xf32>
    %e = tensor.empty(%n) : tensor<?x20xbf16>
    %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%g, %u : tensor<?x20xf32>, tensor<?x20xf32>) outs(%e : tensor<?x20xbf16>) {
    ^bb0(%a: f32, %c: f32, %out: bf16):
      %limit = arith.constant 7.0 : f32
      %low = arith.constant -7.0 : f32
      %one = arith.constant 1.0 : f32
      %alpha = arith.constant 1.702 : f32
      %ga = arith.minimumf %a, %limit : f32
      %ub = arith.minimumf %c, %limit : f32
      %uc = arith.maximumf %ub, %low : f32
      %s = arith.mulf %ga, %alpha : f32
      %neg = arith.negf %s : f32
      %exp = math.exp %neg : f32
      %den = arith.addf %one, %exp : f32
      %glu = arith.divf %ga, %den : f32
      %u1 = arith.addf %uc, %one : f32
      %p = arith.mulf %u1, %glu : f32
      %q = arith.truncf %p : f32 to bf16
      linalg.yield %q : bf16
    } -> tensor<?x20xbf16>
    %e3 = tensor.empty(%n) : tensor<?x24xf32>
    %wide2 = arith.extf %dbe : tensor<24xbf16> to tensor<24xf32>
    %init2 = linalg.broadcast ins(%wide2 : tensor<24xf32>) outs(%e3 : tensor<?x24xf32>) dimensions = [0]
    %o = linalg.contract indexing_maps = [#mk, #nk, #mn] ins(%h, %d : tensor<?x20xbf16>, tensor<24x20xbf16>) outs(%init2 : tensor<?x24xf32>) -> tensor<?x24xf32>
    %q = arith.truncf %o : tensor<?x24xf32> to tensor<?x24xbf16>
    moe.yield %q : tensor<?x24xbf16>
  }
  %z = moe.combine %y, %slots weights(%weights : tensor<?x2xf32>) : tensor<?x24xbf16>, tensor<?x2xi32> -> tensor<?x24xbf16>
  return %z : tensor<?x24xbf16>
}

//--- operands.mlir
func.func @main(%x: tensor<?x8xf32>, %res: tensor<?x6xf32>, %scale: tensor<?x1xf32>, %logits: tensor<?x4xf32>,
    %a: tensor<4x8x6xf32> {moe.param = #moe.param<"a">}, %b: tensor<4x8x6xf32> {moe.param = #moe.param<"b">},
    %c: tensor<4x8x6xf32> {moe.param = #moe.param<"c">}, %v: tensor<4x1x6xf32> {moe.param = #moe.param<"v">},
    %s: tensor<6x5xf32> {moe.param = #moe.param<"s">}, %sv: tensor<5xf32> {moe.param = #moe.param<"sv">}) -> tensor<?x5xf32> {
  %ids, %weights = moe.gate %logits router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids token_major counts(%counts : tensor<4xi32>) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %r0 = moe.dispatch %x, %slots, %sizes, %bound : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %r1 = moe.dispatch %res, %slots, %sizes, %bound : tensor<?x6xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x6xf32>
  %r2 = moe.dispatch %scale, %slots, %sizes, %bound : tensor<?x1xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x1xf32>
  %y = moe.expert rows(%r0, %r1, %r2 : tensor<?x8xf32>, tensor<?x6xf32>, tensor<?x1xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%a, %b, %c, %v : tensor<4x8x6xf32>, tensor<4x8x6xf32>, tensor<4x8x6xf32>, tensor<4x1x6xf32>)
      shared(%s, %sv : tensor<6x5xf32>, tensor<5xf32>) -> tensor<?x5xf32> {
  ^bb0(%r: tensor<?x8xf32>, %rr: tensor<?x6xf32>, %rs: tensor<?x1xf32>, %wa: tensor<8x6xf32>, %wb: tensor<8x6xf32>, %wc: tensor<8x6xf32>, %we: tensor<1x6xf32>, %ws: tensor<6x5xf32>, %vs: tensor<5xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x6xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x6xf32>) -> tensor<?x6xf32>
    %p = linalg.matmul ins(%r, %wa : tensor<?x8xf32>, tensor<8x6xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    %q = linalg.matmul ins(%r, %wb : tensor<?x8xf32>, tensor<8x6xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    %o = linalg.matmul ins(%r, %wc : tensor<?x8xf32>, tensor<8x6xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    %vv = tensor.collapse_shape %we [[0, 1]] : tensor<1x6xf32> into tensor<6xf32>
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, 0)>, affine_map<(m, n) -> (m, n)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%p, %q, %o, %vv, %rr, %rs : tensor<?x6xf32>, tensor<?x6xf32>, tensor<?x6xf32>, tensor<6xf32>, tensor<?x6xf32>, tensor<?x1xf32>) outs(%e : tensor<?x6xf32>) {
    ^bb0(%i0: f32, %i1: f32, %i2: f32, %i3: f32, %i4: f32, %i5: f32, %out: f32):
      %0 = arith.mulf %i0, %i1 : f32
      %1 = math.tanh %i2 : f32
      %2 = arith.addf %0, %1 : f32
      %3 = arith.subf %2, %i3 : f32
      %4 = arith.addf %3, %i4 : f32
      %5 = arith.mulf %4, %i5 : f32
      linalg.yield %5 : f32
    } -> tensor<?x6xf32>
    %e2 = tensor.empty(%n) : tensor<?x5xf32>
    %init = linalg.broadcast ins(%vs : tensor<5xf32>) outs(%e2 : tensor<?x5xf32>) dimensions = [0]
    %y2 = linalg.matmul ins(%h, %ws : tensor<?x6xf32>, tensor<6x5xf32>) outs(%init : tensor<?x5xf32>) -> tensor<?x5xf32>
    moe.yield %y2 : tensor<?x5xf32>
  }
  %z = moe.combine %y, %slots weights(%weights : tensor<?x2xf32>) : tensor<?x5xf32>, tensor<?x2xi32> -> tensor<?x5xf32>
  return %z : tensor<?x5xf32>
}

//--- loops.mlir
func.func @main(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>,
    %w: tensor<4x8x6xf32> {moe.param = #moe.param<"w.{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids token_major counts(%counts : tensor<4xi32>) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %r0 = moe.dispatch %x, %slots, %sizes, %bound : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %y = moe.expert rows(%r0 : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>) per_expert(%w : tensor<4x8x6xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x6xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x6xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x6xf32>) -> tensor<?x6xf32>
    %t = math.tanh %r : tensor<?x8xf32>
    %p = linalg.matmul ins(%t, %we : tensor<?x8xf32>, tensor<8x6xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %p : tensor<?x6xf32>
  }
  %z = moe.combine %y, %slots weights(%weights : tensor<?x2xf32>) : tensor<?x6xf32>, tensor<?x2xi32> -> tensor<?x6xf32>
  return %z : tensor<?x6xf32>
}

//--- dense.mlir
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
func.func @main(%x: tensor<?x8xf32>, %s: tensor<?xf32>, %g: tensor<8x4xf32> {moe.param = #moe.param<"g", transpose>},
    %u: tensor<8x4xf32> {moe.param = #moe.param<"u">}, %d: tensor<4x8xf32> {moe.param = #moe.param<"d", transpose, part = 1 of 3, interleaved>}) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %a = linalg.matmul ins(%x, %g : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
  %t = math.tanh %a : tensor<?x4xf32>
  %b = linalg.matmul ins(%x, %u : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
  %h = arith.mulf %t, %b : tensor<?x4xf32>
  %e2 = tensor.empty(%n) : tensor<?x8xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.matmul ins(%h, %d : tensor<?x4xf32>, tensor<4x8xf32>) outs(%z2 : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%o, %s, %x : tensor<?x8xf32>, tensor<?xf32>, tensor<?x8xf32>) outs(%e2 : tensor<?x8xf32>) {
  ^bb0(%v: f32, %w: f32, %res: f32, %out: f32):
    %m = arith.mulf %v, %w : f32
    %q = arith.addf %m, %res : f32
    linalg.yield %q : f32
  } -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}
