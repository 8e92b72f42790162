// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "bootstrap/Environment.h"

#include <gtest/gtest.h>
#include <map>

using namespace moira;
using namespace moira::runtime;

using Set = std::map<std::string, std::string>;

static Result<Environment> read(const Set &set) {
  return Environment::read([&set](const char *name) -> const char * {
    auto entry = set.find(name);
    return entry == set.end() ? nullptr : entry->second.c_str();
  });
}

static std::string error(const Set &set) {
  Result<Environment> result = read(set);
  if (result.ok())
    return "none";
  EXPECT_EQ(result.status().code, MOIRA_INVALID_ARGUMENT);
  return result.status().message;
}

static Set torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"GROUP_RANK", "1"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "run"},
          {"TORCHELASTIC_RESTART_COUNT", "2"}};
}

static Set mpirun() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"OMPI_MCA_ess_base_jobid", "3437559809"}};
}

static Set srun() {
  return {{"SLURM_PROCID", "6"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_NTASKS", "16"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "2"},
          {"SLURM_STEP_TASKS_PER_NODE", "3(x2),1"},
          {"SLURM_STEP_NODELIST", "gpu[07-09]"},
          {"SLURM_JOB_ID", "1234"},
          {"SLURM_STEP_ID", "0"}};
}

static Set with(Set set, const Set &more) {
  for (const auto &[name, value] : more)
    set[name] = value;
  return set;
}

static Set without(Set set, const std::string &name) {
  set.erase(name);
  return set;
}

TEST(EnvironmentTest, Nothing) {
  Result<Environment> result = read({});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->launcher, Launcher::None);
  EXPECT_EQ(result->rank, 0);
  EXPECT_EQ(result->ranks, 1);
}

TEST(EnvironmentTest, Torchrun) {
  Result<Environment> result = read(torchrun());
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(result->launcher, Launcher::Torchrun);
  EXPECT_EQ(result->rank, 5);
  EXPECT_EQ(result->ranks, 8);
  EXPECT_EQ(result->localRank, 1);
  EXPECT_EQ(result->localRanks, 4);
  EXPECT_EQ(result->node, 1);
  EXPECT_EQ(result->masterAddress, "node0");
  EXPECT_EQ(result->storePort, 29501) << "torchrun's agent holds MASTER_PORT";
  EXPECT_EQ(result->job, "run 2");
  result = read(with(torchrun(), {{"MOIRA_MASTER_PORT", "4000"}}));
  EXPECT_EQ(result->storePort, 4000);
}

TEST(EnvironmentTest, Mpirun) {
  Result<Environment> result = read(mpirun());
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(result->launcher, Launcher::Mpi);
  EXPECT_EQ(result->rank, 3);
  EXPECT_EQ(result->localRanks, 4);
  EXPECT_EQ(result->node, -1);
  EXPECT_EQ(result->masterAddress, "127.0.0.1");
  EXPECT_GE(result->storePort, 20000);
  EXPECT_LT(result->storePort, 30000);
  // Several machines: nobody says where rank 0 is.
  result = read(with(mpirun(), {{"OMPI_COMM_WORLD_SIZE", "8"}}));
  EXPECT_EQ(result->masterAddress, "");
}

TEST(EnvironmentTest, Srun) {
  Result<Environment> result = read(srun());
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(result->launcher, Launcher::Slurm);
  EXPECT_EQ(result->rank, 6);
  EXPECT_EQ(result->ranks, 7) << "of the step, not of the job";
  EXPECT_EQ(result->localRanks, 1);
  EXPECT_EQ(result->node, 2);
  EXPECT_EQ(result->masterAddress, "gpu07");
  EXPECT_EQ(result->job, "slurm 1234.0");
  int port = result->storePort;
  EXPECT_NE(read(with(srun(), {{"SLURM_STEP_ID", "1"}}))->storePort, port);
}

TEST(EnvironmentTest, ABatchScriptIsNoStep) {
  Set script = srun();
  for (const char *name : {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID",
                           "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST"})
    script.erase(name);
  script["SLURM_PROCID"] = "0";
  Result<Environment> result = read(script);
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(result->launcher, Launcher::None);
  EXPECT_EQ(result->ranks, 1);
}

