// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "io/Safetensors.h"

#include "io/MappedFile.h"

#include <sys/stat.h>

using namespace moira;
using namespace moira::io;

static bool endsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() &&
         text.substr(text.size() - end.size()) == end;
}

static bool exists(const std::string &path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

static bool isFolder(const std::string &path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<std::shared_ptr<const Safetensors::Shard>>
Safetensors::openShard(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  auto header = parseSafetensorsHeader((*file)->data(), (*file)->size(), path);
  if (!header.ok())
    return header.status();
  auto shard = std::make_shared<Shard>();
  shard->file = *file;
  shard->header = std::move(*header);
  return std::shared_ptr<const Shard>(std::move(shard));
}

Result<std::shared_ptr<const Safetensors>>
Safetensors::open(const std::string &path) {
  std::string resolved = path;
  if (isFolder(path)) {
    resolved = path + "/model.safetensors.index.json";
    if (!exists(resolved))
      resolved = path + "/model.safetensors";
    if (!exists(resolved))
      return Status(MOIRA_NOT_FOUND,
                    path + ": expected model.safetensors.index.json or "
                           "model.safetensors in this folder");
  }

  std::shared_ptr<Safetensors> checkpoint(new Safetensors(resolved));
  if (endsWith(resolved, ".json")) {
    auto file = MappedFile::open(resolved);
    if (!file.ok())
      return file.status();
    std::string_view text(reinterpret_cast<const char *>((*file)->data()),
                          (*file)->size());
    auto index = parseSafetensorsIndex(text, resolved);
    if (!index.ok())
      return index.status();
    checkpoint->index = std::move(*index);
  } else {
    auto shard = openShard(resolved);
    if (!shard.ok())
      return shard.status();
    checkpoint->single = *shard;
  }
  return std::shared_ptr<const Safetensors>(std::move(checkpoint));
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  if (single)
    for (const SafetensorsEntry &entry : single->header.entries)
      names.push_back(entry.name);
  else
    for (const auto &entry : index)
      names.push_back(entry.first);
  return names;
}

bool Safetensors::contains(std::string_view tensorName) const {
  return single ? single->header.find(tensorName) != nullptr
                : index.find(tensorName) != index.end();
}

Result<std::shared_ptr<const Safetensors::Shard>>
Safetensors::shardOf(std::string_view tensorName) const {
  if (single)
    return single;
  auto found = index.find(tensorName);
  if (found == index.end())
    return Status(MOIRA_NOT_FOUND,
                  name + ": no tensor " + quoteName(tensorName));
  std::lock_guard<std::mutex> guard(lock);
  std::shared_ptr<const Shard> &shard = shards[found->second];
  if (!shard) {
    size_t slash = name.rfind('/');
    std::string folder =
        slash == std::string::npos ? "" : name.substr(0, slash + 1);
    auto opened = openShard(folder + found->second);
    if (!opened.ok())
      return opened.status();
    shard = *opened;
  }
  return shard;
}

Result<MappedTensor> Safetensors::tensor(std::string_view tensorName) const {
  auto shard = shardOf(tensorName);
  if (!shard.ok())
    return shard.status();
  const MappedFile &file = *(*shard)->file;
  const SafetensorsHeader &header = (*shard)->header;
  const SafetensorsEntry *entry = header.find(tensorName);
  if (!entry)
    return Status(MOIRA_NOT_FOUND,
                  file.path() + ": no tensor " + quoteName(tensorName) +
                      (single ? "" : ", which the index places in this file"));
  if (!entry->dtype)
    return Status(MOIRA_INVALID_ARGUMENT,
                  file.path() + ": tensor " + quoteName(tensorName) +
                      ": unsupported dtype " + entry->type);

  MappedTensor tensor;
  tensor.name = entry->name;
  tensor.dtype = *entry->dtype;
  tensor.shape = entry->shape;
  tensor.data = file.data() + header.dataOffset + entry->begin;
  tensor.bytes = entry->end - entry->begin;
  tensor.file = (*shard)->file;
  if (tensor.dtype == DataType::I1 && !isBoolean(tensor.data, tensor.bytes))
    return Status(MOIRA_DATA_LOSS, file.path() + ": tensor " +
                                       quoteName(tensorName) +
                                       ": expected booleans to be 0 or 1");
  return tensor;
}
