// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a safetensors file, or a checkpoint of several with an index. A file
// begins with the length of a JSON header as a 64-bit integer, then the header,
// which maps names to {dtype, shape, data_offsets}, then the data.
//
// Headers are untrusted. Accepted are exactly the files whose tensors fill the
// data without overlap or hole and whose sizes follow from type and shape.

#ifndef MOIRA_RUNTIME_IO_SAFETENSORS_H
#define MOIRA_RUNTIME_IO_SAFETENSORS_H

#include "io/Tensor.h"

#include <map>
#include <mutex>
#include <vector>

namespace moira::io {

/// One tensor as the header describes it.
struct SafetensorsEntry {
  std::string name;
  std::string type;              /* as written: "BF16" */
  std::optional<DataType> dtype; /* nothing: a type we cannot compute with */
  Shape shape;
  int64_t begin = 0, end = 0; /* in the data */
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries; /* by name */
  std::map<std::string, std::string> metadata;
  int64_t dataOffset = 0; /* of the data in the file */

  /// NULL when there is no such tensor.
  const SafetensorsEntry *find(std::string_view name) const;
};

/// Parses and checks the header of a file of `size` bytes; `where` begins
/// messages.
Result<SafetensorsHeader> parseSafetensorsHeader(const uint8_t *data,
                                                 int64_t size,
                                                 const std::string &where);

/// Parses model.safetensors.index.json: tensor name -> file name. File names
/// with a directory part are refused.
Result<std::map<std::string, std::string, std::less<>>>
parseSafetensorsIndex(std::string_view text, const std::string &where);

/// An open checkpoint. Shards are opened when a tensor of theirs is first
/// asked for. Safe to use from several threads.
class Safetensors {
public:
  /// Opens a .safetensors file, an index file (*.json), or a folder that holds
  /// model.safetensors.index.json or model.safetensors.
  static Result<std::shared_ptr<const Safetensors>>
  open(const std::string &path);

  /// The path that was opened, after a folder was resolved.
  const std::string &path() const { return name; }

  /// Names in ascending order.
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const;

  /// Finds a tensor; an error names the file and the tensor. Booleans are
  /// checked to be 0 or 1.
  Result<MappedTensor> tensor(std::string_view name) const;

private:
  struct Shard {
    std::shared_ptr<const MappedFile> file;
    SafetensorsHeader header;
  };
  using Index = std::map<std::string, std::string, std::less<>>;

  explicit Safetensors(std::string name) : name(std::move(name)) {}
  static Result<std::shared_ptr<const Shard>>
  openShard(const std::string &path);
  Result<std::shared_ptr<const Shard>>
  shardOf(std::string_view tensorName) const;

  std::string name;
  /* With an index, the shards that were opened; else `single`. */
  std::shared_ptr<const Shard> single;
  Index index;
  mutable std::mutex lock;
  mutable std::map<std::string, std::shared_ptr<const Shard>> shards;
};

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// A tensor to be written.
struct SafetensorsSpec {
  std::string name;
  DataType dtype = DataType::F32;
  Shape shape;
};

/// The length field and header of a file that holds `specs` in this order. Each
/// shape must have a size (see shapeBytes).
std::string
safetensorsHeader(const std::vector<SafetensorsSpec> &specs,
                  const std::map<std::string, std::string> &metadata = {});

/// Writes all tensors to `path`, which appears whole or not at all. `data` has
/// one compact row-major buffer per spec.
Status writeSafetensors(const std::string &path,
                        const std::vector<SafetensorsSpec> &specs,
                        const std::vector<const void *> &data);

} // namespace moira::io

#endif // MOIRA_RUNTIME_IO_SAFETENSORS_H
