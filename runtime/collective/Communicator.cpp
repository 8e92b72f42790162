// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Communicator.h"

#include "base/Hash.h"
#include "collective/Queue.h"

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;

Communicator::Communicator(std::shared_ptr<Queue> queue,
                           std::unique_ptr<Performer> performer)
    : queue(std::move(queue)), performer(std::move(performer)) {}

Communicator::~Communicator() {
  // The queue may go on for others; it must not use this performer.
  if (performer->members.group == 0)
    queue->close();
  else
    queue->drain();
}

Result<std::unique_ptr<Communicator>>
Communicator::create(std::unique_ptr<Transport> transport,
                     const CommunicatorOptions &options) {
  if (!transport)
    return Status(MOIRA_INVALID_ARGUMENT, "expected a transport, got none");
  if (!(options.timeoutSeconds > 0))
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected a timeout of more than 0 seconds, got ",
                         options.timeoutSeconds));
  if (options.ranksPerNode < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected 0 or more ranks per node, got ",
                         options.ranksPerNode));
  if (options.stagingBytes < 1 || options.messageBytes < 1)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected staging and messages of at least 1 byte, "
                         "got ",
                         options.stagingBytes, " and ", options.messageBytes));
  Members members;
  members.rank = transport->rank();
  members.ranks.resize(transport->ranks());
  std::iota(members.ranks.begin(), members.ranks.end(), 0);
  members.ranksPerNode = options.ranksPerNode;
  auto performer =
      std::make_unique<Performer>(std::move(members), options.stagingBytes);
  auto queue = std::make_shared<Queue>(std::move(transport), options);
  return std::unique_ptr<Communicator>(
      new Communicator(std::move(queue), std::move(performer)));
}

std::unique_ptr<Communicator> Communicator::single() {
  CommunicatorOptions options;
  Members members;
  members.ranks = {0};
  auto performer =
      std::make_unique<Performer>(std::move(members), options.stagingBytes);
  return std::unique_ptr<Communicator>(new Communicator(
      std::make_shared<Queue>(nullptr, options), std::move(performer)));
}

int Communicator::rank() const { return performer->members.rank; }
int Communicator::ranks() const { return performer->members.size(); }
RankGroups Communicator::groups() const { return performer->members.groups(); }
const char *Communicator::transportName() const {
  return queue->carriedBy() ? queue->carriedBy()->name() : "none";
}
void Communicator::interrupt() noexcept { queue->interrupt(); }
Traffic Communicator::traffic() const { return queue->traffic(); }
void Communicator::resetTraffic() { queue->resetTraffic(); }
TrafficCount Communicator::takeLayer(int64_t layer) {
  return queue->takeLayer(layer);
}

VirtualClock *Communicator::clock() const { return queue->clock(); }
TraceRecorder *Communicator::trace() const { return queue->trace(); }
double Communicator::endOf(int64_t ticket) const {
  return queue->endOf(ticket);
}

Status Communicator::runNow(const Request &request) {
  ClockPause pause(clock());
  return queue->wait(queue->submit(*performer, request));
}

