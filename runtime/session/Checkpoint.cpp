// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Checkpoint.h"

#include "base/Hash.h"
#include "io/MappedFile.h"
#include "io/Safetensors.h"

#include <charconv>
#include <dirent.h>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>

using namespace moira;
using namespace moira::runtime;

static constexpr const char *formatName = "moira-training-1";
static constexpr const char *filePrefix = "step-";

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

std::map<std::string, std::string> TrainingState::toMetadata() const {
  return {{"format", formatName},
          {"step", std::to_string(step)},
          {"seed", std::to_string(seed)},
          {"optimizer", rule},
          {"updates", std::to_string(updates)}};
}

template <typename T>
static Status readNumber(const std::map<std::string, std::string> &metadata,
                         const char *key, const std::string &where, T &value) {
  auto found = metadata.find(key);
  if (found != metadata.end()) {
    const std::string &text = found->second;
    auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() &&
        !(value < T(0)))
      return Status();
  }
  return Status(
      MOIRA_DATA_LOSS,
      concat(where, ": metadata '", key, "': expected a number, got ",
             found == metadata.end() ? "none" : io::quoteName(found->second)));
}

Result<TrainingState>
TrainingState::fromMetadata(const std::map<std::string, std::string> &metadata,
                            const std::string &where) {
  auto format = metadata.find("format");
  if (format == metadata.end() || format->second != formatName)
    return Status(MOIRA_VERSION,
                  concat(where, ": expected a checkpoint of format '",
                         formatName, "', got ",
                         format == metadata.end()
                             ? "another file"
                             : io::quoteName(format->second)));
  TrainingState state;
  MOIRA_RETURN_IF_ERROR(readNumber(metadata, "step", where, state.step));
  MOIRA_RETURN_IF_ERROR(readNumber(metadata, "seed", where, state.seed));
  MOIRA_RETURN_IF_ERROR(readNumber(metadata, "updates", where, state.updates));
  auto rule = metadata.find("optimizer");
  if (rule != metadata.end())
    state.rule = rule->second;
  return state;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

std::string runtime::checkpointIndex(const std::string &folder) {
  return folder + "/model.safetensors.index.json";
}

std::string runtime::checkpointFile(int64_t step, int rank) {
  return concat(filePrefix, step, "-rank-", rank, ".safetensors");
}

Result<CheckpointWriter>
CheckpointWriter::create(const std::string &path,
                         const std::vector<CheckpointTensor> &tensors,
                         const TrainingState &state) {
  Result<io::AtomicFile> file = io::AtomicFile::create(path);
  if (!file.ok())
    return file.status();
  std::vector<io::SafetensorsSpec> specs;
  for (const CheckpointTensor &tensor : tensors)
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  CheckpointWriter writer(std::move(*file));
  std::string header = io::safetensorsHeader(specs, state.toMetadata());
  MOIRA_RETURN_IF_ERROR(writer.write(header.data(), header.size()));
  return writer;
}

Status CheckpointWriter::write(const void *data, int64_t bytes) {
  // Block by block, as reading does it.
  checksum = hashBytes(data, bytes, checksum);
  return file.write(data, bytes);
}

Result<uint64_t> CheckpointWriter::commit() {
  MOIRA_RETURN_IF_ERROR(file.commitDurably());
  return checksum;
}

/// Ends what earlier checkpoints and killed runs have left.
static void removeOthers(const std::string &folder,
                         const std::set<std::string> &kept) {
  DIR *directory = opendir(folder.c_str());
  if (!directory)
    return;
  std::vector<std::string> gone;
  while (const dirent *entry = readdir(directory)) {
    std::string name = entry->d_name;
    bool ours = (name.rfind(filePrefix, 0) == 0 &&
                 name.find(".safetensors") != std::string::npos) ||
                name.rfind("model.safetensors.index.json.tmp", 0) == 0;
    if (ours && !kept.count(name))
      gone.push_back(name);
  }
  closedir(directory);
  for (const std::string &name : gone)
    unlink((folder + "/" + name).c_str());
}

Status runtime::writeCheckpointIndex(
    const std::string &folder, const TrainingState &state,
    const std::vector<CheckpointTensor> &tensors,
    const std::map<std::string, uint64_t> &checksums) {
  nlohmann::json index;
  index["metadata"] = state.toMetadata();
  std::set<std::string> kept;
  for (auto [file, checksum] : checksums) {
    index["metadata"]["checksum." + file] = std::to_string(checksum);
    kept.insert(file);
  }
  index["weight_map"] = nlohmann::json::object();
  for (const CheckpointTensor &tensor : tensors)
    index["weight_map"][tensor.name] = checkpointFile(state.step, tensor.owner);
  std::string text =
      index.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  Result<io::AtomicFile> file = io::AtomicFile::create(checkpointIndex(folder));
  if (!file.ok())
    return file.status();
  MOIRA_RETURN_IF_ERROR(file->write(text.data(), text.size()));
  MOIRA_RETURN_IF_ERROR(file->commitDurably());
  removeOthers(folder, kept);
  return Status();
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Texts of the index's metadata; what is no text does not count.
static std::map<std::string, std::string>
readMetadata(const io::MappedFile &file) {
  std::map<std::string, std::string> metadata;
  auto json = nlohmann::json::parse(file.data(), file.data() + file.size(),
                                    nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("metadata") ||
      !json["metadata"].is_object())
    return metadata;
  for (const auto &[key, value] : json["metadata"].items())
    if (value.is_string())
      metadata[key] = value.get<std::string>();
  return metadata;
}

/// The checksum of what CheckpointWriter wrote: header, then tensor by tensor.
static Result<uint64_t> checksumOf(const std::string &path) {
  auto file = io::MappedFile::open(path);
  if (!file.ok())
    return file.status();
  auto header =
      io::parseSafetensorsHeader((*file)->data(), (*file)->size(), path);
  if (!header.ok())
    return header.status();
  uint64_t checksum = hashBytes((*file)->data(), header->dataOffset, 0);
  std::map<int64_t, int64_t> blocks;
  for (const io::SafetensorsEntry &entry : header->entries)
    if (entry.end > entry.begin)
      blocks[entry.begin] = entry.end;
  for (auto [begin, end] : blocks)
    checksum = hashBytes((*file)->data() + header->dataOffset + begin,
                         end - begin, checksum);
  return checksum;
}

Result<TrainingState> runtime::readCheckpointIndex(const std::string &folder) {
  std::string path = checkpointIndex(folder);
  if (access(path.c_str(), F_OK) != 0)
    return Status(MOIRA_NOT_FOUND,
                  concat(path, ": expected a checkpoint, got no such file"));
  auto file = io::MappedFile::open(path);
  if (!file.ok())
    return file.status();
  std::string_view text(reinterpret_cast<const char *>((*file)->data()),
                        (*file)->size());
  auto map = io::parseSafetensorsIndex(text, path);
  if (!map.ok())
    return map.status();
  std::map<std::string, std::string> metadata = readMetadata(**file);
  Result<TrainingState> state = TrainingState::fromMetadata(metadata, path);
  if (!state.ok())
    return state.status();
  std::set<std::string> files;
  for (const auto &[tensor, name] : *map)
    files.insert(name);
  for (const std::string &name : files) {
    uint64_t wanted = 0;
    MOIRA_RETURN_IF_ERROR(
        readNumber(metadata, ("checksum." + name).c_str(), path, wanted));
    Result<uint64_t> found = checksumOf(folder + "/" + name);
    if (!found.ok())
      return found.status();
    if (*found != wanted)
      return Status(MOIRA_DATA_LOSS,
                    concat(folder, "/", name, ": expected checksum ", wanted,
                           ", got ", *found));
  }
  return state;
}
