// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the structures of moira/abi.h to the memory that travels.

#ifndef MOIRA_RUNTIME_COLLECTIVE_ROWPIECES_H
#define MOIRA_RUNTIME_COLLECTIVE_ROWPIECES_H

#include "collective/ExchangeLayout.h"
#include "collective/RaggedExchange.h"

namespace moira::runtime {

/// What groups.rank sends and receives in an exchange of which `layout` is set,
/// in the order of RankGroups::peer, so that not all begin with the same rank.
void rowPieces(const moira_exchange &exchange, const ExchangeLayout &layout,
               const RankGroups &groups, Pieces &pieces);

/// The sizes of an exchange between any two ranks.
class RowFlows final : public Flows {
public:
  void set(const moira_exchange &exchange, const ExchangeLayout &newLayout) {
    layout = &newLayout;
    rowBytes = exchange.row_bytes;
    toTokens = exchange.direction == MOIRA_TO_TOKENS;
  }
  int64_t bytes(int from, int to) const override {
    return rowBytes * (toTokens ? layout->rowsBetween(to, from)
                                : layout->rowsBetween(from, to));
  }

private:
  const ExchangeLayout *layout = nullptr;
  int64_t rowBytes = 0;
  bool toTokens = false;
};

/// The same of a gather of weights. `placement` is set for gather.placement.
Status weightPieces(const moira_gather &gather, const Placement &placement,
                    const RankGroups &groups, Pieces &pieces);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_ROWPIECES_H
