# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs from text and files, and layers of models."""

import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import moira
from moira import CompileError, MoiraError, Status
from support import MIXTRAL, TOP, Empty, buffer

SCALE = """
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<?x{T}>) -> tensor<?x{T}> {
  %0 = linalg.generic {indexing_maps = [#id, #id],
      iterator_types = ["parallel"]} ins(%x : tensor<?x{T}>)
      outs(%x : tensor<?x{T}>) {
  ^bb0(%a: {T}, %b: {T}):
    %s = arith.{OP} %a, %a : {T}
    linalg.yield %s : {T}
  } -> tensor<?x{T}>
  return %0 : tensor<?x{T}>
}
"""


def program(dtype):
    """y = x + x; of i1 x itself."""
    op = "andi" if dtype == "i1" else "addi" if dtype[0] == "i" else "addf"
    return SCALE.replace("{T}", dtype).replace("{OP}", op)


class Programs(unittest.TestCase):
    def test_text(self):
        with moira.compile(program("f32")).session() as session:
            y = session(buffer([1, 2, 3], (3,)), returns="moira")
            self.assertEqual(y.tolist(), [2, 4, 6])

    def test_types(self):
        for dtype, values in (("f64", [0.5, 3]), ("i8", [-5, 60]),
                              ("i32", [7, -9]), ("i64", [1 << 40, 2])):
            with self.subTest(dtype):
                session = moira.compile(program(dtype), opt_level=0).session()
                y = session(buffer(values, (2,), dtype), returns="moira")
                self.assertEqual(y.dtype, dtype)
                self.assertEqual(y.tolist(), [2 * v for v in values])

    def test_narrow_types(self):
        # Two bytes: 1.5 as bf16 is 0x3fc0, as f16 0x3e00.
        for dtype, bits, code in (("bf16", 0x3fc0, 4), ("f16", 0x3e00, 2)):
            session = moira.compile(program(dtype), opt_level=0).session()
            x = session(Empty((0,), dtype), returns="moira")
            self.assertEqual((x.shape, x.dtype), ((0,), dtype))
            from moira import _inputs
            import ctypes
            memory = ctypes.create_string_buffer(
                bits.to_bytes(2, "little") * 3, 6)
            with mock.patch.object(_inputs, "view", return_value=_inputs.View(
                    ctypes.addressof(memory), dtype, (3,), memory, "other")):
                y = session(None, returns="moira")
            self.assertEqual(y.tolist(), [3.0] * 3)

    def test_booleans(self):
        session = moira.compile(program("i1"), opt_level=0).session()
        x = bytearray([1, 0, 1])
        y = session(x, returns="moira")
        self.assertEqual((y.dtype, y.tolist()), ("i1", [True, False, True]))

    def test_file_and_options(self):
        bundle = moira.compile(MIXTRAL, rows=["decode"], opt_level=1,
                               target_cpu="x86-64-v3" if os.uname().machine ==
                               "x86_64" else None, disable_fusion=["gate-up"])
        self.assertEqual(bundle.entry.variants, ("decode",))
        oracle = moira.compile(str(MIXTRAL), oracle=True)
        x, results = buffer([i % 7 - 3 for i in range(64 * 9)], (9, 64)), []
        for each in (bundle, oracle):
            session = each.session()
            session.bind_random(1)
            results.append(session(x, returns="moira").tolist())
        self.assertEqual(*results)

    def test_ranks(self):
        bundle = moira.compile(MIXTRAL, ranks=2, r=1, schedule="groups",
                               spare_slots=1, hidden_blocks=2, opt_level=0)
        self.assertEqual(bundle.entry.ranks, 2)
        # Parameters are described as the checkpoint has them.
        name = "model.layers.0.block_sparse_moe.experts.{}.w1.weight"
        self.assertEqual(bundle.parameters[name].shape, (8, 224, 64))
        session = bundle.session()
        session.bind_random()
        with self.assertRaisesRegex(MoiraError, "ranks"):
            session(buffer([0] * 64, (1, 64)))

    def test_grids_and_variants(self):
        bundle = moira.compile(MIXTRAL, ranks=[1, 2], opt_level=0,
                               variants="r=0,1 schedule=equal rows=prefill")
        self.assertEqual(bundle.grids, (1, 2))
        self.assertEqual(bundle.for_ranks(1).entry.variants, ("prefill",))
        self.assertEqual(set(bundle.for_ranks(2).entry.variants),
                         {"r0-prefill", "r1-equal-prefill"})

    def refuse(self, call, code, text, kind=MoiraError):
        with self.assertRaises(kind) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertIn(text, caught.exception.message)
        self.assertEqual(len(caught.exception.message.splitlines()), 1)
        return caught.exception

    def test_refused(self):
        error = self.refuse(
            lambda: moira.compile("func.func @main() { return 1 }\n"),
            Status.INVALID_ARGUMENT, "error:", CompileError)
        self.assertIn(error.message, error.diagnostics)
        self.refuse(lambda: moira.compile(program("f32"), entry="other"),
                    Status.INVALID_ARGUMENT, "other", CompileError)
        self.refuse(lambda: moira.compile("no-such.mlir"), Status.NOT_FOUND,
                    "expected a program, found no file 'no-such.mlir'")
        self.refuse(lambda: moira.compile(program("f32"),
                                          options=["--no-such-option"]),
                    Status.INVALID_ARGUMENT, "no-such-option", CompileError)

    def test_tools(self):
        for name in ("moira-compile", "moira-import"):
            self.assertTrue(os.access(moira.find_tool(name), os.X_OK))
        with mock.patch.dict(os.environ, MOIRA_COMPILE="/no/such/tool"):
            self.refuse(lambda: moira.compile(program("f32")),
                        Status.NOT_FOUND,
                        "$MOIRA_COMPILE: expected a program, got "
                        "'/no/such/tool'")
        self.refuse(lambda: moira.find_tool("moira-nothing"),
                    Status.NOT_FOUND, "expected moira-nothing beside the "
                    "package, on $PATH or at $MOIRA_NOTHING, found none")


