// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every element type over the border and back.

#include "session/Dlpack.h"
#include "Runtime/TestProgram.h"

#include <cstring>

using namespace moira;
using namespace moira::runtime;

static DLTensor tensorOf(DLDataType dtype, std::vector<int64_t> &shape,
                         void *data) {
  DLTensor tensor{};
  tensor.data = data;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<int>(shape.size());
  tensor.dtype = dtype;
  tensor.shape = shape.data();
  return tensor;
}

TEST(Dlpack, EveryTypeComesBack) {
  for (int32_t i = MOIRA_F32; i <= MOIRA_I64; ++i) {
    auto dtype = static_cast<DataType>(i);
    DLDataType foreign = dlpackType(dtype);
    EXPECT_EQ(foreign.bits, 8 * byteSize(dtype));
    EXPECT_EQ(foreign.lanes, 1);
    std::vector<int64_t> shape = {2, 3};
    char data[64];
    DLTensor tensor = tensorOf(foreign, shape, data);
    Result<TensorView> view = fromDlpack(&tensor);
    ASSERT_OK(view.status());
    EXPECT_EQ(view->dtype, dtype);
    EXPECT_EQ(view->shape, shape);
    EXPECT_EQ(view->data, data);
  }
}

TEST(Dlpack, OlderHeadersHaveBoolsAsBytes) {
  std::vector<int64_t> shape = {1};
  char data[1] = {1};
  DLTensor tensor = tensorOf({kDLUInt, 8, 1}, shape, data);
  Result<TensorView> view = fromDlpack(&tensor);
  ASSERT_OK(view.status());
  EXPECT_EQ(view->dtype, DataType::I1);
}

TEST(Dlpack, OtherTypesAreNamed) {
  std::vector<int64_t> shape = {1};
  char data[16];
  for (DLDataType dtype : {DLDataType{kDLUInt, 32, 1},
                           {kDLFloat, 8, 1},
                           {kDLComplex, 64, 1},
                           {kDLInt, 16, 1}}) {
    DLTensor tensor = tensorOf(dtype, shape, data);
    EXPECT_ERROR(fromDlpack(&tensor).status(), MOIRA_INVALID_ARGUMENT,
                 concat("expected an element type of moira, got dlpack code ",
                        int(dtype.code), " with ", int(dtype.bits),
                        " bits and 1 lanes"));
  }
}

TEST(Dlpack, ScalarsHaveNoShape) {
  float value = 3;
  DLTensor tensor{};
  tensor.data = &value;
  tensor.device = {kDLCPU, 0};
  tensor.dtype = {kDLFloat, 32, 1};
  Result<TensorView> view = fromDlpack(&tensor);
  ASSERT_OK(view.status());
  EXPECT_TRUE(view->shape.empty());
}

TEST(Dlpack, StridesThatOverflowAreFound) {
  std::vector<int64_t> shape = {2, INT64_MAX, 4};
  int64_t strides[] = {1, 4, 1};
  char data[1];
  DLTensor tensor = tensorOf({kDLInt, 8, 1}, shape, data);
  tensor.strides = strides;
  EXPECT_ERROR(fromDlpack(&tensor).status(), MOIRA_INVALID_ARGUMENT,
               "expected a size that fits 64 bits, got more");
}

TEST(Dlpack, ResultsOwnTheirMemory) {
  auto account = std::make_shared<MemoryAccount>();
  for (Shape shape : {Shape{}, Shape{4}, Shape{2, 0, 3}}) {
    Result<Storage> storage =
        Storage::allocate(account, MemoryKind::Results, 16);
    ASSERT_OK(storage.status());
    ResultTensor result;
    result.dtype = DataType::BF16;
    result.shape = shape;
    result.storage = std::make_shared<Storage>(std::move(*storage));
    result.data = result.storage->data();
    DLManagedTensor *managed = toDlpack(std::move(result));
    EXPECT_EQ(managed->dl_tensor.ndim, int(shape.size()));
    EXPECT_EQ(managed->dl_tensor.dtype.code, kDLBfloat);
    for (size_t i = 0; i < shape.size(); ++i)
      EXPECT_EQ(managed->dl_tensor.shape[i], shape[i]);
    EXPECT_EQ(account->figures().results, 16);
    managed->deleter(managed);
    EXPECT_EQ(account->figures().results, 0);
  }
}
