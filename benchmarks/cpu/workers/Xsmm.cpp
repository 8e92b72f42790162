// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libxsmm: its batch-reduce kernels of 64 columns by up to 32 rows, with packed
// weights, inside loops over (expert, 64 columns) shared by all threads.
// libxsmm is column-major: our columns are its rows, our weights its A.

#include "Serve.h"
#include "Team.h"

#include <libxsmm.h>
#include <memory>

using namespace moira::bench;

namespace {
constexpr int64_t panel = 64;
constexpr int64_t rowBlock = 32;
constexpr int64_t chunk = 128; ///< steps of one product in a batch

/// out[rows x 64] (+)= sum over a batch of left[rows x steps] * right[steps x
/// 64], in f32.
class Kernel {
public:
  Kernel(bool isBf16, int64_t rows, int64_t steps, int64_t leftStride,
         int64_t outStride, bool accumulate);
  bool valid() const { return f32 || bf16; }
  void operator()(const void *right, const void *left, float *out,
                  int64_t batch) const {
    unsigned long long count = batch;
    if (f32)
      f32(static_cast<const float *>(right), static_cast<const float *>(left),
          out, &count);
    else
      bf16(static_cast<const libxsmm_bfloat16 *>(right),
           static_cast<const libxsmm_bfloat16 *>(left), out, &count);
  }

private:
  libxsmm_smmfunction_reducebatch_strd f32 = nullptr;
  libxsmm_bsmmfunction_reducebatch_strd bf16 = nullptr;
};

class Xsmm final : public Implementation {
public:
  Xsmm() { libxsmm_init(); }
  std::string version() override {
    return "libxsmm " LIBXSMM_VERSION ", kernels " +
           std::string(libxsmm_get_target_arch());
  }
  std::string prepare(const Case &what, const DataFile &file,
                      std::vector<std::string> &modes) override;
  void run(int mode) override;
  Output output(int) override {
    return {y.as<char>(), what.isBf16() && what.part != "dw"};
  }
  void release() override;

private:
  void pack(Buffer &into, const void *from, int64_t columns, int64_t steps,
            bool transposed);
  template <typename T> void runAs();
  template <typename T>
  void first(const Group &group, int64_t item, int thread);
  template <typename T>
  void product(const Group &group, int64_t item, int thread, const T *left,
               const T *weights, int64_t steps);
  template <typename T> void transpose(const Group &group, int64_t item);
  template <typename T>
  void gradient(const Group &group, int64_t item, int thread);
  /// Calls work(group, item, thread) for `count` items of every group.
  template <typename F> void over(int64_t count, const F &work) {
    team->items(static_cast<int64_t>(groups.size()) * count,
                [&](int64_t i, int thread) {
                  work(groups[i / count], i % count, thread);
                });
  }

  std::unique_ptr<Team> team;
  Case what;
  std::vector<Group> groups;
  std::vector<int64_t> transposedAt; ///< by expert, in `turned`
  std::vector<Buffer> scratch;
  Buffer gate, up, down, x, dy, hidden, y, turned;
};
} // namespace

