// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Request.h"

using namespace moira;
using namespace moira::runtime;

std::string Request::describe() const {
  switch (kind) {
  case Kind::Exchange:
    return concat("exchange to ",
                  exchange.direction == MOIRA_TO_EXPERTS ? "experts" : "tokens",
                  ", layer ", exchange.layer, ", chunk ", exchange.chunk);
  case Kind::GatherWeights:
    return concat("gather weights, layer ", gather.layer, ", parameter ",
                  gather.parameter);
  case Kind::ReduceWeights:
    return concat("reduce weights, layer ", reduce.layer, ", parameter ",
                  reduce.parameter);
  case Kind::MoveShadow:
    return concat("shadow of expert ", shadow.unit / shadow.placement.shards,
                  ", layer ", shadow.layer, ", parameter ", shadow.parameter);
  case Kind::MoveSlots:
    return concat("move of parameter ", gather.parameter);
  case Kind::GatherCounts:
    return concat("gather counts, layer ", layer);
  case Kind::AllGather:
    return "all-gather";
  case Kind::Broadcast:
    return "broadcast";
  case Kind::AllReduce:
    return "all-reduce";
  case Kind::ReduceScatter:
    return "reduce-scatter";
  case Kind::EndStep:
    return "end of the step";
  case Kind::Split:
    return "split";
  }
  return "";
}
