// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_UNITTESTS_RUNTIME_MEMORYSOURCE_H
#define MOIRA_UNITTESTS_RUNTIME_MEMORYSOURCE_H

#include "base/Convert.h"
#include "session/ParameterSource.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace moira::test {

/// Tensors in memory, under names, with a record of what was let go.
class MemorySource final : public runtime::ParameterSource {
public:
  void add(const std::string &name, const std::vector<float> &data,
           runtime::Shape shape,
           runtime::DataType dtype = runtime::DataType::F32, int offset = 0) {
    std::vector<char> bytes(data.size() * runtime::byteSize(dtype) + offset);
    runtime::convert(runtime::DataType::F32, data.data(), dtype,
                     bytes.data() + offset, data.size());
    tensors[name] = {dtype, std::move(shape), std::move(bytes), offset};
  }
  Result<runtime::TensorView> find(const std::string &name) override {
    asked.insert(name);
    auto found = tensors.find(name);
    if (found == tensors.end())
      return Status(MOIRA_NOT_FOUND, "memory: expected a tensor, got none");
    const Tensor &tensor = found->second;
    return runtime::TensorView{tensor.dtype, tensor.shape,
                               tensor.bytes.data() + tensor.offset};
  }
  void releasePages(const void *begin, int64_t bytes) override {
    std::lock_guard<std::mutex> lock(mutex);
    EXPECT_TRUE(released.emplace(begin, bytes).second) << "let go twice";
  }
  std::string describe() const override { return "memory"; }

  std::map<const void *, int64_t> released;
  std::set<std::string> asked;

private:
  struct Tensor {
    runtime::DataType dtype;
    runtime::Shape shape;
    std::vector<char> bytes;
    int offset;
  };
  std::map<std::string, Tensor> tensors;
  std::mutex mutex;
};

} // namespace moira::test

#endif // MOIRA_UNITTESTS_RUNTIME_MEMORYSOURCE_H
