# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""numpy in and out, without copies."""

import gc
import importlib.util
import unittest
import warnings

import moira
import numpy as np
from moira import MoiraError
from support import BUNDLE, EXPECTED, TOP, python, resident, weights
from test_compile import program
from test_training import DY, LINEAR, W, X


class Case(unittest.TestCase):
    def setUp(self):
        self.bundle = moira.Bundle(BUNDLE)
        self.session = self.bundle.session()
        self.session.bind({name: np.asarray(view)
                           for name, view in weights().items()})
        self.x = np.array([[1, 0, 0, 0], [0, 0, 0, 1]], np.float32)


class Arrays(Case):
    def test_values(self):
        y = self.session(self.x)
        self.assertIsInstance(y, np.ndarray)
        self.assertEqual((y.dtype, y.shape), (np.float32, (2, 4)))
        np.testing.assert_array_equal(y, EXPECTED)
        self.assertTrue(y.flags.c_contiguous and y.flags.writeable)
        y += 1  # its own memory

    def test_no_rows(self):
        y = self.session(np.zeros((0, 4), np.float32))
        self.assertEqual((y.shape, y.dtype), ((0, 4), np.float32))

    def test_types(self):
        for dtype, name in (("f32", "float32"), ("f64", "float64"),
                            ("f16", "float16"), ("i8", "int8"),
                            ("i32", "int32"), ("i64", "int64")):
            with self.subTest(dtype):
                session = moira.compile(program(dtype), opt_level=0).session()
                x = np.array([1, -3, 5], name)
                y = session(x)
                self.assertEqual(y.dtype, x.dtype)
                np.testing.assert_array_equal(y, x + x)
                self.assertEqual(session(x, returns="moira").tolist(),
                                 (x + x).tolist())
        session = moira.compile(program("i1"), opt_level=0).session()
        x = np.array([True, False])
        y = session(x)
        self.assertEqual(y.dtype, np.bool_)
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(session(x.view(np.uint8)), x)

    def test_bfloat16(self):
        session = moira.compile(program("bf16"), opt_level=0).session()
        from support import Empty
        empty = session(Empty((0,), "bf16"), returns="moira")
        if importlib.util.find_spec("ml_dtypes") is None:
            with self.assertRaisesRegex(MoiraError, "expected the package "
                                        "ml_dtypes for an array of bf16"):
                empty.numpy()
            self.skipTest("ml_dtypes is not installed")
        import ml_dtypes
        x = np.array([1.5, -2], ml_dtypes.bfloat16)
        y = session(x)
        self.assertEqual(y.dtype, x.dtype)
        np.testing.assert_array_equal(y, x + x)

    def test_scalars(self):
        session = moira.compile(LINEAR, opt_level=0).session()
        session.bind("w", np.array(W, np.float32))
        x = np.array(X, np.float32)
        for scale in (np.int32(-5), np.array(-5, np.int32)):
            y, back = session(x, scale)
            np.testing.assert_array_equal(y, x @ np.transpose(W))
            self.assertEqual((back.shape, int(back)), ((), -5))

    def test_gradients(self):
        session = moira.compile(LINEAR, gradients=True).session()
        session.bind("w", np.array(W, np.float32))
        x, dy = np.array(X, np.float32), np.array(DY, np.float32)
        (y, _), residuals = session.forward(x, np.int32(1))
        gradients = session.backward(residuals, dy)
        self.assertIsInstance(gradients.inputs[0], np.ndarray)
        np.testing.assert_array_equal(gradients.inputs[0], dy @ W)
        np.testing.assert_array_equal(gradients.parameters["w"], dy.T @ x)

    def test_other_types_are_refused(self):
        for array, text in (
                (self.x.astype(np.complex64), "got complex64"),
                (np.array([["a"] * 4]), "got str"),
                (self.x.astype(np.float64), "expected f32[?, 4], got f64"),
                (np.zeros((2, 4), np.uint16), "got uint16")):
            with self.assertRaises(MoiraError) as caught:
                self.session(array)
            self.assertIn(text, caught.exception.message)

    def test_copies_when_needed(self):
        wide = np.zeros((2, 8), np.float32)
        wide[:, ::2] = self.x
        swapped = self.x.astype(">f4")
        moved = np.frombuffer(b"\0" + self.x.tobytes(), np.uint8)[1:].view(
            np.float32).reshape(2, 4)
        for array, why in ((wide[:, ::2], r"its strides are \(32, 8\)"),
                           (np.asfortranarray(self.x), "its strides are"),
                           (swapped, "its bytes are in the other order"),
                           (moved, "it is not aligned")):
            with self.assertWarnsRegex(moira.CopyWarning, why):
                y = self.session(array)
            np.testing.assert_array_equal(y, EXPECTED)

    def test_no_copies_otherwise(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fixed = self.x.copy()
            fixed.flags.writeable = False
            np.testing.assert_array_equal(self.session(fixed), EXPECTED)
            one = np.asfortranarray(self.x[:1])  # a row has any layout
            self.session(one)

    def test_out(self):
        y = np.zeros((2, 4), np.float32)
        self.assertIs(self.session(self.x, out=[y]), y)
        np.testing.assert_array_equal(y, EXPECTED)
        tall = np.zeros((4, 4), np.float32)
        self.session(self.x, out=[tall[2:]])
        np.testing.assert_array_equal(tall, [[0] * 4] * 2 + EXPECTED)
        y.flags.writeable = False
        for wrong, text in ((y, "it is read-only"), (tall[::2], "strides"),
                            (np.zeros((2, 4), ">f4"), "other order")):
            with self.assertRaisesRegex(MoiraError, text):
                self.session(self.x, out=[wrong])


class Memory(Case):
    def test_results_are_views(self):
        tensor = self.session(self.x, returns="moira")
        first, second = tensor.numpy(), np.asarray(tensor)
        shown = np.from_dlpack(tensor)
        first[1, 2] = -7
        for other in (second, shown):
            self.assertEqual(other[1, 2], -7)
            self.assertTrue(np.shares_memory(first, other))
        self.assertTrue(shown.flags.writeable)
        self.assertEqual(np.asarray(tensor, np.float64).dtype, np.float64)
        self.assertEqual(np.array(tensor)[1, 2], -7)
        with self.assertRaisesRegex(ValueError, "without a copy"):
            tensor.__array__(np.float64, copy=False)
        self.assertFalse(np.shares_memory(np.array(tensor), first))

    def test_results_outlive_all(self):
        y = self.session(self.x)
        part = y[1:, ::2]
        shown = np.from_dlpack(self.session(self.x, returns="moira"))
        self.session.close()
        self.bundle.close()
        del y
        gc.collect()
        np.testing.assert_array_equal(part, [EXPECTED[1][::2]])
        np.testing.assert_array_equal(shown, EXPECTED)

    def test_results_end(self):
        y = self.session(self.x)
        view = y[0]
        self.assertEqual(self.session.memory.results, 32)
        del y
        self.assertEqual(self.session.memory.results, 32)
        del view
        self.assertEqual(self.session.memory.results, 0)
        shown = np.from_dlpack(self.session(self.x, returns="moira"))
        self.assertEqual(self.session.memory.results, 32)
        del shown
        self.assertEqual(self.session.memory.results, 0)

    def test_end_of_the_interpreter(self):
        # Arrays that the interpreter ends in any order, or not at all.
        status, output = python(f"""
import moira, numpy as np, sys
session = moira.Bundle({str(BUNDLE)!r}).session()
session.bind_random()
x = np.zeros((3, 4), np.float32)
kept = [session(x), np.from_dlpack(session(x, returns="moira")),
        session(x, returns="moira"), session(x, returns="moira").__dlpack__()]
kept.append(kept)
sys.kept = kept
print("fine")
""")
        self.assertEqual((status, output), (0, "fine\n"))

    def test_flat(self):
        self.session = self.bundle.session(threads=1)
        self.session.bind(weights())
        for i in range(1300):
            if i == 300:
                before, peak = resident(), self.session.memory.peak
            y = self.session(self.x)
            z = np.from_dlpack(self.session(y, returns="moira"))
        self.assertEqual(self.session.memory.peak, peak)
        self.assertLess(resident() - before, 1 << 20)
        self.assertEqual(self.session.memory.results, y.nbytes + z.nbytes)


class Checkpoints(unittest.TestCase):
    def test_safetensors(self):
        try:
            from safetensors.numpy import save_file
        except ImportError:
            self.skipTest("safetensors is not installed")
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            all = {name: np.array(view) for name, view in weights().items()}
            file = {"bias": all["bias"]}
            for i, slice in enumerate(all["experts.{}.weight"]):
                file[f"experts.{i}.weight"] = slice
            save_file(file, f"{folder}/model.safetensors")
            for path in (folder, f"{folder}/model.safetensors"):
                session = moira.Bundle(BUNDLE).session()
                session.bind(path)
                y = session(np.eye(4, dtype=np.float32)[[0, 3]])
                np.testing.assert_array_equal(y, EXPECTED)
