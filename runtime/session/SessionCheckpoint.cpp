// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a session that saves what it trains, and goes on from there.

#include "session/SessionImpl.h"

#include "io/CheckpointSource.h"
#include "session/Checkpoint.h"
#include "session/FileTensors.h"

#include <algorithm>
#include <set>

using namespace moira;
using namespace moira::runtime;

/// The name of a tensor for a state; empty stands for the parameter itself.
static std::string tensorPrefix(const std::string &state) {
  return state.empty() ? "" : "optimizer." + state + ".";
}

namespace {
/// Everything that a checkpoint holds of one state of one parameter.
struct Part {
  std::string state;     ///< empty: the parameter
  std::vector<int> rows; ///< of the table that have some of it
  DataType dtype = DataType::F32;
};
} // namespace

/// Rows that gradients are computed of.
static std::set<int> trainedRows(const Manifest &manifest) {
  std::set<int> rows;
  for (const EntrySpec &entry : manifest.entries)
    for (const TensorSpec &result : entry.results)
      if (result.gradient)
        rows.insert(result.gradient->rows.begin(), result.gradient->rows.end());
  return rows;
}

/// What is saved, in an order that all ranks have.
static std::vector<Part> listParts(const Manifest &manifest,
                                   const Optimizer *optimizer) {
  std::map<std::string, std::vector<int>> byName;
  for (size_t i = 0; i < manifest.parameters.size(); ++i)
    byName[manifest.parameters[i].name].push_back(static_cast<int>(i));
  std::set<int> trained = trainedRows(manifest);
  std::vector<Part> parts;
  for (const auto &[name, rows] : byName) {
    parts.push_back({"", rows, manifest.parameters[rows[0]].sourceType});
    if (!optimizer || !trained.count(rows[0]) || optimizer->rule().empty())
      continue;
    for (const std::string &state : Optimizer::stateNames(optimizer->rule()))
      parts.push_back({state, rows, optimizer->stateType(rows[0])});
    if (optimizer->hasMaster(rows[0]))
      parts.push_back({"master", rows, optimizer->stateType(rows[0])});
  }
  return parts;
}

//===----------------------------------------------------------------------===//
// Saving
//===----------------------------------------------------------------------===//

/// The tensors of a part, with the rank that writes each: the one that has it
/// where one rank has all of it. `whole`: whether that is so.
static void listTensors(const ParameterTable &parameters,
                        const std::vector<ParameterSpec> &specs,
                        const Part &part, bool sharded,
                        std::vector<CheckpointTensor> &tensors,
                        std::vector<char> &whole) {
  FileTensors shapes;
  const ParameterSpec &spec = specs[part.rows[0]];
  Shape shape = spec.fileShape();
  int64_t count = spec.stacked ? spec.fileSlices() : 1;
  if (!spec.stacked && spec.fileSlices() != 1)
    shape.insert(shape.begin(), spec.fileSlices());
  for (int64_t i = 0; i < count; ++i) {
    std::set<int> holders;
    for (int row : part.rows)
      parameters.addHolders(row, spec.stacked ? i : -1, holders);
    bool isWhole = holders.size() <= 1;
    int holder = holders.empty() ? 0 : *holders.begin();
    tensors.push_back({tensorPrefix(part.state) +
                           (spec.stacked ? spec.sliceName(i) : spec.name),
                       part.dtype, shape, sharded ? holder : 0});
    whole.push_back(isWhole && (sharded || holder == 0));
  }
}

Result<const void *> Session::Impl::stateOf(int row, const std::string &state) {
  if (state.empty())
    return parameters.params()[row].data;
  Result<void *> data = optimizer->state(row, state, parameters);
  if (!data.ok())
    return data.status();
  return static_cast<const void *>(*data);
}

