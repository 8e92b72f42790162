// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "io/AtomicFile.h"
#include "io/Safetensors.h"

#include <nlohmann/json.hpp>
#include <set>

using namespace moira;
using namespace moira::io;

static const char *typeName(DataType dtype) {
  switch (dtype) {
  case DataType::F32:
    return "F32";
  case DataType::F64:
    return "F64";
  case DataType::F16:
    return "F16";
  case DataType::BF16:
    return "BF16";
  case DataType::I1:
    return "BOOL";
  case DataType::I8:
    return "I8";
  case DataType::I32:
    return "I32";
  case DataType::I64:
    return "I64";
  }
  return "";
}

std::string
io::safetensorsHeader(const std::vector<SafetensorsSpec> &specs,
                      const std::map<std::string, std::string> &metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const SafetensorsSpec &spec : specs) {
    int64_t end = offset + shapeBytes(spec.shape, spec.dtype).value_or(0);
    header[spec.name] = {{"dtype", typeName(spec.dtype)},
                         {"shape", spec.shape},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  // Names that are not UTF-8 are replaced, not thrown at.
  std::string text =
      header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // The data starts at a multiple of 8 bytes.
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string out;
  for (int i = 0; i < 8; ++i)
    out += static_cast<char>(uint64_t(text.size()) >> 8 * i);
  return out + text;
}

Status io::writeSafetensors(const std::string &path,
                            const std::vector<SafetensorsSpec> &specs,
                            const std::vector<const void *> &data) {
  std::set<std::string> names;
  for (const SafetensorsSpec &spec : specs) {
    if (!shapeBytes(spec.shape, spec.dtype))
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat(path, ": cannot write tensor ", quoteName(spec.name),
                           " of ", runtime::toString(spec.dtype, spec.shape)));
    if (!names.insert(spec.name).second)
      return Status(
          MOIRA_INVALID_ARGUMENT,
          concat(path, ": cannot write two tensors ", quoteName(spec.name)));
  }
  auto file = AtomicFile::create(path);
  if (!file.ok())
    return file.status();
  std::string header = safetensorsHeader(specs);
  MOIRA_RETURN_IF_ERROR(file->write(header.data(), header.size()));
  for (size_t i = 0; i < specs.size(); ++i)
    MOIRA_RETURN_IF_ERROR(
        file->write(data[i], *shapeBytes(specs[i].shape, specs[i].dtype)));
  return file->commit();
}
