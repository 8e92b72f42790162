# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A grouped matmul in Triton, as tutorials teach it."""

import triton
import triton.language as tl


@triton.jit
def grouped_matmul(rows, weights, out, ends, last, columns, depth, experts,
                   padded: tl.constexpr, tile_m: tl.constexpr,
                   tile_n: tl.constexpr, tile_k: tl.constexpr):
    """out[r] = weights[expert of r] @ rows[r]; rows of expert e end at ends[e],
    its tiles of rows at last[e]."""
    across = tl.cdiv(columns, tile_n)
    tile = tl.program_id(0) // across
    column = tl.program_id(0) % across * tile_n + tl.arange(0, tile_n)
    every = tl.arange(0, padded)
    real = every < experts
    tiles = tl.load(last + every, mask=real, other=2147483647)
    expert = tl.sum((tiles <= tile).to(tl.int32))
    if expert >= experts:
        return
    first_tile = tl.max(tl.where(real & (every < expert), tiles, 0))
    begin = tl.max(tl.where(
        real & (every < expert),
        tl.load(ends + every, mask=real, other=0), 0))
    row = begin + (tile - first_tile) * tile_m + tl.arange(0, tile_m)
    row_mask = row < tl.load(ends + expert)
    column_mask = column < columns
    step = tl.arange(0, tile_k)
    a = rows + row[:, None].to(tl.int64) * depth + step[None, :]
    b = (weights + expert.to(tl.int64) * columns * depth
         + column[None, :] * depth + step[:, None])
    total = tl.zeros((tile_m, tile_n), tl.float32)
    for k in range(0, depth, tile_k):
        inside = step < depth - k
        total += tl.dot(
            tl.load(a, mask=row_mask[:, None] & inside[None, :], other=0.0),
            tl.load(b, mask=column_mask[None, :] & inside[:, None],
                    other=0.0))
        a += tile_k
        b += tile_k
    tl.store(out + row[:, None].to(tl.int64) * columns + column[None, :],
             total.to(out.dtype.element_ty),
             mask=row_mask[:, None] & column_mask[None, :])