Kernel::Kernel(bool isBf16, int64_t rows, int64_t steps, int64_t leftStride,
               int64_t outStride, bool accumulate) {
  libxsmm_blasint lda = panel, ldb = static_cast<int>(leftStride),
                  ldc = static_cast<int>(outStride);
  auto m = static_cast<libxsmm_blasint>(panel);
  auto n = static_cast<libxsmm_blasint>(rows);
  auto k = static_cast<libxsmm_blasint>(steps);
  int size = isBf16 ? 2 : 4;
  auto strideA = static_cast<libxsmm_blasint>(panel * steps * size);
  auto strideB = static_cast<libxsmm_blasint>(steps * size);
  float alpha = 1, beta = accumulate ? 1 : 0;
  int prefetch = LIBXSMM_PREFETCH_NONE;
  if (isBf16) {
    int flags = LIBXSMM_GEMM_FLAG_VNNI_A;
    bf16 = libxsmm_bsmmdispatch_reducebatch_strd(m, n, k, strideA, strideB,
                                                 &lda, &ldb, &ldc, &alpha,
                                                 &beta, &flags, &prefetch);
  } else {
    int flags = LIBXSMM_GEMM_FLAG_NONE;
    f32 = libxsmm_smmdispatch_reducebatch_strd(m, n, k, strideA, strideB, &lda,
                                               &ldb, &ldc, &alpha, &beta,
                                               &flags, &prefetch);
  }
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

/// Where (step, column) of a packed panel stands; bf16 in pairs of steps.
template <typename T> static int64_t place(int64_t step, int64_t column) {
  if (sizeof(T) == 4)
    return step * panel + column;
  return (step / 2 * panel + column) * 2 + step % 2;
}

template <typename T>
static void packExpert(T *into, const T *from, int64_t columns, int64_t steps,
                       bool transposed, Team &team) {
  team.items(columns / panel, [&](int64_t p, int) {
    T *at = into + p * panel * steps;
    const T *source = from + p * panel * (transposed ? steps : 1);
    if (transposed)
      for (int64_t c = 0; c < panel; ++c)
        for (int64_t k = 0; k < steps; ++k)
          at[place<T>(k, c)] = source[c * steps + k];
    else
      for (int64_t k = 0; k < steps; ++k)
        for (int64_t c = 0; c < panel; ++c)
          at[place<T>(k, c)] = source[k * columns + c];
  });
}

/// All experts; `transposed`: the weights are [columns, steps].
void Xsmm::pack(Buffer &into, const void *from, int64_t columns, int64_t steps,
                bool transposed) {
  int64_t matrix = columns * steps;
  into = Buffer(what.experts() * matrix * what.elementBytes());
  for (int64_t e = 0; e < what.experts(); ++e)
    if (what.isBf16())
      packExpert(into.as<uint16_t>() + e * matrix,
                 static_cast<const uint16_t *>(from) + e * matrix, columns,
                 steps, transposed, *team);
    else
      packExpert(into.as<float>() + e * matrix,
                 static_cast<const float *>(from) + e * matrix, columns, steps,
                 transposed, *team);
}

static Buffer copyOf(const void *from, size_t bytes) {
  Buffer buffer(bytes);
  std::memcpy(buffer.as<char>(), from, bytes);
  return buffer;
}

std::string Xsmm::prepare(const Case &wanted, const DataFile &file,
                          std::vector<std::string> &modes) {
  what = wanted;
  if (what.hidden % chunk || what.width % chunk)
    return "expected dims that are multiples of 128";
  if (!Kernel(what.isBf16(), 1, chunk, chunk, panel, false).valid())
    return "has no " + what.dtype + " kernel for this processor";
  groups = what.groups();
  team = std::make_unique<Team>(what.threads);
  size_t element = what.elementBytes();
  int64_t h = what.hidden, f = what.width, rows = what.rows();
  int64_t most = groups.empty() ? 0 : groups.front().rows;
  if (what.part == "forward") {
    pack(gate, file.find("gate"), f, h, true);
    if (what.gated)
      pack(up, file.find("up"), f, h, true);
    pack(down, file.find("down"), h, f, true);
    hidden = Buffer(rows * f * element);
  } else if (what.part == "dx") {
    pack(gate, file.find("gate"), h, f, false);
  } else {
    int64_t all = 0;
    transposedAt.assign(what.experts(), 0);
    for (const Group &group : groups) {
      transposedAt[group.expert] = all;
      all += (group.rows + 1) / 2 * 2 * f;
    }
    turned = Buffer(all * element);
  }
  scratch.clear();
  for (int i = 0; i < what.threads; ++i)
    scratch.emplace_back(
        std::max<int64_t>(2 * rowBlock, what.part == "dw" ? most + 1 : 0) *
        panel * 4);
  if (const void *from = file.find("x"))
    x = copyOf(from, rows * h * element);
  if (const void *from = file.find("dy"))
    dy = copyOf(from, rows * f * element);
  y = Buffer(what.resultRows() * what.resultColumns() *
             (what.part == "dw" ? 4 : element));
  modes = {""};
  return "";
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// 64 hidden columns of a group: gate, up, activation.
template <typename T>
void Xsmm::first(const Group &group, int64_t item, int thread) {
  int64_t steps = what.hidden, columns = what.width;
  const T *left = x.as<T>() + group.begin * steps;
  const T *gates =
      gate.as<T>() + group.expert * steps * columns + item * panel * steps;
  const T *ups = what.gated ? up.as<T>() + group.expert * steps * columns +
                                  item * panel * steps
                            : nullptr;
  float *a = scratch[thread].as<float>(), *b = a + rowBlock * panel;
  for (int64_t row = 0; row < group.rows; row += rowBlock) {
    int64_t count = std::min(rowBlock, group.rows - row);
    Kernel kernel(what.isBf16(), count, chunk, steps, panel, false);
    kernel(gates, left + row * steps, a, steps / chunk);
    if (ups)
      kernel(ups, left + row * steps, b, steps / chunk);
    for (int64_t i = 0; i < count; ++i)
      activate(hidden.as<T>() + (group.begin + row + i) * columns +
                   item * panel,
               a + i * panel, ups ? b + i * panel : nullptr, panel);
  }
}

/// 64 columns of the result of a group.
template <typename T>
void Xsmm::product(const Group &group, int64_t item, int thread, const T *left,
                   const T *weights, int64_t steps) {
  int64_t columns = what.hidden;
  left += group.begin * steps;
  weights += group.expert * steps * columns + item * panel * steps;
  for (int64_t row = 0; row < group.rows; row += rowBlock) {
    int64_t count = std::min(rowBlock, group.rows - row);
    int64_t at = (group.begin + row) * columns + item * panel;
    if (sizeof(T) == 4) {
      Kernel kernel(false, count, chunk, steps, columns, false);
      kernel(weights, left + row * steps, y.as<float>() + at, steps / chunk);
      continue;
    }
    Kernel kernel(true, count, chunk, steps, panel, false);
    float *sums = scratch[thread].as<float>();
    kernel(weights, left + row * steps, sums, steps / chunk);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = 0; c < panel; ++c)
        y.as<uint16_t>()[at + i * columns + c] = toBf16(sums[i * panel + c]);
  }
}

/// 64 columns of dy of a group, with the rows as the inner dim.
template <typename T> void Xsmm::transpose(const Group &group, int64_t item) {
  int64_t stride = sizeof(T) == 4 ? group.rows : (group.rows + 1) / 2 * 2;
  T *into = turned.as<T>() + transposedAt[group.expert];
  const T *from = dy.as<T>() + group.begin * what.width;
  for (int64_t r = 0; r < group.rows; ++r)
    for (int64_t c = item * panel; c < (item + 1) * panel; ++c)
      into[c * stride + r] = from[r * what.width + c];
}

/// 64 columns of the gradient of one expert.
template <typename T>
void Xsmm::gradient(const Group &group, int64_t item, int thread) {
  bool half = sizeof(T) == 2;
  int64_t rows = half ? (group.rows + 1) / 2 * 2 : group.rows;
  T *right = scratch[thread].as<T>();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < panel; ++c)
      right[place<T>(r, c)] =
          r < group.rows
              ? x.as<T>()[(group.begin + r) * what.hidden + item * panel + c]
              : T(0);
  const T *left = turned.as<T>() + transposedAt[group.expert];
  float *out =
      y.as<float>() + group.expert * what.hidden * what.width + item * panel;
  int64_t whole = rows / chunk, rest = rows % chunk;
  for (int64_t n = 0; n < what.width; n += rowBlock) {
    float *to = out + n * what.hidden;
    if (whole)
      Kernel(half, rowBlock, chunk, rows, what.hidden,
             false)(right, left + n * rows, to, whole);
    if (rest)
      Kernel(half, rowBlock, rest, rows, what.hidden,
             whole > 0)(right + whole * chunk * panel,
                        left + n * rows + whole * chunk, to, 1);
  }
}

