// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A training run on disk: a folder of safetensors files and an index, as other
// tools read it. Parameters have the names and shapes that the program's
// checkpoint has, whatever the ranks and slots; states of the optimizer stand
// beside them as "optimizer.STATE.NAME". docs/gradients.md.

#ifndef MOIRA_RUNTIME_SESSION_CHECKPOINT_H
#define MOIRA_RUNTIME_SESSION_CHECKPOINT_H

#include "io/AtomicFile.h"
#include "session/FileTensors.h"
#include "session/Manifest.h"

#include <map>
#include <string>
#include <vector>

namespace moira::runtime {

/// Where a run stands, beside its tensors.
struct TrainingState {
  int64_t step = 0; ///< the next one
  uint64_t seed = 0;
  std::string rule;    ///< of the optimizer; empty: none
  int64_t updates = 0; ///< with this rule

  std::map<std::string, std::string> toMetadata() const;
  /// `where` begins messages.
  static Result<TrainingState>
  fromMetadata(const std::map<std::string, std::string> &metadata,
               const std::string &where);
};

/// The file of a folder that names all others.
std::string checkpointIndex(const std::string &folder);

/// One tensor of a checkpoint that is written.
struct CheckpointTensor {
  std::string name;
  DataType dtype = DataType::F32;
  Shape shape;
  int owner = 0; ///< the rank whose file has it
};

/// The name of a rank's file of a step.
std::string checkpointFile(int64_t step, int rank);

/// Writes one rank's file, tensor after tensor. The file is on disk and under
/// its name after `commit`, or not there at all.
class CheckpointWriter {
public:
  /// `tensors`: those of this file, in the order in which they are written.
  static Result<CheckpointWriter>
  create(const std::string &path, const std::vector<CheckpointTensor> &tensors,
         const TrainingState &state);
  Status write(const void *data, int64_t bytes);
  /// The checksum of the file.
  Result<uint64_t> commit();

private:
  explicit CheckpointWriter(io::AtomicFile file) : file(std::move(file)) {}

  io::AtomicFile file;
  uint64_t checksum = 0; ///< of what was written, block by block
};

/// Replaces the index: from then on the folder holds this checkpoint. Then ends
/// files that no index names. `checksums` by file.
Status writeCheckpointIndex(const std::string &folder,
                            const TrainingState &state,
                            const std::vector<CheckpointTensor> &tensors,
                            const std::map<std::string, uint64_t> &checksums);

/// Reads the index, and checks every file that it names against its checksum.
/// MOIRA_NOT_FOUND where the folder has none.
Result<TrainingState> readCheckpointIndex(const std::string &folder);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_CHECKPOINT_H
