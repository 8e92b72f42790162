// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "io/CheckpointSource.h"

#include "io/MappedFile.h"

using namespace moira;
using namespace moira::io;

Result<std::unique_ptr<CheckpointSource>>
CheckpointSource::open(const std::string &path) {
  auto checkpoint = Safetensors::open(path);
  if (!checkpoint.ok())
    return checkpoint.status();
  return std::unique_ptr<CheckpointSource>(new CheckpointSource(*checkpoint));
}

Result<runtime::TensorView> CheckpointSource::find(const std::string &name) {
  Result<MappedTensor> tensor = checkpoint->tensor(name);
  if (!tensor.ok())
    return tensor.status();
  std::lock_guard<std::mutex> guard(lock);
  files.insert(tensor->file);
  return tensor->view();
}

void CheckpointSource::releasePages(const void *begin, int64_t bytes) {
  std::lock_guard<std::mutex> guard(lock);
  const auto *first = static_cast<const uint8_t *>(begin);
  for (const std::shared_ptr<const MappedFile> &file : files)
    if (first >= file->data() && first < file->data() + file->size()) {
      file->release(begin, bytes);
      return;
    }
}
