// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a rank talks to the other ranks with: transfers in a queue, collectives,
// and one outcome of a step on all ranks.

#ifndef MOIRA_RUNTIME_COLLECTIVE_COMMUNICATOR_H
#define MOIRA_RUNTIME_COLLECTIVE_COMMUNICATOR_H

#include "collective/Collective.h"
#include "collective/ExchangeLayout.h"
#include "collective/RaggedExchange.h"
#include "collective/Record.h"
#include "collective/ShadowSend.h"
#include "collective/Traffic.h"

#include <memory>

namespace moira::runtime {

class Queue;
class Performer;
class TraceRecorder;
class VirtualClock;

struct CommunicatorOptions {
  /// Seconds that one operation may wait for other ranks.
  double timeoutSeconds = 60;
  /// Ranks [i * n, (i + 1) * n) are one node; 0: nodes are not described.
  int ranksPerNode = 0;
  /// Bytes that a collective may hold beside its caller's memory, about.
  int64_t stagingBytes = int64_t(64) << 20;
  /// Larger messages are cut.
  int64_t messageBytes = int64_t(1) << 30;
  /// This rank's virtual clock; null: times are real. All ranks or none, in
  /// one process.
  std::shared_ptr<VirtualClock> clock;
  /// Who is told what ran when; null: nobody.
  std::shared_ptr<TraceRecorder> trace;
};

/// One rank's view of a group of ranks. All ranks call the same functions in
/// the same order; the calls of a rank, those of its sub-communicators among
/// them, form one queue. One thread at a time, but for `interrupt`, `traffic`,
/// `resetTraffic`.
///
/// Failures. The first failure of any rank fails what is queued on all ranks,
/// with one message: "rank R: OPERATION: REASON". A step is put between
/// `beginStep` and `endStep`, which is where all ranks agree on its outcome;
/// where the transport can, the step after a failed one works again.
class Communicator {
public:
  /// Rows that follow one another in two places.
  struct RowMove {
    int64_t from, to, rows;
  };

  static Result<std::unique_ptr<Communicator>>
  create(std::unique_ptr<Transport> transport,
         const CommunicatorOptions &options = {});
  /// One rank, no transport, no thread: copies.
  static std::unique_ptr<Communicator> single();
  /// Requests that are under way fail.
  ~Communicator();

  int rank() const;
  int ranks() const;
  const char *transportName() const;
  RankGroups groups() const;

  //===--- A step --------------------------------------------------------===//

  /// After a failed step waits until all ranks have left it. On failure the
  /// step is over; `endStep` may be called or not.
  Status beginStep();
  /// `mine` is what this rank has to say. Success where all ranks succeed;
  /// else the one failure. Returns only when no request is under way.
  Status endStep(const Status &mine);
  /// Within a step that fails here: returns when no request is under way, so
  /// that memory which they name may go. `endStep` comes later.
  void abandonStep(const Status &mine);

  //===--- moira_api -----------------------------------------------------===//

  int64_t chunks(const moira_plan &plan, int64_t schedule) const;
  Status allGather(const void *mine, int64_t bytes, void *all);
  /// matrix[ranks, experts] of all ranks' counts. Fails on all ranks where
  /// records differ in what they must agree on.
  Status gatherCounts(int64_t layer, int64_t experts, const int32_t *counts,
                      const RankRecord &mine, int32_t *matrix);
  /// The records of the last gatherCounts, by rank.
  const std::vector<RankRecord> &records() const { return recordList; }
  Result<int64_t> receiveSizes(const moira_plan &plan,
                               const moira_exchange &exchange, int32_t *groups);
  /// Where rows of the exchange's chunk stand at this rank's experts (`from`)
  /// and where they would with one chunk (`to`). Valid until the next call.
  Result<const std::vector<RowMove> *>
  mergeRows(const moira_plan &plan, const moira_exchange &exchange);
  /// Queue a transfer and return its ticket. The plan's slot table stays as it
  /// is until `wait`, like all other memory named.
  Result<int64_t> exchange(const moira_plan &plan,
                           const moira_exchange &exchange);
  Result<int64_t> gatherWeights(const moira_plan &plan,
                                const moira_gather &gather);
  /// `lasting`: the table without the shadows that the plan's has, [ranks,
  /// slots], by which gradients have their owners; null: there are none.
  Result<int64_t> reduceWeights(const moira_plan &plan,
                                const moira_reduce &reduce,
                                const int32_t *lasting = nullptr);
  Result<int64_t> moveShadow(const moira_plan &plan, const ShadowMove &move);
  /// Slots of a parameter, or of what belongs to it, from rank to rank.
  Result<int64_t> moveSlots(const Pieces &pieces, int32_t parameter);
  /// data[count] = sum of all ranks' in[count], which may be `data`.
  Result<int64_t> startAllReduce(const void *in, void *data, int64_t count,
                                 int32_t dtype);
  Status wait(int64_t ticket);
  /// When a request ended, in virtual seconds; one of the last 1024 that has.
  double endOf(int64_t ticket) const;

  //===--- Collectives, which wait ---------------------------------------===//

  Status barrier();
  Status broadcast(int root, void *data, int64_t bytes);
  /// In place, in ascending order of ranks; 16-bit floats in f32, rounded once.
  Status allReduce(void *data, int64_t count, int32_t dtype,
                   Reduction reduction);
  /// out[count] = this rank's part of the reduction of in[ranks, count].
  Status reduceScatter(const void *in, void *out, int64_t count, int32_t dtype,
                       Reduction reduction);
  /// One communicator per colour, ranks in ascending order; null for a
  /// negative colour. It shares this one's queue and failures, and nodes are
  /// described where each of a node's ranks has the same colour.
  Result<std::unique_ptr<Communicator>> split(int32_t colour);

  /// The options' own.
  VirtualClock *clock() const;
  TraceRecorder *trace() const;

  //===--- From outside --------------------------------------------------===//

  /// Ends the operation that waits, or the next one, with an error on all
  /// ranks. Any thread, and signal handlers.
  void interrupt() noexcept;
  /// Counted since the beginning or the last reset; by rank of the transport.
  Traffic traffic() const;
  void resetTraffic();
  /// A layer's part, which starts again at zero.
  TrafficCount takeLayer(int64_t layer);

private:
  Communicator(std::shared_ptr<Queue> queue,
               std::unique_ptr<Performer> performer);
  Status runNow(const struct Request &request);
  /// Queues it and returns its ticket.
  Result<int64_t> start(const struct Request &request);

  std::shared_ptr<Queue> queue;
  std::unique_ptr<Performer> performer;
  Placement placement; ///< of receiveSizes, which runs on the caller
  ExchangeLayout layout, wholeLayout;
  std::vector<RowMove> moves;
  std::vector<RankRecord> recordList;
  std::vector<char> recordBytes, allRecordBytes;
  std::vector<char> votes;
  uint64_t splits = 0;
  bool reported = false; ///< the failure of the last step
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_COMMUNICATOR_H
