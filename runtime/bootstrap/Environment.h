// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which rank this process is, as its launcher says.
//
// | launcher | rank, ranks | rank, ranks on the node | node | meeting point |
// | --- | --- | --- | --- | --- |
// | torchrun | RANK, WORLD_SIZE | LOCAL_RANK, LOCAL_WORLD_SIZE | GROUP_RANK |
//   MASTER_ADDR, MASTER_PORT |
// | mpirun (OpenMPI) | OMPI_COMM_WORLD_RANK, _SIZE | _LOCAL_RANK, _LOCAL_SIZE |
//   not told | MASTER_ADDR if set |
// | srun | SLURM_PROCID, SLURM_STEP_NUM_TASKS (SLURM_NTASKS in a step) |
//   SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE | SLURM_NODEID | MASTER_ADDR or
//   the first of SLURM_STEP_NODELIST |
//
// Where several are set, the innermost counts: torchrun (TORCHELASTIC_RUN_ID),
// then mpirun (it starts its daemons with srun), then srun. RANK and WORLD_SIZE
// without torchrun beside those of mpirun or srun must agree with them.
// MOIRA_LAUNCHER = torchrun | mpi | slurm | none decides where that is wrong.

#ifndef MOIRA_RUNTIME_BOOTSTRAP_ENVIRONMENT_H
#define MOIRA_RUNTIME_BOOTSTRAP_ENVIRONMENT_H

#include "base/Status.h"

#include <functional>
#include <optional>
#include <string>

namespace moira::runtime {

enum class Launcher { None, Mpi, Slurm, Torchrun };

/// A name such as "torchrun"; "none" for a process that was just started.
const char *launcherName(Launcher launcher);

struct Environment {
  Launcher launcher = Launcher::None;
  int rank = 0;
  int ranks = 1;
  int localRank = 0;
  int localRanks = 1;
  int node = -1; ///< -1: not told
  /// Where the store of rank 0 is. The port is MOIRA_MASTER_PORT, else
  /// MASTER_PORT + 1 (torchrun's agent listens on MASTER_PORT itself, for
  /// PyTorch), else one made from `job`. "" and 0: not told.
  std::string masterAddress;
  int storePort = 0;
  /// Tells this job from others that use the same port.
  std::string job;

  /// What `getenv` would say; for tests.
  using Lookup = std::function<const char *(const char *name)>;

  /// MOIRA_INVALID_ARGUMENT where variables are half set or contradict each
  /// other; the message names them.
  static Result<Environment> read();
  static Result<Environment> read(const Lookup &lookup);
};

/// The first host of a list as Slurm writes it: "a[03-05,9],b" -> "a03".
std::string firstHost(const std::string &list);
/// Tasks of a node in Slurm's short form: ("2(x3),1", 3) -> 1.
std::optional<int> tasksOfNode(const std::string &list, int node);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BOOTSTRAP_ENVIRONMENT_H
