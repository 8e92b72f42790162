// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/ParameterTable.h"

#include "base/Convert.h"

#include <algorithm>
#include <cstring>
#include <set>

using namespace moira;
using namespace moira::runtime;

ParameterTable::ParameterTable(const Program &program, Pool &pool,
                               std::shared_ptr<MemoryAccount> account,
                               Progress progress)
    : program(program), specs(program.manifest().parameters), pool(pool),
      account(std::move(account)), progress(std::move(progress)),
      tables(specs.size()), changesOf(specs.size()), storages(specs.size()),
      packed(specs.size()) {
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

Result<void *> ParameterTable::change(int parameter) {
  ++changes;
  ++changesOf[parameter];
  return write(parameter);
}

Result<void *> ParameterTable::write(int parameter) {
  if (storages[parameter].data())
    return storages[parameter].data();
  const ParameterSpec &spec = specs[parameter];
  Result<Storage> storage =
      Storage::allocate(account, MemoryKind::Parameters, spec.packedBytes());
  if (!storage.ok())
    return storage.status().within(concat("parameter '", spec.name, "'"));
  if (packed[parameter].data)
    std::memcpy(storage->data(), packed[parameter].data, spec.packedBytes());
  storages[parameter] = std::move(*storage);
  packed[parameter].data = storages[parameter].data();
  return storages[parameter].data();
}

//===----------------------------------------------------------------------===//
// Placement
//===----------------------------------------------------------------------===//

/// The unit that stands in a slot; without a placement a slice is its own unit.
/// -1: none.
int64_t ParameterTable::unitAt(int parameter, int64_t slice) const {
  const ParameterSpec &spec = specs[parameter];
  if (!spec.placement)
    return slice;
  const std::vector<int32_t> &slotTable = tables[parameter];
  int64_t place = rank * spec.slices + slice;
  int64_t unit = slotTable.empty() ? place : slotTable[place];
  return unit < spec.placement->units() ? unit : -1;
}

bool ParameterTable::isReplica(int parameter, int64_t slice) const {
  const ParameterSpec &spec = specs[parameter];
  if (!spec.placement)
    return rank > 0;
  const std::vector<int32_t> &slotTable = tables[parameter];
  int64_t unit = unitAt(parameter, slice);
  // Shards that are all of the slice have the same bytes.
  if (spec.placement->dim < 0 && unit >= 0 &&
      unit % spec.placement->shards != 0)
    return true;
  for (int64_t place = 0; place < rank * spec.slices + slice; ++place) {
    int64_t other = slotTable.empty() ? place : slotTable[place];
    if (other == unit)
      return true;
  }
  return unit < 0;
}

void ParameterTable::addHolders(int parameter, int64_t fileSlice,
                                std::set<int> &ranks) const {
  const ParameterSpec &spec = specs[parameter];
  if (!spec.placement) {
    ranks.insert(0); // all have it
    return;
  }
  const ParameterPlacement &placement = *spec.placement;
  const std::vector<int32_t> &slotTable = tables[parameter];
  int64_t units = placement.units();
  std::vector<char> seen(units, 0);
  int64_t places = slotTable.empty() ? units : int64_t(slotTable.size());
  for (int64_t place = 0; place < places; ++place) {
    int64_t unit = slotTable.empty() ? place : slotTable[place];
    if (unit < 0 || unit >= units || seen[unit])
      continue;
    seen[unit] = 1;
    // Where a shard is all of the slice, the first one counts.
    bool counts = placement.dim >= 0 || unit % placement.shards == 0;
    if (counts && (fileSlice < 0 || unit / placement.shards == fileSlice))
      ranks.insert(static_cast<int>(place / spec.slices));
  }
}

void ParameterTable::forget() {
  ++changes;
  for (uint64_t &count : changesOf)
    ++count;
  for (std::vector<char> &slices : bound)
    std::fill(slices.begin(), slices.end(), 0);
}

/// The slice of the file that a unit is cut from.
int64_t ParameterTable::fileSliceOf(int parameter, int64_t unit) const {
  const ParameterSpec &spec = specs[parameter];
  return spec.placement ? unit / spec.placement->shards : unit;
}

ParameterShard ParameterTable::shardOf(const Job &job) const {
  const ParameterSpec &spec = specs[job.parameter];
  return findShard(spec,
                   spec.placement ? job.unit % spec.placement->shards : 0);
}

Status ParameterTable::place(int newRank, int ranks,
                             std::vector<std::vector<int32_t>> newTables) {
  newTables.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec &spec = specs[i];
    if (!spec.placement || newTables[i].empty())
      continue;
    std::string name = concat("parameter '", spec.name, "'");
    // Divided, so that nothing overflows.
    int64_t places = newTables[i].size();
    if (places % ranks != 0 || places / ranks != spec.slices)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat(name, ": expected a slot table of ", ranks,
                           " ranks with ", spec.slices, " slots each, got ",
                           places, " places"));
    for (int32_t unit : newTables[i])
      if (unit >= spec.placement->units())
        return Status(MOIRA_INVALID_ARGUMENT,
                      concat(name, ": expected units below ",
                             spec.placement->units(), ", got ", unit));
  }
  std::vector<std::vector<int64_t>> before(specs.size());
  for (size_t i = 0; i < specs.size(); ++i)
    for (int64_t slice = 0; slice < specs[i].slices; ++slice)
      before[i].push_back(unitAt(i, slice));
  rank = newRank;
  tables = std::move(newTables);
  for (size_t i = 0; i < specs.size(); ++i)
    for (int64_t slice = 0; slice < specs[i].slices; ++slice)
      if (unitAt(i, slice) != before[i][slice])
        bound[i][slice] = 0;
  return Status();
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

