// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "bootstrap/Environment.h"

#include <cerrno>
#include <cstdlib>
#include <limits>

using namespace moira;
using namespace moira::runtime;

namespace {

/// Typed reads that remember the first fault.
class Variables {
public:
  explicit Variables(const Environment::Lookup &lookup) : lookup(lookup) {}

  bool has(const char *name) const {
    const char *text = lookup(name);
    return text && *text;
  }
  std::string text(const char *name) const {
    return has(name) ? lookup(name) : "";
  }
  /// A number from `least` to `most`; `otherwise` where it is not set.
  int number(const char *name, int least, int most, int otherwise) {
    if (!has(name))
      return otherwise;
    const char *text = lookup(name);
    char *end = nullptr;
    errno = 0;
    long value = std::strtol(text, &end, 10);
    if (errno || *end || value < least || value > most) {
      fail(concat("expected ", name, " to be a number from ", least, " to ",
                  most, ", got '", text, "'"));
      return otherwise;
    }
    return static_cast<int>(value);
  }
  /// All of them or an error that names one that is set and one that is not.
  void require(std::initializer_list<const char *> names) {
    const char *set = nullptr, *unset = nullptr;
    for (const char *name : names)
      (has(name) ? set : unset) = name;
    if (unset)
      fail(set ? concat(set, " is set, but ", unset, " is not")
               : concat("expected ", unset, " to be set"));
  }
  void fail(const std::string &message) {
    if (status.ok())
      status = Status(MOIRA_INVALID_ARGUMENT, message);
  }

  Status status;

private:
  const Environment::Lookup &lookup;
};

constexpr int many = std::numeric_limits<int>::max();

/// The names of one launcher's four numbers.
struct Names {
  const char *rank, *ranks, *localRank, *localRanks;
};
constexpr Names torchNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                              "LOCAL_WORLD_SIZE"};
constexpr Names mpiNames = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};

} // namespace

const char *moira::runtime::launcherName(Launcher launcher) {
  switch (launcher) {
  case Launcher::None:
    return "none";
  case Launcher::Mpi:
    return "mpi";
  case Launcher::Slurm:
    return "slurm";
  case Launcher::Torchrun:
    return "torchrun";
  }
  return "none";
}

std::string moira::runtime::firstHost(const std::string &list) {
  size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',')
    return list.substr(0, open);
  size_t end = list.find_first_of("-,]", open);
  size_t close = list.find(']', open);
  if (end == std::string::npos || close == std::string::npos)
    return "";
  size_t comma = list.find(',', close);
  return list.substr(0, open) + list.substr(open + 1, end - open - 1) +
         list.substr(close + 1, comma == std::string::npos ? std::string::npos
                                                           : comma - close - 1);
}

std::optional<int> moira::runtime::tasksOfNode(const std::string &list,
                                               int node) {
  const char *at = list.c_str();
  while (*at) {
    char *end = nullptr;
    long tasks = std::strtol(at, &end, 10), nodes = 1;
    if (end == at || tasks < 0 || tasks > many)
      return std::nullopt;
    at = end;
    if (at[0] == '(' && at[1] == 'x') {
      nodes = std::strtol(at + 2, &end, 10);
      if (*end != ')' || nodes < 1)
        return std::nullopt;
      at = end + 1;
    }
    if (node < nodes)
      return static_cast<int>(tasks);
    node -= static_cast<int>(nodes);
    if (*at == ',')
      ++at;
    else if (*at)
      return std::nullopt;
  }
  return std::nullopt;
}

static void readNumbers(Variables &variables, const Names &names,
                        Environment &result) {
  variables.require({names.rank, names.ranks});
  result.rank = variables.number(names.rank, 0, many - 1, 0);
  result.ranks = variables.number(names.ranks, 1, many, 1);
  result.localRank = variables.number(names.localRank, 0, many - 1, 0);
  result.localRanks =
      variables.number(names.localRanks, 1, many, result.localRank + 1);
  if (result.rank >= result.ranks)
    variables.fail(concat("expected ", names.rank, " below ", names.ranks,
                          " = ", result.ranks, ", got ", result.rank));
  if (result.localRank >= result.localRanks)
    variables.fail(concat("expected ", names.localRank, " below ",
                          names.localRanks, " = ", result.localRanks, ", got ",
                          result.localRank));
  if (result.localRanks > result.ranks)
    variables.fail(concat("expected ", names.localRanks, " at most ",
                          names.ranks, " = ", result.ranks, ", got ",
                          result.localRanks));
}

static void readMaster(Variables &variables, Environment &result) {
  result.masterAddress = variables.text("MASTER_ADDR");
  int port = variables.number("MASTER_PORT", 1, 65535, 0);
  if (port == 65535 && !variables.has("MOIRA_MASTER_PORT"))
    variables.fail("MASTER_PORT = 65535 has no next port; set "
                   "MOIRA_MASTER_PORT");
  result.storePort =
      variables.number("MOIRA_MASTER_PORT", 1, 65535, port ? port + 1 : 0);
}

