# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same layers by PyTorch and by a Triton grouped matmul, timed by CUDA
events: a line of JSON each. What is not installed is a line that says so."""

import argparse
import json
import pathlib
import time

HERE = pathlib.Path(__file__).resolve().parent


def say(peer, measured, **values):
    print(json.dumps({"peer": peer, "measured": measured, **values}),
          flush=True)


class Layer:
    """A layer with what all peers share: sorted rows and their weights."""

    def __init__(self, torch, shape):
        tokens, features, hidden, experts, top_k = shape
        bf16 = {"device": "cuda", "dtype": torch.bfloat16}
        self.torch, self.shape = torch, shape
        self.x = torch.randn(tokens, features, **bf16)
        self.router = torch.randn(experts, features, **bf16) / features ** 0.5
        self.up = torch.randn(experts, 2 * hidden, features, **bf16)
        self.up /= features ** 0.5
        self.down = torch.randn(experts, features, hidden, **bf16)
        self.down /= hidden ** 0.5
        self.flops = 6 * tokens * top_k * features * hidden

    def route(self):
        torch, (tokens, _, _, experts, top_k) = self.torch, self.shape
        scores = torch.softmax((self.x @ self.router.t()).float(), dim=-1)
        weights, ids = torch.topk(scores, top_k, dim=-1)
        order = torch.argsort(ids.flatten(), stable=True)
        sizes = torch.bincount(ids.flatten(), minlength=experts)
        source = order // top_k
        return order, source, sizes, weights.flatten()[order]

    def combine(self, rows, source, weights):
        out = self.torch.zeros_like(self.x)
        return out.index_add_(0, source, rows * weights[:, None].to(rows.dtype))

    def activate(self, both):
        gate, up = both.chunk(2, dim=-1)
        return self.torch.nn.functional.silu(gate) * up

    def eager(self):
        """A product per expert; the host reads the sizes."""
        _, source, sizes, weights = self.route()
        parts = self.x[source].split(sizes.tolist())
        rows = self.torch.cat([
            self.activate(part @ self.up[e].t()) @ self.down[e].t()
            for e, part in enumerate(parts)])
        return self.combine(rows, source, weights)

    def grouped(self, product):
        """Two grouped products: `product(rows, weights, sizes)`."""
        _, source, sizes, weights = self.route()
        both = product(self.x[source], self.up, sizes)
        rows = product(self.activate(both), self.down, sizes)
        return self.combine(rows, source, weights)


def torch_product(torch):
    def product(rows, weights, sizes):
        ends = torch.cumsum(sizes, 0).to(torch.int32)
        return torch._grouped_mm(rows, weights.transpose(-2, -1), offs=ends)
    return product


def triton_product(torch):
    """The textbook grouped matmul: a program per tile of the result, which
    finds its expert among the tiles of all."""
    import triton
    import triton_kernels
    tile_m, tile_n, tile_k = 128, 128, 64

    def product(rows, weights, sizes):
        experts, columns, depth = weights.shape
        out = rows.new_empty(rows.shape[0], columns)
        ends = torch.cumsum(sizes, 0).to(torch.int32)
        tiles = (sizes + tile_m - 1) // tile_m
        last = torch.cumsum(tiles, 0).to(torch.int32)
        # As many tiles as there can be: the host knows no sizes.
        most = rows.shape[0] // tile_m + experts
        grid = (most * triton.cdiv(columns, tile_n),)
        triton_kernels.grouped_matmul[grid](
            rows, weights, out, ends, last, columns, depth, experts,
            padded=triton.next_power_of_2(experts), tile_m=tile_m,
            tile_n=tile_n, tile_k=tile_k, num_warps=8, num_stages=4)
        return out
    return product


def time_of(torch, action, runs=20, warm_ups=5):
    """Median seconds of an action on the device."""
    for _ in range(warm_ups):
        action()
    times = []
    for _ in range(runs):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        action()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    times.sort()
    return {"median_seconds": times[len(times) // 2],
            "least_seconds": times[0], "runs": runs}


def layer_times(torch, products, shapes, end):
    for name, shape in shapes.items():
        if time.monotonic() > end:
            say("torch eager", name, skipped="no time left")
            continue
        layer = Layer(torch, shape)
        wanted = layer.eager()
        actions = [("torch eager", layer.eager, 5)]
        actions += [(peer, lambda p=product: layer.grouped(p), 20)
                    for peer, product in products.items()]
        for peer, action, runs in actions:
            try:
                error = (action().float() - wanted.float()).abs().max()
                if not error <= 0.05 * wanted.float().abs().max():
                    raise ValueError(f"expected the eager result, got one "
                                     f"that differs by {error.item()}")
                timing = time_of(torch, action, runs, min(runs, 5))
                say(peer, name, **timing, tflops=layer.flops
                    / timing["median_seconds"] * 1e-12)
            except Exception as failure:  # what a peer refuses is its result
                say(peer, name, error=str(failure).splitlines()[0])
        del layer, wanted
        torch.cuda.empty_cache()


def movement_times(torch):
    tokens, features, top_k = 4096, 4096, 2
    rows = tokens * top_k
    x = torch.randn(tokens, features, device="cuda", dtype=torch.bfloat16)
    order = torch.randperm(rows, device="cuda")
    wide = x.repeat_interleave(top_k, 0)
    slots = order.view(tokens, top_k)
    weights = torch.rand(tokens, top_k, device="cuda")
    data = 2 * features * (tokens + rows)
    source = order // top_k
    for name, action in (
            ("dispatch", lambda: x[source]),
            ("combine", lambda: (wide[slots] * weights[..., None]
                                 .to(wide.dtype)).sum(1))):
        timing = time_of(torch, action)
        say("torch eager", name, **timing, terabytes_per_second=data
            / timing["median_seconds"] * 1e-12)
    for experts in (128, 256):
        logits = torch.randn(tokens, experts, device="cuda")
        say("torch eager", f"router-{experts}", **time_of(
            torch, lambda: torch.topk(torch.softmax(logits, -1), 8)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=110)
    end = time.monotonic() + parser.parse_args().seconds
    shapes = json.loads((HERE / "cases.json").read_text())["shapes"]
    try:
        import torch
    except ImportError as error:
        say("torch", "all", skipped=f"expected PyTorch, got: {error}")
        return
    if not torch.cuda.is_available():
        say("torch", "all", skipped="expected PyTorch with CUDA, got one "
            "without")
        return
    products = {}
    if hasattr(torch, "_grouped_mm"):
        products["torch grouped"] = torch_product(torch)
    else:
        say("torch grouped", "all", skipped="expected torch._grouped_mm, got "
            f"PyTorch {torch.__version__}")
    try:
        products["triton"] = triton_product(torch)
    except ImportError as error:
        say("triton", "all", skipped=f"expected Triton, got: {error}")
    movement_times(torch)
    layer_times(torch, products, shapes, end)


if __name__ == "__main__":
    main()