/// Adds the slices of this rank that are cut from a slice of the file.
Status ParameterTable::addSlice(int parameter, int64_t fileSlice,
                                const TensorView &tensor, Jobs &jobs) const {
  const ParameterSpec &spec = specs[parameter];
  Shape wanted = spec.fileShape();
  if (tensor.shape != wanted || !isConvertible(tensor.dtype, spec.sourceType))
    return mismatch(spec, wanted, tensor);
  if (!tensor.data && sliceBytes(parameter) > 0)
    return Status(MOIRA_INVALID_ARGUMENT, "expected data, got a null pointer");
  auto *data = static_cast<const char *>(tensor.data);
  auto add = [&](int64_t slice) {
    int64_t unit = unitAt(parameter, slice);
    if (unit < 0 || fileSliceOf(parameter, unit) != fileSlice)
      return;
    Job job{parameter, slice, tensor.dtype};
    job.unit = unit;
    if (data)
      job.data = data + shardOf(job).first * byteSize(tensor.dtype);
    jobs.push_back(job);
  };
  if (!spec.placement) {
    add(fileSlice);
    return Status();
  }
  for (int64_t slot = 0; slot < spec.slices; ++slot)
    add(slot);
  return Status();
}

Status ParameterTable::addWhole(int parameter, const TensorView &tensor,
                                Jobs &jobs) const {
  const ParameterSpec &spec = specs[parameter];
  Shape slice = spec.fileShape();
  if (spec.fileSlices() == 1 && tensor.shape == slice)
    return addSlice(parameter, 0, tensor, jobs);
  Shape wanted = slice;
  wanted.insert(wanted.begin(), spec.fileSlices());
  if (tensor.shape != wanted || !isConvertible(tensor.dtype, spec.sourceType))
    return mismatch(spec, spec.fileSlices() == 1 ? slice : wanted, tensor);
  int64_t stride = *compactBytes(tensor.dtype, slice);
  for (int64_t i = 0; i < spec.fileSlices(); ++i) {
    auto *data = static_cast<const char *>(tensor.data);
    TensorView part{tensor.dtype, slice, data ? data + i * stride : nullptr};
    MOIRA_RETURN_IF_ERROR(addSlice(parameter, i, part, jobs));
  }
  return Status();
}

/// Adds the slots that hold nothing: they become zeros.
void ParameterTable::addEmpty(int parameter, Jobs &jobs) const {
  for (int64_t slot = 0; slot < specs[parameter].slices; ++slot)
    if (unitAt(parameter, slot) < 0 && !bound[parameter][slot]) {
      Job job{parameter, slot};
      job.unit = -1;
      jobs.push_back(job);
    }
}

Status ParameterTable::addFrom(ParameterSource &source, int parameter,
                               Jobs &jobs) const {
  const ParameterSpec &spec = specs[parameter];
  // The tensors that this rank needs, each once.
  std::set<int64_t> needed;
  for (int64_t slice = 0; slice < spec.slices; ++slice)
    if (int64_t unit = unitAt(parameter, slice); unit >= 0)
      needed.insert(spec.stacked ? fileSliceOf(parameter, unit) : 0);
  addEmpty(parameter, jobs);
  for (int64_t slice : needed) {
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

/// The slice of the file that `name` stands for, or -1.
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
  return slice < spec.fileSlices() && spec.sliceName(slice) == name ? slice
                                                                    : -1;
}

Status ParameterTable::bind(const std::string &name, const TensorView &tensor) {
  Jobs jobs;
  bool found = false;
  for (size_t i = 0; i < specs.size(); ++i) {
    int64_t slice = sliceOfName(specs[i], name);
    if (specs[i].name != name && slice < 0)
      continue;
    found = true;
    addEmpty(i, jobs);
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
  Jobs jobs;
  for (int parameter : unbound())
    MOIRA_RETURN_IF_ERROR(addFrom(source, parameter, jobs));
  return pack(std::move(jobs), &source);
}

Status ParameterTable::bindRandom(uint64_t seed) {
  Jobs jobs;
  for (int parameter : unbound()) {
    const ParameterSpec &spec = specs[parameter];
    PhiloxKey key = streamKey(seed, spec.name);
    for (int64_t slice = 0; slice < spec.slices; ++slice)
      jobs.push_back({parameter, slice, spec.sourceType, nullptr,
                      unitAt(parameter, slice), key});
  }
  return pack(std::move(jobs), nullptr);
}
