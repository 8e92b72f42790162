// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The second half of binding: from bytes of a source to packed slices.

#include "session/ParameterTable.h"

#include "base/Convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <tuple>

using namespace moira;
using namespace moira::runtime;

/// About what reading, converting and packing one byte takes. Only says that
/// a slice of a few kilobytes is not worth another thread.
static constexpr int64_t nanosecondsPerByte = 1;

/// Allocates storage where there is none, and marks the slices as not bound:
/// a failure half-way must not leave old and new mixed.
Status ParameterTable::prepare(const Jobs &jobs) {
  ++changes;
  for (const Job &job : jobs) {
    int i = job.parameter;
    ++changesOf[i];
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

/// Converts the shard's runs into one compact slice.
void ParameterTable::copyRuns(const Job &job, void *target) const {
  const ParameterSpec &spec = specs[job.parameter];
  ParameterShard shard = shardOf(job);
  auto *from = static_cast<const char *>(job.data);
  auto *to = static_cast<char *>(target);
  for (int64_t run = 0; run < shard.runs; ++run) {
    convert(job.dtype, from, spec.sourceType, to, shard.length);
    from += shard.distance * byteSize(job.dtype);
    to += shard.length * byteSize(spec.sourceType);
  }
}

/// Makes random values: those that the whole tensor has at the shard's places.
void ParameterTable::fillRuns(const Job &job, void *target) const {
  const ParameterSpec &spec = specs[job.parameter];
  ParameterShard shard = shardOf(job);
  int64_t fanIn = spec.logicalShape.empty() ? 1 : spec.logicalShape.back();
  double bound =
      1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, fanIn)));
  int64_t fileSlice = *compactBytes(spec.sourceType, spec.fileShape()) /
                      byteSize(spec.sourceType);
  int64_t first =
      fileSliceOf(job.parameter, job.unit) * fileSlice + shard.first;
  auto *to = static_cast<char *>(target);
  for (int64_t run = 0; run < shard.runs; ++run) {
    fillUniform(spec.sourceType, to, first + run * shard.distance, shard.length,
                job.key, bound);
    to += shard.length * byteSize(spec.sourceType);
  }
}

/// The slice's bytes as the pack entry reads them: the source's own, or in
/// workspace of `step` where they must be made, cut, converted or aligned.
const void *ParameterTable::stage(const Job &job, StepContext &step) {
  const ParameterSpec &spec = specs[job.parameter];
  bool aligned =
      reinterpret_cast<uintptr_t>(job.data) % byteSize(spec.sourceType) == 0;
  if (job.data && job.dtype == spec.sourceType && aligned &&
      shardOf(job).runs == 1)
    return job.data;
  moira_ctx *ctx = step.context();
  void *scratch = ctx->api->alloc(ctx, 0, sliceBytes(job.parameter));
  if (!scratch)
    return nullptr;
  if (job.data)
    copyRuns(job, scratch);
  else
    fillRuns(job, scratch);
  return scratch;
}

void ParameterTable::runJob(Job &job, StepContext &step,
                            ParameterSource *source) {
  const ParameterSpec &spec = specs[job.parameter];
  auto *to = static_cast<char *>(storages[job.parameter].data()) +
             job.slice * spec.packedSliceBytes;
  if (job.unit < 0) {
    std::memset(to, 0, spec.packedSliceBytes);
    job.done = true;
    return;
  }
  moira_ctx *ctx = step.context();
  int64_t mark = ctx->api->mark(ctx, 0);
  if (const void *from = stage(job, step))
    program.pack(job.parameter)(ctx, from, to);
  ctx->api->release(ctx, 0, mark);
  job.done = !step.hasFailed();
  if (!job.data)
    return;
  ParameterShard shard = shardOf(job);
  bytesRead += shard.count() * byteSize(job.dtype);
  if (source && job.release)
    source->releasePages(job.data, shard.span() * byteSize(job.dtype));
}

Status ParameterTable::pack(Jobs jobs, ParameterSource *source) {
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
