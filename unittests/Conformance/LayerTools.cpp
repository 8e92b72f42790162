// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Conformance/LayerTools.h"

#include <algorithm>
#include <cmath>

using namespace moira;
using namespace moira::conformance;
using namespace moira::reference;

template <typename T>
static std::vector<T> takeFrom(const std::vector<T> &values, int64_t width,
                               const std::vector<int64_t> &rows) {
  std::vector<T> taken;
  for (int64_t row : rows)
    if (!values.empty())
      taken.insert(taken.end(), values.begin() + row * width,
                   values.begin() + (row + 1) * width);
  return taken;
}

template <typename T>
static Matrix<T> takeFrom(const Matrix<T> &matrix,
                          const std::vector<int64_t> &rows) {
  Matrix<T> taken(rows.size(), matrix.cols);
  taken.data = takeFrom(matrix.data, matrix.cols, rows);
  return taken;
}

LayerInputs moira::conformance::takeTokens(const LayerInputs &inputs,
                                           const std::vector<int64_t> &tokens) {
  LayerInputs taken = inputs;
  taken.x = takeFrom(inputs.x, tokens);
  taken.gate.logits = takeFrom(inputs.gate.logits, tokens);
  taken.gate.mask = takeFrom(inputs.gate.mask, 1, tokens);
  taken.gate.secondUniform = takeFrom(inputs.gate.secondUniform, 1, tokens);
  taken.tokenPriority = takeFrom(inputs.tokenPriority, 1, tokens);
  if (inputs.gate.replay)
    taken.gate.replay = takeFrom(*inputs.gate.replay, tokens);
  return taken;
}

Output moira::conformance::takeRows(const Output &output,
                                    const std::vector<int64_t> &rows) {
  Output taken = output;
  taken.shape[0] = rows.size();
  int64_t width = runtime::byteSize(output.dtype);
  for (size_t i = 1; i < output.shape.size(); ++i)
    width *= output.shape[i];
  taken.bytes = takeFrom(output.bytes, width, rows);
  return taken;
}

double moira::conformance::looseTolerance(const Layer &layer,
                                          const LayerResult &result) {
  double largest = 1;
  for (double value : result.y.data)
    if (std::isfinite(value))
      largest = std::max(largest, std::fabs(value));
  // The distance from 1 to the next value of the type.
  double unit = 0;
  switch (layer.rowType) {
  case DType::F32:
    unit = 0x1p-23;
    break;
  case DType::F64:
    unit = 0x1p-52;
    break;
  case DType::BF16:
    unit = 0x1p-7;
    break;
  case DType::F16:
    unit = 0x1p-10;
    break;
  }
  return 8 * unit * largest;
}
