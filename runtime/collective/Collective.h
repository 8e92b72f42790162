// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives as sequences of batches. They know no transport, thread or
// clock: whoever runs one carries its batches, be it a queue or a simulator.

#ifndef MOIRA_RUNTIME_COLLECTIVE_COLLECTIVE_H
#define MOIRA_RUNTIME_COLLECTIVE_COLLECTIVE_H

#include "collective/Reduction.h"
#include "collective/Transport.h"

#include <cstring>
#include <memory>

namespace moira::runtime {

/// One rank's part in a collective. Objects are used again: `begin` of a
/// concrete class starts over and allocates nothing where sizes do not grow.
class Collective {
public:
  virtual ~Collective() = default;

  /// Called first, and again each time the batch that it filled has completed:
  /// does what can be done by now and fills the next batch. False where
  /// nothing is left to do. Batches may be empty. The two ends of a message are
  /// in batches of the same number, since virtual clocks time all first batches
  /// together, then all second ones.
  virtual bool next(Batch &batch) = 0;
};

/// Memory that grows and stays, without content.
class Staging {
public:
  char *ensure(int64_t bytes) {
    if (bytes > held) {
      memory.reset(); // not both at the same time
      held = 0;
      memory.reset(new char[bytes]);
      held = bytes;
    }
    return memory.get();
  }

private:
  std::unique_ptr<char[]> memory;
  int64_t held = 0;
};

/// memcpy that allows null for no bytes and for equal places.
inline void copyBytes(void *to, const void *from, int64_t bytes) {
  if (bytes > 0 && to != from)
    std::memcpy(to, from, bytes);
}

/// all[ranks, bytes] = `mine` of every rank. Small ones take log2(ranks)
/// rounds (Bruck), large or few ones one round in place.
class AllGather final : public Collective {
public:
  void begin(int rank, int ranks, const void *mine, int64_t bytes, void *all);
  bool next(Batch &batch) override;

private:
  int rank = 0, ranks = 1;
  int64_t bytes = 0;
  char *all = nullptr;
  int distance = 0; ///< of the round to come; 0: one round in place
  bool ended = false;
  Staging staging; ///< block i: of rank + i
};

/// `data` of rank `root` to all, down a binomial tree, the farthest first. Both
/// ends of a message are in the same batch, counted from the first one on, as
/// virtual clocks need it.
class Broadcast final : public Collective {
public:
  void begin(int rank, int ranks, int root, void *data, int64_t bytes);
  bool next(Batch &batch) override;

private:
  int rank = 0, ranks = 1, root = 0;
  void *data = nullptr;
  int64_t bytes = 0;
  int bit = 0; ///< twice the distance of the round to come
};

/// Adds (or takes the maximum of) arrays of all ranks, each element in
/// ascending order of ranks: the same bits wherever it runs.
class ReduceScatter final : public Collective {
public:
  /// out[count] = reduction over ranks p of p's in[ranks, count] at this rank.
  /// Fails for types that checkReducible does not know. `out` and `in` do not
  /// overlap.
  Status begin(int rank, int ranks, const void *in, void *out, int64_t count,
               int32_t dtype, Reduction reduction, int64_t stagingBytes);
  bool next(Batch &batch) override;

private:
  int rank = 0, ranks = 1;
  const char *in = nullptr;
  char *out = nullptr;
  int64_t count = 0; ///< of one rank's part
  int64_t done = 0;  ///< elements of it before the block under way
  int64_t block = 0; ///< elements of a block
  bool waiting = false;
  int32_t dtype = 0;
  Reduction reduction = Reduction::Sum;
  std::vector<const void *> addends;
  Staging staging; ///< [ranks, block]
};

/// data[count] = reduction over all ranks of in[count]: each rank reduces its
/// part, then parts are gathered.
class AllReduce final : public Collective {
public:
  /// `in` is `data` or apart from it; it is not read after this.
  Status begin(int rank, int ranks, const void *in, void *data, int64_t count,
               int32_t dtype, Reduction reduction, int64_t stagingBytes);
  bool next(Batch &batch) override;

private:
  struct Part {
    int64_t begin, count; ///< elements
  };
  /// What rank r reduces of the block under way.
  Part part(int r) const;

  int rank = 0, ranks = 1;
  char *data = nullptr;
  int64_t count = 0;
  int64_t done = 0;  ///< elements before the block under way
  int64_t block = 0; ///< elements of a block
  int stage = 0;     ///< 0 begins a block, 1 reduces, 2 ends it
  int32_t dtype = 0;
  Reduction reduction = Reduction::Sum;
  std::vector<const void *> addends;
  Staging staging; ///< [ranks, part]
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_COLLECTIVE_H
