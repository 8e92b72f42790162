// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/ParameterTable.h"

#include "base/Convert.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <tuple>

using namespace moira;
using namespace moira::runtime;

/// About what reading, converting and packing one byte takes. Only says that
/// a slice of a few kilobytes is not worth another thread.
static constexpr int64_t nanosecondsPerByte = 1;

ParameterTable::ParameterTable(const Program &program, Pool &pool,
                               std::shared_ptr<MemoryAccount> account,
                               Progress progress)
    : program(program), specs(program.manifest().parameters), pool(pool),
      account(std::move(account)), progress(std::move(progress)),
      storages(specs.size()), packed(specs.size()) {
  for (const ParameterSpec &spec : specs)
    bound.emplace_back(spec.slices, 0);
}

ParameterTable::~ParameterTable() {
  account->release(MemoryKind::Parameters, borrowed);
}

Status ParameterTable::open() {
  for (const ParameterSpec &spec : specs)
    if (__builtin_add_overflow(allBytes, spec.packedBytes(), &allBytes))
      return Status(MOIRA_OUT_OF_MEMORY,
                    "expected parameters that fit 64 bits, got more");
  int64_t limit = account->limit();
  if (limit > 0 && allBytes > limit)
    return Status(MOIRA_OUT_OF_MEMORY,
                  concat("expected a peak within the memory limit of ", limit,
                         " bytes, got ", allBytes,
                         " bytes of parameters alone"));
  for (size_t i = 0; i < specs.size(); ++i) {
    const void *data = program.packedParameter(i);
    if (!data)
      continue;
    packed[i] = {data, specs[i].packedBytes()};
    std::fill(bound[i].begin(), bound[i].end(), 1);
    if (account->reserve(MemoryKind::Parameters, specs[i].packedBytes()))
      borrowed += specs[i].packedBytes();
  }
  return Status();
}

std::vector<int> ParameterTable::unbound() const {
  std::vector<int> missing;
  for (size_t i = 0; i < specs.size(); ++i)
    if (std::count(bound[i].begin(), bound[i].end(), 0) != 0)
      missing.push_back(static_cast<int>(i));
  return missing;
}

int64_t ParameterTable::sliceBytes(int parameter) const {
  // Parsing has checked that it fits.
  return *compactBytes(specs[parameter].sourceType,
                       specs[parameter].sourceShape);
}

//===----------------------------------------------------------------------===//
// What to pack
//===----------------------------------------------------------------------===//

static Status mismatch(const ParameterSpec &spec, const Shape &wanted,
                       const TensorView &found) {
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("expected ", toString(spec.sourceType, wanted), ", got ",
                       toString(found.dtype, found.shape)));
}

Status ParameterTable::addSlice(int parameter, int64_t slice,
                                const TensorView &tensor,
                                std::vector<Job> &jobs) const {
  const ParameterSpec &spec = specs[parameter];
  if (tensor.shape != spec.sourceShape ||
      !isConvertible(tensor.dtype, spec.sourceType))
    return mismatch(spec, spec.sourceShape, tensor);
  if (!tensor.data && sliceBytes(parameter) > 0)
    return Status(MOIRA_INVALID_ARGUMENT, "expected data, got a null pointer");
  jobs.push_back(
      {parameter, slice, tensor.dtype, tensor.data, {}, true, false});
  return Status();
}

Status ParameterTable::addWhole(int parameter, const TensorView &tensor,
                                std::vector<Job> &jobs) const {
  const ParameterSpec &spec = specs[parameter];
  if (spec.slices == 1 && tensor.shape == spec.sourceShape)
    return addSlice(parameter, 0, tensor, jobs);
  Shape wanted = spec.sourceShape;
  wanted.insert(wanted.begin(), spec.slices);
  if (tensor.shape != wanted || !isConvertible(tensor.dtype, spec.sourceType))
    return mismatch(spec, spec.slices == 1 ? spec.sourceShape : wanted, tensor);
  int64_t stride = sliceBytes(parameter) / byteSize(spec.sourceType) *
                   byteSize(tensor.dtype);
  for (int64_t slice = 0; slice < spec.slices; ++slice) {
    auto *data = static_cast<const char *>(tensor.data);
    TensorView part{tensor.dtype, spec.sourceShape,
                    data ? data + slice * stride : nullptr};
    MOIRA_RETURN_IF_ERROR(addSlice(parameter, slice, part, jobs));
  }
  return Status();
}