/// Puts this rank's pieces of one tensor of a part in place.
static void putPieces(const ParameterTable &parameters,
                      const ParameterSpec &spec, const PackedLayout &layout,
                      int row, int64_t fileSlice, const void *data,
                      DataType dtype, std::vector<char> &tensor) {
  int64_t shards = spec.placement ? spec.placement->shards : 1;
  int64_t bytes = compactBytes(dtype, spec.fileShape()).value_or(0);
  for (int64_t slice = 0; slice < spec.slices; ++slice) {
    int64_t unit = parameters.unitOf(row, slice);
    if (parameters.isReplica(row, slice) || unit < 0 ||
        (spec.stacked && unit / shards != fileSlice))
      continue;
    moveToFile(byteSize(dtype), layout, layout.packed,
               static_cast<const char *>(data) +
                   slice * layout.packed.count * byteSize(dtype),
               findShard(spec, unit % shards),
               tensor.data() + (spec.stacked ? 0 : unit / shards * bytes));
  }
}

Status Session::Impl::save(const std::string &folder, bool sharded,
                           TrainingState state) {
  MOIRA_RETURN_IF_ERROR(checkBound());
  int rank = step.context()->rank, ranks = step.context()->ranks;
  if (optimizer) {
    state.rule = optimizer->rule();
    state.updates = optimizer->steps();
  }
  std::vector<Part> parts = listParts(manifest, optimizer.get());
  std::vector<CheckpointTensor> tensors, own;
  std::vector<char> whole;
  std::vector<size_t> first; // tensor of each part
  for (const Part &part : parts) {
    first.push_back(tensors.size());
    listTensors(parameters, manifest.parameters, part, sharded, tensors, whole);
  }
  for (const CheckpointTensor &tensor : tensors)
    if (tensor.owner == rank)
      own.push_back(tensor);

  // 1. Each rank's own file; the last name of a step is that of the index.
  std::string file = checkpointFile(state.step, rank);
  std::optional<CheckpointWriter> writer;
  if (!own.empty()) {
    Result<CheckpointWriter> made =
        CheckpointWriter::create(folder + "/" + file, own, state);
    if (!made.ok())
      return made.status();
    writer.emplace(std::move(*made));
  }
  std::vector<char> bytes;
  for (size_t p = 0; p < parts.size(); ++p) {
    size_t end = p + 1 < parts.size() ? first[p + 1] : tensors.size();
    for (size_t t = first[p]; t < end; ++t) {
      bool mine = tensors[t].owner == rank;
      if (whole[t] && !mine)
        continue;
      int64_t size =
          compactBytes(tensors[t].dtype, tensors[t].shape).value_or(0);
      bytes.assign((size + 3) / 4 * 4, 0); // whole words, to be added up
      for (int row : parts[p].rows) {
        const ParameterSpec &spec = manifest.parameters[row];
        Result<const void *> data = stateOf(row, parts[p].state);
        if (!data.ok())
          return data.status();
        putPieces(parameters, spec, layoutOf(row), row, t - first[p], *data,
                  tensors[t].dtype, bytes);
      }
      // Every piece is zero but at one rank: sums of words put them together.
      if (!whole[t] && communicator)
        MOIRA_RETURN_IF_ERROR(communicator->allReduce(
            bytes.data(), bytes.size() / 4, MOIRA_I32, Reduction::Sum));
      if (mine)
        MOIRA_RETURN_IF_ERROR(writer->write(bytes.data(), size));
    }
  }
  uint64_t checksum = 0;
  if (writer) {
    Result<uint64_t> written = writer->commit();
    if (!written.ok())
      return written.status();
    checksum = *written;
  }

  // 2. The index, when all files are there: before, the one of the last
  // checkpoint holds.
  std::vector<uint64_t> all(ranks, checksum);
  if (communicator)
    MOIRA_RETURN_IF_ERROR(
        communicator->allGather(&checksum, sizeof(checksum), all.data()));
  if (rank != 0)
    return Status();
  std::map<std::string, uint64_t> checksums;
  for (const CheckpointTensor &tensor : tensors)
    checksums[checkpointFile(state.step, tensor.owner)] = all[tensor.owner];
  return writeCheckpointIndex(folder, state, tensors, checksums);
}

