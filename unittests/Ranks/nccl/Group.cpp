// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Group.h"

#include <algorithm>
#include <cstring>
#include <sstream>

using namespace standin;

static const struct {
  ncclDataType_t type;
  size_t bytes;
  const char *name;
} types[] = {{ncclInt8, 1, "int8"},       {ncclUint8, 1, "uint8"},
             {ncclInt32, 4, "int32"},     {ncclUint32, 4, "uint32"},
             {ncclInt64, 8, "int64"},     {ncclUint64, 8, "uint64"},
             {ncclFloat16, 2, "float16"}, {ncclFloat32, 4, "float32"},
             {ncclFloat64, 8, "float64"}, {ncclBfloat16, 2, "bfloat16"}};

size_t standin::bytesOf(ncclDataType_t type) {
  for (const auto &entry : types)
    if (entry.type == type)
      return entry.bytes;
  return 0;
}

const char *standin::nameOf(ncclDataType_t type) {
  for (const auto &entry : types)
    if (entry.type == type)
      return entry.name;
  return "?";
}

Group::Group(int rank, std::vector<Operation> operations) : rank(rank) {
  for (const Operation &operation : operations) {
    (operation.isSend ? sends : receives)[operation.peer].operations.push_back(
        operation);
    ++left;
  }
}

bool Group::send(Segment &segment, int peer, Flow &flow) {
  Channel &channel = segment.channel(rank, peer);
  const Operation &operation = flow.operations[flow.at];
  if (!flow.begun) {
    uint64_t number = channel.described.load();
    if (number - channel.accepted.load() >= Channel::slots)
      return false;
    channel.descriptions[number % Channel::slots] = {
        operation.count, operation.type, static_cast<int32_t>(flow.at),
        static_cast<int32_t>(flow.operations.size())};
    channel.described.store(number + 1);
    flow.begun = true;
    flow.moved = 0;
    flow.target = channel.written.load() + operation.bytes();
    return true;
  }
  uint64_t written = channel.written.load(), read = channel.read.load();
  if (flow.moved == operation.bytes()) {
    if (read < flow.target)
      return false;
    ++flow.at;
    --left;
    flow.begun = false;
    return true;
  }
  uint64_t at = written % Channel::ringBytes;
  uint64_t part = std::min({operation.bytes() - flow.moved,
                            Channel::ringBytes - (written - read),
                            Channel::ringBytes - at});
  if (part == 0)
    return false;
  std::memcpy(channel.ring + at, operation.data + flow.moved, part);
  flow.moved += part;
  channel.written.store(written + part);
  return true;
}

std::string Group::disagreement(const Description &theirs, int peer,
                                const Flow &flow) const {
  const Operation &ours = flow.operations[flow.at];
  const int total = static_cast<int>(flow.operations.size());
  std::ostringstream text;
  if (theirs.total != total || theirs.index != static_cast<int32_t>(flow.at)) {
    text << "rank " << peer << " sends message " << theirs.index + 1 << " of "
         << theirs.total << " in its group to rank " << rank
         << ", which receives message " << flow.at + 1 << " of " << total;
  } else if (theirs.type != ours.type) {
    text << "rank " << peer << " sends "
         << nameOf(static_cast<ncclDataType_t>(theirs.type)) << " to rank "
         << rank << ", which receives " << nameOf(ours.type);
  } else if (theirs.count != ours.count) {
    text << "rank " << peer << " sends " << theirs.count << " elements to rank "
         << rank << ", which receives " << ours.count;
  }
  return text.str();
}

bool Group::receive(Segment &segment, int peer, Flow &flow) {
  Channel &channel = segment.channel(peer, rank);
  const Operation &operation = flow.operations[flow.at];
  if (!flow.begun) {
    uint64_t number = channel.accepted.load();
    if (channel.described.load() == number)
      return false;
    std::string fault =
        disagreement(channel.descriptions[number % Channel::slots], peer, flow);
    if (!fault.empty()) {
      segment.fail(fault);
      return false;
    }
    channel.accepted.store(number + 1);
    flow.begun = true;
    flow.moved = 0;
    return true;
  }
  uint64_t written = channel.written.load(), read = channel.read.load();
  if (flow.moved == operation.bytes()) {
    ++flow.at;
    --left;
    flow.begun = false;
    return true;
  }
  uint64_t at = read % Channel::ringBytes;
  uint64_t part = std::min({operation.bytes() - flow.moved, written - read,
                            Channel::ringBytes - at});
  if (part == 0)
    return false;
  std::memcpy(operation.data + flow.moved, channel.ring + at, part);
  flow.moved += part;
  channel.read.store(read + part);
  return true;
}

bool Group::move(Segment &segment) {
  bool moved = false;
  for (auto &[peer, flow] : sends)
    if (flow.at < flow.operations.size())
      moved |= send(segment, peer, flow);
  for (auto &[peer, flow] : receives)
    if (flow.at < flow.operations.size())
      moved |= receive(segment, peer, flow);
  return moved;
}
