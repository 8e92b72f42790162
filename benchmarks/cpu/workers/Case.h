// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is measured: one case, its data file, and small helpers for numbers.
// Every worker is compiled for the machine it runs on.

#ifndef MOIRA_BENCHMARKS_CPU_CASE_H
#define MOIRA_BENCHMARKS_CPU_CASE_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace moira::bench {

/// The rows of one expert in the sorted rows.
struct Group {
  int64_t expert = 0;
  int64_t begin = 0;
  int64_t rows = 0;
};

/// What the coordinator asks for. `part` is "forward" (gate and up, activation,
/// down), "dx" (dX[r,k] = sum over n of dY[r,n] W[n,k]), "dw" (dW[n,k] = sum
/// over a group's rows of dY[r,n] X[r,k]), "layer" or "movement" (the last two
/// for Moira alone).
struct Case {
  std::string name, part, dtype;
  std::string file; ///< safetensors; empty for parts without weights
  int threads = 1;
  int64_t hidden = 0;         ///< H: columns of a row
  int64_t width = 0;          ///< F: columns inside an expert
  bool gated = true;          ///< SiLU(gate) * up; else ReLU of one product
  std::vector<int32_t> sizes; ///< rows per expert
  int64_t tokens = 0;         ///< of a layer
  int64_t topK = 0;

  bool isBf16() const { return dtype == "bf16"; }
  int64_t elementBytes() const { return isBf16() ? 2 : 4; }
  int64_t experts() const { return static_cast<int64_t>(sizes.size()); }
  int64_t rows() const;
  /// Columns of the first product: gate and up side by side.
  int64_t stacked() const { return gated ? 2 * width : width; }
  /// Rows and columns of the result.
  int64_t resultRows() const;
  int64_t resultColumns() const { return hidden; }
  double flops() const;
  /// What must come from or go to memory at least once: the weights of experts
  /// with rows; for dw the gradient and the rows.
  double bytes() const;
  /// Experts with rows, the largest first.
  std::vector<Group> groups() const;
};

/// A safetensors file in memory, as somebody else wrote it.
class DataFile {
public:
  DataFile() = default;
  ~DataFile() { close(); }
  DataFile(const DataFile &) = delete;
  DataFile &operator=(const DataFile &) = delete;

  /// Returns what went wrong, or nothing.
  std::string open(const std::string &path);
  void close();
  /// Null where the file has no such tensor.
  const void *find(const std::string &name) const;

private:
  void *base = nullptr;
  size_t size = 0;
  std::map<std::string, size_t> offsets;
};

/// Zeroed memory in huge pages, given back by the destructor.
class Buffer {
public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(Buffer &&other) noexcept { *this = std::move(other); }
  Buffer &operator=(Buffer &&other) noexcept;

  template <typename T> T *as() const { return static_cast<T *>(data); }
  size_t bytes() const { return size; }

private:
  void *data = nullptr, *base = nullptr;
  size_t size = 0, mapped = 0;
};

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

inline float fromBf16(uint16_t value) {
  uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

/// To nearest even; for finite values.
inline uint16_t toBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float load(const float *data, int64_t i) { return data[i]; }
inline float load(const uint16_t *data, int64_t i) { return fromBf16(data[i]); }
inline void store(float *data, int64_t i, float value) { data[i] = value; }
inline void store(uint16_t *data, int64_t i, float value) {
  data[i] = toBf16(value);
}

/// exp for |x| < 87 within a few ulp, in operations that vectorise.
inline float fastExp(float x) {
  x = x > 87.0f ? 87.0f : x < -87.0f ? -87.0f : x;
  float n = std::floor(x * 1.44269504f + 0.5f);
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return p * scale;
}

/// One row of hidden values from a row of gate values and one of up values, or
/// from the one row of an expert without a gate (`up` null).
template <typename T>
inline void activate(T *hidden, const float *gate, const float *up,
                     int64_t columns) {
  if (up)
    for (int64_t i = 0; i < columns; ++i)
      store(hidden, i, gate[i] / (1.0f + fastExp(-gate[i])) * up[i]);
  else
    for (int64_t i = 0; i < columns; ++i)
      store(hidden, i, gate[i] > 0 ? gate[i] : 0.0f);
}

} // namespace moira::bench

#endif // MOIRA_BENCHMARKS_CPU_CASE_H
