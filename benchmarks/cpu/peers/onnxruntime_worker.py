# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX Runtime: its MoE operator, told by its router's input where each row
goes."""

import os

import arrays
import numpy as np
import onnxruntime
import serve
from onnx import TensorProto, helper

DOMAIN = "com.microsoft"


def kernels():
    """Element types for which the CPU has the operator."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state
    return [kernel.type_constraints["T"] for kernel in
            state.get_all_opkernel_def()
            if kernel.op_name == "MoE" and "CPU" in kernel.provider]


class OnnxRuntime(serve.Implementation):
    def __init__(self):
        self.threads = int(os.environ["OMP_NUM_THREADS"])
        self.evict = arrays.Evictor()

    def version(self):
        return f"ONNX Runtime {onnxruntime.__version__}, MoE on the CPU"

    def prepare(self, case, file):
        self.case, self.file = case, file
        if case.part != "forward":
            raise RuntimeError("has no operator for gradients of experts")
        if case.bf16:
            found = ", ".join(sorted({name for names in kernels()
                                      for name in names}))
            raise RuntimeError(f"MoE on the CPU takes {found} only")
        first = arrays.read(file, "gate")
        if case.gated:
            # Gate and up interleaved row by row.
            both = arrays.huge((case.experts, 2 * case.width, case.hidden),
                               np.float32)
            both[:, 0::2] = first
            both[:, 1::2] = arrays.read(file, "up")
            first = both
        else:
            first = arrays.copy(first)
        second = arrays.copy(arrays.read(file, "down"))
        # Every row is a token with one expert, certain of it.
        scores = np.zeros((case.rows, case.experts), np.float32)
        scores[np.arange(case.rows),
               np.repeat(np.arange(case.experts), case.sizes)] = 100
        self.open(first, second)
        self.output = arrays.huge((case.rows, case.hidden), np.float32)
        self.binding = self.session.io_binding()
        self.held = [arrays.copy(arrays.read(file, "x")), scores, first, second]
        for name, array in (("x", self.held[0]), ("scores", scores)):
            self.binding.bind_input(name, "cpu", 0, np.float32, array.shape,
                                    array.ctypes.data)
        self.binding.bind_output("y", "cpu", 0, np.float32, self.output.shape,
                                 self.output.ctypes.data)
        self.run(0)
        return [""], {}

    def open(self, first, second):
        attributes = {"k": 1, "normalize_routing_weights": 1,
                      "activation_type": "relu"}
        if self.case.gated:
            attributes.update(activation_type="swiglu", swiglu_fusion=1,
                              activation_alpha=1.0, activation_beta=0.0)
        node = helper.make_node("MoE", ["x", "scores", "first", "", "second"],
                                ["y"], domain=DOMAIN, **attributes)
        case = self.case

        def value(name, *shape):
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

        def external(name, array):
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT,
                                 dims=array.shape,
                                 data_location=TensorProto.EXTERNAL)
            tensor.external_data.add(key="location", value="none")
            return tensor

        graph = helper.make_graph(
            [node], "experts",
            [value("x", case.rows, case.hidden),
             value("scores", case.rows, case.experts)],
            [value("y", case.rows, case.hidden)],
            [external("first", first), external("second", second)])
        model = helper.make_model(graph, opset_imports=[
            helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)])
        model.ir_version = 9
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Awake between products, asleep between runs.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array)
                  for array in (first, second)]
        options.add_external_initializers(["first", "second"], values)
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options,
            providers=["CPUExecutionProvider"])

    def run(self, mode):
        self.session.run_with_iobinding(self.binding)

    def error(self, mode, reference):
        self.output[...] = np.nan
        self.run(mode)
        return arrays.largest_error(self.output,
                                    arrays.read(self.file, "reference"))

    def release(self):
        self.session = self.binding = self.output = self.file = None
        self.held = []


if __name__ == "__main__":
    serve.serve(OnnxRuntime())
