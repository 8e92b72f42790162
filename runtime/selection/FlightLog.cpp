// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "selection/FlightLog.h"

#include "base/Hash.h"
#include "cost/JsonReader.h"

#include <cstring>

using namespace moira;
using namespace moira::runtime;

// A file: the magic, a header of JSON, records. Header and records each begin
// with their length and a checksum.
static constexpr char magic[8] = {'M', 'O', 'I', 'R', 'A', 'F', 'L', 'T'};
static constexpr int64_t logVersion = 1;

// What a record has.
enum : uint8_t {
  hasPlacement = 1,
  hasCounts = 2,
  hasSeconds = 4,
  hasVariants = 8, ///< others than the record before
  hasPrograms = 16,
  hasRows = 32,
  hasVariant = 64, ///< that somebody else has chosen
  hasCandidate = 128
};

static uint32_t checksum(const std::string &bytes) {
  return uint32_t(hashBytes(bytes.data(), bytes.size()));
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Seven bits a byte, lowest first.
void FlightRecorder::number(uint64_t value) {
  while (value >= 128) {
    body += char(value % 128 + 128);
    value /= 128;
  }
  body += char(value);
}

void FlightRecorder::raw(const void *data, size_t bytes) {
  body.append(static_cast<const char *>(data), bytes);
}

void FlightRecorder::end(size_t begin) {
  uint32_t head[2] = {uint32_t(body.size()), checksum(body)};
  out.append(reinterpret_cast<const char *>(head), sizeof(head));
  out += body;
  last = out.size() - begin;
}

static std::string hex(uint64_t value) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4)
    text += "0123456789abcdef"[value >> shift & 15];
  return text;
}

FlightRecorder::FlightRecorder(const Decider &decider)
    : ranks(const_cast<Decider &>(decider).costs().shape().ranks),
      experts(const_cast<Decider &>(decider).costs().shape().experts),
      slots(const_cast<Decider &>(decider).costs().shape().slots),
      before(size_t(ranks) * experts) {
  const SelectionOptions &options = decider.options();
  OrderedJson header = {{"format", "moira-flight"},
                        {"version", logVersion},
                        {"candidates", hex(decider.space().hash())},
                        {"ranks", ranks},
                        {"experts", experts},
                        {"options",
                         {{"mode", int(options.mode)},
                          {"fixed", options.fixed},
                          {"numerics", options.numerics},
                          {"trial_loss", options.trialLoss},
                          {"initial_loss", options.initialLoss},
                          {"trial_spacing", options.trialSpacing},
                          {"trials_per_bucket", options.trialsPerBucket},
                          {"lag", options.lag},
                          {"joint", options.joint}}},
                        {"learned", decider.saveLearned()}};
  out.append(magic, sizeof(magic));
  body = header.dump();
  end(0);
}

void FlightRecorder::add(const SharedStep &record, const Decision &decision) {
  body.clear();
  uint8_t flags = 0;
  size_t words = sizeof(uint64_t) * size_t(ranks);
  auto changed = [&](const uint64_t *now, std::vector<uint64_t> &then) {
    if (now ? then.empty() || std::memcmp(now, then.data(), words) != 0
            : !then.empty()) {
      now ? then.assign(now, now + ranks) : then.clear();
      return true;
    }
    return false;
  };
  flags |= record.counts ? hasCounts : 0;
  flags |= record.seconds ? hasSeconds : 0;
  flags |= record.nextRows >= 0 ? hasRows : 0;
  flags |= record.variant >= 0 ? hasVariant : 0;
  flags |= record.candidate >= 0 ? hasCandidate : 0;
  flags |= changed(record.variants, variants) ? hasVariants : 0;
  flags |= changed(record.programs, programs) ? hasPrograms : 0;
  body += char(flags);
  number(uint64_t(record.step));
  number(uint64_t(decision.candidate));
  number(uint64_t(decision.reason));
  if (flags & hasSeconds) {
    number(uint64_t(record.timedStep + 1));
    raw(record.seconds, sizeof(double) * size_t(ranks));
  }
  if (flags & hasRows)
    number(uint64_t(record.nextRows));
  if (flags & hasVariant)
    number(uint64_t(record.variant));
  if (flags & hasCandidate)
    number(uint64_t(record.candidate));
  for (auto [flag, list] :
       {std::pair(hasVariants, &variants), std::pair(hasPrograms, &programs)})
    if (flags & flag) {
      number(list->size());
      raw(list->data(), sizeof(uint64_t) * list->size());
    }
  // Loads drift: differences are small numbers.
  for (size_t i = 0; record.counts && i < before.size(); ++i) {
    int64_t difference = int64_t(record.counts[i]) - before[i];
    number(difference < 0 ? uint64_t(-2 * difference - 1)
                          : uint64_t(2 * difference));
    before[i] = record.counts[i];
  }
  end(out.size());
}

