# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints f32 tensors of .npy and .safetensors files, one line each.

import ast
import json
import struct
import sys


def floats(data):
    return " ".join("%g" % v for (v,) in struct.iter_unpack("<f", data))


for path in sys.argv[1:]:
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith(".npy"):
        (length,) = struct.unpack("<H", data[8:10])
        header = ast.literal_eval(data[10:10 + length].decode())
        print("npy", header["descr"], header["shape"],
              floats(data[10 + length:]))
        continue
    (length,) = struct.unpack("<Q", data[:8])
    for name, tensor in json.loads(data[8:8 + length]).items():
        begin, end = tensor["data_offsets"]
        print(name, tensor["dtype"], tensor["shape"],
              floats(data[8 + length + begin:8 + length + end]))
