# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Writes the tensor files of the tests in this folder, with nothing but the
# standard library. Usage: tensors.py FOLDER

import json
import os
import struct
import sys

FORMATS = {"F32": ("<f4", "f"), "F64": ("<f8", "d"), "I32": ("<i4", "i"),
           "I64": ("<i8", "q")}


def pack(dtype, values):
    return struct.pack("<%d%s" % (len(values), FORMATS[dtype][1]), *values)


def write_npy(path, dtype, shape, values, order="False"):
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }" % (
        FORMATS[dtype][0], order, "".join("%d, " % size for size in shape))
    text += " " * (-(len(text) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)))
        file.write(text.encode() + pack(dtype, values))


def write_safetensors(path, tensors):
    """`tensors`: name -> (dtype, shape, values)."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        part = pack(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_index(folder, shards):
    """`shards`: file name -> tensors, in a folder with an index."""
    os.makedirs(folder, exist_ok=True)
    names = {}
    for name, tensors in shards.items():
        write_safetensors(os.path.join(folder, name), tensors)
        names.update({tensor: name for tensor in tensors})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": names}, f)


def weight(slice, rows, columns):
    """Small integers, so that every sum is exact."""
    return [float((slice + 3 * i + i // columns) % 5 - 2)
            for i in range(rows * columns)]


def main(folder):
    os.makedirs(folder, exist_ok=True)

    def at(name):
        return os.path.join(folder, name)

    values = [float(i) for i in range(12)]
    write_npy(at("x.npy"), "F32", [3, 4], values)
    write_npy(at("x64.npy"), "F64", [3, 4], values)
    write_npy(at("rank1.npy"), "F32", [12], values)
    write_npy(at("columns.npy"), "F32", [4, 3], values)
    write_npy(at("integers.npy"), "I32", [3, 4], list(range(12)))
    write_npy(at("fortran.npy"), "F32", [3, 4], values, order="True")
    write_npy(at("rows.npy"), "I32", [12, 9], [i % 100 for i in range(108)])
    write_npy(at("narrow.npy"), "I32", [4, 5], list(range(20)))
    write_safetensors(at("x.safetensors"), {"x": ("F32", [3, 4], values)})
    write_safetensors(at("two.safetensors"), {
        "a": ("F32", [3, 4], values), "b": ("F32", [2, 4], values[:8])})
    # Loads of two steps, one layer, four experts.
    write_npy(at("loads.npy"), "I32", [2, 1, 4], [10, 10, 0, 0, 0, 0, 10, 10])
    with open(at("x.npy"), "rb") as file:
        whole = file.read()
    with open(at("short.npy"), "wb") as file:
        file.write(whole[:-4])

    # The parameters of Inputs/layer.mlir: router [4, 4], and per expert a
    # weight [2, 4], in one file and in shards.
    router = {"router": ("F32", [4, 4], weight(1, 4, 4))}
    experts = {"experts.%d.w" % e: ("F32", [2, 4], weight(e, 2, 4))
               for e in range(4)}
    stacked = {"experts.{}.w": ("F32", [4, 2, 4], sum(
        (weight(e, 2, 4) for e in range(4)), []))}
    write_safetensors(at("model.safetensors"), {**router, **experts})
    write_safetensors(at("stacked.safetensors"), {**router, **stacked})
    write_index(at("sharded"), {
        "model-00001.safetensors": {
            **router, "experts.2.w": experts["experts.2.w"]},
        "model-00002.safetensors": {
            name: experts[name] for name in experts if name != "experts.2.w"}})

    # Damage.
    missing = dict(experts)
    del missing["experts.3.w"]
    write_safetensors(at("missing.safetensors"), {**router, **missing})
    wrong = dict(experts)
    wrong["experts.1.w"] = ("F32", [4, 2], weight(1, 4, 2))
    write_safetensors(at("shape.safetensors"), {**router, **wrong})
    wrong["experts.1.w"] = ("I32", [2, 4], list(range(8)))
    write_safetensors(at("dtype.safetensors"), {**router, **wrong})
    with open(at("model.safetensors"), "rb") as file:
        whole = file.read()
    with open(at("short.safetensors"), "wb") as file:
        file.write(whole[:-8])
    with open(at("header.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", 1 << 62) + b"{}")
    with open(at("empty.safetensors"), "wb"):
        pass
    write_index(at("noshard"), {"a.safetensors": {**router, **experts}})
    os.remove(os.path.join(folder, "noshard", "a.safetensors"))


main(sys.argv[1])
