# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of Triton; generate.py makes triton-*.ll of them."""

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, z, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = i < n
    a = tl.load(x + i, mask=inside, other=0.0)
    b = tl.load(y + i, mask=inside, other=0.0)
    tl.store(z + i, a + b, mask=inside)


@triton.jit
def softmax(x, y, n, SIZE: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, SIZE)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * n + i, v / tl.sum(v, 0), mask=i < n)


@triton.jit
def histogram(x, counts, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(counts + v, 1, mask=i < n)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + m[:, None] * K + k[None, :]
    right = b + k[:, None] * N + n[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        x = tl.load(left, mask=(m[:, None] < M) & (k[None, :] + first < K),
                    other=0.0)
        y = tl.load(right, mask=(k[:, None] + first < K) & (n[None, :] < N),
                    other=0.0)
        sums = tl.dot(x, y, sums)
        left += BK
        right += BK * N
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * N + n[None, :], sums, mask=inside)


def pointers(*types):
    return ["*" + one for one in types]


# name, kernel, types of the parameters, constants, what divides them by 16
KERNELS = [
    ("vector-add", vector_add, pointers("fp32", "fp32", "fp32") + ["i32"],
     {"SIZE": 256}, []),
    # Addresses that divide: loads of 16 bytes.
    ("vector-add-wide", vector_add, pointers("fp32", "fp32", "fp32") + ["i32"],
     {"SIZE": 512}, [0, 1, 2, 3]),
    ("softmax", softmax, pointers("fp32", "fp32") + ["i32"], {"SIZE": 256}, []),
    ("histogram", histogram, pointers("i32", "i32") + ["i32"], {"SIZE": 128},
     []),
    ("matmul", matmul, pointers("bf16", "bf16", "fp32") + ["i32"] * 3,
     {"BM": 32, "BN": 32, "BK": 32}, []),
    # Asynchronous copies and a software pipeline.
    ("matmul-pipelined", matmul, pointers("fp16", "fp16", "fp32") + ["i32"] * 3,
     {"BM": 32, "BN": 32, "BK": 32}, [0, 1, 2, 3, 4, 5]),
]
