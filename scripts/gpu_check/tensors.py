# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs of programs, written as safetensors without numpy."""

import json
import random
import re
import struct

_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i64": 8}
_NAMES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "i32": "I32",
          "i64": "I64"}
_TENSOR = re.compile(r"%(\w+): tensor<([?0-9x]*)x(\w+)>")


def inputs_of(program):
    """(name, dims or None for ?, dtype) of each input of @main."""
    head = program[program.index("func.func @main"):]
    head = head[:head.index("->")]
    return [(name, [None if d == "?" else int(d) for d in dims.split("x")],
             dtype) for name, dims, dtype in _TENSOR.findall(head)]


def encode(dtype, values):
    """The bytes of numbers that the type holds exactly."""
    if dtype == "bf16":
        packed = struct.pack(f"<{len(values)}f", *values)
        return b"".join(packed[i + 2:i + 4] for i in range(0, len(packed), 4))
    code = {"f32": "f", "f16": "e", "i32": "i", "i64": "q"}[dtype]
    return struct.pack(f"<{len(values)}{code}", *values)


def write(path, tensors):
    """Writes {name: (dtype, dims, values)}."""
    header, data = {}, b""
    for name, (dtype, dims, values) in tensors.items():
        raw = encode(dtype, values)
        count = 1
        for dim in dims:
            count *= dim
        if len(raw) != count * _BYTES[dtype]:
            raise ValueError(f"{name}: expected {count} values, got "
                             f"{len(values)}")
        header[name] = {"dtype": _NAMES[dtype], "shape": dims,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def make(specs, tokens, kind, seed):
    """Values for inputs. "real": multiples of 1/64 within +-1 (weights within
    +-1/4), which bf16 holds; "whole": -1, 0 and 1, so that all sums are exact.
    Integers are experts, distinct in each row, below the rows of the first
    tensor of three dimensions."""
    draw = random.Random(seed)
    experts = next((dims[0] for _, dims, _ in specs if len(dims) == 3), 4)
    made = {}
    for name, dims, dtype in specs:
        dims = [tokens if dim is None else dim for dim in dims]
        count = 1
        for dim in dims:
            count *= dim
        if dtype in ("i32", "i64"):
            values = [expert for _ in range(dims[0])
                      for expert in draw.sample(range(experts), dims[1])]
        elif kind == "whole":
            values = [draw.randint(-1, 1) for _ in range(count)]
        else:
            scale = 16 if len(dims) == 3 else 64
            values = [draw.randint(-scale, scale) / 64 for _ in range(count)]
        made[name] = (dtype, dims, values)
    return made
