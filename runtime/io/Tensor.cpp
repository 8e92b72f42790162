// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "io/Tensor.h"

#include "io/MappedFile.h"

#include <algorithm>

using namespace moira;
using namespace moira::io;

std::optional<int64_t> io::shapeBytes(const Shape &shape, int64_t elementBits) {
  // Two products: the size, and the one in which zeros count as one. The second
  // bounds the first.
  int64_t size = elementBits;
  int64_t guard = elementBits;
  for (int64_t dim : shape) {
    if (dim < 0 ||
        __builtin_mul_overflow(guard, std::max<int64_t>(dim, 1), &guard))
      return std::nullopt;
    size *= dim;
  }
  if (size % 8 != 0)
    return std::nullopt;
  return size / 8;
}

std::optional<int64_t> io::shapeBytes(const Shape &shape, DataType dtype) {
  return shapeBytes(shape, 8 * runtime::byteSize(dtype));
}

std::string io::quoteName(std::string_view text) {
  constexpr size_t longest = 160;
  constexpr const char *digits = "0123456789abcdef";
  std::string out = "'";
  for (char c : text.substr(0, longest)) {
    auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f)
      out += c;
    else
      out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  }
  if (text.size() > longest)
    out += "...";
  return out + "'";
}

bool io::isBoolean(const uint8_t *data, int64_t bytes) {
  return std::all_of(data, data + bytes,
                     [](uint8_t byte) { return byte <= 1; });
}

void MappedTensor::release(int64_t begin, int64_t count) const {
  if (!file || begin < 0 || count < 0 || begin > bytes)
    return;
  file->release(data + begin, std::min(count, bytes - begin));
}

Status io::checkTensor(const MappedTensor &tensor, DataType dtype,
                       const Shape &shape) {
  bool fits = tensor.dtype == dtype && tensor.shape.size() == shape.size() &&
              std::equal(shape.begin(), shape.end(), tensor.shape.begin(),
                         [](int64_t want, int64_t got) {
                           return want < 0 || want == got;
                         });
  if (fits)
    return Status();
  return Status(MOIRA_INVALID_ARGUMENT,
                concat(tensor.file ? tensor.file->path() + ": " : "", "tensor ",
                       quoteName(tensor.name), ": expected ",
                       runtime::toString(dtype, shape), ", got ",
                       runtime::toString(tensor.dtype, tensor.shape)));
}
