# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types and numbers of the headers of moira/ and of dlpack.h.

A test compiles the headers and compares every size, place and value.
"""

import ctypes
import enum
from ctypes import (POINTER, Structure, c_char_p, c_double, c_int32, c_int64,
                    c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)

#: MOIRA_ABI_VERSION of the headers that this package was written for.
ABI_VERSION = 3


class Status(enum.IntEnum):
    """The codes that a call of the runtime may end with."""

    OK = 0
    INVALID_ARGUMENT = 1
    OUT_OF_MEMORY = 2
    NOT_FOUND = 3
    DATA_LOSS = 4
    VERSION = 5
    UNAVAILABLE = 6
    FAILED = 7


#: Names of element types, in the order of MOIRA_F32 = 0 and so on.
DTYPES = ("f32", "f64", "f16", "bf16", "i1", "i8", "i32", "i64")

#: Parts of a step, in the order of MOIRA_PART_OTHER = 0 and so on.
PARTS = ("other", "gate", "dispatch", "expert", "combine", "exchange")


class DLDevice(Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device", DLDevice), ("ndim", c_int32),
                ("dtype", DLDataType), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class DLManagedTensor(Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p),
                ("deleter", c_void_p)]


class DLManagedTensorVersioned(Structure):
    """Of DLPack 1; the runtime itself speaks the older form."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32),
                ("manager_ctx", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("dl_tensor", DLTensor)]


CPU = 1  # kDLCPU
CUDA = 2  # kDLCUDA
EXTERNAL = 12  # kDLExtDev, the emulated device
READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

# (code, bits) of DLPack by name; kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4,
# kDLBool 6.
DLPACK_TYPES = {"f32": (2, 32), "f64": (2, 64), "f16": (2, 16),
                "bf16": (4, 16), "i1": (6, 8), "i8": (0, 8), "i32": (0, 32),
                "i64": (0, 64)}
