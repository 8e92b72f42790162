# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results: memory of the runtime that Python sees without a copy."""

import atexit
import ctypes
import importlib
import struct
import sys
from typing import Dict

from . import _abi
from ._library import invalid

_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_NUMPY_OF = {"f32": "float32", "f64": "float64", "f16": "float16",
             "i1": "bool", "i8": "int8", "i32": "int32", "i64": "int64"}
_TORCH_OF = dict(_NUMPY_OF, bf16="bfloat16")
_FORMAT_OF = {"f32": "f", "f64": "d", "f16": "e", "i1": "?", "i8": "b",
              "i32": "i", "i64": "q"}




def _block(tensor, nbytes):
    """The bytes of `tensor` as an object with the buffer protocol; whoever
    views it holds the tensor."""
    block = (ctypes.c_char * nbytes).from_address(tensor._pointer)
    block.owner = tensor
    return block


class Tensor:
    """A result, in memory that the runtime allocated.

    It stays valid after its session and its bundle are closed, and as long as
    any array made from it lives. numpy, torch and every other library that
    speaks DLPack see its memory without a copy.

    Attributes:
        shape: a tuple of sizes.
        dtype: "f32", "f64", "f16", "bf16", "i1", "i8", "i32" or "i64".
        nbytes: the size of the memory.
        device: (device type, number) as DLPack has them.
    """

    def __init__(self, managed):
        tensor = managed.contents.dl_tensor
        self._managed = managed
        self.device = (tensor.device.device_type, tensor.device.device_id)
        self._deleter = _DELETER(managed.contents.deleter)
        self._pointer = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[:tensor.ndim])
        self.dtype = _abi.DTYPE_OF[tensor.dtype.code, tensor.dtype.bits]
        count = 1
        for dim in self.shape:
            count *= dim
        self.nbytes = count * _abi.ITEMSIZE[self.dtype]

    def __del__(self):
        # Not before the last view of the memory, which holds this object.
        if getattr(self, "_deleter", None):
            self._deleter(ctypes.addressof(self._managed.contents))

    def __repr__(self):
        return (f"moira.Tensor({self.dtype}"
                f"[{', '.join(map(str, self.shape))}])")

    def memory(self):
        """A writable memoryview of the bytes, of a tensor on the cpu."""
        self._require_host()
        if self.nbytes == 0:
            return memoryview(bytearray())
        return memoryview(_block(self, self.nbytes)).cast("B")

    def numpy(self):
        """A numpy array of the same memory.

        bf16 needs the package ml_dtypes; else MoiraError INVALID_ARGUMENT.
        """
        self._require_host()
        numpy = importlib.import_module("numpy")
        if self.dtype == "bf16":
            try:
                dtype = importlib.import_module("ml_dtypes").bfloat16
            except ImportError:
                raise invalid("expected the package ml_dtypes for an array of "
                              "bf16 in numpy; returns = 'torch' or 'moira' "
                              "needs none") from None
        else:
            dtype = numpy.dtype(_NUMPY_OF[self.dtype])
        if self.nbytes == 0:
            return numpy.empty(self.shape, dtype)
        return numpy.ndarray(self.shape, dtype, _block(self, self.nbytes))

    def torch(self):
        """A torch tensor of the same memory."""
        torch = importlib.import_module("torch")
        if self.device[0] == _abi.CUDA:
            return torch.from_dlpack(self)
        self._require_host()
        dtype = getattr(torch, _TORCH_OF[self.dtype])
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=dtype)
        return torch.frombuffer(_block(self, self.nbytes),
                                dtype=dtype).reshape(self.shape)

    def tolist(self):
        """Nested lists of Python numbers, a number for rank 0."""
        data = self.memory()
        if self.dtype == "bf16":  # the upper half of an f32
            wide = bytearray(2 * self.nbytes)
            wide[2::4], wide[3::4] = data[0::2], data[1::2]
            flat = memoryview(wide).cast("f").tolist()
        else:
            code = _FORMAT_OF[self.dtype]
            size = _abi.ITEMSIZE[self.dtype]
            flat = list(struct.unpack(f"={self.nbytes // size}{code}", data))
        return _nest(flat, self.shape)

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        if copy or (dtype is not None and array.dtype != dtype):
            if copy is False:
                raise ValueError(f"expected no conversion to {dtype} without "
                                 "a copy")
            return array.astype(dtype or array.dtype)
        return array

    def _require_host(self):
        if self.device[0] != _abi.CPU:
            raise invalid("expected a tensor on the cpu, got one on device "
                          f"{self.device}; DLPack shows it")

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None,
                   copy=None):
        # A step has ended when its results are handed out: any stream may
        # read them.
        if stream is not None and self.device[0] == _abi.CPU:
            raise BufferError("expected no stream for a tensor on the cpu")
        if dl_device is not None and tuple(map(int, dl_device)) != self.device:
            where = ("the cpu" if self.device[0] == _abi.CPU
                     else f"device {self.device}")
            raise BufferError(f"expected a tensor on {where}, not on device "
                              f"{tuple(dl_device)}")
        if copy:
            raise BufferError("expected an export without a copy")
        versioned = max_version is not None and max_version[0] >= 1
        return _export(self, versioned)


