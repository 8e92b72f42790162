# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""llama.cpp: the graph of its models' experts (mul_mat_id) in its library ggml,
through the package ggml-python."""

import ctypes
import os

import arrays
import ggml
import numpy as np
import serve


def library_version():
    try:
        return ggml.ggml_version().decode()
    except Exception:
        return f"of ggml-python {ggml.__version__}"


class Ggml(serve.Implementation):
    def __init__(self):
        self.threads = int(os.environ["OMP_NUM_THREADS"])
        self.evict = arrays.Evictor()
        self.context = None
        ggml.ggml_cpu_init()

    def version(self):
        has = [name for name in ("avx2", "avx512", "avx512_bf16", "llamafile")
               if getattr(ggml, f"ggml_cpu_has_{name}")()]
        return f"ggml {library_version()}, kernels {' '.join(has)}"

    def prepare(self, case, file):
        self.case, self.file = case, file
        if case.part == "dw":
            raise RuntimeError("has no product over the rows of groups")
        rows = case.rows
        # Room for all that the graph computes, in f32.
        columns = {"forward": 3 * case.width + case.hidden,
                   "dx": case.hidden}[case.part]
        size = rows * columns * 4 + (64 << 20)
        self.memory = arrays.huge((size,), np.uint8)
        self.context = ggml.ggml_init(ggml.ggml_init_params(
            mem_size=size, mem_buffer=self.memory.ctypes.data, no_alloc=False))
        self.held = []
        # Activations are of f32 in ggml; it rounds them itself.
        left = self.given(arrays.widen(arrays.read(
            file, "dy" if case.part == "dx" else "x")))
        left = ggml.ggml_reshape_3d(self.context, left,
                                    left.contents.ne[0], 1, rows)
        ids = np.repeat(np.arange(case.experts, dtype=np.int32), case.sizes)
        self.ids = self.given(ids.reshape(rows, 1))
        if case.part == "forward":
            result = self.forward(left)
        else:
            # [E, F, H] with the contracted dim F last.
            weights = arrays.read(file, "gate").transpose(0, 2, 1)
            result = self.product(weights, left)
        self.result = result
        self.graph = ggml.ggml_new_graph(self.context)
        ggml.ggml_build_forward_expand(self.graph, result)
        self.plan = ggml.ggml_graph_plan(self.graph, self.threads, None)
        self.work = arrays.huge((max(1, self.plan.work_size),), np.uint8)
        self.plan.work_data = ctypes.cast(self.work.ctypes.data,
                                          ctypes.POINTER(ctypes.c_uint8))
        return [""], {}

    def given(self, array):
        """A tensor over a copy of the array."""
        array = arrays.copy(array)
        self.held.append(array)
        kind = {np.dtype(np.float32): ggml.GGML_TYPE_F32,
                np.dtype(np.uint16): ggml.GGML_TYPE_BF16,
                np.dtype(np.int32): ggml.GGML_TYPE_I32}[array.dtype]
        shape = list(array.shape)[::-1]
        make = {2: ggml.ggml_new_tensor_2d, 3: ggml.ggml_new_tensor_3d}
        ggml.ggml_set_no_alloc(self.context, True)
        tensor = make[len(shape)](self.context, kind, *shape)
        ggml.ggml_set_no_alloc(self.context, False)
        tensor.contents.data = array.ctypes.data
        return tensor

    def product(self, weights, left):
        return ggml.ggml_mul_mat_id(self.context, self.given(weights), left,
                                    self.ids)

    def forward(self, x):
        gate = self.product(arrays.read(self.file, "gate"), x)
        if self.case.gated:
            up = self.product(arrays.read(self.file, "up"), x)
            hidden = ggml.ggml_swiglu_split(self.context, gate, up)
        else:
            hidden = ggml.ggml_relu(self.context, gate)
        return self.product(arrays.read(self.file, "down"), hidden)

    def run(self, mode):
        if ggml.ggml_graph_compute(self.graph, ctypes.byref(self.plan)) != 0:
            raise RuntimeError("the graph does not compute")

    def error(self, mode, reference):
        expected = arrays.read(self.file, "reference")
        pointer = ctypes.cast(self.result.contents.data,
                              ctypes.POINTER(ctypes.c_float))
        found = np.ctypeslib.as_array(pointer, expected.shape)
        found[...] = np.nan
        self.run(mode)
        return arrays.largest_error(found, expected)

    def release(self):
        if self.context:
            ggml.ggml_free(self.context)
        self.context = None
        self.held = []
        self.memory = self.work = self.file = None


if __name__ == "__main__":
    serve.serve(Ggml())
