// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Connect.h"
#include "collective/Plugin.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::runtime;

static Status connect(const Environment &environment, const std::string &name,
                      const std::string &plugin = "") {
  ConnectOptions options;
  options.transport = name;
  options.plugin = plugin;
  options.seconds = 0.1;
  return connectRanks(environment, options).status();
}

TEST(ConnectTest, OneProcessIsOneRank) {
  Result<std::unique_ptr<Transport>> alone = connectRanks(Environment());
  ASSERT_TRUE(alone.ok()) << alone.status().message;
  EXPECT_EQ((*alone)->ranks(), 1);
}

TEST(ConnectTest, SaysWhatIsWrong) {
  Environment two;
  two.ranks = 2;
  EXPECT_EQ(connect(two, "udp").message,
            "expected the transport 'mpi', 'tcp' or 'nccl', got 'udp'");
  EXPECT_EQ(connect(two, "tcp").message,
            "expected MASTER_ADDR and MASTER_PORT (or MOIRA_MASTER_PORT) to "
            "say where rank 0 is");
  Status status = connect(two, "mpi", "/nowhere/libmoira_mpi.so");
  EXPECT_EQ(status.code, MOIRA_UNAVAILABLE);
  EXPECT_EQ(
      status.message.rfind("no transport 'mpi': /nowhere/libmoira_mpi.so", 0),
      0u)
      << status.message;
  EXPECT_NE(connect(two, "mpi", "libm.so.6")
                .message.find("libm.so.6: no moira_open_transport"),
            std::string::npos);
}