Status ParameterTable::addFrom(ParameterSource &source, int parameter,
                               std::vector<Job> &jobs) const {
  const ParameterSpec &spec = specs[parameter];
  int64_t tensors = spec.stacked ? spec.slices : 1;
  for (int64_t slice = 0; slice < tensors; ++slice) {
    std::string name = spec.sliceName(slice);
    Result<TensorView> tensor = source.find(name);
    if (!tensor.ok())
      return tensor.status().within(concat("parameter '", name, "'"));
    Status status = spec.stacked ? addSlice(parameter, slice, *tensor, jobs)
                                 : addWhole(parameter, *tensor, jobs);
    MOIRA_RETURN_IF_ERROR(
        status.within(concat(source.describe(), ": parameter '", name, "'")));
  }
  return Status();
}

/// The slice that `name` stands for, or -1.
static int64_t sliceOfName(const ParameterSpec &spec, const std::string &name) {
  size_t place = spec.name.find("{}");
  size_t digits = name.size() - (spec.name.size() - 2); // checked below
  if (!spec.stacked || place == std::string::npos ||
      name.size() <= spec.name.size() - 2 || digits > 18)
    return -1;
  std::string number = name.substr(place, digits);
  if (!std::all_of(number.begin(), number.end(),
                   [](char c) { return c >= '0' && c <= '9'; }))
    return -1;
  int64_t slice = std::stoll(number);
  // The whole name is compared, so that 07 and other tails do not pass.
  return slice < spec.slices && spec.sliceName(slice) == name ? slice : -1;
}

Status ParameterTable::bind(const std::string &name, const TensorView &tensor) {
  std::vector<Job> jobs;
  bool found = false;
  for (size_t i = 0; i < specs.size(); ++i) {
    int64_t slice = sliceOfName(specs[i], name);
    if (specs[i].name != name && slice < 0)
      continue;
    found = true;
    Status status = slice < 0 ? addWhole(i, tensor, jobs)
                              : addSlice(i, slice, tensor, jobs);
    MOIRA_RETURN_IF_ERROR(status.within(concat("parameter '", name, "'")));
  }
  if (!found)
    return Status(
        MOIRA_NOT_FOUND,
        concat("expected a parameter of the program, got '", name, "'"));
  return pack(std::move(jobs), nullptr);
}

Status ParameterTable::bindSource(ParameterSource &source) {
  std::vector<Job> jobs;
  for (int parameter : unbound())
    MOIRA_RETURN_IF_ERROR(addFrom(source, parameter, jobs));
  return pack(std::move(jobs), &source);
}

Status ParameterTable::bindRandom(uint64_t seed) {
  std::vector<Job> jobs;
  for (int parameter : unbound()) {
    const ParameterSpec &spec = specs[parameter];
    PhiloxKey key = streamKey(seed, spec.name);
    for (int64_t slice = 0; slice < spec.slices; ++slice)
      jobs.push_back(
          {parameter, slice, spec.sourceType, nullptr, key, false, false});
  }
  return pack(std::move(jobs), nullptr);
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

/// Allocates storage where there is none, and marks the slices as not bound:
/// a failure half-way must not leave old and new mixed.
Status ParameterTable::prepare(const std::vector<Job> &jobs) {
  for (const Job &job : jobs) {
    int i = job.parameter;
    if (!storages[i].data()) {
      Result<Storage> storage = Storage::allocate(
          account, MemoryKind::Parameters, specs[i].packedBytes());
      if (!storage.ok())
        return storage.status().within(
            concat("parameter '", specs[i].name, "'"));
      storages[i] = std::move(*storage);
      packed[i] = {storages[i].data(), specs[i].packedBytes()};
      std::fill(bound[i].begin(), bound[i].end(), 0);
    }
    bound[i][job.slice] = 0;
  }
  return Status();
}

/// The slice's bytes as the pack entry reads them: the source's own, or in
/// workspace of `step` where they must be made, converted or aligned.
const void *ParameterTable::stage(const Job &job, StepContext &step) {
  const ParameterSpec &spec = specs[job.parameter];
  int64_t bytes = sliceBytes(job.parameter);
  int64_t count = bytes / byteSize(spec.sourceType);
  bool aligned =
      reinterpret_cast<uintptr_t>(job.data) % byteSize(spec.sourceType) == 0;
  if (job.data && job.dtype == spec.sourceType && aligned)
    return job.data;
  moira_ctx *ctx = step.context();
  void *scratch = ctx->api->alloc(ctx, 0, bytes);
  if (!scratch)
    return nullptr;
  if (job.data) {
    convert(job.dtype, job.data, spec.sourceType, scratch, count);
    return scratch;
  }
  int64_t fanIn = spec.logicalShape.empty() ? 1 : spec.logicalShape.back();
  double bound =
      1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, fanIn)));
  fillUniform(spec.sourceType, scratch, job.slice * count, count, job.key,
              bound);
  return scratch;
}