/// A port from 20000 to 29999, below those that systems give away by
/// themselves, so that jobs which share a machine seldom meet.
static int portOfJob(const std::string &job) {
  uint32_t hash = 2166136261u; // FNV-1a
  for (unsigned char byte : job)
    hash = (hash ^ byte) * 16777619u;
  return 20000 + static_cast<int>(hash % 10000);
}

static void readSlurm(Variables &variables, Environment &result) {
  const char *ranks = variables.has("SLURM_STEP_NUM_TASKS")
                          ? "SLURM_STEP_NUM_TASKS"
                          : "SLURM_NTASKS";
  readNumbers(variables,
              {"SLURM_PROCID", ranks, "SLURM_LOCALID", "(not a variable)"},
              result);
  result.node = variables.number("SLURM_NODEID", 0, many - 1, -1);
  const char *perNode = variables.has("SLURM_STEP_TASKS_PER_NODE")
                            ? "SLURM_STEP_TASKS_PER_NODE"
                            : "SLURM_TASKS_PER_NODE";
  if (variables.has(perNode) && result.node >= 0) {
    std::optional<int> tasks =
        tasksOfNode(variables.text(perNode), result.node);
    if (!tasks || result.localRank >= *tasks)
      variables.fail(
          concat("expected ", perNode, " = '", variables.text(perNode),
                 "' to give node ", result.node,
                 " more than SLURM_LOCALID = ", result.localRank, " tasks"));
    else
      result.localRanks = *tasks;
  }
  if (result.masterAddress.empty())
    result.masterAddress = firstHost(variables.text("SLURM_STEP_NODELIST"));
  if (variables.has("SLURM_JOB_ID"))
    result.job = concat("slurm ", variables.text("SLURM_JOB_ID"), ".",
                        variables.text("SLURM_STEP_ID"));
}

/// RANK and WORLD_SIZE that someone has set beside another launcher's.
static void compareWithTorch(Variables &variables, const Environment &result) {
  if (!variables.has("RANK") && !variables.has("WORLD_SIZE"))
    return;
  Environment other;
  readNumbers(variables, torchNames, other);
  if (variables.status.ok() &&
      (other.rank != result.rank || other.ranks != result.ranks))
    variables.fail(concat(
        launcherName(result.launcher), " says rank ", result.rank, " of ",
        result.ranks, ", but RANK and WORLD_SIZE say rank ", other.rank, " of ",
        other.ranks, "; set MOIRA_LAUNCHER to the one that counts"));
}

static Launcher findLauncher(Variables &variables) {
  if (variables.has("MOIRA_LAUNCHER")) {
    std::string name = variables.text("MOIRA_LAUNCHER");
    for (Launcher launcher :
         {Launcher::None, Launcher::Mpi, Launcher::Slurm, Launcher::Torchrun})
      if (name == launcherName(launcher))
        return launcher;
    variables.fail(concat("expected MOIRA_LAUNCHER to be torchrun, mpi, slurm "
                          "or none, got '",
                          name, "'"));
    return Launcher::None;
  }
  if (variables.has("TORCHELASTIC_RUN_ID"))
    return Launcher::Torchrun;
  if (variables.has(mpiNames.rank) || variables.has(mpiNames.ranks))
    return Launcher::Mpi;
  // sbatch sets SLURM_PROCID for its script too, which is one process; only a
  // step has a number.
  if (variables.has("SLURM_STEP_NUM_TASKS") || variables.has("SLURM_STEP_ID"))
    return Launcher::Slurm;
  if (variables.has(torchNames.rank) || variables.has(torchNames.ranks))
    return Launcher::Torchrun;
  return Launcher::None;
}

Result<Environment> Environment::read(const Lookup &lookup) {
  Variables variables(lookup);
  Environment result;
  result.launcher = findLauncher(variables);
  readMaster(variables, result);
  switch (result.launcher) {
  case Launcher::None:
    break;
  case Launcher::Torchrun:
    readNumbers(variables, torchNames, result);
    result.node = variables.number("GROUP_RANK", 0, many - 1, -1);
    // Processes of an earlier attempt are strangers.
    result.job = concat(variables.text("TORCHELASTIC_RUN_ID"), " ",
                        variables.text("TORCHELASTIC_RESTART_COUNT"));
    if (result.ranks > 1)
      variables.require({"MASTER_ADDR", "MASTER_PORT"});
    break;
  case Launcher::Mpi:
    readNumbers(variables, mpiNames, result);
    if (variables.has("OMPI_MCA_ess_base_jobid"))
      result.job = concat("mpi ", variables.text("OMPI_MCA_ess_base_jobid"));
    if (result.masterAddress.empty() && result.localRanks == result.ranks)
      result.masterAddress = "127.0.0.1"; // all on one machine
    break;
  case Launcher::Slurm:
    readSlurm(variables, result);
    break;
  }
  if (!variables.has("MOIRA_LAUNCHER") &&
      (result.launcher == Launcher::Mpi || result.launcher == Launcher::Slurm))
    compareWithTorch(variables, result);
  if (!variables.status.ok())
    return variables.status;
  if (!result.storePort && !result.job.empty())
    result.storePort = portOfJob(result.job);
  return result;
}

Result<Environment> Environment::read() {
  return read([](const char *name) -> const char * { return getenv(name); });
}