void FlightRecorder::addPlacement(const int32_t *slotTable) {
  body.clear();
  body += char(hasPlacement);
  size_t size = slotTable ? size_t(ranks) * slots : 0;
  number(size);
  for (size_t i = 0; i < size; ++i)
    number(uint64_t(slotTable[i] + 1));
  end(out.size());
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
/// Bytes that nobody vouches for. After a fault everything read is zero.
class Bytes {
public:
  Bytes(const char *data, size_t size) : at(data), left(size) {}

  void raw(void *to, size_t bytes) {
    if (bytes > left) {
      good = false;
      left = 0;
      std::memset(to, 0, bytes);
      return;
    }
    std::memcpy(to, at, bytes);
    at += bytes;
    left -= bytes;
  }
  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      uint8_t byte = 0;
      raw(&byte, 1);
      value |= uint64_t(byte & 127) << shift;
      if (byte < 128)
        return value;
    }
    good = false;
    return 0;
  }
  std::string text(size_t bytes) {
    std::string result(std::min(bytes, left), 0);
    raw(result.data(), result.size());
    good &= result.size() == bytes;
    return result;
  }
  size_t rest() const { return left; }
  bool ok() const { return good; }
  void fail() { good = false; }

private:
  const char *at;
  size_t left;
  bool good = true;
};
} // namespace

static bool readEntry(Bytes in, int ranks, int experts,
                      const std::vector<int32_t> *before,
                      const FlightLog::Entry *last, FlightLog::Entry &entry) {
  uint8_t flags = 0;
  in.raw(&flags, 1);
  if (flags & hasPlacement) {
    entry.placement = true;
    uint64_t size = in.number();
    if (size > in.rest())
      return false;
    for (uint64_t i = 0; i < size; ++i)
      entry.table.push_back(int32_t(int64_t(in.number()) - 1));
    return in.ok() && in.rest() == 0;
  }
  entry.step = int64_t(in.number());
  entry.candidate = int(in.number());
  uint64_t reason = in.number();
  if (reason > uint64_t(DecisionReason::Oracle))
    return false;
  entry.reason = DecisionReason(reason);
  if (flags & hasSeconds) {
    entry.timedStep = int64_t(in.number()) - 1;
    entry.seconds.resize(ranks);
    in.raw(entry.seconds.data(), sizeof(double) * size_t(ranks));
  }
  if (flags & hasRows)
    entry.nextRows = int64_t(in.number());
  if (flags & hasVariant)
    entry.variant = int(in.number() & INT32_MAX);
  if (flags & hasCandidate)
    entry.forced = int(in.number() & INT32_MAX);
  if (last) {
    entry.variants = last->variants;
    entry.programs = last->programs;
  }
  for (auto [flag, list] : {std::pair(hasVariants, &entry.variants),
                            std::pair(hasPrograms, &entry.programs)})
    if (flags & flag) {
      uint64_t size = in.number();
      if (size != 0 && size != uint64_t(ranks))
        return false;
      list->resize(size);
      in.raw(list->data(), sizeof(uint64_t) * size);
    }
  if (flags & hasCounts) {
    size_t size = size_t(ranks) * size_t(experts);
    if (size > in.rest())
      return false;
    entry.counts.resize(size);
    for (size_t i = 0; i < size; ++i) {
      uint64_t coded = in.number();
      int64_t difference =
          coded % 2 ? -int64_t(coded / 2) - 1 : int64_t(coded / 2);
      int64_t value = (before ? int64_t((*before)[i]) : 0) + difference;
      if (value < 0 || value > INT32_MAX)
        return false;
      entry.counts[i] = int32_t(value);
    }
  }
  return in.ok() && in.rest() == 0;
}

