// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A checkpoint as a session's source of parameters.

#ifndef MOIRA_RUNTIME_IO_CHECKPOINTSOURCE_H
#define MOIRA_RUNTIME_IO_CHECKPOINTSOURCE_H

#include "io/Safetensors.h"
#include "session/ParameterSource.h"

#include <set>

namespace moira::io {

/// Hands out tensors of a safetensors checkpoint where they stand in the mapped
/// files. Pages that were packed leave memory again, so that a checkpoint and
/// its packed form need not fit side by side.
class CheckpointSource final : public runtime::ParameterSource {
public:
  /// `path`: a file, a folder or an index, as Safetensors::open takes it.
  static Result<std::unique_ptr<CheckpointSource>>
  open(const std::string &path);

  Result<runtime::TensorView> find(const std::string &name) override;
  void releasePages(const void *begin, int64_t bytes) override;
  std::string describe() const override { return checkpoint->path(); }

private:
  explicit CheckpointSource(std::shared_ptr<const Safetensors> checkpoint)
      : checkpoint(std::move(checkpoint)) {}

  std::shared_ptr<const Safetensors> checkpoint;
  std::mutex lock;
  /* Files that tensors were handed out from; guarded by `lock`. */
  std::set<std::shared_ptr<const MappedFile>> files;
};

} // namespace moira::io

#endif // MOIRA_RUNTIME_IO_CHECKPOINTSOURCE_H
