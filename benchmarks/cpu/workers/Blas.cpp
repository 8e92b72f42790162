// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A BLAS library: one product per expert and step. usage: moira-bench-blas
// LIBRARY, which is loaded by name.

#include "Serve.h"
#include "Team.h"

#include <dlfcn.h>
#include <memory>

using namespace moira::bench;

namespace {
enum { rowMajor = 101, plain = 111, transposed = 112 };

using Gemm = void (*)(int, int, int, int, int, int, float, const float *, int,
                      const float *, int, float, float *, int);
using Gemv = void (*)(int, int, int, int, float, const float *, int,
                      const float *, int, float, float *, int);

class Blas final : public Implementation {
public:
  /// Returns what went wrong, or nothing.
  std::string load(const char *name);

  std::string version() override;
  std::string prepare(const Case &what, const DataFile &file,
                      std::vector<std::string> &modes) override;
  void run(int mode) override;
  Output output(int) override { return {y.as<float>(), false}; }
  void release() override;

private:
  void group(const Group &group);
  void forward(const Group &group);
  /// out = left * right, or left * right^T.
  void multiply(float *out, const float *left, const float *right, int64_t rows,
                int64_t columns, int64_t steps, bool flip);
  template <typename F> F symbol(const char *name) {
    return reinterpret_cast<F>(dlsym(library, name));
  }
  void setThreads(int threads);

  void *library = nullptr;
  Gemm gemm = nullptr;
  Gemv gemv = nullptr;
  std::unique_ptr<Team> team;
  Case what;
  std::vector<Group> groups;
  Buffer first, second, x, dy, sums, hidden, y;
};
} // namespace

std::string Blas::load(const char *name) {
  library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return dlerror();
  // BLIS checks a forced kernel only once it is initialised.
  if (auto initialize = symbol<void (*)()>("bli_init"))
    initialize();
  gemm = symbol<Gemm>("cblas_sgemm");
  gemv = symbol<Gemv>("cblas_sgemv");
  return gemm && gemv ? "" : "no cblas_sgemm";
}

std::string Blas::version() {
  if (auto config = symbol<const char *(*)()>("openblas_get_config"))
    return std::string(config()) + ", kernel " +
           symbol<const char *(*)()>("openblas_get_corename")();
  if (auto query = symbol<int (*)()>("bli_arch_query_id"))
    return std::string("BLIS ") +
           symbol<const char *(*)()>("bli_info_get_version_str")() +
           ", kernel " +
           symbol<const char *(*)(int)>("bli_arch_string")(query());
  return "unknown";
}

void Blas::setThreads(int threads) {
  if (auto set = symbol<void (*)(int)>("openblas_set_num_threads"))
    set(threads);
  if (auto set = symbol<void (*)(int64_t)>("bli_thread_set_num_threads"))
    set(threads);
}

static Buffer copyOf(const void *from, int64_t floats) {
  Buffer buffer(floats * 4);
  std::memcpy(buffer.as<char>(), from, floats * 4);
  return buffer;
}

std::string Blas::prepare(const Case &wanted, const DataFile &file,
                          std::vector<std::string> &modes) {
  what = wanted;
  if (what.isBf16())
    return "has no bf16 product";
  groups = what.groups();
  team = std::make_unique<Team>(what.threads);
  int64_t matrix = what.hidden * what.width, rows = what.rows();
  auto *gate = static_cast<const float *>(file.find("gate"));
  if (what.part == "forward") {
    // Gate and up as one matrix per expert: one product instead of two.
    first = Buffer(what.experts() * what.hidden * what.stacked() * 4);
    auto *up = static_cast<const float *>(file.find("up"));
    for (int64_t e = 0; e < what.experts(); ++e) {
      float *at = first.as<float>() + e * what.hidden * what.stacked();
      std::memcpy(at, gate + e * matrix, matrix * 4);
      if (what.gated)
        std::memcpy(at + matrix, up + e * matrix, matrix * 4);
    }
    second = copyOf(file.find("down"), what.experts() * matrix);
    sums = Buffer(rows * what.stacked() * 4);
    hidden = Buffer(rows * what.width * 4);
  } else if (what.part == "dx") {
    first = copyOf(gate, what.experts() * matrix);
  }
  if (const void *from = file.find("x"))
    x = copyOf(from, rows * what.hidden);
  if (const void *from = file.find("dy"))
    dy = copyOf(from, rows * what.width);
  y = Buffer(what.resultRows() * what.resultColumns() * 4);
  modes = {"library threads"};
  if (what.threads > 1)
    modes.push_back("over experts");
  return "";
}

