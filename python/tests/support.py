# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests of the package share."""

import ctypes
import gc
import os
import pathlib
import subprocess
import sys
from array import array

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MOIRA_TEST_BUILD", TOP / "build"))
#: The bundle of the runtime's own tests: row r of x goes to expert r % 2,
#: y[r] = bias + x[r] * weight[r % 2].
BUNDLE = BUILD / "unittests" / "Runtime" / "alone.moira"
MIXTRAL = TOP / "examples" / "mixtral" / "tiny.mlir"

CODES = {"f32": "f", "f64": "d", "i8": "b", "i32": "i", "i64": "q"}


def buffer(values, shape, dtype="f32"):
    """A writable memoryview of numbers, for tests that do without numpy."""
    flat = memoryview(array(CODES[dtype], values))
    # Views of other than bytes are cast by way of them; 0 rows not at all.
    if 0 in shape:
        return Empty(shape, dtype)
    return flat.cast("B").cast(CODES[dtype], shape)


class Empty:
    """An array without elements, which a memoryview cannot be."""

    def __init__(self, shape, dtype):
        from moira import _abi, tensor
        self._pointer, self.shape, self.dtype = None, shape, dtype
        self.export = lambda: tensor._export(self, False)
        self.device = (_abi.CPU, 0)

    def __dlpack__(self):
        return self.export()

    def __dlpack_device__(self):
        return self.device


class Exporter:
    """Any other library's array: shows `tensor` by DLPack and nothing else."""

    def __init__(self, tensor, old=False, device=(1, 0), **changes):
        self.tensor, self.old, self.device = tensor, old, device
        self.changes = changes

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        from moira import _abi, _inputs
        if self.old and options:
            raise TypeError("got an unexpected keyword argument")
        options.pop("stream", None)  # for an array that says it is elsewhere
        capsule = self.tensor.__dlpack__(**options)
        if self.changes:
            name = (b"dltensor_versioned" if options else b"dltensor")
            kind = (_abi.DLManagedTensorVersioned if options
                    else _abi.DLManagedTensor)
            managed = kind.from_address(_inputs._get_pointer(capsule, name))
            for field, value in self.changes.items():
                if field in ("flags", "major"):
                    setattr(managed, field, value)
                elif field in ("shape", "strides"):
                    for i, size in enumerate(value):
                        getattr(managed.dl_tensor, field)[i] = size
                elif field in ("code", "bits", "lanes"):
                    setattr(managed.dl_tensor.dtype, field, value)
                else:
                    setattr(managed.dl_tensor, field, value)
        return capsule


def weights():
    """Of the test bundle: weight[e][n][k] = 16 e + 4 n + k."""
    return {"experts.{}.weight": buffer(range(32), (2, 4, 4)),
            "bias": buffer([100, 200, 300, 400], (4,))}


def rows():
    return buffer([1, 0, 0, 0, 0, 0, 0, 1], (2, 4))


#: What the test bundle makes of these.
EXPECTED = [[100, 204, 308, 412], [119, 223, 327, 431]]


def resident():
    """Bytes of this process that are in memory."""
    gc.collect()
    # What the allocator keeps free is not what somebody holds.
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def python(code, **environment):
    """Runs code in an interpreter of its own: (status, output)."""
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(TOP / "python"), **environment})
    return done.returncode, done.stdout