TEST(EnvironmentTest, TheInnermostLauncherCounts) {
  // mpirun starts its daemons with srun: SLURM_PROCID is the daemon's.
  EXPECT_EQ(read(with(srun(), mpirun()))->launcher, Launcher::Mpi);
  EXPECT_EQ(read(with(mpirun(), torchrun()))->launcher, Launcher::Torchrun);
  Set both = with(without(torchrun(), "TORCHELASTIC_RUN_ID"), mpirun());
  EXPECT_EQ(error(both),
            "mpi says rank 3 of 4, but RANK and WORLD_SIZE say rank 5 of 8; "
            "set MOIRA_LAUNCHER to the one that counts");
  EXPECT_EQ(read(with(both, {{"MOIRA_LAUNCHER", "mpi"}}))->ranks, 4);
  EXPECT_EQ(read(with(both, {{"MOIRA_LAUNCHER", "torchrun"}}))->ranks, 8);
  EXPECT_EQ(read(with(both, {{"MOIRA_LAUNCHER", "none"}}))->ranks, 1);
  // Where they agree nothing is wrong: many scripts derive one from the other.
  both = with(mpirun(), {{"RANK", "3"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(read(both)->launcher, Launcher::Mpi);
}

TEST(EnvironmentTest, WhatIsHalfSetIsAnError) {
  EXPECT_EQ(error({{"RANK", "0"}}), "RANK is set, but WORLD_SIZE is not");
  EXPECT_EQ(error({{"WORLD_SIZE", "2"}}), "WORLD_SIZE is set, but RANK is not");
  EXPECT_EQ(error(without(torchrun(), "MASTER_PORT")),
            "MASTER_ADDR is set, but MASTER_PORT is not");
  EXPECT_EQ(error(without(mpirun(), "OMPI_COMM_WORLD_SIZE")),
            "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not");
  EXPECT_EQ(error(without(srun(), "SLURM_PROCID")),
            "SLURM_STEP_NUM_TASKS is set, but SLURM_PROCID is not");
  EXPECT_EQ(error({{"MOIRA_LAUNCHER", "torchrun"}}),
            "expected WORLD_SIZE to be set");
}

TEST(EnvironmentTest, WhatMakesNoSenseIsAnError) {
  EXPECT_EQ(error(with(torchrun(), {{"RANK", "8"}})),
            "expected RANK below WORLD_SIZE = 8, got 8");
  EXPECT_EQ(error(with(torchrun(), {{"RANK", "5x"}})),
            "expected RANK to be a number from 0 to 2147483646, got '5x'");
  EXPECT_EQ(error(with(torchrun(), {{"LOCAL_RANK", "4"}})),
            "expected LOCAL_RANK below LOCAL_WORLD_SIZE = 4, got 4");
  EXPECT_EQ(error(with(torchrun(), {{"LOCAL_WORLD_SIZE", "9"}})),
            "expected LOCAL_WORLD_SIZE at most WORLD_SIZE = 8, got 9");
  EXPECT_EQ(error(with(torchrun(), {{"MASTER_PORT", "65536"}})),
            "expected MASTER_PORT to be a number from 1 to 65535, got '65536'");
  EXPECT_NE(error(with(torchrun(), {{"MASTER_PORT", "65535"}})), "none");
  EXPECT_NE(error(with(srun(), {{"SLURM_NODEID", "3"}})), "none");
  EXPECT_NE(error(with(srun(), {{"SLURM_STEP_TASKS_PER_NODE", "3(x"}})),
            "none");
  EXPECT_EQ(error({{"MOIRA_LAUNCHER", "pbs"}}),
            "expected MOIRA_LAUNCHER to be torchrun, mpi, slurm or none, got "
            "'pbs'");
}

TEST(EnvironmentTest, ListsOfSlurm) {
  EXPECT_EQ(firstHost("a"), "a");
  EXPECT_EQ(firstHost("a,b"), "a");
  EXPECT_EQ(firstHost("a[03-05,9],b"), "a03");
  EXPECT_EQ(firstHost("a[7]-ib"), "a7-ib");
  EXPECT_EQ(firstHost("a[7,9]-ib,c"), "a7-ib");
  EXPECT_EQ(firstHost("a[7"), "");
  EXPECT_EQ(firstHost(""), "");
  EXPECT_EQ(tasksOfNode("2(x3),1", 0), 2);
  EXPECT_EQ(tasksOfNode("2(x3),1", 2), 2);
  EXPECT_EQ(tasksOfNode("2(x3),1", 3), 1);
  EXPECT_EQ(tasksOfNode("2(x3),1", 4), std::nullopt);
  EXPECT_EQ(tasksOfNode("2(y3)", 1), std::nullopt);
  EXPECT_EQ(tasksOfNode("", 0), std::nullopt);
}