Status Session::saveCheckpoint(const std::string &folder,
                               const TrainingState &state, bool sharded) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return impl->together([&] { return impl->save(folder, sharded, state); })
      .within("checkpoint");
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

/// Brings the state of one row from the file's tensors to its own layout.
static Status loadState(const io::Safetensors &file,
                        const ParameterTable &parameters,
                        const ParameterSpec &spec, const PackedLayout &layout,
                        int row, const std::string &state, DataType dtype,
                        void *data) {
  int64_t shards = spec.placement ? spec.placement->shards : 1;
  Shape shape = spec.fileShape();
  int64_t bytes = compactBytes(dtype, shape).value_or(0);
  if (!spec.stacked && spec.fileSlices() != 1)
    shape.insert(shape.begin(), spec.fileSlices());
  for (int64_t slice = 0; slice < spec.slices; ++slice) {
    int64_t unit = parameters.unitOf(row, slice);
    if (unit < 0)
      continue;
    Result<io::MappedTensor> tensor =
        file.tensor(tensorPrefix(state) +
                    (spec.stacked ? spec.sliceName(unit / shards) : spec.name));
    if (!tensor.ok())
      return tensor.status();
    MOIRA_RETURN_IF_ERROR(io::checkTensor(*tensor, dtype, shape));
    // Bytes of a file need not be aligned to the element.
    const uint8_t *from =
        tensor->data + (spec.stacked ? 0 : unit / shards * bytes);
    std::vector<char> aligned(from, from + bytes);
    moveFromFile(byteSize(dtype), layout, layout.packed,
                 findShard(spec, unit % shards), aligned.data(),
                 static_cast<char *>(data) +
                     slice * layout.packed.count * byteSize(dtype));
  }
  return Status();
}

Result<TrainingState> Session::Impl::restore(const std::string &folder) {
  Result<TrainingState> state = readCheckpointIndex(folder);
  if (!state.ok())
    return state.status();
  std::string path = checkpointIndex(folder);
  Result<std::unique_ptr<io::CheckpointSource>> source =
      io::CheckpointSource::open(path);
  if (!source.ok())
    return source.status();
  parameters.forget();
  forgetMasters();
  MOIRA_RETURN_IF_ERROR(parameters.bindSource(**source));
  if (state->rule.empty())
    return state;
  Result<std::shared_ptr<const io::Safetensors>> file =
      io::Safetensors::open(path);
  if (!file.ok())
    return file.status();
  if (state->rule != "sgd" && state->rule != "adam" && state->rule != "adamw")
    return Status(MOIRA_DATA_LOSS,
                  concat(path, ": expected optimizer sgd, adam or adamw, got ",
                         io::quoteName(state->rule)));
  makeOptimizer();
  optimizer->setRule(state->rule);
  optimizer->setSteps(state->updates);
  for (int row : trainedRows(manifest)) {
    std::vector<std::string> names = Optimizer::stateNames(state->rule);
    if (optimizer->hasMaster(row))
      names.push_back("master");
    for (const std::string &name : names) {
      Result<void *> data = optimizer->state(row, name, parameters);
      if (!data.ok())
        return data.status();
      MOIRA_RETURN_IF_ERROR(
          loadState(**file, parameters, manifest.parameters[row], layoutOf(row),
                    row, name, optimizer->stateType(row), *data));
    }
  }
  return state;
}

Result<TrainingState> Session::restoreCheckpoint(const std::string &folder) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  std::optional<TrainingState> state;
  Status status = impl->together([&]() -> Status {
    Result<TrainingState> read = impl->restore(folder);
    if (!read.ok())
      return read.status();
    state = *read;
    return Status();
  });
  if (!status.ok())
    return status.within("checkpoint");
  return *state;
}
