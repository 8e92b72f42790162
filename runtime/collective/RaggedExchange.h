// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-to-all of any sizes: straight, or within nodes first (2DH).

#ifndef MOIRA_RUNTIME_COLLECTIVE_RAGGEDEXCHANGE_H
#define MOIRA_RUNTIME_COLLECTIVE_RAGGEDEXCHANGE_H

#include "collective/Collective.h"

namespace moira::runtime {

/// What a rank sends and receives: any number of contiguous pieces per peer,
/// the rank itself among them. Between two ranks, pieces of both sides match
/// in order.
struct Pieces {
  std::vector<Message> sends;
  std::vector<Message> receives;

  void clear() {
    sends.clear();
    receives.clear();
  }
};

/// How much travels between any two ranks. Equal on all ranks that ask.
class Flows {
public:
  virtual ~Flows() = default;
  virtual int64_t bytes(int from, int to) const = 0;
};

/// Every piece is sent from where it lies to where it goes, in one batch.
class LinearExchange final : public Collective {
public:
  /// `pieces` stay as they are to the end.
  void begin(int rank, const Pieces &pieces);
  bool next(Batch &batch) override;

private:
  int rank = 0;
  const Pieces *pieces = nullptr;
  bool ended = false;
};

/// Two-dimensional hierarchical all-to-all (Flex/Tutel, section 3.4): a rank
/// packs what goes to local rank j of any node and gives it to local rank j of
/// its own node; that one sends to its namesakes what its whole node has for
/// them. So messages between nodes are as many as nodes, and as large as
/// possible. Sizes of what is forwarded come from `flows`.
class HierarchicalExchange final : public Collective {
public:
  /// Whether it differs from the linear one.
  static bool applies(int ranks, int nodeSize) {
    return nodeSize > 1 && nodeSize < ranks && ranks % nodeSize == 0;
  }

  /// `applies` holds; a node is nodeSize ranks in order. `pieces` and `flows`
  /// stay as they are to the end. A flow of more than stagingBytes / ranks is
  /// cut and takes several turns, so that staging stays below twice
  /// stagingBytes where no single flow's cut is smaller than 1 KiB.
  void begin(int rank, int ranks, int nodeSize, const Pieces &pieces,
             const Flows &flows, int64_t stagingBytes);
  bool next(Batch &batch) override;

private:
  /// Pieces of one side by peer, and how far they have been used.
  struct Side {
    std::vector<int32_t> order; ///< pieces, by peer
    std::vector<int32_t> first; ///< [ranks + 1], into order
    std::vector<int32_t> piece; ///< [ranks]: that is under way
    std::vector<int64_t> used;  ///< [ranks]: bytes of it

    void begin(const std::vector<Message> &messages, int ranks);
  };
  void pack(int peer, int64_t bytes, char *to);
  void unpack(int peer, int64_t bytes, const char *from);
  /// The bytes of a flow in this turn.
  int64_t now(int64_t flow) const;
  void gatherLocal(Batch &batch);
  void crossNodes(Batch &batch);
  void deliver();

  int rank = 0, ranks = 1;
  int nodeSize = 1, nodes = 1;
  int local = 0, node = 0;
  const Pieces *pieces = nullptr;
  int64_t cut = 0;
  int64_t turn = 0, turns = 0;
  int stage = 0;
  // Flows in bytes, [nodeSize, nodes] or [nodes, nodeSize]:
  std::vector<int64_t> mine;      ///< [j][b]: of this rank to (b, j)
  std::vector<int64_t> forwarded; ///< [i][b]: of (node, i) to (b, local)
  std::vector<int64_t> arriving;  ///< [a][i]: of (a, i) to this rank
  Side sending, receiving;
  Staging first, second;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_RAGGEDEXCHANGE_H
