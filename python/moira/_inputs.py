# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of callers as DLTensors, without a copy where the layout allows it."""

import ctypes
import logging
import os
import sys
import warnings
from typing import Any, Dict

from . import _abi
from ._abi import DLTensor
from ._library import invalid

log = logging.getLogger("moira")


class CopyWarning(UserWarning):
    """An array was copied because its layout is not compact and row-major."""


class View:
    """An array during a call: `tensor` is what the library gets, `keep` what
    must live meanwhile. `framework` says whose array it was."""

    __slots__ = ("tensor", "keep", "framework")

    def __init__(self, pointer, dtype, shape, keep, framework,
                 device=(_abi.CPU, 0)):
        count = len(shape)
        dims = (ctypes.c_int64 * count)(*shape)
        code, bits = (_abi.DLPACK_TYPES[dtype] if isinstance(dtype, str)
                      else dtype)
        self.tensor = DLTensor(
            pointer, _abi.DLDevice(*device), count,
            _abi.DLDataType(code, bits, 1), dims, None, 0)
        self.keep = (keep, dims)
        self.framework = framework


def _callers_level():
    """How far up the stack the package's caller is, for warnings."""
    folder = os.path.dirname(__file__)
    level, frame = 1, sys._getframe(1)
    while frame and os.path.dirname(frame.f_code.co_filename) == folder:
        level, frame = level + 1, frame.f_back
    return level


def report_copy(what, why, policy):
    """A copy is about to be made: refuses it, warns or writes to the log."""
    message = f"{what}: copied, since {why}"
    if policy == "refuse":
        raise invalid(f"{what}: expected a compact row-major array, got one "
                      f"that must be copied, since {why}")
    if policy == "warn":
        warnings.warn(message, CopyWarning, stacklevel=_callers_level())
    log.debug("%s", message)


# Names of numpy's types; bfloat16 is that of ml_dtypes.
_NUMPY_NAMES = {"float32": "f32", "float64": "f64", "float16": "f16",
                "bfloat16": "bf16", "bool": "i1", "uint8": "i1", "int8": "i8",
                "int32": "i32", "int64": "i64"}
_TORCH_NAMES = {"float32": "f32", "float64": "f64", "float16": "f16",
                "bfloat16": "bf16", "bool": "i1", "uint8": "i1", "int8": "i8",
                "int32": "i32", "int64": "i64"}
# Formats of the buffer protocol; l and q are both 8 bytes on our targets.
_FORMATS = {"f": "f32", "d": "f64", "e": "f16", "?": "i1", "B": "i1",
            "b": "i8", "i": "i32", "l": "i64", "q": "i64"}

TYPES = "f32, f64, f16, bf16, i1, i8, i32 or i64"


def is_torch(array):
    # Whoever has a tensor has imported torch; we never do so first.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_numpy(array):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, (numpy.ndarray,
                                                    numpy.generic))


def _from_torch(tensor, what, policy, writable):
    torch = sys.modules["torch"]
    if tensor.device.type == "cpu":
        device = (_abi.CPU, 0)
    elif tensor.device.type == "cuda":
        device = (_abi.CUDA, tensor.device.index)
    else:
        raise invalid(f"{what}: expected a tensor on the cpu or a cuda device, "
                      f"got one on {tensor.device}")
    dtype = _TORCH_NAMES.get(str(tensor.dtype).partition(".")[2])
    if dtype is None or tensor.layout is not torch.strided:
        raise invalid(f"{what}: expected a dense tensor of {TYPES}, got "
                      f"{tensor.layout} of {tensor.dtype}")
    if writable and tensor.requires_grad:
        raise invalid(f"{what}: expected a tensor to write to, got one that "
                      "requires a gradient; detach() it")
    tensor = tensor.detach()
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        why = f"its strides are {tuple(tensor.stride())}"
        if writable:
            raise invalid(f"{what}: expected a compact row-major tensor to "
                          f"write to, but {why}")
        report_copy(what, why, policy)
        tensor = tensor.resolve_neg().contiguous()
    if device[0] == _abi.CUDA:
        # The session has a queue of its own, which waits for nobody's stream.
        torch.cuda.current_stream(tensor.device).synchronize()
    return View(tensor.data_ptr(), dtype, tuple(tensor.shape), tensor, "torch",
                device)


