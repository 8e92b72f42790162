# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints which bits the NaN of a safetensors file's bf16 elements have."""

import json
import struct
import sys

with open(sys.argv[1], "rb") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    header, data = json.loads(file.read(size)), file.read()
bits = struct.unpack(f"<{len(data) // 2}H", data)
nan = [b for b in bits if b & 0x7FFF > 0x7F80]
print([entry["dtype"] for name, entry in header.items()
       if name != "__metadata__"], len(nan), sorted({f"{b:x}" for b in nan}))
