// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collective/Conformance.h"
#include "Collective/Threads.h"

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

TEST(Exchange, OneCase) {
  for (int ranks : {1, 2, 4}) {
    CommunicatorOptions options;
    options.ranksPerNode = 2;
    for (int algorithm : {0, 1})
      expectRanks(ranks, options, [&](Communicator &self) {
        ExchangeCase test;
        test.experts = 2;
        test.algorithm = algorithm;
        test.degree = 2;
        return testExchange(self, test);
      });
  }
}
