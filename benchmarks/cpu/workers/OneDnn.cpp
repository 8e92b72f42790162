// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// oneDNN: one matmul primitive per expert and step, made before the clock
// starts; weights as the model has them ("plain") or in the order that the
// primitive asks for ("packed").

#include "Serve.h"
#include "Team.h"

#include <dlfcn.h>
#include <dnnl.hpp>
#include <memory>

using namespace moira::bench;
using dnnl::memory;

namespace {
/// One product of one group with everything it needs.
struct Product {
  dnnl::matmul primitive;
  memory left, right, result;
  memory::desc scratch;

  void run(dnnl::stream &stream, void *scratchData, dnnl::engine &engine) {
    primitive.execute(
        stream, {{DNNL_ARG_SRC, left},
                 {DNNL_ARG_WEIGHTS, right},
                 {DNNL_ARG_DST, result},
                 {DNNL_ARG_SCRATCHPAD, memory(scratch, engine, scratchData)}});
    stream.wait();
  }
};

/// The products of one way to run.
struct Way {
  std::string name;
  bool packed = false, overExperts = false;
  std::vector<Product> first, second; ///< by place in the groups
};

class OneDnn final : public Implementation {
public:
  std::string version() override;
  std::string prepare(const Case &what, const DataFile &file,
                      std::vector<std::string> &modes) override;
  void run(int mode) override;
  Output output(int) override {
    return {y.as<char>(), what.isBf16() && what.part != "dw"};
  }
  void release() override;

private:
  void make(Way &way);
  Product product(const Way &way, const memory::desc &left, const char *leftAt,
                  const memory::desc &right, const char *rightAt,
                  const memory::desc &result, char *resultAt);
  memory weights(const memory::desc &wanted, const memory::desc &plain,
                 const char *at);
  void runGroup(Way &way, size_t i, int thread);

  memory::data_type type() const {
    return what.isBf16() ? memory::data_type::bf16 : memory::data_type::f32;
  }

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::vector<dnnl::stream> streams;
  std::vector<Buffer> scratch;
  std::unique_ptr<Team> team;
  Case what;
  std::vector<Group> groups;
  std::vector<Way> ways;
  std::map<const char *, std::vector<memory>> packedWeights;
  std::vector<Buffer> owned;
  Buffer first, second, x, dy, sums, hidden, y;
};
} // namespace

std::string OneDnn::version() {
  const dnnl_version_t *v = dnnl_version();
  std::string isa =
      std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa()));
  switch (dnnl::get_effective_cpu_isa()) {
  case dnnl::cpu_isa::avx2:
    isa = "avx2";
    break;
  case dnnl::cpu_isa::avx512_core:
    isa = "avx512_core";
    break;
  case dnnl::cpu_isa::avx512_core_vnni:
    isa = "avx512_core_vnni";
    break;
  case dnnl::cpu_isa::avx512_core_bf16:
    isa = "avx512_core_bf16";
    break;
  default:
    break;
  }
  return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) +
         "." + std::to_string(v->patch) + ", kernels " + isa;
}

/// Threads of the primitives that this thread makes and runs from now on, in
/// the OpenMP runtime that the library brought along.
static void setThreads(int threads) {
  static auto set = reinterpret_cast<void (*)(int)>(
      dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set)
    set(threads);
}

static Buffer copyOf(const void *from, size_t bytes) {
  Buffer buffer(bytes);
  std::memcpy(buffer.as<char>(), from, bytes);
  return buffer;
}

std::string OneDnn::prepare(const Case &wanted, const DataFile &file,
                            std::vector<std::string> &modes) {
  what = wanted;
  groups = what.groups();
  team = std::make_unique<Team>(what.threads);
  // In threads of the team a primitive may not start threads of its own.
  team->each([](int thread) {
    if (thread > 0)
      setThreads(1);
  });
  for (int i = 0; i < what.threads; ++i) {
    streams.emplace_back(engine);
    scratch.emplace_back();
  }
  size_t element = what.elementBytes();
  int64_t matrix = what.hidden * what.width, rows = what.rows();
  auto *gate = static_cast<const char *>(file.find("gate"));
  if (what.part == "forward") {
    size_t bytes = matrix * element;
    first = Buffer(what.experts() * what.hidden * what.stacked() * element);
    auto *up = static_cast<const char *>(file.find("up"));
    for (int64_t e = 0; e < what.experts(); ++e) {
      char *at = first.as<char>() + e * what.hidden * what.stacked() * element;
      std::memcpy(at, gate + e * bytes, bytes);
      if (what.gated)
        std::memcpy(at + bytes, up + e * bytes, bytes);
    }
    second = copyOf(file.find("down"), what.experts() * bytes);
    sums = Buffer(rows * what.stacked() * 4);
    hidden = Buffer(rows * what.width * element);
  } else if (what.part == "dx") {
    first = copyOf(gate, what.experts() * matrix * element);
  }
  if (const void *from = file.find("x"))
    x = copyOf(from, rows * what.hidden * element);
  if (const void *from = file.find("dy"))
    dy = copyOf(from, rows * what.width * element);
  y = Buffer(what.resultRows() * what.resultColumns() *
             (what.part == "dw" ? 4 : element));
  try {
    for (bool packed : {true, false}) {
      if (packed && what.part == "dw")
        continue; // both operands are activations
      for (bool overExperts : {false, true}) {
        if (overExperts && what.threads == 1)
          continue;
        Way way;
        way.packed = packed;
        way.overExperts = overExperts;
        way.name = std::string(packed ? "packed" : "plain") +
                   (overExperts ? ", over experts" : "");
        setThreads(overExperts ? 1 : what.threads);
        make(way);
        ways.push_back(std::move(way));
      }
    }
  } catch (const dnnl::error &error) {
    return error.message;
  }
  for (const Way &way : ways)
    modes.push_back(way.name);
  return "";
}

