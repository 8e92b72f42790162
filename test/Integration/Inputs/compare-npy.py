#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""usage: compare-npy.py EXPECTED GOT TOLERANCE

Compares two .npy files of f32, bf16 or i32; fails where shapes differ or values
by more than TOLERANCE. Prints the largest difference.
"""

import ast
import math
import struct
import sys


def read(path):
    data = open(path, "rb").read()
    assert data[:8] == b"\x93NUMPY\x01\x00", f"{path}: expected .npy version 1"
    size = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10 : 10 + size].decode())
    assert not header["fortran_order"], f"{path}: expected row-major order"
    body, descr = data[10 + size :], header["descr"]
    if descr in ("<V2", "|V2"):  # bf16: the upper half of an f32
        body = b"".join(
            b"\0\0" + body[i : i + 2] for i in range(0, len(body), 2)
        )
        descr = "<f4"
    code = {"<f4": "f", "<i4": "i"}[descr]
    return header["shape"], struct.unpack(f"<{len(body) // 4}{code}", body)


def main():
    expected, got, tolerance = sys.argv[1], sys.argv[2], float(sys.argv[3])
    (want_shape, want), (shape, values) = read(expected), read(got)
    if want_shape != shape:
        sys.exit(f"{got}: expected shape {want_shape}, got {shape}")
    largest = 0.0
    for i, (a, b) in enumerate(zip(want, values)):
        difference = abs(a - b)
        if math.isnan(difference) or difference > tolerance:
            sys.exit(f"{got}: expected {a} in place {i}, got {b}")
        largest = max(largest, difference)
    print(f"largest difference {largest:.3g}")


if __name__ == "__main__":
    main()