Result<int64_t> Communicator::start(const Request &request) {
  ClockPause pause(clock());
  int64_t ticket = queue->submit(*performer, request);
  if (ticket < 0)
    return queue->failure();
  return ticket;
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

Status Communicator::beginStep() {
  queue->countStep();
  if (reported) {
    MOIRA_RETURN_IF_ERROR(queue->recover());
    reported = false;
  }
  Status status = queue->poll();
  reported = !status.ok();
  if (clock())
    clock()->resume();
  return status;
}

Status Communicator::endStep(const Status &mine) {
  if (!mine.ok()) {
    queue->fail(mine.code, mine.message);
  } else if (ranks() > 1) {
    // Who has its own results waits here for those who may still fail.
    char vote = 1;
    votes.resize(ranks());
    Request request;
    request.kind = Request::Kind::EndStep;
    request.in = &vote;
    request.bytes = 1;
    request.out = votes.data();
    (void)runNow(request); // outcome() has it
  }
  queue->drain();
  Status outcome = queue->outcome();
  reported = !outcome.ok();
  if (clock())
    clock()->pause(); // what is between steps is free
  return outcome;
}

void Communicator::abandonStep(const Status &mine) {
  queue->fail(mine.code, mine.message);
  queue->drain();
}

//===----------------------------------------------------------------------===//
// moira_api
//===----------------------------------------------------------------------===//

int64_t Communicator::chunks(const moira_plan &plan, int64_t schedule) const {
  return std::max<int64_t>(1, chunkCount(plan.degree, schedule, groups()));
}

Status Communicator::allGather(const void *mine, int64_t bytes, void *all) {
  if (bytes < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("all-gather: expected 0 or more bytes, got ", bytes));
  Request request;
  request.in = mine;
  request.bytes = bytes;
  request.out = all;
  return runNow(request);
}

Status Communicator::gatherCounts(int64_t layer, int64_t experts,
                                  const int32_t *counts, const RankRecord &mine,
                                  int32_t *matrix) {
  if (experts < 0)
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("gather counts: expected 0 or more experts, got ", experts));
  int64_t countBytes = experts * static_cast<int64_t>(sizeof(int32_t));
  int64_t bytes = static_cast<int64_t>(sizeof(RankRecord)) + countBytes;
  std::fill_n(matrix, ranks() * experts, 0);
  recordBytes.resize(bytes);
  allRecordBytes.resize(bytes * ranks());
  RankRecord record = mine;
  record.layer = static_cast<int32_t>(layer);
  copyBytes(recordBytes.data(), &record, sizeof(record));
  copyBytes(recordBytes.data() + sizeof(record), counts, countBytes);
  Request request;
  request.kind = Request::Kind::GatherCounts;
  request.layer = layer;
  request.in = recordBytes.data();
  request.bytes = bytes;
  request.out = allRecordBytes.data();
  MOIRA_RETURN_IF_ERROR(runNow(request));

  recordList.resize(ranks());
  for (int p = 0; p < ranks(); ++p)
    copyBytes(&recordList[p], allRecordBytes.data() + p * bytes,
              sizeof(RankRecord));
  if (std::optional<Failure> found = findDisagreement(recordList)) {
    found->rank = performer->members.ranks[found->rank];
    found->reason = request.describe() + ": " + found->reason;
    queue->fail(*found);
    return queue->failure();
  }
  for (int p = 0; p < ranks(); ++p)
    copyBytes(matrix + p * experts,
              allRecordBytes.data() + p * bytes + sizeof(RankRecord),
              countBytes);
  return Status();
}

Result<int64_t> Communicator::receiveSizes(const moira_plan &plan,
                                           const moira_exchange &exchange,
                                           int32_t *groupRows) {
  ClockPause pause(clock());
  MOIRA_RETURN_IF_ERROR(placement.set(exchange.placement, plan, ranks()));
  MOIRA_RETURN_IF_ERROR(layout.set(exchange, placement, groups()));
  for (int slot = 0; slot < layout.slots(); ++slot) {
    int64_t rows = layout.slotRows(slot);
    if (rows > INT32_MAX)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("receive sizes: slot ", slot,
                           ": expected rows that fit 31 bits, got ", rows));
    groupRows[slot] = static_cast<int32_t>(rows);
  }
  return layout.awayRows();
}

Result<const std::vector<Communicator::RowMove> *>
Communicator::mergeRows(const moira_plan &plan,
                        const moira_exchange &exchange) {
  ClockPause pause(clock());
  MOIRA_RETURN_IF_ERROR(placement.set(exchange.placement, plan, ranks()));
  MOIRA_RETURN_IF_ERROR(layout.set(exchange, placement, groups()));
  moira_exchange whole = exchange;
  whole.schedule = MOIRA_SCHEDULE_EQUAL;
  whole.chunk = 0;
  whole.chunks = 1;
  MOIRA_RETURN_IF_ERROR(wholeLayout.set(whole, placement, groups()));
  moves.clear();
  for (int slot = 0; slot < layout.slots(); ++slot)
    for (int peer = 0; peer < ranks(); ++peer) {
      const RowRange &part = layout.away(slot, peer);
      const RowRange &all = wholeLayout.away(slot, peer);
      int64_t to = all.begin + layout.beginInWhole(all.rows);
      if (part.rows == 0)
        continue;
      // Neighbours move together: with one chunk everything does.
      if (!moves.empty() &&
          moves.back().from + moves.back().rows == part.begin &&
          moves.back().to + moves.back().rows == to)
        moves.back().rows += part.rows;
      else
        moves.push_back({part.begin, to, part.rows});
    }
  return &moves;
}

Result<int64_t> Communicator::exchange(const moira_plan &plan,
                                       const moira_exchange &exchange) {
  Request request;
  request.kind = Request::Kind::Exchange;
  request.plan = plan;
  request.exchange = exchange;
  return start(request);
}

