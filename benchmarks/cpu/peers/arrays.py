# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What workers that use numpy share. bf16 is in arrays of uint16."""

import mmap

import numpy as np

import serve

TYPES = {"F32": np.float32, "BF16": np.uint16}


def huge(shape, dtype):
    """A zeroed array in huge pages, where the system gives them."""
    count = int(np.prod(shape))
    size = max(1, count * np.dtype(dtype).itemsize)
    page = 2 << 20
    memory = mmap.mmap(-1, (size + page - 1) // page * page + page)
    memory.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(memory, np.uint8)
    start = -raw.ctypes.data % page
    array = raw[start:start + size].view(dtype)[:count].reshape(shape)
    array[...] = 0
    return array


def read(file, name):
    """A tensor of the file where it stands, or None."""
    found = file.find(name)
    if found is None:
        return None
    dtype, shape, offset, size = found
    return np.frombuffer(file.map, np.uint8, size,
                         offset).view(TYPES[dtype]).reshape(shape)


def copy(array):
    result = huge(array.shape, array.dtype)
    result[...] = array
    return result


def widen(array):
    """As f32."""
    if array.dtype == np.float32:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def largest_error(found, expected):
    columns = expected.shape[-1]
    found = found.reshape(-1, columns)
    expected = expected.reshape(-1, columns)
    error = np.abs(found - expected).max(1)
    scale = np.abs(expected).max(1)
    if not np.isfinite(found).all() or ((scale == 0) & (error > 0)).any():
        return 1e30
    return float((error / np.maximum(scale, 1e-30)).max())


class Evictor:
    def __init__(self):
        self.trash = None

    def __call__(self):
        if self.trash is None:
            self.trash = np.ones(serve.EVICT_BYTES // 4, np.float32)
        self.trash.sum()
