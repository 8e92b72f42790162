// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The conformance suite on threads.

#include "Collective/Conformance.h"
#include "Collective/Threads.h"

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
struct Grid {
  int ranks;
  int ranksPerNode; ///< 0: not described
};
class Conformance : public testing::TestWithParam<Grid> {
protected:
  void run(const RankBody &body, CommunicatorOptions options = {}) {
    options.ranksPerNode = GetParam().ranksPerNode;
    expectRanks(GetParam().ranks, options, body);
  }
};
} // namespace

TEST_P(Conformance, Collectives) { run(testCollectives); }
TEST_P(Conformance, Goldens) { run(testGoldens); }

TEST_P(Conformance, Weights) {
  run([](Communicator &ranks) -> Status {
    for (int experts : {1, 2, 4, 8, 12})
      if (experts % ranks.ranks() == 0 || ranks.ranks() % experts == 0)
        for (Table table : {Table::None, Table::Permuted, Table::Replicas})
          for (int64_t bytes : {0, 3, 1000})
            MOIRA_RETURN_IF_ERROR(testWeights(ranks, experts, table, bytes));
    return Status();
  });
}

TEST_P(Conformance, Sums) { run(testSums); }
TEST_P(Conformance, Shadows) { run(testShadows); }

TEST_P(Conformance, Gradients) {
  run([](Communicator &ranks) -> Status {
    for (int experts : {1, 2, 4, 8, 12})
      if (experts % ranks.ranks() == 0 || ranks.ranks() % experts == 0)
        for (Table table : {Table::None, Table::Permuted, Table::Replicas})
          MOIRA_RETURN_IF_ERROR(testGradients(ranks, experts, table));
    return Status();
  });
}

TEST_P(Conformance, CountsAndTables) {
  run([](Communicator &ranks) { return testExchanges(ranks, 0); });
}
TEST_P(Conformance, Chunks) {
  run([](Communicator &ranks) { return testExchanges(ranks, 1); });
}
TEST_P(Conformance, Groups) {
  run([](Communicator &ranks) { return testExchanges(ranks, 2); });
}
TEST_P(Conformance, RowSizes) {
  run([](Communicator &ranks) { return testExchanges(ranks, 3); });
}
TEST_P(Conformance, LargeRows) {
  run([](Communicator &ranks) { return testExchanges(ranks, 4); });
}

/// So little staging that flows take several turns, and messages so small that
/// most are cut.
TEST_P(Conformance, LittleStaging) {
  CommunicatorOptions options;
  options.stagingBytes = 300;
  options.messageBytes = 77;
  run(
      [](Communicator &ranks) -> Status {
        MOIRA_RETURN_IF_ERROR(testCollectives(ranks));
        MOIRA_RETURN_IF_ERROR(testSums(ranks));
        MOIRA_RETURN_IF_ERROR(
            testGradients(ranks, ranks.ranks(), Table::Replicas));
        if (ranks.ranks() > 1)
          MOIRA_RETURN_IF_ERROR(testGradients(ranks, 1, Table::Permuted));
        ExchangeCase test;
        test.experts = ranks.ranks();
        test.counts = Counts::Uneven;
        test.rowBytes = 40;
        for (int algorithm : {0, 1}) {
          test.algorithm = algorithm;
          MOIRA_RETURN_IF_ERROR(testExchange(ranks, test));
        }
        return Status();
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(InProcess, Conformance,
                         testing::Values(Grid{1, 0}, Grid{2, 0}, Grid{2, 2},
                                         Grid{3, 0}, Grid{3, 2}, Grid{4, 0},
                                         Grid{4, 2}, Grid{6, 2}, Grid{6, 3},
                                         Grid{8, 1}, Grid{8, 2}, Grid{8, 4},
                                         Grid{8, 8}, Grid{8, 3}),
                         [](const testing::TestParamInfo<Grid> &info) {
                           return concat("Ranks", info.param.ranks, "Nodes",
                                         info.param.ranksPerNode);
                         });

/// The larger grids of C21: two-dimensional equals linear, which both equal
/// what each rank computes for itself.
TEST(Exchange, TwoDimensionalOnLargerGrids) {
  for (Grid grid : {Grid{12, 4}, Grid{16, 4}, Grid{20, 5}}) {
    CommunicatorOptions options;
    options.ranksPerNode = grid.ranksPerNode;
    expectRanks(grid.ranks, options, [](Communicator &ranks) -> Status {
      MOIRA_RETURN_IF_ERROR(testCollectives(ranks));
      for (int64_t bytes : {4, 12, 16, 20, 24, 40}) {
        ExchangeCase test;
        test.experts = ranks.ranks();
        test.algorithm = 1;
        test.rowBytes = bytes;
        MOIRA_RETURN_IF_ERROR(testExchange(ranks, test));
      }
      return Status();
    });
  }
}