Result<FlightLog> FlightLog::parse(const std::string &bytes,
                                   const std::string &name) {
  auto corrupt = [&](const std::string &what) {
    return Status(MOIRA_DATA_LOSS, name + ": expected " + what);
  };
  Bytes in(bytes.data(), bytes.size());
  char start[sizeof(magic)];
  in.raw(start, sizeof(start));
  if (!in.ok() || std::memcmp(start, magic, sizeof(magic)) != 0)
    return corrupt("a flight log, got another file");
  FlightLog log;
  log.name = name;
  auto block = [&](std::string &out) {
    uint32_t head[2];
    in.raw(head, sizeof(head));
    out = in.ok() && head[0] <= in.rest() ? in.text(head[0]) : std::string();
    log.wasCut = !in.ok() || out.size() != head[0];
    return log.wasCut || checksum(out) == head[1];
  };
  std::string body;
  if (!block(body) || log.wasCut)
    return corrupt("a whole header, got a damaged one");
  JsonDocument document(body, name, "moira-flight", logVersion);
  JsonReader json = document.root();
  log.space = json.at("candidates").text();
  log.learned = json.at("learned").text();
  log.ranks = int(std::min<int64_t>(json.at("ranks").integer(1), 1 << 20));
  log.experts = int(std::min<int64_t>(json.at("experts").integer(1), 1 << 20));
  JsonReader options = json.at("options");
  int64_t mode = options.at("mode").integer(0);
  options.require(mode <= int64_t(SelectionMode::Oracle), "expected a mode");
  log.wanted.mode = SelectionMode(mode);
  log.wanted.fixed = int(options.at("fixed").integer(0));
  log.wanted.numerics = options.at("numerics").text();
  log.wanted.trialLoss = options.at("trial_loss").number(0);
  log.wanted.initialLoss = options.at("initial_loss").number(0);
  log.wanted.trialSpacing = int(options.at("trial_spacing").integer(1));
  log.wanted.trialsPerBucket = int(options.at("trials_per_bucket").integer(0));
  log.wanted.lag = int(options.at("lag").integer(0));
  log.wanted.joint = options.has("joint") && options.at("joint").flag();
  if (!document.ok())
    return document.status();
  int64_t withCounts = -1, lastStep = -1;
  while (in.rest() > 0) {
    bool whole = block(body);
    if (log.wasCut)
      break;
    Entry entry;
    if (!whole ||
        !readEntry(Bytes(body.data(), body.size()), log.ranks, log.experts,
                   withCounts < 0 ? nullptr : &log.list[withCounts].counts,
                   lastStep < 0 ? nullptr : &log.list[lastStep], entry))
      return corrupt(
          concat("a sound record, got record ", log.list.size(), " damaged"));
    if (!entry.counts.empty())
      withCounts = int64_t(log.list.size());
    if (!entry.placement)
      lastStep = int64_t(log.list.size());
    log.list.push_back(std::move(entry));
  }
  return log;
}

SharedStep FlightLog::Entry::record() const {
  SharedStep record;
  record.step = step;
  record.timedStep = timedStep;
  record.nextRows = nextRows;
  record.variant = variant;
  record.candidate = forced;
  record.counts = counts.empty() ? nullptr : counts.data();
  record.seconds = seconds.empty() ? nullptr : seconds.data();
  record.variants = variants.empty() ? nullptr : variants.data();
  record.programs = programs.empty() ? nullptr : programs.data();
  return record;
}

Status FlightLog::replay(
    Decider &decider,
    const std::function<void(const Entry &, const Decision &)> &each) const {
  if (hex(decider.space().hash()) != space)
    return Status(MOIRA_INVALID_ARGUMENT,
                  name + ": expected a decider of the same candidates");
  const LayerShape &shape = decider.costs().shape();
  if (shape.ranks != ranks || shape.experts != experts)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat(name, ": expected a decider for ", ranks,
                         " ranks and ", experts, " experts, got ", shape.ranks,
                         " and ", shape.experts));
  // It also says if the model is another one: then decisions would differ.
  MOIRA_RETURN_IF_ERROR(decider.loadLearned(learned, name));
  for (const Entry &entry : list) {
    if (entry.placement) {
      size_t size = size_t(shape.ranks) * shape.slots;
      if (!entry.table.empty() && entry.table.size() != size)
        return Status(MOIRA_DATA_LOSS,
                      concat(name, ": expected a slot table of ", size,
                             " entries, got ", entry.table.size()));
      MOIRA_RETURN_IF_ERROR(decider.setPlacement(
          entry.table.empty() ? nullptr : entry.table.data()));
      continue;
    }
    Result<Decision> decision = decider.decide(entry.record());
    if (!decision.ok())
      return decision.status().within(name);
    if (decision->candidate != entry.candidate)
      return Status(MOIRA_FAILED,
                    concat(name, ": step ", entry.step + wanted.lag,
                           ": expected ", entry.candidate, " as it was, got ",
                           decision->candidate));
    if (each)
      each(entry, *decision);
  }
  return Status();
}