def _nest(flat, shape):
    if not shape:
        return flat[0]
    for dim in reversed(shape[1:]):
        rows = len(flat) // dim if dim else _product(shape[:-1])
        flat = [flat[i * dim:(i + 1) * dim] for i in range(rows)]
        shape = shape[:-1]
    return flat


def _product(shape):
    count = 1
    for dim in shape:
        count *= dim
    return count


# --- DLPack ------------------------------------------------------------------
#
# An export is a struct of C that another library reads and whose deleter it
# calls, on any thread. The struct and its tensor live in this table until then.

_exports: Dict[int, tuple] = {}


@_DELETER
def _forget(address):
    _exports.pop(address, None)


@atexit.register
def _orphan():
    """Who deletes after the interpreter has gone must not call into it: DLPack
    allows a tensor without a deleter."""
    for managed, _, _ in list(_exports.values()):
        managed.deleter = None


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# In a destructor the capsule is an address: it must not be counted again.
_capsule_is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p,
                                ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_capsule_holds = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p,
                                   ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_NAMES = (b"dltensor", b"dltensor_versioned")


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop_capsule(capsule):
    # Who takes a tensor renames the capsule and calls the deleter itself.
    for name in _NAMES:
        if _capsule_is(capsule, name):
            _forget_python(_capsule_holds(capsule, name))


def _forget_python(address):
    _exports.pop(address, None)


def _export(tensor, versioned):
    dims = (ctypes.c_int64 * len(tensor.shape))(*tensor.shape)
    strides, step = [], 1
    for dim in reversed(tensor.shape):
        strides.insert(0, step)
        step *= dim
    # Older readers do not know that none means compact.
    steps = (ctypes.c_int64 * len(strides))(*strides)
    code, bits = _abi.DLPACK_TYPES[tensor.dtype]
    device = _abi.DLDevice(*getattr(tensor, "device", (_abi.CPU, 0)))
    plain = _abi.DLTensor(tensor._pointer, device,
                          len(dims), _abi.DLDataType(code, bits, 1), dims,
                          steps, 0)
    if versioned:
        managed = _abi.DLManagedTensorVersioned(major=1, minor=0,
                                                dl_tensor=plain)
    else:
        managed = _abi.DLManagedTensor(dl_tensor=plain)
    managed.deleter = ctypes.cast(_forget, ctypes.c_void_p).value
    address = ctypes.addressof(managed)
    _exports[address] = (managed, (dims, steps), tensor)
    return _new_capsule(address, _NAMES[versioned],
                        ctypes.cast(_drop_capsule, ctypes.c_void_p))


def convert(tensor, kind):
    """A result in the form that `kind` asks for."""
    if kind == "numpy":
        return tensor.numpy()
    if kind == "torch":
        return tensor.torch()
    return tensor


def collect(places, kept, kind):
    """The arrays of a call's results: the caller's own or new ones."""
    made = [None if own else Tensor(places[i]) for i, own in enumerate(kept)]
    return tuple(own[0] if own else convert(made[i], kind)
                 for i, own in enumerate(kept))


def kind_for(asked, frameworks):
    """"numpy", "torch" or "moira": what was asked for, else what the inputs
    were, else numpy where it is installed."""
    if asked is not None:
        if asked not in ("numpy", "torch", "moira"):
            raise invalid("returns: expected 'numpy', 'torch' or 'moira', got "
                          f"{asked!r}")
        return asked
    if "torch" in frameworks:
        return "torch"
    if "numpy" in frameworks or "numpy" in sys.modules:
        return "numpy"
    return "moira"
