# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles, errors, the library and the command line."""

import dataclasses
import json
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import unittest

import moira
from moira import MoiraError, Status
from support import BUNDLE, TOP, python


class Bundles(unittest.TestCase):
    def test_signature(self):
        with moira.Bundle(BUNDLE) as bundle:
            self.assertEqual(list(bundle.entries), ["main"])
            entry = bundle.entry
            self.assertEqual(
                entry.inputs, (moira.TensorSpec("x", "f32", (None, 4)),))
            self.assertEqual(str(bundle.inputs[0]), "x: f32[?, 4]")
            self.assertEqual(bundle.results[0].shape, (None, 4))
            self.assertEqual(entry.variants, ("decode", "prefill"))
            self.assertEqual((entry.ranks, entry.backward), (1, ""))
            weight = bundle.parameters["experts.{}.weight"]
            self.assertEqual((weight.dtype, weight.shape, weight.packed_bytes),
                             ("f32", (2, 4, 4), 128))
            self.assertEqual(bundle.parameters["bias"].shape, (4,))
            self.assertEqual(bundle.manifest["entries"][0]["name"], "main")
            self.assertIs(bundle.find("main"), entry)

    def test_sources(self):
        data = BUNDLE.read_bytes()
        for source in (BUNDLE, str(BUNDLE), data, bytearray(data),
                       memoryview(data)):
            with self.subTest(type(source).__name__):
                self.assertEqual(moira.Bundle(source).entry.name, "main")

    def refuse(self, source, code, text):
        with self.assertRaises(MoiraError) as caught:
            moira.Bundle(source)
        self.assertEqual(caught.exception.code, code)
        self.assertIn(text, caught.exception.message)
        self.assertEqual(len(caught.exception.message.splitlines()), 1)

    def test_refused(self):
        self.refuse("no-such-file", Status.NOT_FOUND, "no-such-file: expected "
                    "a readable file")
        self.refuse(pathlib.Path("no/file"), Status.NOT_FOUND, "no/file")
        self.refuse(b"", Status.DATA_LOSS, "expected")
        self.refuse(BUNDLE.read_bytes()[:-1], Status.DATA_LOSS, "bytes")
        broken = bytearray(BUNDLE.read_bytes())
        broken[200] ^= 1
        self.refuse(broken, Status.DATA_LOSS, "checksum")
        other = bytearray(BUNDLE.read_bytes())
        other[8] = 9
        self.refuse(other, Status.VERSION, "expected version 1, got 9")
        self.refuse(7, Status.INVALID_ARGUMENT,
                    "expected a path or bytes of a bundle, got int")

    def test_no_such_entry(self):
        with self.assertRaisesRegex(MoiraError, "expected an entry of main, "
                                    "got 'other'") as caught:
            moira.Bundle(BUNDLE).find("other")
        self.assertEqual(caught.exception.code, Status.NOT_FOUND)

    def test_several_entries(self):
        bundle = moira.Bundle(BUNDLE)
        bundle.entries["other"] = dataclasses.replace(bundle.entry,
                                                      name="other")
        with self.assertRaisesRegex(
                MoiraError, "expected the name of an entry, since the program "
                "has 2: main, other"):
            bundle.session()(None)
        self.assertEqual(bundle.find("main").name, "main")

    def test_closed(self):
        bundle = moira.Bundle(BUNDLE)
        self.assertFalse(bundle.closed)
        bundle.close()
        bundle.close()
        self.assertTrue(bundle.closed)
        with self.assertRaisesRegex(MoiraError, "expected an open bundle, got "
                                    "a closed one"):
            moira.Session(bundle)

    def test_errors_travel(self):
        for error in (MoiraError(Status.NOT_FOUND, "one"),
                      moira.CompileError(Status.FAILED, "two", "all")):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), copy.code, copy.message),
                             (type(error), error.code, error.message))
        self.assertEqual(str(MoiraError(3, "text")), "text [NOT_FOUND]")
        self.assertEqual(str(MoiraError(99, "text")), "text [99]")


class Library(unittest.TestCase):
    def test_version_is_that_of_the_project(self):
        text = (TOP / "runtime" / "CMakeLists.txt").read_text()
        version = re.search(r"project\(moira-runtime VERSION ([0-9.]+)",
                            text)[1]
        self.assertEqual(moira.__version__, version)

    def test_other_version_is_refused(self):
        from moira import _abi, _library
        with self.assertRaisesRegex(
                ImportError, "lib.so: expected a moira runtime with abi version"
                f" {_abi.ABI_VERSION}, got 1000"):
            _library.check_version(1000, "lib.so")

    def test_wrong_library_is_refused(self):
        for given, text in (("no-such.so", "no-such.so"),
                            ("libm.so.6", "without moira_abi_version")):
            status, output = python("import moira", MOIRA_RUNTIME=given)
            self.assertEqual(status, 1)
            self.assertIn("ImportError", output)
            self.assertIn(text, output.splitlines()[-1])


class CommandLine(unittest.TestCase):
    def run_module(self, *arguments):
        done = subprocess.run([sys.executable, "-m", "moira", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, cwd=TOP / "python")
        return done.returncode, done.stdout, done.stderr

    def test_describe(self):
        status, output, errors = self.run_module("describe", str(BUNDLE))
        self.assertEqual((status, errors), (0, ""))
        for line in (f"bundle       {BUNDLE}", "entry        main",
                     "  input      x: f32[?, 4]", "  result     f32[?, 4]",
                     "  variants   decode, prefill",
                     "parameter    bias: f32[4], 16 bytes packed"):
            self.assertIn(line, output.splitlines())

    def test_json(self):
        _, output, _ = self.run_module("describe", "--json", str(BUNDLE))
        self.assertEqual(json.loads(output), moira.Bundle(BUNDLE).manifest)

    def test_wrong_file(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"no bundle")
            file.flush()
            status, output, errors = self.run_module("describe", file.name)
        self.assertEqual((status, output), (1, ""))
        self.assertRegex(errors, r"^moira: error: .*expected.*\n$")
