# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch: several ways to compute experts, from a loop in Python to the blocks
of Hugging Face's transformers."""

import os

import torch
import torch.nn.functional as F

import serve

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


def expert(x, first, second, gated):
    """One expert on its rows."""
    sums = F.linear(x, first)
    if gated:
        gate, up = sums.chunk(2, dim=-1)
        hidden = F.silu(gate) * up
    else:
        hidden = F.relu(sums)
    return F.linear(hidden, second)


def activate(sums, gated):
    if not gated:
        return F.relu(sums)
    gate, up = sums.chunk(2, dim=-1)
    return F.silu(gate) * up


class Torch(serve.Implementation):
    def __init__(self):
        self.threads = int(os.environ["OMP_NUM_THREADS"])
        torch.set_num_threads(self.threads)
        torch.set_num_interop_threads(1)
        torch.set_grad_enabled(False)
        # Recompilation for another number of rows is not what is measured.
        torch._dynamo.config.cache_size_limit = 64
        self.trash = None
        self.compiled = torch.compile(expert, dynamic=True)

    def version(self):
        found = [f"PyTorch {torch.__version__}",
                 f"kernels {torch.backends.cpu.get_cpu_capability()}"]
        for line in torch.__config__.show().split("\n"):
            if "MKL-DNN" in line or "Math Kernel" in line:
                found.append(line.strip(" -").split(" (")[0])
        try:
            import transformers
            found.append(f"transformers {transformers.__version__}")
        except ImportError:
            pass
        return ", ".join(found)

    def tensor(self, file, name):
        """A copy of a tensor of the file, as torch allocates it."""
        found = file.find(name)
        if found is None:
            return None
        dtype, shape, offset, size = found
        count = size // (2 if dtype == "BF16" else 4)
        return torch.frombuffer(file.map, dtype=TYPES[dtype], count=count,
                                offset=offset).reshape(shape).clone()

    # --- preparing -------------------------------------------------------

    def prepare(self, case, file):
        self.case, self.file = case, file
        self.x = self.tensor(file, "x")
        self.dy = self.tensor(file, "dy")
        gate = self.tensor(file, "gate")
        self.offsets = torch.tensor(case.sizes, dtype=torch.int32).cumsum(
            0, dtype=torch.int32)
        if case.part == "forward":
            up = self.tensor(file, "up")
            self.first = gate if up is None else torch.cat([gate, up], dim=1)
            self.second = self.tensor(file, "down")
            ways = {
                "loop": self.loop,
                "packed loop": self.make_packed,
                "compiled loop": self.compiled_loop,
                "grouped_mm": self.grouped,
                "transformers": self.make_block,
            }
        elif case.part == "dx":
            self.first = gate
            ways = {"loop": self.dx_loop, "grouped_mm": self.dx_grouped}
        else:
            ways = {"loop": self.dw_loop, "grouped_mm": self.dw_grouped}
        self.ways, reasons = [], {}
        names = []
        for name, way in ways.items():
            try:
                if way in (self.make_packed, self.make_block):
                    way = way()
                way()
            except Exception as error:
                reasons[name] = serve.describe(error)
                continue
            names.append(name)
            self.ways.append(way)
        if not names:
            raise RuntimeError("; ".join(reasons.values()))
        return names, reasons

    # --- forward ------------------------------------------------------------

    def each(self, function):
        """The results of all groups, in the order of the rows."""
        return torch.cat([function(e, self.x[begin:begin + rows])
                          for e, begin, rows in self.case.groups])

    def loop(self):
        return self.each(lambda e, x: expert(x, self.first[e], self.second[e],
                                             self.case.gated))

    def compiled_loop(self):
        return self.each(lambda e, x: self.compiled(
            x, self.first[e], self.second[e], self.case.gated))

    def make_packed(self):
        """Weights in oneDNN's own order, as torch.compile makes them when it
        freezes a model."""
        linear = torch.ops.mkldnn._linear_pointwise

        def pack(weights):
            return {e: torch.ops.mkldnn._reorder_linear_weight(
                weights[e], rows)
                    for e, _, rows in self.case.groups}

        first, second = pack(self.first), pack(self.second)

        def one(e, x):
            sums = linear(x, first[e], None, "none", [], "")
            return linear(activate(sums, self.case.gated), second[e], None,
                          "none", [], "")

        return lambda: self.each(one)

    def grouped(self):
        sums = F.grouped_mm(self.x, self.first.transpose(1, 2),
                            offs=self.offsets)
        return F.grouped_mm(activate(sums, self.case.gated),
                            self.second.transpose(1, 2), offs=self.offsets)

    def make_block(self):
        """The experts of a model, told where each row goes."""
        if not self.case.gated:
            raise RuntimeError("no block of experts without a gate")
        from transformers import OlmoeConfig
        from transformers.models.olmoe.modeling_olmoe import OlmoeExperts
        config = OlmoeConfig(
            hidden_size=self.case.hidden, intermediate_size=self.case.width,
            num_experts=self.case.experts, num_experts_per_tok=1,
            hidden_act="silu")
        config._experts_implementation = "grouped_mm"
        with torch.device("meta"):
            block = OlmoeExperts(config)
        block.gate_up_proj = torch.nn.Parameter(self.first, False)
        block.down_proj = torch.nn.Parameter(self.second, False)
        ids = torch.repeat_interleave(
            torch.arange(self.case.experts),
            torch.tensor(self.case.sizes)).unsqueeze(1)
        weights = torch.ones(ids.shape, dtype=self.x.dtype)
        return lambda: block(self.x, ids, weights)

    # --- gradients ------------------------------------------------------------

    def dx_loop(self):
        return torch.cat([self.dy[begin:begin + rows] @ self.first[e]
                          for e, begin, rows in self.case.groups])

    def dx_grouped(self):
        return F.grouped_mm(self.dy, self.first, offs=self.offsets)

    def dw_loop(self):
        case = self.case
        result = torch.empty(case.experts, case.width, case.hidden,
                             dtype=self.x.dtype)
        used = set()
        for e, begin, rows in case.groups:
            torch.mm(self.dy[begin:begin + rows].t(), self.x[begin:begin + rows],
                     out=result[e])
            used.add(e)
        for e in set(range(case.experts)) - used:
            result[e].zero_()
        return result

    def dw_grouped(self):
        return F.grouped_mm(self.dy.t(), self.x, offs=self.offsets)

    # --- serving --------------------------------------------------------------

    def run(self, mode):
        self.result = self.ways[mode]()

    def error(self, mode, reference):
        self.run(mode)
        _, shape, offset, size = reference
        expected = torch.frombuffer(self.file.map, dtype=torch.float32,
                                    count=size // 4,
                                    offset=offset).reshape(shape)
        found = self.result.float().reshape(-1, shape[-1])
        expected = expected.reshape(-1, shape[-1])
        error = (found - expected).abs().amax(1)
        scale = expected.abs().amax(1)
        if not bool(torch.isfinite(found).all()) or bool(
                ((scale == 0) & (error > 0)).any()):
            return 1e30
        return float((error / scale.clamp(min=1e-30)).max())

    def evict(self):
        if self.trash is None:
            self.trash = torch.ones(serve.EVICT_BYTES // 4)
        self.trash.sum()

    def release(self):
        self.file = None
        self.x = self.dy = self.first = self.second = self.result = None
        self.ways = []


if __name__ == "__main__":
    serve.serve(Torch())
