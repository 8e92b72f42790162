// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Dlpack.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

namespace {
struct TypeRow {
  uint8_t code;
  uint8_t bits;
  DataType dtype;
};
} // namespace

/// Newer headers call it kDLBool.
static constexpr uint8_t boolCode = 6;

/// The first row of a type is the one that results carry.
static constexpr TypeRow types[] = {
    {kDLFloat, 32, DataType::F32}, {kDLFloat, 64, DataType::F64},
    {kDLFloat, 16, DataType::F16}, {kDLBfloat, 16, DataType::BF16},
    {boolCode, 8, DataType::I1},   {kDLUInt, 8, DataType::I1},
    {kDLInt, 8, DataType::I8},     {kDLInt, 32, DataType::I32},
    {kDLInt, 64, DataType::I64},
};

DLDataType runtime::dlpackType(DataType dtype) {
  for (const TypeRow &row : types)
    if (row.dtype == dtype)
      return {row.code, row.bits, 1};
  return {}; // every type has a row
}

static Status checkStrides(const DLTensor &tensor) {
  // No element, any stride.
  if (!tensor.strides ||
      std::count(tensor.shape, tensor.shape + tensor.ndim, 0) != 0)
    return Status();
  int64_t wanted = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    int64_t dim = tensor.shape[i];
    // The stride of a dim of 1 is never used.
    if (dim != 1 && tensor.strides[i] != wanted)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected a compact row-major tensor with stride ",
                           wanted, " in dim ", i, ", got ", tensor.strides[i]));
    if (__builtin_mul_overflow(wanted, dim, &wanted))
      return Status(MOIRA_INVALID_ARGUMENT,
                    "expected a size that fits 64 bits, got more");
  }
  return Status();
}

Result<TensorView> runtime::fromDlpack(const DLTensor *tensor, DLDevice gpu) {
  if (!tensor)
    return Status(MOIRA_INVALID_ARGUMENT,
                  "expected a tensor, got a null pointer");
  const DLDevice &there = tensor->device;
  bool onDevice = there.device_type != kDLCPU;
  if (onDevice && (there.device_type != gpu.device_type ||
                   there.device_id != gpu.device_id)) {
    std::string expected =
        concat("expected a tensor on the cpu (device type ", int(kDLCPU), ")");
    std::string got = concat(", got device type ", int(there.device_type));
    if (gpu.device_type != kDLCPU) {
      expected += concat(" or number ", gpu.device_id, " of device type ",
                         int(gpu.device_type));
      got = concat(", got number ", there.device_id, " of device type ",
                   int(there.device_type));
    }
    return Status(MOIRA_INVALID_ARGUMENT, expected + got);
  }
  if (tensor->ndim < 0 || (tensor->ndim > 0 && !tensor->shape))
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("expected a shape, got ", tensor->ndim, " dims without one"));
  for (const TypeRow &row : types) {
    if (tensor->dtype.code != row.code || tensor->dtype.bits != row.bits ||
        tensor->dtype.lanes != 1)
      continue;
    TensorView view;
    view.onDevice = onDevice;
    view.dtype = row.dtype;
    view.shape.assign(tensor->shape, tensor->shape + tensor->ndim);
    for (int64_t dim : view.shape)
      if (dim < 0)
        return Status(MOIRA_INVALID_ARGUMENT,
                      concat("expected dims of 0 or more, got ", dim));
    MOIRA_RETURN_IF_ERROR(checkStrides(*tensor));
    if (tensor->data)
      view.data = static_cast<const char *>(tensor->data) + tensor->byte_offset;
    return view;
  }
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("expected an element type of moira, got dlpack code ",
                       int(tensor->dtype.code), " with ",
                       int(tensor->dtype.bits), " bits and ",
                       tensor->dtype.lanes, " lanes"));
}

namespace {
/// A managed tensor and what it points to.
struct Managed {
  ResultTensor result;
  DLManagedTensor tensor;
};
} // namespace

DLManagedTensor *runtime::toDlpack(ResultTensor result, DLDevice gpu) {
  auto *managed = new Managed{std::move(result), {}};
  DLTensor &tensor = managed->tensor.dl_tensor;
  tensor.data = managed->result.data;
  tensor.device = managed->result.onDevice ? gpu : hostDevice;
  tensor.ndim = static_cast<int>(managed->result.shape.size());
  tensor.shape = managed->result.shape.data();
  tensor.dtype = dlpackType(managed->result.dtype);
  managed->tensor.manager_ctx = managed;
  managed->tensor.deleter = [](DLManagedTensor *self) {
    delete static_cast<Managed *>(self->manager_ctx);
  };
  return &managed->tensor;
}
