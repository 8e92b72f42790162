// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of the C API share.

#ifndef MOIRA_UNITTESTS_RUNTIME_CAPITOOLS_H
#define MOIRA_UNITTESTS_RUNTIME_CAPITOOLS_H

#include "moira/runtime.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

/// Checks the code of a call, and prints its reason where another came.
#define EXPECT_CODE(call, expected)                                            \
  do {                                                                         \
    int32_t moiraCode = (call);                                                \
    EXPECT_EQ(moiraCode, expected) << moira_error_message();                   \
  } while (false)
#define ASSERT_CODE(call, expected)                                            \
  do {                                                                         \
    int32_t moiraCode = (call);                                                \
    ASSERT_EQ(moiraCode, expected) << moira_error_message();                   \
  } while (false)
#define EXPECT_MESSAGE(call, expected, text)                                   \
  do {                                                                         \
    EXPECT_CODE(call, expected);                                               \
    EXPECT_STREQ(moira_error_message(), text);                                 \
  } while (false)

namespace moira::test {

/// A compact CPU tensor over a vector.
template <typename T> struct Tensor {
  Tensor(std::vector<T> data, std::vector<int64_t> shape, DLDataType dtype)
      : data(std::move(data)), shape(std::move(shape)) {
    managed.dl_tensor.data = this->data.data();
    managed.dl_tensor.device = {kDLCPU, 0};
    managed.dl_tensor.ndim = int(this->shape.size());
    managed.dl_tensor.dtype = dtype;
    managed.dl_tensor.shape = this->shape.data();
  }
  Tensor(const Tensor &) = delete;
  DLTensor *dl() { return &managed.dl_tensor; }

  std::vector<T> data;
  std::vector<int64_t> shape;
  DLManagedTensor managed{};
};
struct Floats : Tensor<float> {
  Floats(std::vector<float> data, std::vector<int64_t> shape)
      : Tensor(std::move(data), std::move(shape), {kDLFloat, 32, 1}) {}
};

} // namespace moira::test

#endif // MOIRA_UNITTESTS_RUNTIME_CAPITOOLS_H
