#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM
# Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the weights that training starts from, as a .safetensors file.

    python3 init.py init.safetensors [SEED]

Norms are 1. Everything else is uniform in +-1/sqrt(d), where d is the last
dimension: what a row of it is multiplied with, or the width of an embedding.
Numbers come from a counter: value i of parameter p, in the order below, is

    z = mix(seed * 2^32 + p) + i * 0x9E3779B97F4A7C15, mixed as SplitMix64 does,
    (top 24 bits of z + 0.5) / 2^23 - 1, times 1/sqrt(d).

Needs nothing but Python, so that tests can run it.
"""

import array
import json
import struct
import sys

LAYERS, EXPERTS, WIDTH, HIDDEN, PLACES, BYTES = 4, 8, 96, 192, 64, 128
MASK = (1 << 64) - 1


def shapes():
    """Names and shapes of all parameters, as in a checkpoint."""
    yield "embedding.weight", (BYTES, WIDTH)
    yield "positions.weight", (PLACES, WIDTH)
    for layer in range(LAYERS):
        name = f"layers.{layer}."
        yield name + "attention_norm.weight", (WIDTH,)
        for which in "qkvo":
            yield name + f"attention.{which}_proj.weight", (WIDTH, WIDTH)
        yield name + "moe_norm.weight", (WIDTH,)
        yield name + "moe.router.weight", (EXPERTS, WIDTH)
        for expert in range(EXPERTS):
            one = name + f"moe.experts.{expert}."
            yield one + "gate_proj.weight", (HIDDEN, WIDTH)
            yield one + "up_proj.weight", (HIDDEN, WIDTH)
            yield one + "down_proj.weight", (WIDTH, HIDDEN)
    yield "norm.weight", (WIDTH,)
    yield "head.weight", (BYTES, WIDTH)


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def values(number, shape, seed):
    count = 1
    for size in shape:
        count *= size
    if len(shape) == 1:
        return array.array("f", [1.0]) * count
    scale = shape[-1] ** -0.5 / (1 << 23)
    base = mix((seed << 32) + number & MASK)
    return array.array("f", [
        ((mix((base + i * 0x9E3779B97F4A7C15) & MASK) >> 40) + 0.5
         - (1 << 23)) * scale for i in range(count)])


def write(path, seed=0):
    header, begin, data = {}, 0, []
    for number, (name, shape) in enumerate(shapes()):
        part = values(number, shape, seed)
        if sys.byteorder == "big":
            part.byteswap()
        end = begin + part.itemsize * len(part)
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [begin, end]}
        data.append(part.tobytes())
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: init.py FILE.safetensors [SEED]")
    write(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