void Blas::multiply(float *out, const float *left, const float *right,
                    int64_t rows, int64_t columns, int64_t steps, bool flip) {
  int ldRight = static_cast<int>(flip ? steps : columns);
  if (rows == 1)
    gemv(rowMajor, flip ? plain : transposed,
         static_cast<int>(flip ? columns : steps), ldRight, 1.0f, right,
         ldRight, left, 1, 0.0f, out, 1);
  else
    gemm(rowMajor, plain, flip ? transposed : plain, static_cast<int>(rows),
         static_cast<int>(columns), static_cast<int>(steps), 1.0f, left,
         static_cast<int>(steps), right, ldRight, 0.0f, out,
         static_cast<int>(columns));
}

void Blas::forward(const Group &group) {
  float *sum = sums.as<float>() + group.begin * what.stacked();
  float *inner = hidden.as<float>() + group.begin * what.width;
  multiply(sum, x.as<float>() + group.begin * what.hidden,
           first.as<float>() + group.expert * what.hidden * what.stacked(),
           group.rows, what.stacked(), what.hidden, true);
  for (int64_t r = 0; r < group.rows; ++r) {
    const float *row = sum + r * what.stacked();
    activate(inner + r * what.width, row,
             what.gated ? row + what.width : nullptr, what.width);
  }
  multiply(y.as<float>() + group.begin * what.hidden, inner,
           second.as<float>() + group.expert * what.hidden * what.width,
           group.rows, what.hidden, what.width, true);
}

void Blas::group(const Group &group) {
  if (what.part == "forward")
    return forward(group);
  int64_t matrix = what.hidden * what.width;
  const float *left = dy.as<float>() + group.begin * what.width;
  if (what.part == "dx")
    return multiply(y.as<float>() + group.begin * what.hidden, left,
                    first.as<float>() + group.expert * matrix, group.rows,
                    what.hidden, what.width, false);
  gemm(rowMajor, transposed, plain, static_cast<int>(what.width),
       static_cast<int>(what.hidden), static_cast<int>(group.rows), 1.0f, left,
       static_cast<int>(what.width), x.as<float>() + group.begin * what.hidden,
       static_cast<int>(what.hidden), 0.0f,
       y.as<float>() + group.expert * matrix, static_cast<int>(what.hidden));
}

void Blas::run(int mode) {
  bool overExperts = mode == 1;
  setThreads(overExperts ? 1 : what.threads);
  if (what.part == "dw")
    for (int64_t e = 0; e < what.experts(); ++e)
      if (what.sizes[e] == 0)
        std::memset(y.as<float>() + e * what.hidden * what.width, 0,
                    what.hidden * what.width * 4);
  if (overExperts)
    team->items(static_cast<int64_t>(groups.size()),
                [&](int64_t i, int) { group(groups[i]); });
  else
    for (const Group &one : groups)
      group(one);
}

void Blas::release() {
  for (Buffer *buffer : {&first, &second, &x, &dy, &sums, &hidden, &y})
    *buffer = Buffer();
  team.reset();
}

int main(int argc, char **argv) {
  Blas blas;
  std::string error = argc == 2 ? blas.load(argv[1]) : "expected a library";
  if (!error.empty()) {
    fprintf(stderr, "moira-bench-blas: %s\n", error.c_str());
    return 1;
  }
  return serve(blas);
}
