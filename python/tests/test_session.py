# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sessions over the buffer protocol and DLPack, without numpy."""

import ctypes
import struct
import tempfile
import unittest
import warnings
from unittest import mock

import moira
from moira import MoiraError, Status, _inputs, tensor
from support import (BUNDLE, EXPECTED, Empty, Exporter, buffer, rows, weights)


class Case(unittest.TestCase):
    def setUp(self):
        self.bundle = moira.Bundle(BUNDLE)
        self.session = moira.Session(self.bundle, threads=2)
        self.session.bind(weights())

    def run_step(self, *inputs, **options):
        return self.session(*(inputs or [rows()]), returns="moira", **options)

    def refuse(self, call, code, text):
        with self.assertRaises(MoiraError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIn(text, caught.exception.message)


class Steps(Case):
    def test_values(self):
        y = self.run_step()
        self.assertEqual(repr(y), "moira.Tensor(f32[2, 4])")
        self.assertEqual((y.dtype, y.shape, y.nbytes), ("f32", (2, 4), 32))
        self.assertEqual(y.tolist(), EXPECTED)
        results = self.session.invoke(rows(), returns="moira")
        self.assertIsInstance(results, tuple)
        self.assertEqual(results[0].tolist(), EXPECTED)

    def test_inputs_by_name(self):
        self.assertEqual(self.run_step({"x": rows()}).tolist(), EXPECTED)
        self.refuse(lambda: self.run_step({"z": rows()}),
                    Status.INVALID_ARGUMENT, "expected an input of x, got 'z'")
        self.refuse(lambda: self.run_step({}), Status.INVALID_ARGUMENT,
                    "expected an input 'x', got none")

    def test_no_rows(self):
        y = self.run_step(Empty((0, 4), "f32"))
        self.assertEqual((y.shape, y.tolist()), ((0, 4), []))
        self.assertEqual(bytes(y.memory()), b"")

    def test_wrong_inputs(self):
        wrong = Status.INVALID_ARGUMENT
        for call, text in (
                (lambda: self.session(), "expected 1 inputs, got 0"),
                (lambda: self.session(rows(), rows()),
                 "expected 1 inputs, got 2"),
                (lambda: self.session(buffer([1, 2, 3], (1, 3))),
                 "entry 'main': input 0 'x': expected f32[?, 4], got "
                 "f32[1, 3]"),
                (lambda: self.session(buffer([1] * 4, (1, 4), "f64")),
                 "expected f32[?, 4], got f64[1, 4]"),
                (lambda: self.session([[1, 2, 3, 4]]),
                 "entry 'main': input 0 'x': expected an array of numpy, "
                 "torch, dlpack or the buffer protocol, got list"),
                (lambda: self.session(memoryview(b"1234").cast("H")),
                 "got format 'H'"),
                (lambda: self.session(rows(), returns="jax"),
                 "expected 'numpy', 'torch' or 'moira', got 'jax'"),
                (lambda: self.session(rows(), entry="back"),
                 "expected an entry of main, got 'back'")):
            with self.subTest(text):
                code = Status.NOT_FOUND if "entry of" in text else wrong
                self.refuse(call, code, text)
        # The session stays usable.
        self.assertEqual(self.run_step().tolist(), EXPECTED)

    def test_out(self):
        y = buffer([0] * 8, (2, 4))
        self.assertIs(self.session(rows(), out=[y]), y)
        self.assertEqual(y.tolist(), EXPECTED)
        self.assertEqual(self.run_step(out=[None]).tolist(), EXPECTED)
        other = self.run_step()
        other.memory()[:] = bytes(32)
        self.session(rows(), out=[other])
        self.assertEqual(other.tolist(), EXPECTED)

    def test_wrong_out(self):
        for out, text in (
                ([], "out: expected a list of 1 arrays or None, got 0"),
                (rows(), "got memoryview"),
                ([buffer([0] * 4, (1, 4))],
                 "result 0: expected memory of shape [2, 4], got [1, 4]"),
                ([buffer([0] * 8, (2, 4), "i32")], "i32"),
                ([memoryview(bytes(32)).cast("f", (2, 4))],
                 "expected a compact row-major buffer to write to, but it is "
                 "read-only"),
                ([buffer([0] * 16, (4, 4))[::2]],
                 "to write to, but its strides"),
                ([Exporter(self.run_step(), flags=1)], "it is read-only")):
            with self.subTest(text):
                self.refuse(lambda: self.session(rows(), out=out),
                            Status.INVALID_ARGUMENT, text)

    def test_copies(self):
        x = buffer(range(16), (4, 4))[::2]
        self.assertFalse(x.c_contiguous)
        compact = buffer([0, 1, 2, 3, 8, 9, 10, 11], (2, 4))
        wanted = self.run_step(compact).tolist()
        with self.assertWarnsRegex(
                moira.CopyWarning, "entry 'main': input 0 'x': copied, "
                r"since its strides are \(32, 4\)") as caught:
            self.assertEqual(self.run_step(x).tolist(), wanted)
        self.assertIn("test_session.py", caught.filename)
        with moira.Session(self.bundle, copies="allow") as quiet, \
                warnings.catch_warnings():
            warnings.simplefilter("error")
            quiet.bind(weights())
            with self.assertLogs("moira", "DEBUG") as logged:
                self.assertEqual(quiet(x, returns="moira").tolist(), wanted)
            self.assertEqual(len(logged.records), 1)
            # No copy, no word.
            with mock.patch.object(_inputs, "report_copy",
                                   side_effect=AssertionError):
                quiet(compact, returns="moira")
        with moira.Session(self.bundle, copies="refuse") as strict:
            strict.bind(weights())
            self.refuse(lambda: strict(x), Status.INVALID_ARGUMENT,
                        "expected a compact row-major array, got one that must "
                        "be copied")


class Dlpack(Case):
    def test_inputs(self):
        x = self.run_step()
        wanted = self.run_step(buffer(sum(EXPECTED, []), (2, 4))).tolist()
        for each in (x, Exporter(x), Exporter(x, old=True),
                     Exporter(x, flags=1)):
            self.assertEqual(self.run_step(each).tolist(), wanted)
        # All capsules gave their tensor back.
        self.assertEqual(tensor._exports, {})

    def test_strided(self):
        x = self.run_step(buffer(range(16), (4, 4)))
        every = x.tolist()
        skip = Exporter(x, shape=(2, 4), strides=(8, 1))
        with self.assertWarns(moira.CopyWarning):
            y = self.run_step(skip).tolist()
        self.assertEqual(y, self.run_step(buffer(
            every[0] + every[2], (2, 4))).tolist())
        across = Exporter(x, strides=(1, 4))  # transposed
        flat = [every[i][j] for j in range(4) for i in range(4)]
        with self.assertWarns(moira.CopyWarning):
            y = self.run_step(across).tolist()
        self.assertEqual(y, self.run_step(buffer(flat, (4, 4))).tolist())

    def test_offset(self):
        x = self.run_step(buffer(range(16), (4, 4)))
        later = Exporter(x, shape=(2, 4), byte_offset=32)
        self.assertEqual(
            self.run_step(later).tolist(),
            self.run_step(buffer(sum(x.tolist()[2:], []), (2, 4))).tolist())

    def test_refused(self):
        x = self.run_step()
        for array, text in (
                (Exporter(x, device=(2, 0)),
                 "expected a tensor on the cpu (device type 1), got device "
                 "type 2"),
                (Exporter(x, device=(4, 0)),
                 "expected an array on the cpu (device type 1) or a session's "
                 "GPU, got device type 4"),
                (Exporter(x, code=5), "got dlpack code 5 with 32 bits and 1"),
                (Exporter(x, lanes=2), "and 2 lanes"),
                (Exporter(x, major=2), "expected version 1 of dlpack, got 2")):
            self.refuse(lambda: self.run_step(array), Status.INVALID_ARGUMENT,
                        text)
        self.assertEqual(tensor._exports, {})

    def take(self, capsule, name, kind):
        """What a consumer does: renames the capsule, deletes later."""
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [
            ctypes.py_object, ctypes.c_char_p]
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        address = pointer(capsule, name)
        rename(capsule, b"used")
        return kind.from_address(address), address

    def test_exports(self):
        from moira import _abi
        for version, name, kind in (
                (None, b"dltensor", _abi.DLManagedTensor),
                ((1, 0), b"dltensor_versioned",
                 _abi.DLManagedTensorVersioned)):
            y = self.run_step()
            self.assertEqual(y.__dlpack_device__(), (1, 0))
            capsule = y.__dlpack__(max_version=version)
            managed, address = self.take(capsule, name, kind)
            del capsule, y
            # Neither the capsule nor the tensor are needed any more.
            shown = managed.dl_tensor
            self.assertEqual(shown.shape[:2], [2, 4])
            self.assertEqual(shown.strides[:2], [4, 1])
            data = ctypes.string_at(shown.data, 32)
            self.assertEqual(list(struct.unpack("8f", data)),
                             sum(EXPECTED, []))
            self.assertEqual(self.session.memory.results, 32)
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(address)
            self.assertEqual(tensor._exports, {})
            self.assertEqual(self.session.memory.results, 0)

    def test_wrong_exports(self):
        y = self.run_step()
        for options in ({"stream": 1}, {"dl_device": (2, 0)}, {"copy": True}):
            with self.assertRaises(BufferError):
                y.__dlpack__(**options)


class Lifetimes(Case):
    def test_results_outlive_all(self):
        y = self.run_step()
        memory = y.memory()
        self.session.close()
        self.bundle.close()
        self.assertEqual(y.tolist(), EXPECTED)
        del y
        self.assertEqual(list(memory.cast("f")), sum(EXPECTED, []))

    def test_results_end(self):
        y = self.run_step()
        self.assertEqual(self.session.memory.results, 32)
        view = y.memory()[4:8]
        del y
        self.assertEqual(self.session.memory.results, 32)
        del view
        self.assertEqual(self.session.memory.results, 0)

    def test_sessions_outlive_bundles(self):
        self.bundle.close()
        self.assertEqual(self.run_step().tolist(), EXPECTED)

    def test_closed(self):
        with moira.Session(self.bundle) as session:
            pass
        session.close()
        for call in (lambda: session(rows()), lambda: session.memory,
                     lambda: session.bind_random(),
                     lambda: session.statistics()):
            self.refuse(call, Status.INVALID_ARGUMENT,
                        "expected an open session, got a closed one")


class Parameters(Case):
    def setUp(self):
        self.bundle = moira.Bundle(BUNDLE)
        self.session = self.bundle.session()

    def test_unbound(self):
        self.assertEqual(self.session.unbound, (2, "experts.{}.weight"))
        self.refuse(lambda: self.session(rows()), Status.INVALID_ARGUMENT,
                    "experts.{}.weight")
        self.session.bind(weights())
        self.assertEqual(self.session.unbound, (0, None))

    def test_slices(self):
        all = weights()
        self.session.bind("bias", all["bias"])
        flat = all["experts.{}.weight"].cast("B").cast("f")
        for expert in (1, 0):
            self.session.bind(
                f"experts.{expert}.weight",
                flat[16 * expert:16 * expert + 16].cast("B").cast("f", (4, 4)))
        self.assertEqual(self.run_step().tolist(), EXPECTED)

    def test_conversion(self):
        for name, view in weights().items():
            flat = [float(v) for v in view.cast("B").cast("f")]
            self.session.bind(name, buffer(flat, view.shape, "f64"))
        self.assertEqual(self.run_step().tolist(), EXPECTED)

    def test_random(self):
        self.session.bind_random(3)
        other = self.bundle.session()
        other.bind_random(3)
        y = self.run_step().tolist()
        self.assertEqual(other(rows(), returns="moira").tolist(), y)
        third = self.bundle.session()
        third.bind_random(4)
        self.assertNotEqual(third(rows(), returns="moira").tolist(), y)

    def test_checkpoint(self):
        header = (b'{"bias":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},'
                  b'"experts.0.weight":{"dtype":"F32","shape":[4,4],'
                  b'"data_offsets":[16,80]},'
                  b'"experts.1.weight":{"dtype":"F32","shape":[4,4],'
                  b'"data_offsets":[80,144]}}')
        header += b" " * (-len(header) % 8)
        all = weights()
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.write(bytes(all["bias"]))
            file.write(bytes(all["experts.{}.weight"]))
            file.flush()
            self.session.bind(file.name)
        self.assertEqual(self.run_step().tolist(), EXPECTED)

    def test_refused(self):
        for call, code, text in (
                (lambda: self.session.bind("no", rows()), Status.NOT_FOUND,
                 "expected a parameter of the program, got 'no'"),
                (lambda: self.session.bind("bias", rows()),
                 Status.INVALID_ARGUMENT,
                 "parameter 'bias': expected f32[4], got f32[2, 4]"),
                (lambda: self.session.bind("bias", 7),
                 Status.INVALID_ARGUMENT, "parameter 'bias': expected an "
                 "array of numpy, torch, dlpack"),
                (lambda: self.session.bind("bias", None),
                 Status.INVALID_ARGUMENT, "got NoneType"),
                (lambda: self.session.bind("no-such-file.safetensors"),
                 Status.NOT_FOUND, "no-such-file.safetensors"),
                (lambda: self.session.bind(7), Status.INVALID_ARGUMENT,
                 "expected a name and an array, a dict of them or the path of "
                 "a checkpoint, got int"),
                (lambda: self.session.bind({7: rows()}),
                 Status.INVALID_ARGUMENT, "expected the name of a parameter, "
                 "got int")):
            with self.subTest(text):
                self.refuse(call, code, text)


class Settings(Case):
    def test_variants(self):
        wanted = self.run_step().tolist()
        for variant in ("prefill", "decode", None):
            self.session.set_variant(variant)
            self.assertEqual(self.run_step().tolist(), wanted)
        chosen = [s.variant for s in self.session.statistics()]
        self.assertEqual(chosen, ["decode", "prefill", "decode", "decode"])
        self.refuse(lambda: self.session.set_variant("fast"), Status.NOT_FOUND,
                    "fast")

    def test_plan(self):
        self.session.set_plan(degree=3, exchange="hierarchical")
        self.run_step()
        layer = self.session.statistics()[-1].layers[0]
        self.assertEqual((layer.degree, layer.exchange), (3, "hierarchical"))
        self.refuse(lambda: self.session.set_plan(exchange="ring"),
                    Status.INVALID_ARGUMENT, "got 'ring'")
        self.refuse(lambda: self.session.set_plan(degree=-1),
                    Status.INVALID_ARGUMENT, "degree")

    def test_statistics(self):
        self.assertEqual(self.session.statistics(), [])
        self.run_step(buffer([0] * 20, (5, 4)))
        with self.assertRaises(MoiraError):
            self.session(rows(), rows())
        step, = self.session.statistics()
        self.assertEqual((step.step, step.entry, step.rows, step.error),
                         (0, "main", 5, Status.OK))
        layer, = step.layers
        self.assertEqual((layer.counts, layer.sizes), ((3, 2), (3, 2)))
        self.assertEqual((layer.routed, layer.dropped, layer.experts),
                         (5, 0, 2))
        self.assertIsNone(layer.matrix)
        spent = sum(step.seconds.values()) + sum(layer.seconds.values())
        self.assertAlmostEqual(spent, step.total, delta=1e-6)
        self.assertIn("expert", layer.seconds)

    def test_statistics_kept(self):
        with moira.Session(self.bundle, statistics_steps=2) as session:
            session.bind(weights())
            for _ in range(5):
                session(rows(), returns="moira")
            self.assertEqual([s.step for s in session.statistics()], [3, 4])
        with moira.Session(self.bundle, statistics_steps=0) as session:
            session.bind(weights())
            session(rows(), returns="moira")
            self.assertEqual(session.statistics(), [])

    def test_memory(self):
        before = self.session.memory
        self.assertEqual((before.parameters, before.results, before.limit),
                         (144, 0, 0))
        predicted = self.session.predict_peak((2, 4))
        self.assertEqual(predicted, self.session.predict_peak(rows()))
        y = self.run_step()
        after = self.session.memory
        self.assertEqual(after.results, y.nbytes)
        self.assertLessEqual(after.peak, predicted)
        self.refuse(lambda: self.session.predict_peak((2, 5)),
                    Status.INVALID_ARGUMENT, "f32[2, 5]")
        self.refuse(lambda: self.session.predict_peak((2, 4), (2, 4)),
                    Status.INVALID_ARGUMENT, "expected 1 inputs")

    def test_limit(self):
        self.refuse(lambda: moira.Session(self.bundle, memory_limit=100),
                    Status.OUT_OF_MEMORY, "100 bytes")
        with moira.Session(self.bundle, memory_limit=300) as session:
            session.bind(weights())
            self.assertEqual(session(rows(), returns="moira").tolist(),
                             EXPECTED)
            self.refuse(lambda: session(buffer([0] * 400, (100, 4))),
                        Status.OUT_OF_MEMORY, "300 bytes")

    def test_wrong_options(self):
        for options, text in (({"copies": "never"}, "got 'never'"),
                              ({"log_level": "loud"}, "got 'loud'"),
                              ({"log_level": 4}, "got 4")):
            self.refuse(lambda: moira.Session(self.bundle, **options),
                        Status.INVALID_ARGUMENT, text)

    def test_no_way_back(self):
        self.refuse(lambda: self.session.forward(rows()),
                    Status.INVALID_ARGUMENT, "entry 'main': expected one "
                    "compiled with gradients, got one without")
        self.refuse(lambda: self.session.backward(None),
                    Status.INVALID_ARGUMENT, "got NoneType")