class Layers(unittest.TestCase):
    CONFIG = {"model_type": "mixtral", "num_hidden_layers": 1,
              "hidden_size": 8, "intermediate_size": 12,
              "num_local_experts": 3, "num_experts_per_tok": 2,
              "hidden_act": "silu"}

    def test_configuration(self):
        bundle = moira.compile(moira.import_layer(
            self.CONFIG, dtype="f32", stacked=True, router_logits=True))
        self.assertEqual([str(r) for r in bundle.results],
                         ["f32[?, 8]", "f32[?, 3]"])
        self.assertEqual(
            {name: p.shape for name, p in bundle.parameters.items()},
            {"model.layers.0.mlp.gate.weight": (3, 8),
             "model.layers.0.mlp.experts.gate_up_proj": (3, 24, 8),
             "model.layers.0.mlp.experts.down_proj": (3, 8, 12)})

    def test_folder(self):
        example = TOP / "examples" / "olmoe"
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text(
                (example / "config.json").read_text())
            with self.assertRaisesRegex(CompileError, "safetensors"):
                moira.import_layer(folder)
        config = json.loads((example / "config.json").read_text())
        self.assertEqual(moira.import_layer(config),
                         (example / "layer.mlir").read_text())

    def test_refused(self):
        with self.assertRaisesRegex(CompileError, "key 'hidden_size': "
                                    "expected an integer"):
            moira.import_layer({**self.CONFIG, "hidden_size": None},
                               dtype="f32")
        with self.assertRaisesRegex(CompileError, "expected a layer from 0 to "
                                    "0, got 5"):
            moira.import_layer(self.CONFIG, dtype="f32", layer=5)
        with self.assertRaisesRegex(MoiraError, "stacked: expected a "
                                    "configuration as a dict, got a folder"):
            moira.import_layer("folder", stacked=True)
