// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Any bytes are an array or an error of one line; an array's bytes are in
// bounds.

#include "io/Npy.h"

#include <cstdlib>

using namespace moira;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (bool voidAsBf16 : {false, true}) {
    Result<io::MappedTensor> tensor =
        io::parseNpy(data, static_cast<int64_t>(size), "input", {voidAsBf16});
    if (!tensor.ok()) {
      const std::string &message = tensor.status().message;
      if (message.empty() || message.find('\n') != std::string::npos)
        std::abort();
      continue;
    }
    if (tensor->data < data || tensor->data + tensor->bytes != data + size ||
        runtime::compactBytes(tensor->dtype, tensor->shape) != tensor->bytes)
      std::abort();
  }
  return 0;
}
