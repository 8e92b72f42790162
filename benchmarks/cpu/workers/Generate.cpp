// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Generate.h"

#include "Team.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace moira::bench;

namespace {
struct Tensor {
  std::string name;
  bool isBf16 = false;
  std::vector<int64_t> shape;
  float scale = 0; ///< values are uniform in +-scale
  size_t offset = 0, bytes = 0;

  int64_t count() const {
    int64_t all = 1;
    for (int64_t size : shape)
      all *= size;
    return all;
  }
};

/// Rows times a matrix of one expert: columns in panels of 64 in f32, which the
/// caller fills, and a plain loop over each.
constexpr int64_t panelWidth = 64;
constexpr int64_t blockK = 512;
} // namespace

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// Uniform in +-1, a function of the place alone.
static inline float valueAt(uint32_t seed, uint32_t i) {
  uint32_t h = (i ^ seed) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  h = (h ^ (h >> 16)) * 0x27d4eb2fu;
  h ^= h >> 15;
  return static_cast<float>(static_cast<int32_t>(h)) * 0x1p-31f;
}

template <typename T>
static void fill(T *data, int64_t count, uint32_t seed, float scale,
                 Team &team) {
  constexpr int64_t chunk = 1 << 20;
  team.items((count + chunk - 1) / chunk, [&](int64_t item, int) {
    int64_t end = std::min(count, (item + 1) * chunk);
    auto high = static_cast<uint32_t>(item >> 12) * 0x9e3779b9u;
    for (int64_t i = item * chunk; i < end; ++i)
      store(data, i, valueAt(seed ^ high, static_cast<uint32_t>(i)) * scale);
  });
}

//===----------------------------------------------------------------------===//
// The reference
//===----------------------------------------------------------------------===//

/// sums[i][c] += sum over k of left(i, k) * panel[k][c] for up to 4 rows.
template <int count>
static void tile(float *sums, int64_t stride, const float *left,
                 int64_t leftRow, int64_t leftStep, const float *panel,
                 int64_t steps) {
  float acc[count][panelWidth] = {};
  for (int64_t k = 0; k < steps; ++k)
    for (int i = 0; i < count; ++i)
      for (int64_t c = 0; c < panelWidth; ++c)
        acc[i][c] +=
            left[i * leftRow + k * leftStep] * panel[k * panelWidth + c];
  for (int i = 0; i < count; ++i)
    for (int64_t c = 0; c < panelWidth; ++c)
      sums[i * stride + c] += acc[i][c];
}

/// All rows of a panel: in blocks of k, so that no sum is one long chain.
static void multiply(float *sums, int64_t stride, int64_t rows,
                     const float *left, int64_t leftRow, int64_t leftStep,
                     const float *panel, int64_t steps) {
  for (int64_t k = 0; k < steps; k += blockK) {
    int64_t part = std::min(blockK, steps - k);
    int64_t row = 0;
    const float *from = left + k * leftStep;
    for (; row + 4 <= rows; row += 4)
      tile<4>(sums + row * stride, stride, from + row * leftRow, leftRow,
              leftStep, panel + k * panelWidth, part);
    for (; row < rows; ++row)
      tile<1>(sums + row * stride, stride, from + row * leftRow, leftRow,
              leftStep, panel + k * panelWidth, part);
  }
}