/// Weights in the order that a primitive asks for, made once per expert.
memory OneDnn::weights(const memory::desc &wanted, const memory::desc &plain,
                       const char *at) {
  memory source(plain, engine, const_cast<char *>(at));
  if (wanted == plain)
    return source;
  std::vector<memory> &known = packedWeights[at];
  for (const memory &one : known)
    if (one.get_desc() == wanted)
      return one;
  owned.emplace_back(wanted.get_size());
  memory target(wanted, engine, owned.back().as<char>());
  dnnl::reorder(source, target).execute(streams[0], source, target);
  streams[0].wait();
  known.push_back(target);
  return target;
}

Product OneDnn::product(const Way &way, const memory::desc &left,
                        const char *leftAt, const memory::desc &right,
                        const char *rightAt, const memory::desc &result,
                        char *resultAt) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  memory::desc any(right.dims(), right.data_type(), memory::format_tag::any);
  dnnl::matmul::desc description(left, way.packed ? any : right, result);
  dnnl::matmul::primitive_desc made(description, attributes, engine);
  Product product;
  product.primitive = dnnl::matmul(made);
  product.left = memory(left, engine, const_cast<char *>(leftAt));
  product.right = weights(made.weights_desc(), right, rightAt);
  product.result = memory(result, engine, resultAt);
  product.scratch = made.scratchpad_desc();
  for (Buffer &buffer : scratch)
    if (buffer.bytes() < product.scratch.get_size())
      buffer = Buffer(product.scratch.get_size());
  return product;
}

void OneDnn::make(Way &way) {
  using tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  size_t element = what.elementBytes();
  int64_t h = what.hidden, f = what.width, s = what.stacked();
  for (const Group &group : groups) {
    const char *rowsOfX = x.as<char>() + group.begin * h * element;
    const char *rowsOfDy = dy.as<char>() + group.begin * f * element;
    char *inner = hidden.as<char>() + group.begin * f * element;
    char *out = y.as<char>() + group.begin * h * element;
    if (what.part == "forward") {
      way.first.push_back(
          product(way, {{group.rows, h}, type(), tag::ab}, rowsOfX,
                  {{h, s}, type(), tag::ba},
                  first.as<char>() + group.expert * h * s * element,
                  {{group.rows, s}, f32, tag::ab},
                  sums.as<char>() + group.begin * s * 4));
      way.second.push_back(
          product(way, {{group.rows, f}, type(), tag::ab}, inner,
                  {{f, h}, type(), tag::ba},
                  second.as<char>() + group.expert * h * f * element,
                  {{group.rows, h}, type(), tag::ab}, out));
    } else if (what.part == "dx") {
      way.first.push_back(
          product(way, {{group.rows, f}, type(), tag::ab}, rowsOfDy,
                  {{f, h}, type(), tag::ab},
                  first.as<char>() + group.expert * h * f * element,
                  {{group.rows, h}, type(), tag::ab}, out));
    } else {
      way.first.push_back(product(way, {{f, group.rows}, type(), tag::ba},
                                  rowsOfDy, {{group.rows, h}, type(), tag::ab},
                                  rowsOfX, {{f, h}, f32, tag::ab},
                                  y.as<char>() + group.expert * h * f * 4));
    }
  }
}

void OneDnn::runGroup(Way &way, size_t i, int thread) {
  void *space = scratch[thread].as<char>();
  way.first[i].run(streams[thread], space, engine);
  if (what.part != "forward")
    return;
  const Group &group = groups[i];
  const float *sum = sums.as<float>() + group.begin * what.stacked();
  auto rows = [&](auto *inner) {
    for (int64_t r = 0; r < group.rows; ++r) {
      const float *row = sum + r * what.stacked();
      activate(inner + r * what.width, row,
               what.gated ? row + what.width : nullptr, what.width);
    }
  };
  if (what.isBf16())
    rows(hidden.as<uint16_t>() + group.begin * what.width);
  else
    rows(hidden.as<float>() + group.begin * what.width);
  way.second[i].run(streams[thread], space, engine);
}

void OneDnn::run(int mode) {
  Way &way = ways[mode];
  setThreads(way.overExperts ? 1 : what.threads);
  if (what.part == "dw")
    for (int64_t e = 0; e < what.experts(); ++e)
      if (what.sizes[e] == 0)
        std::memset(y.as<float>() + e * what.hidden * what.width, 0,
                    what.hidden * what.width * 4);
  if (way.overExperts)
    team->items(static_cast<int64_t>(groups.size()),
                [&](int64_t i, int thread) { runGroup(way, i, thread); });
  else
    for (size_t i = 0; i < groups.size(); ++i)
      runGroup(way, i, 0);
}

void OneDnn::release() {
  ways.clear();
  packedWeights.clear();
  owned.clear();
  streams.clear();
  scratch.clear();
  for (Buffer *buffer : {&first, &second, &x, &dy, &sums, &hidden, &y})
    *buffer = Buffer();
  team.reset();
}

int main() {
  OneDnn oneDnn;
  return serve(oneDnn);
}