# numpy builds the name of a type anew every time.
_numpy_types: Dict[Any, str] = {}


def _from_numpy(array, what, policy, writable):
    numpy = sys.modules["numpy"]
    dtype = _numpy_types.get(array.dtype)
    if dtype is None:
        name = array.dtype.name
        dtype = _NUMPY_NAMES.get(name)
        if dtype is None:
            raise invalid(f"{what}: expected an array of {TYPES}, got {name}")
        _numpy_types[array.dtype] = dtype
    why = None
    if not isinstance(array, numpy.ndarray):
        array, why = numpy.asarray(array), "it is a scalar"
    elif not array.flags.c_contiguous:
        why = f"its strides are {array.strides}"
    elif not array.dtype.isnative:
        why = "its bytes are in the other order"
    elif not array.flags.aligned:
        why = "it is not aligned"
    if writable and (why or not array.flags.writeable):
        raise invalid(f"{what}: expected a compact row-major array to write "
                      f"to, but {why or 'it is read-only'}")
    if why:
        if why != "it is a scalar":
            report_copy(what, why, policy)
        array = numpy.require(
            numpy.ascontiguousarray(array).reshape(array.shape),
            dtype=array.dtype.newbyteorder("="), requirements="CA")
    return View(array.__array_interface__["data"][0], dtype, array.shape,
                array, "numpy")