void ParameterTable::runJob(Job &job, StepContext &step,
                            ParameterSource *source) {
  const ParameterSpec &spec = specs[job.parameter];
  moira_ctx *ctx = step.context();
  int64_t mark = ctx->api->mark(ctx, 0);
  if (const void *from = stage(job, step)) {
    auto *to = static_cast<char *>(storages[job.parameter].data()) +
               job.slice * spec.packedSliceBytes;
    program.pack(job.parameter)(ctx, from, to);
  }
  ctx->api->release(ctx, 0, mark);
  job.done = !step.hasFailed();
  if (source && job.release)
    source->releasePages(job.data, sliceBytes(job.parameter) /
                                       byteSize(spec.sourceType) *
                                       byteSize(job.dtype));
}

Status ParameterTable::pack(std::vector<Job> jobs, ParameterSource *source) {
  MOIRA_RETURN_IF_ERROR(prepare(jobs));
  // In the order of the file; users of the same bytes side by side, and only
  // the last of them lets the pages go.
  std::sort(jobs.begin(), jobs.end(), [](const Job &a, const Job &b) {
    auto order = [](const Job &job) {
      return std::make_tuple(reinterpret_cast<uintptr_t>(job.data),
                             job.parameter, job.slice);
    };
    return order(a) < order(b);
  });
  int64_t all = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].release = jobs[i].data && (i + 1 == jobs.size() ||
                                       jobs[i + 1].data != jobs[i].data);
    all += sliceBytes(jobs[i].parameter);
  }
  int64_t mean = jobs.empty() ? 0 : all / static_cast<int64_t>(jobs.size());

  // A context per worker: pack entries run side by side, each as worker 0.
  std::vector<std::unique_ptr<StepContext>> steps;
  for (int i = 0; i < pool.threads(); ++i) {
    steps.push_back(std::make_unique<StepContext>(nullptr, account));
    steps.back()->begin(nullptr, nullptr);
  }
  std::mutex progressMutex;
  int64_t done = 0;
  std::vector<int> failedAt(steps.size(), -1);
  auto body = [&](int64_t index, int64_t worker) {
    StepContext &step = *steps[worker];
    if (step.hasFailed())
      return;
    runJob(jobs[index], step, source);
    if (step.hasFailed())
      failedAt[worker] = jobs[index].parameter;
    if (progress) {
      std::lock_guard<std::mutex> lock(progressMutex);
      progress(done += sliceBytes(jobs[index].parameter), all);
    }
  };
  pool.run(jobs.size(), mean * nanosecondsPerByte, std::ref(body));

  for (const Job &job : jobs)
    bound[job.parameter][job.slice] = job.done;
  Status first;
  for (size_t i = 0; i < steps.size(); ++i) {
    Status status = steps[i]->finish();
    if (first.ok() && !status.ok())
      first =
          status.within(concat("parameter '", specs[failedAt[i]].name, "'"));
  }
  return first;
}