namespace {
/// The reference result of one case, element type T.
template <typename T> class Reference {
public:
  Reference(const Case &what, Team &team) : what(what), team(team) {}
  const T *x = nullptr, *dy = nullptr, *gate = nullptr, *up = nullptr,
          *down = nullptr;
  float *result = nullptr;

  void compute() {
    for (const Group &group : what.groups())
      if (what.part == "forward")
        forward(group);
      else if (what.part == "dx")
        product(result + group.begin * what.hidden,
                widen(dy, group, what.width), group.rows, what.width,
                gate + group.expert * matrix(), what.hidden,
                /*transposed=*/false);
      else
        gradient(group);
  }

private:
  int64_t matrix() const { return what.hidden * what.width; }

  static std::vector<float> widen(const T *from, const Group &group,
                                  int64_t columns) {
    std::vector<float> wide(group.rows * columns);
    for (size_t i = 0; i < wide.size(); ++i)
      wide[i] = load(from + group.begin * columns, i);
    return wide;
  }

  /// out[r, n] = sum of left[r, k] * (transposed ? w[n, k] : w[k, n]).
  void product(float *out, const std::vector<float> &left, int64_t rows,
               int64_t steps, const T *w, int64_t columns, bool transposed) {
    std::fill(out, out + rows * columns, 0.0f);
    team.items(columns / panelWidth, [&](int64_t item, int) {
      int64_t n = item * panelWidth;
      std::vector<float> panel(steps * panelWidth);
      if (transposed)
        for (int64_t c = 0; c < panelWidth; ++c)
          for (int64_t k = 0; k < steps; ++k)
            panel[k * panelWidth + c] = load(w, (n + c) * steps + k);
      else
        for (int64_t k = 0; k < steps; ++k)
          for (int64_t c = 0; c < panelWidth; ++c)
            panel[k * panelWidth + c] = load(w, k * columns + n + c);
      multiply(out + n, columns, rows, left.data(), steps, 1, panel.data(),
               steps);
    });
  }

  void forward(const Group &group) {
    int64_t inner = group.rows * what.width;
    std::vector<float> left = widen(x, group, what.hidden);
    std::vector<float> a(inner), b(what.gated ? inner : 0), h(inner);
    product(a.data(), left, group.rows, what.hidden,
            gate + group.expert * matrix(), what.width, true);
    if (what.gated)
      product(b.data(), left, group.rows, what.hidden,
              up + group.expert * matrix(), what.width, true);
    // The hidden rows have the case's element type.
    for (int64_t i = 0; i < inner; ++i) {
      double value = a[i];
      value = what.gated ? value / (1 + std::exp(-value)) * b[i]
                         : std::max(value, 0.0);
      T element;
      store(&element, 0, static_cast<float>(value));
      h[i] = load(&element, 0);
    }
    product(result + group.begin * what.hidden, h, group.rows, what.width,
            down + group.expert * matrix(), what.hidden, true);
  }

  /// dw[n, k] = sum over rows of dy[r, n] * x[r, k].
  void gradient(const Group &group) {
    std::vector<float> left = widen(dy, group, what.width);
    std::vector<float> right = widen(x, group, what.hidden);
    float *out = result + group.expert * matrix();
    team.items(what.hidden / panelWidth, [&](int64_t item, int) {
      std::vector<float> panel(group.rows * panelWidth);
      for (int64_t r = 0; r < group.rows; ++r)
        std::copy_n(&right[r * what.hidden + item * panelWidth], panelWidth,
                    &panel[r * panelWidth]);
      multiply(out + item * panelWidth, what.hidden, what.width, left.data(), 1,
               what.width, panel.data(), group.rows);
    });
  }

  const Case &what;
  Team &team;
};
} // namespace

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

static std::vector<Tensor> tensorsOf(const Case &what) {
  bool half = what.isBf16();
  int64_t e = what.experts(), h = what.hidden, f = what.width, r = what.rows();
  float fromHidden = std::sqrt(3.0f / h), fromWidth = std::sqrt(3.0f / f);
  std::vector<Tensor> all;
  if (what.part != "dx")
    all.push_back({"x", half, {r, h}, 1.7f});
  if (what.part != "forward")
    all.push_back({"dy", half, {r, f}, 1.7f});
  if (what.part != "dw")
    all.push_back({"gate", half, {e, f, h}, fromHidden});
  if (what.part == "forward") {
    if (what.gated)
      all.push_back({"up", half, {e, f, h}, fromHidden});
    all.push_back({"down", half, {e, h, f}, fromWidth});
  }
  all.push_back({"reference", false, {what.resultRows(), h}});
  return all;
}

static std::string headerOf(std::vector<Tensor> &tensors, size_t &size) {
  nlohmann::json header;
  size = 0;
  for (Tensor &tensor : tensors) {
    tensor.offset = size;
    tensor.bytes = tensor.count() * (tensor.isBf16 ? 2 : 4);
    size += tensor.bytes;
    header[tensor.name] = {{"dtype", tensor.isBf16 ? "BF16" : "F32"},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.offset, size}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  return text;
}

template <typename T>
static void fillAll(const Case &what, const std::vector<Tensor> &tensors,
                    char *data) {
  Team team(std::max(1u, std::thread::hardware_concurrency()));
  Reference<T> reference(what, team);
  std::map<std::string, const T **> places = {{"x", &reference.x},
                                              {"dy", &reference.dy},
                                              {"gate", &reference.gate},
                                              {"up", &reference.up},
                                              {"down", &reference.down}};
  uint32_t seed = 0x1234567;
  for (const Tensor &tensor : tensors) {
    char *at = data + tensor.offset;
    if (tensor.name == "reference") {
      reference.result = reinterpret_cast<float *>(at);
      continue;
    }
    T *values = reinterpret_cast<T *>(at);
    fill(values, tensor.count(), seed *= 2654435761u, tensor.scale, team);
    *places[tensor.name] = values;
  }
  reference.compute();
}

std::string moira::bench::generate(const Case &what) {
  std::vector<Tensor> tensors = tensorsOf(what);
  size_t dataSize = 0;
  std::string header = headerOf(tensors, dataSize);
  size_t size = 8 + header.size() + dataSize;
  int file =
      open(what.file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0)
    return what.file + ": " + std::strerror(errno);
  // Space that is not there must be an error here and not a signal later.
  int error = posix_fallocate(file, 0, static_cast<off_t>(size));
  void *base =
      error ? MAP_FAILED
            : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (base == MAP_FAILED)
    return what.file + ": " + std::strerror(error ? error : errno);
  char *bytes = static_cast<char *>(base);
  uint64_t length = header.size();
  std::memcpy(bytes, &length, 8);
  std::memcpy(bytes + 8, header.data(), header.size());
  if (what.isBf16())
    fillAll<uint16_t>(what, tensors, bytes + 8 + length);
  else
    fillAll<float>(what, tensors, bytes + 8 + length);
  munmap(base, size);
  return "";
}