template <typename T> void Xsmm::runAs() {
  int64_t h = what.hidden / panel, f = what.width / panel;
  if (what.part == "forward") {
    over(f, [&](const Group &group, int64_t item, int thread) {
      first<T>(group, item, thread);
    });
    over(h, [&](const Group &group, int64_t item, int thread) {
      product<T>(group, item, thread, hidden.as<T>(), down.as<T>(), what.width);
    });
  } else if (what.part == "dx") {
    over(h, [&](const Group &group, int64_t item, int thread) {
      product<T>(group, item, thread, dy.as<T>(), gate.as<T>(), what.width);
    });
  } else {
    for (int64_t e = 0; e < what.experts(); ++e)
      if (what.sizes[e] == 0)
        std::memset(y.as<float>() + e * what.hidden * what.width, 0,
                    what.hidden * what.width * 4);
    over(f, [&](const Group &group, int64_t item, int) {
      transpose<T>(group, item);
    });
    over(h, [&](const Group &group, int64_t item, int thread) {
      gradient<T>(group, item, thread);
    });
  }
}

void Xsmm::run(int) {
  if (what.isBf16())
    runAs<uint16_t>();
  else
    runAs<float>();
}

void Xsmm::release() {
  for (Buffer *buffer : {&gate, &up, &down, &x, &dy, &hidden, &y, &turned})
    *buffer = Buffer();
  scratch.clear();
  team.reset();
}

int main() {
  Xsmm xsmm;
  return serve(xsmm);
}