Result<int64_t> Communicator::gatherWeights(const moira_plan &plan,
                                            const moira_gather &gather) {
  Request request;
  request.kind = Request::Kind::GatherWeights;
  request.plan = plan;
  request.gather = gather;
  return start(request);
}

Result<int64_t> Communicator::reduceWeights(const moira_plan &plan,
                                            const moira_reduce &reduce,
                                            const int32_t *lasting) {
  Request request;
  request.kind = Request::Kind::ReduceWeights;
  request.plan = plan;
  request.reduce = reduce;
  request.lasting = lasting;
  return start(request);
}

Result<int64_t> Communicator::moveShadow(const moira_plan &plan,
                                         const ShadowMove &move) {
  if (move.bytes < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("shadow: expected 0 or more bytes, got ", move.bytes));
  Request request;
  request.kind = Request::Kind::MoveShadow;
  request.plan = plan;
  request.shadow = move;
  return start(request);
}

Result<int64_t> Communicator::moveSlots(const Pieces &pieces,
                                        int32_t parameter) {
  Request request;
  request.kind = Request::Kind::MoveSlots;
  request.pieces = &pieces;
  request.gather.parameter = parameter;
  return start(request);
}

static Request allReduceOf(const void *in, void *data, int64_t count,
                           int32_t dtype, Reduction reduction) {
  Request request;
  request.kind = Request::Kind::AllReduce;
  request.in = in;
  request.out = data;
  request.count = count;
  request.dtype = dtype;
  request.reduction = reduction;
  return request;
}

Result<int64_t> Communicator::startAllReduce(const void *in, void *data,
                                             int64_t count, int32_t dtype) {
  return start(allReduceOf(in, data, count, dtype, Reduction::Sum));
}

Status Communicator::wait(int64_t ticket) {
  ClockPause pause(clock());
  return queue->wait(ticket);
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

Status Communicator::barrier() {
  char mine = 0;
  votes.resize(ranks());
  return allGather(&mine, 1, votes.data());
}

Status Communicator::broadcast(int root, void *data, int64_t bytes) {
  if (root < 0 || root >= ranks() || bytes < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("broadcast: expected a root below ", ranks(),
                         " and 0 or more bytes, got ", root, " and ", bytes));
  Request request;
  request.kind = Request::Kind::Broadcast;
  request.root = root;
  request.out = data;
  request.bytes = bytes;
  return runNow(request);
}

Status Communicator::allReduce(void *data, int64_t count, int32_t dtype,
                               Reduction reduction) {
  return runNow(allReduceOf(data, data, count, dtype, reduction));
}

Status Communicator::reduceScatter(const void *in, void *out, int64_t count,
                                   int32_t dtype, Reduction reduction) {
  Request request;
  request.kind = Request::Kind::ReduceScatter;
  request.in = in;
  request.out = out;
  request.count = count;
  request.dtype = dtype;
  request.reduction = reduction;
  return runNow(request);
}

/// Neighbours among some ranks of a grid with described nodes: whole nodes
/// stay nodes, ranks of one node are one; else nothing is known.
static int nodesAmong(const std::vector<int> &chosen, int ranksPerNode) {
  if (ranksPerNode == 0)
    return 0;
  if (chosen.front() / ranksPerNode == chosen.back() / ranksPerNode)
    return static_cast<int>(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i] % ranksPerNode != static_cast<int>(i) % ranksPerNode)
      return 0;
  return chosen.size() % ranksPerNode == 0 ? ranksPerNode : 0;
}

Result<std::unique_ptr<Communicator>> Communicator::split(int32_t colour) {
  std::vector<int32_t> colours(ranks());
  Request request;
  request.kind = Request::Kind::Split;
  request.in = &colour;
  request.bytes = sizeof(colour);
  request.out = colours.data();
  MOIRA_RETURN_IF_ERROR(runNow(request));
  const Members &parent = performer->members;
  const uint64_t name[] = {parent.group, ++splits, uint64_t(colour)};
  if (colour < 0)
    return std::unique_ptr<Communicator>();
  Members members;
  members.group = hashBytes(name, sizeof(name));
  std::vector<int> chosen; // numbered as in the parent
  for (int p = 0; p < ranks(); ++p)
    if (colours[p] == colour) {
      if (p == rank())
        members.rank = static_cast<int>(chosen.size());
      chosen.push_back(p);
      members.ranks.push_back(parent.ranks[p]);
    }
  members.ranksPerNode = nodesAmong(chosen, parent.ranksPerNode);
  return std::unique_ptr<Communicator>(new Communicator(
      queue, std::make_unique<Performer>(std::move(members),
                                         performer->stagingBytes)));
}
