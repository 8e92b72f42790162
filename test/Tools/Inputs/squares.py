# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""squares.py write A.npy: a matrix [48, 48] of small integers.
squares.py check A.npy C.npy: whether C is A times A."""

import struct
import sys

import tensors

SIZE = 48


def read(path):
    with open(path, "rb") as file:
        data = file.read()[-4 * SIZE * SIZE:]
    return struct.unpack(f"<{SIZE * SIZE}f", data)


if sys.argv[1] == "write":
    tensors.write_npy(sys.argv[2], "F32", (SIZE, SIZE),
                      [i % 7 for i in range(SIZE * SIZE)])
else:
    a, c = read(sys.argv[2]), read(sys.argv[3])
    for i in range(SIZE):
        for j in range(SIZE):
            total = sum(a[i * SIZE + k] * a[k * SIZE + j] for k in range(SIZE))
            assert c[i * SIZE + j] == total, (i, j)
