# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes rows of small integers with a NaN of its own bits, infinities of both
signs, and a number whose square is infinite, as x.safetensors."""

import json
import struct
import sys

rows = [[float((64 * r + c) % 7 - 3) for c in range(64)] for r in range(5)]
rows[1][5] = struct.unpack("<f", struct.pack("<I", 0xFFC30000))[0]
rows[0][9], rows[2][11], rows[4][50] = float("inf"), float("-inf"), 3e38
data = b"".join(struct.pack("<64f", *row) for row in rows)
header = json.dumps({"x": {"dtype": "F32", "shape": [5, 64],
                           "data_offsets": [0, len(data)]}}).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + data)