DTYPE_OF = {pair: name for name, pair in DLPACK_TYPES.items()}
DTYPE_OF[(1, 8)] = "i1"
ITEMSIZE = {name: bits // 8 for name, (_, bits) in DLPACK_TYPES.items()}


class Sized(Structure):
    """A struct that begins with its size, which may grow."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class EntryInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("name", c_char_p),
                ("inputs", c_int32), ("results", c_int32),
                ("variants", c_int32), ("ranks", c_int32)]


class TensorInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("name", c_char_p),
                ("dtype", c_int32), ("dlpack", DLDataType), ("rank", c_int32),
                ("shape", POINTER(c_int64))]


class SessionOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("threads", c_int32),
                ("memory_limit", c_int64), ("statistics_steps", c_int32),
                ("log_level", c_int32), ("ranks", c_void_p),
                ("device", c_char_p)]


class PlanOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("degree", c_int32),
                ("exchange", c_int32), ("slot_table", POINTER(c_int32)),
                ("slot_count", c_int64), ("shadows", POINTER(c_int32)),
                ("shadow_count", c_int32)]


class MemoryInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("parameters", c_int64),
                ("workspace", c_int64), ("results", c_int64),
                ("peak", c_int64), ("limit", c_int64),
                ("residuals", c_int64), ("training", c_int64)]


class UpdateOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("rule", c_int32),
                ("learning_rate", c_double), ("momentum", c_double),
                ("nesterov", c_int32), ("beta1", c_double),
                ("beta2", c_double), ("epsilon", c_double),
                ("weight_decay", c_double), ("gradient_scale", c_double)]


class StepRow(Sized):
    _fields_ = [("struct_size", c_uint32), ("step", c_int64),
                ("entry", c_int32), ("variant", c_int32), ("rows", c_int64),
                ("error", c_int32), ("layers", c_int32), ("total", c_double),
                ("seconds", c_double * len(PARTS))]


class LayerRow(Sized):
    _fields_ = [("struct_size", c_uint32), ("layer", c_int64),
                ("experts", c_int64), ("counts", POINTER(c_int32)),
                ("sizes", POINTER(c_int32)), ("routed", c_int64),
                ("dropped", c_int64), ("degree", c_int32),
                ("exchange", c_int32), ("seconds", c_double * len(PARTS)),
                ("ranks", c_int32), ("matrix", POINTER(c_int32)),
                ("bytes_sent", c_int64), ("bytes_received", c_int64),
                ("shadows", POINTER(c_int32)), ("shadow_count", c_int32),
                ("predicted", c_double), ("reason", c_char_p)]


class RanksOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("ranks_per_node", c_int32),
                ("timeout", c_double), ("transport", c_char_p),
                ("virtual_clock", c_int32), ("topology", c_char_p)]


class RanksAddress(Sized):
    _fields_ = [("struct_size", c_uint32), ("rank", c_int32),
                ("ranks", c_int32), ("host", c_char_p), ("port", c_int32),
                ("job", c_char_p)]


class RanksInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("rank", c_int32),
                ("ranks", c_int32), ("transport", c_char_p),
                ("virtual_clock", c_int32)]


class AdaptOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("mode", c_int32),
                ("lag", c_int32), ("max_shadows", c_int32),
                ("degrees", POINTER(c_int32)), ("degree_count", c_int32),
                ("trial_loss", c_double), ("initial_loss", c_double),
                ("trial_spacing", c_int32), ("trials_per_bucket", c_int32),
                ("numerics", c_char_p), ("qualified", c_char_p),
                ("topology", c_char_p), ("calibration", c_char_p),
                ("flight_log", c_char_p), ("replay", c_char_p)]


class RebalanceOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("threshold", c_double),
                ("max_rounds", c_int32), ("steps", c_int64),
                ("topology", c_char_p), ("calibration", c_char_p)]


#: The structs above by their names in the headers.
STRUCTS = {
    "DLTensor": DLTensor, "DLManagedTensor": DLManagedTensor,
    "moira_entry_info": EntryInfo, "moira_tensor_info": TensorInfo,
    "moira_session_options": SessionOptions,
    "moira_plan_options": PlanOptions, "moira_memory": MemoryInfo,
    "moira_update_options": UpdateOptions,
    "moira_step_row": StepRow, "moira_layer_row": LayerRow,
    "moira_ranks_options": RanksOptions, "moira_ranks_address": RanksAddress,
    "moira_ranks_info": RanksInfo, "moira_adapt_options": AdaptOptions,
    "moira_rebalance_options": RebalanceOptions,
}

_HANDLE = c_void_p
_OUT = POINTER(c_void_p)
_TENSORS = POINTER(POINTER(DLTensor))
_RESULTS = POINTER(POINTER(DLManagedTensor))

#: Functions of the headers: result type and argument types. c_int32 as the
#: result type means a code, which the caller checks.
FUNCTIONS = {
    "moira_version": (c_char_p, []),
    "moira_abi_version": (c_uint32, []),
    "moira_error_message": (c_char_p, []),
    "moira_status_name": (c_char_p, [c_int32]),
    "moira_bundle_open": (c_int32, [c_char_p, _OUT]),
    "moira_bundle_open_memory": (c_int32, [c_void_p, c_size_t, _OUT]),
    "moira_bundle_close": (None, [_HANDLE]),
    "moira_bundle_grid": (c_int32, [_HANDLE, c_int32, POINTER(c_int32)]),
    "moira_bundle_for_ranks": (c_int32, [_HANDLE, c_int32, _OUT]),
    "moira_bundle_manifest": (c_int32, [_HANDLE, POINTER(c_char_p)]),
    "moira_bundle_entry": (c_int32, [_HANDLE, c_int32, POINTER(EntryInfo)]),
    "moira_bundle_input": (
        c_int32, [_HANDLE, c_int32, c_int32, POINTER(TensorInfo)]),
    "moira_bundle_result": (
        c_int32, [_HANDLE, c_int32, c_int32, POINTER(TensorInfo)]),
    "moira_bundle_variant": (
        c_int32, [_HANDLE, c_int32, c_int32, POINTER(c_char_p)]),
    "moira_session_create": (
        c_int32, [_HANDLE, POINTER(SessionOptions), _OUT]),
    "moira_session_destroy": (None, [_HANDLE]),
    "moira_session_bind": (c_int32, [_HANDLE, c_char_p, POINTER(DLTensor)]),
    "moira_session_bind_checkpoint": (c_int32, [_HANDLE, c_char_p]),
    "moira_session_bind_random": (c_int32, [_HANDLE, c_uint64]),
    "moira_session_unbound": (
        c_int32, [_HANDLE, POINTER(c_int64), POINTER(c_char_p)]),
    "moira_session_set_variant": (c_int32, [_HANDLE, c_char_p, c_char_p]),
    "moira_session_set_plan": (c_int32, [_HANDLE, POINTER(PlanOptions)]),
    "moira_session_set_layer_plan": (
        c_int32, [_HANDLE, c_int64, POINTER(PlanOptions)]),
    "moira_session_invoke": (
        c_int32, [_HANDLE, c_char_p, _TENSORS, c_int32, _RESULTS, c_int32]),
    "moira_session_predict_peak": (
        c_int32, [_HANDLE, c_char_p, _TENSORS, c_int32, POINTER(c_int64)]),
    "moira_session_forward": (
        c_int32, [_HANDLE, c_char_p, _TENSORS, c_int32, _RESULTS, c_int32,
                  _OUT]),
    "moira_residuals_destroy": (None, [_HANDLE]),
    "moira_session_backward": (
        c_int32, [_HANDLE, _HANDLE, _TENSORS, c_int32, _RESULTS, c_int32]),
    "moira_session_accumulate": (
        c_int32, [_HANDLE, _HANDLE, _TENSORS, c_int32, _RESULTS, c_int32]),
    "moira_session_zero_gradients": (c_int32, [_HANDLE]),
    "moira_session_gradient_norm": (c_int32, [_HANDLE, POINTER(c_double)]),
    "moira_update_defaults": (c_int32, [POINTER(UpdateOptions), c_int32]),
    "moira_session_update": (c_int32, [_HANDLE, POINTER(UpdateOptions)]),
    "moira_session_memory": (c_int32, [_HANDLE, POINTER(MemoryInfo)]),
    "moira_session_statistics": (c_int32, [_HANDLE, _OUT]),
    "moira_statistics_destroy": (None, [_HANDLE]),
    "moira_statistics_steps": (c_int64, [_HANDLE]),
    "moira_statistics_step": (c_int32, [_HANDLE, c_int64, POINTER(StepRow)]),
    "moira_statistics_layer": (
        c_int32, [_HANDLE, c_int64, c_int32, POINTER(LayerRow)]),
    "moira_ranks_threads": (c_int32, [c_int32, POINTER(RanksOptions), _OUT]),
    "moira_ranks_launched": (c_int32, [POINTER(RanksOptions), _OUT]),
    "moira_ranks_connect": (
        c_int32, [POINTER(RanksAddress), POINTER(RanksOptions), _OUT]),
    "moira_ranks_destroy": (None, [_HANDLE]),
    "moira_ranks_describe": (c_int32, [_HANDLE, POINTER(RanksInfo)]),
    "moira_ranks_barrier": (c_int32, [_HANDLE]),
    "moira_ranks_broadcast": (c_int32, [_HANDLE, c_int32, c_void_p, c_int64]),
    "moira_ranks_sum": (c_int32, [_HANDLE, c_void_p, c_int64, c_int32]),
    "moira_ranks_interrupt": (None, [_HANDLE]),
    "moira_adapt_defaults": (c_int32, [POINTER(AdaptOptions)]),
    "moira_session_adapt": (
        c_int32, [_HANDLE, c_char_p, POINTER(AdaptOptions)]),
    "moira_session_stop_adapting": (c_int32, [_HANDLE, c_char_p]),
    "moira_text_free": (None, [c_void_p]),
    "moira_session_candidates": (c_int32, [_HANDLE, c_char_p, _OUT]),
    "moira_session_force": (c_int32, [_HANDLE, c_char_p, c_char_p]),
    "moira_session_forbid": (c_int32, [_HANDLE, c_char_p, c_char_p, c_int32]),
    "moira_session_explain": (c_int32, [_HANDLE, c_char_p, _OUT]),
    "moira_session_save_learned": (c_int32, [_HANDLE, c_char_p, _OUT]),
    "moira_session_load_learned": (c_int32, [_HANDLE, c_char_p, c_char_p]),
    "moira_statistics_json": (c_int32, [_HANDLE, c_int64, _OUT]),
    "moira_session_announce_tokens": (c_int32, [_HANDLE, c_char_p, c_int64]),
    "moira_session_slot_table": (
        c_int32, [_HANDLE, c_int64, POINTER(c_int32), c_int64,
                  POINTER(c_int64)]),
    "moira_session_move_weights": (
        c_int32, [_HANDLE, c_int64, POINTER(c_int32), c_int64]),
    "moira_session_count_loads": (
        c_int32, [_HANDLE, c_char_p, POINTER(RebalanceOptions)]),
    "moira_session_rebalance": (
        c_int32, [_HANDLE, c_char_p, POINTER(c_int64)]),
}
