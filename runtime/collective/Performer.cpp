// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Performer.h"

using namespace moira;
using namespace moira::runtime;

Status Performer::exchange(const Request &request, Carrier &carrier) {
  const moira_exchange &exchange = request.exchange;
  MOIRA_RETURN_IF_ERROR(
      placement.set(exchange.placement, request.plan, members.size()));
  MOIRA_RETURN_IF_ERROR(layout.set(exchange, placement, members.groups()));
  rowPieces(exchange, layout, members.groups(), pieces);
  TrafficTag tag;
  tag.kind = exchange.direction == MOIRA_TO_EXPERTS ? TrafficKind::RowsToExperts
                                                    : TrafficKind::RowsToTokens;
  tag.layer = exchange.layer;
  if (request.plan.exchange == 1 &&
      HierarchicalExchange::applies(members.size(), members.ranksPerNode)) {
    flows.set(exchange, layout);
    hierarchical.begin(members.rank, members.size(), members.ranksPerNode,
                       pieces, flows, stagingBytes);
    return carrier.run(hierarchical, members, tag);
  }
  linear.begin(members.rank, pieces);
  return carrier.run(linear, members, tag);
}

Status Performer::gatherWeights(const Request &request, Carrier &carrier) {
  const moira_gather &gather = request.gather;
  MOIRA_RETURN_IF_ERROR(
      placement.set(gather.placement, request.plan, members.size()));
  MOIRA_RETURN_IF_ERROR(
      weightPieces(gather, placement, members.groups(), pieces));
  linear.begin(members.rank, pieces);
  return carrier.run(linear, members,
                     {TrafficKind::Weights, gather.layer, gather.parameter});
}

Status Performer::reduceWeights(const Request &request, Carrier &carrier) {
  const moira_reduce &reduce = request.reduce;
  MOIRA_RETURN_IF_ERROR(
      placement.set(reduce.placement, request.plan, members.size()));
  if (request.lasting)
    MOIRA_RETURN_IF_ERROR(
        lasting.set(reduce.placement, request.lasting, members.size()));
  MOIRA_RETURN_IF_ERROR(reducing.begin(reduce, placement,
                                       request.lasting ? &lasting : nullptr,
                                       members.groups(), stagingBytes));
  return carrier.run(reducing, members,
                     {TrafficKind::Gradients, reduce.layer, reduce.parameter});
}

Status Performer::moveShadow(const Request &request, Carrier &carrier) {
  const ShadowMove &move = request.shadow;
  MOIRA_RETURN_IF_ERROR(
      placement.set(move.placement, request.plan, members.size()));
  MOIRA_RETURN_IF_ERROR(
      lasting.set(move.placement, move.lasting, members.size()));
  findShadowRanks(lasting, placement, move.unit, shadowed.ranks);
  int place = 0;
  while (place < shadowed.size() && shadowed.ranks[place] != members.rank)
    ++place;
  if (place == shadowed.size())
    return Status();
  Place own = placement.holderFor(move.unit, members.rank);
  shadowing.begin(place, shadowed.size(),
                  static_cast<char *>(move.slots) + own.slot * move.bytes,
                  move.bytes, ShadowTransport::BySize);
  for (int &rank : shadowed.ranks)
    rank = members.ranks[rank];
  return carrier.run(shadowing, shadowed,
                     {TrafficKind::Shadows, move.layer, move.parameter});
}

Status Performer::allGather(const Request &request, Carrier &carrier) {
  gathering.begin(members.rank, members.size(), request.in, request.bytes,
                  request.out);
  return carrier.run(gathering, members, TrafficTag());
}

Status Performer::perform(const Request &request, Carrier &carrier) {
  auto run = [&](Collective &collective) {
    return carrier.run(collective, members, TrafficTag());
  };
  switch (request.kind) {
  case Request::Kind::Exchange:
    return exchange(request, carrier);
  case Request::Kind::GatherWeights:
    return gatherWeights(request, carrier);
  case Request::Kind::ReduceWeights:
    return reduceWeights(request, carrier);
  case Request::Kind::MoveShadow:
    return moveShadow(request, carrier);
  case Request::Kind::MoveSlots:
    linear.begin(members.rank, *request.pieces);
    return carrier.run(linear, members,
                       {TrafficKind::Moves, -1, request.gather.parameter});
  case Request::Kind::Broadcast:
    broadcasting.begin(members.rank, members.size(), request.root, request.out,
                       request.bytes);
    return run(broadcasting);
  case Request::Kind::AllReduce:
    MOIRA_RETURN_IF_ERROR(allReducing.begin(
        members.rank, members.size(), request.in, request.out, request.count,
        request.dtype, request.reduction, stagingBytes));
    return carrier.run(allReducing, members, {TrafficKind::Sums});
  case Request::Kind::ReduceScatter:
    MOIRA_RETURN_IF_ERROR(reduceScattering.begin(
        members.rank, members.size(), request.in, request.out, request.count,
        request.dtype, request.reduction, stagingBytes));
    return run(reduceScattering);
  default:
    return allGather(request, carrier);
  }
}
