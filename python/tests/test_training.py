# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forward, backward, residuals, kept gradients, updates; without numpy."""

import math
import unittest

import moira
from moira import MoiraError, Status
from support import buffer, resident

# y = x * transposed(w), and how many rows there were.
LINEAR = """
#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
func.func @main(%x: tensor<?x2xf32>, %scale: tensor<i32>,
                %w: tensor<3x2xf32> {moe.param = #moe.param<"w">})
    -> (tensor<?x3xf32>, tensor<i32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x2xf32>
  %empty = tensor.empty(%n) : tensor<?x3xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x3xf32>)
      -> tensor<?x3xf32>
  %y = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %w : tensor<?x2xf32>, tensor<3x2xf32>)
      outs(%start : tensor<?x3xf32>) -> tensor<?x3xf32>
  return %y, %scale : tensor<?x3xf32>, tensor<i32>
}
"""
W = [[1, 2], [3, 4], [5, 6]]
X = [[1, -1], [2, 0], [0, 3], [4, 4]]
DY = [[1, 0, 2], [0, 1, 0], [3, 0, 0], [0, 0, 1]]


def matrix(rows):
    return buffer([v for row in rows for v in row], (len(rows), len(rows[0])))


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)]
            for row in a]


def transposed(a):
    return [list(row) for row in zip(*a)]


SCALE = buffer([7], (1,), "i32").cast("B").cast("i", ())


class Case(unittest.TestCase):
    bundle = None

    def setUp(self):
        if Case.bundle is None:
            Case.bundle = moira.compile(LINEAR, gradients=True,
                                        optimizers=["sgd", "adamw"])
        self.session = self.bundle.session()
        self.session.bind("w", matrix(W))

    def forward(self, x=X):
        return self.session.forward(matrix(x), SCALE, returns="moira")

    def refuse(self, call, text, code=Status.INVALID_ARGUMENT):
        with self.assertRaises(MoiraError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIn(text, caught.exception.message)


class Steps(Case):
    def test_signature(self):
        entry = self.bundle.entry
        self.assertEqual(entry.name, "main")
        self.assertEqual(entry.backward, "main_backward")
        # Without what is kept for the way back.
        self.assertEqual([str(r) for r in entry.results],
                         ["f32[?, 3]", "i32[]"])

    def test_values(self):
        (y, scale), residuals = self.forward()
        self.assertEqual(y.tolist(), product(X, transposed(W)))
        self.assertEqual(scale.tolist(), 7)
        gradients = self.session.backward(residuals, matrix(DY))
        dx, none = gradients.inputs
        self.assertIsNone(none)
        self.assertEqual(dx.tolist(), product(DY, W))
        self.assertEqual(gradients.parameters["w"].tolist(),
                         product(transposed(DY), X))

    def test_invoke(self):
        y, _ = self.session(matrix(X), SCALE, returns="moira")
        self.assertEqual(y.tolist(), product(X, transposed(W)))
        out = buffer([0] * 12, (4, 3))
        y, _ = self.session(matrix(X), SCALE, out=[out, None])
        self.assertIs(y, out)
        self.assertEqual(out.tolist(), product(X, transposed(W)))

    def test_none_is_zero(self):
        _, residuals = self.forward()
        gradients = self.session.backward(residuals, None)
        self.assertEqual(gradients.inputs[0].tolist(), [[0, 0]] * 4)
        self.assertEqual(gradients.parameters["w"].tolist(), [[0, 0]] * 3)

    def test_handles(self):
        first = self.forward()[1]
        second = self.forward(X[:2])[1]
        third = self.forward(X[:1])[1]
        third.close()
        # In any order, several times.
        for residuals, n in ((second, 2), (first, 4), (second, 2)):
            gradients = self.session.backward(residuals, matrix(DY[:n]))
            self.assertEqual(gradients.parameters["w"].tolist(),
                             product(transposed(DY[:n]), X[:n]))
        self.refuse(lambda: self.session.backward(third, matrix(DY[:1])),
                    "expected open residuals, got closed ones")

    def test_plans(self):
        residuals = self.forward()[1]
        self.session.set_plan(degree=2)
        self.session.set_variant(self.bundle.entry.variants[-1])
        gradients = self.session.backward(residuals, matrix(DY))
        self.assertEqual(gradients.inputs[0].tolist(), product(DY, W))

    def test_outlives(self):
        (y, _), residuals = self.forward()
        self.session.close()
        self.assertEqual(y.tolist(), product(X, transposed(W)))
        self.refuse(lambda: self.session.backward(residuals, matrix(DY)),
                    "expected an open session")
        residuals.close()

    def test_refused(self):
        _, residuals = self.forward()
        other = self.bundle.session()
        other.bind_random()
        self.refuse(lambda: other.backward(residuals, matrix(DY)),
                    "expected residuals of this session, got another's")
        self.refuse(lambda: self.session.backward(residuals),
                    "expected 1 gradients of results, got 0")
        self.refuse(lambda: self.session.backward(residuals, matrix(DY[:2])),
                    "expected f32[4, 3], got f32[2, 3]")
        self.refuse(lambda: self.session.backward(residuals, "text"),
                    "gradient of result 0: expected an array")
        self.session.bind("w", matrix(W))
        self.refuse(lambda: self.session.backward(residuals, matrix(DY)),
                    "expected the parameters that the forward step")


class Kept(Case):
    def test_accumulate(self):
        session = self.session
        once = product(transposed(DY), X)
        norm = math.sqrt(sum(v * v for row in once for v in row))
        dx, none = session.accumulate(self.forward()[1], matrix(DY))
        self.assertEqual((dx.tolist(), none), (product(DY, W), None))
        self.assertAlmostEqual(session.gradient_norm, norm, places=9)
        session.accumulate(self.forward()[1], matrix(DY))
        self.assertAlmostEqual(session.gradient_norm, 2 * norm, places=9)
        session.zero_gradients()
        self.assertEqual(session.gradient_norm, 0)

    def test_update(self):
        session = self.session
        session.accumulate(self.forward()[1], matrix(DY))
        session.update("sgd", learning_rate=0.5)
        moved = [[w - g / 2 for w, g in zip(*rows)]
                 for rows in zip(W, product(transposed(DY), X))]
        y = self.forward()[0][0]
        self.assertEqual(y.tolist(), product(X, transposed(moved)))
        self.refuse(lambda: session.update("rmsprop"), "got 'rmsprop'")
        self.refuse(lambda: session.update("sgd", speed=1), "got 'speed'")
        self.refuse(lambda: session.update("sgd", learning_rate=-1), "-1")

    def test_flat(self):
        # A whole training: memory, and the loss goes down.
        session, x = self.bundle.session(threads=1), matrix(X)
        session.bind("w", matrix(W))
        target, losses = product(X, transposed([[1, 1]] * 3)), []
        for i in range(1200):
            if i == 200:
                before, peak = resident(), session.memory.peak
            (y, _), residuals = session.forward(x, SCALE, returns="moira")
            d = [[(a - b) for a, b in zip(*rows)]
                 for rows in zip(y.tolist(), target)]
            losses.append(sum(v * v for row in d for v in row))
            session.zero_gradients()
            session.accumulate(residuals, matrix(d))
            session.update("adamw", learning_rate=0.05, weight_decay=0)
        self.assertEqual(session.memory.peak, peak)
        self.assertLess(resident() - before, 1 << 20)
        self.assertGreater(session.memory.training, 0)
        self.assertGreater(losses[0], 100)
        self.assertLess(losses[-1], 0.01)