def _from_buffer(array, what, policy, writable):
    view = memoryview(array)
    dtype = _FORMATS.get(view.format.lstrip("@="))
    if dtype is None or view.itemsize != _abi.ITEMSIZE[dtype]:
        raise invalid(f"{what}: expected a buffer of {TYPES}, got format "
                      f"'{view.format}'")
    why = None
    if not view.c_contiguous:
        why = f"its strides are {view.strides}"
    elif view.readonly and view.nbytes:
        why = "it is read-only"  # ctypes takes no address of such a buffer
    if writable and why:
        raise invalid(f"{what}: expected a compact row-major buffer to write "
                      f"to, but {why}")
    if why:
        report_copy(what, why, policy)
        memory = ctypes.create_string_buffer(view.tobytes(), view.nbytes)
    elif view.nbytes:
        memory = (ctypes.c_char * view.nbytes).from_buffer(
            view.cast("B") if view.ndim != 1 or view.format != "B" else view)
    else:
        memory = None
    pointer = ctypes.addressof(memory) if memory is not None else None
    return View(pointer, dtype, view.shape, (memory, view), "buffer")


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _open_capsule(array, device):
    """The capsule of an array and its DLTensor, read-only or not. The capsule
    stays whole, so its own destructor gives the array back."""
    # Of CUDA: the array is ready for the legacy default stream, that is, when
    # all that was given out before has ended.
    stream = {"stream": 1} if device[0] == _abi.CUDA else {}
    try:
        capsule = array.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:  # of before DLPack 1
        capsule = array.__dlpack__(**stream)
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _abi.DLManagedTensorVersioned.from_address(
            _get_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            major = managed.major
            del capsule, managed  # not kept by the error
            raise BufferError(f"expected version 1 of dlpack, got {major}")
        return capsule, managed.dl_tensor, managed.flags & _abi.READ_ONLY
    managed = _abi.DLManagedTensor.from_address(
        _get_pointer(capsule, b"dltensor"))
    return capsule, managed.dl_tensor, 0


def _compact_strides(tensor):
    if not tensor.strides or 0 in tensor.shape[:tensor.ndim]:
        return True
    wanted = 1
    for i in reversed(range(tensor.ndim)):
        if tensor.shape[i] != 1 and tensor.strides[i] != wanted:
            return False
        wanted *= tensor.shape[i]
    return True


def _gather(tensor, pointer):
    """The elements of a strided tensor, in row-major order."""
    size = tensor.dtype.bits // 8
    shape = tensor.shape[:tensor.ndim]
    offsets = [0]
    for dim, stride in zip(shape, tensor.strides[:tensor.ndim]):
        offsets = [o + i * stride for o in offsets for i in range(dim)]
    return ctypes.create_string_buffer(b"".join(
        ctypes.string_at(pointer + o * size, size) for o in offsets))


def _from_dlpack(array, what, policy, writable):
    device = tuple(map(int, array.__dlpack_device__()))
    if device[0] not in (_abi.CPU, _abi.CUDA, _abi.EXTERNAL):
        raise invalid(f"{what}: expected an array on the cpu (device type "
                      f"{_abi.CPU}) or a session's GPU, got device type "
                      f"{device[0]}")
    try:
        capsule, tensor, read_only = _open_capsule(array, device)
    except (BufferError, ValueError) as error:
        raise invalid(f"{what}: expected an array that dlpack can show: "
                      f"{error}") from error
    key = (tensor.dtype.code, tensor.dtype.bits)
    dtype = _abi.DTYPE_OF.get(key) if tensor.dtype.lanes == 1 else None
    if dtype is None:
        raise invalid(f"{what}: expected an array of {TYPES}, got dlpack code "
                      f"{key[0]} with {key[1]} bits and {tensor.dtype.lanes} "
                      "lanes")
    pointer = (tensor.data or 0) + tensor.byte_offset
    keep = capsule
    why = None
    if not _compact_strides(tensor):
        why = f"its strides are {tuple(tensor.strides[:tensor.ndim])}"
    if writable and (why or read_only):
        raise invalid(f"{what}: expected a compact row-major array to write "
                      f"to, but {why or 'it is read-only'}")
    if why and device[0] != _abi.CPU:
        raise invalid(f"{what}: expected a compact row-major array on a GPU, "
                      f"but {why}")
    if why:
        report_copy(what, why, policy)
        keep = _gather(tensor, pointer)
        pointer = ctypes.addressof(keep)
    return View(pointer, dtype, tuple(tensor.shape[:tensor.ndim]), keep,
                "dlpack", device)


def view(array, what, policy="warn", writable=False):
    """A View of `array`: a torch tensor, a numpy array, any object that speaks
    DLPack, or one with the buffer protocol. `what` names it in errors.

    Raises:
        MoiraError: INVALID_ARGUMENT where it is none of these, lies on another
            device or has elements of another kind.
    """
    if is_torch(array):
        return _from_torch(array, what, policy, writable)
    if is_numpy(array):
        return _from_numpy(array, what, policy, writable)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _from_dlpack(array, what, policy, writable)
    try:
        memoryview(array)
    except TypeError:
        raise invalid(f"{what}: expected an array of numpy, torch, dlpack or "
                      f"the buffer protocol, got {type(array).__name__}"
                      ) from None
    return _from_buffer(array, what, policy, writable)


def places(outs, what):
    """The argument `DLManagedTensor **results` of a call, and what must live
    meanwhile: for each of `outs`, None or an array to be filled."""
    made = (ctypes.POINTER(_abi.DLManagedTensor) * len(outs))()
    kept = []
    for i, array in enumerate(outs):
        if array is None:
            kept.append(None)
            continue
        shown = view(array, what(i), writable=True)
        managed = _abi.DLManagedTensor(dl_tensor=shown.tensor)
        made[i] = ctypes.pointer(managed)
        kept.append((array, shown, managed))
    return made, kept


def shape_only(shape, dtype):
    """A tensor without data, for questions about sizes."""
    return View(None, dtype, shape, None, "shape")


def pointers(views):
    """The argument `const DLTensor *const *` of a call."""
    array = (ctypes.POINTER(DLTensor) * len(views))()
    for i, each in enumerate(views):
        array[i] = ctypes.pointer(each.tensor)
    return array
