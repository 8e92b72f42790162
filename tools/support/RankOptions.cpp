// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/RankOptions.h"

#include "support/CommandLine.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

#include <cmath>

using namespace moira;
using namespace moira::tools;
namespace cl = llvm::cl;

/// More ranks than this is a mistake in an option.
static constexpr int64_t maxRanks = 65536;

RankCommandLine::RankCommandLine(cl::OptionCategory &category)
    : ranks("ranks", cl::value_desc("number"), cl::cat(category),
            cl::desc("Ranks to run on: threads of this process, or the "
                     "processes that mpirun, srun or torchrun started "
                     "(default: as many as those, or as the bundle was "
                     "compiled for, or 1)")),
      ranksPerNode("ranks-per-node", cl::init("0"), cl::value_desc("number"),
                   cl::cat(category),
                   cl::desc("Neighbours that form a node (default: not "
                            "described)")),
      copies("r", cl::init("1"), cl::value_desc("number"), cl::cat(category),
             cl::desc("How often rows travel: 0 gathers weights instead, else "
                      "a divisor of the ranks that share an expert (default: "
                      "1)")),
      degree("degree", cl::init("1"), cl::value_desc("number"),
             cl::cat(category),
             cl::desc("Chunks of exchange and experts that overlap, with "
                      "--schedule equal (default: 1)")),
      exchange("exchange", cl::init("linear"),
               cl::value_desc("linear|hierarchical"), cl::cat(category),
               cl::desc("How rows travel: directly (default), or through a "
                        "node's ranks")),
      schedule("schedule", cl::init("equal"), cl::value_desc("equal|groups"),
               cl::cat(category),
               cl::desc("How exchanges are cut: in --degree equal chunks "
                        "(default), or by groups of ranks")),
      clock("clock", cl::init("real"), cl::value_desc("real|virtual"),
            cl::cat(category),
            cl::desc("virtual: times as if every rank had a processor and the "
                     "links of --topology (default: real)")),
      topology("topology", cl::value_desc("file"), cl::cat(category),
               cl::desc("Links between ranks, for --clock virtual: JSON")),
      clockCalibration(
          "clock-calibration", cl::value_desc("file"), cl::cat(category),
          cl::desc("What compute takes, for --clock virtual: a calibration, "
                   "JSON (default: CPU time of this machine)")),
      trace("trace", cl::value_desc("file"), cl::cat(category),
            cl::desc("Write what each rank did when: JSON for Perfetto and "
                     "chrome://tracing")),
      timeout("timeout", cl::init("60"), cl::value_desc("seconds"),
              cl::cat(category),
              cl::desc("How long a rank waits for another (default: 60)")),
      slotTable("slot-table", cl::value_desc("file|permuted:seed"),
                cl::cat(category),
                cl::desc("Which unit (expert * shards + shard) stands in "
                         "which slot: JSON, a list of units for each rank, -1 "
                         "for none; or a random permutation (default: units in "
                         "order, as many on each rank)")),
      shadows("shadows", cl::value_desc("experts|hottest:N"), cl::cat(category),
              cl::desc("Experts that all ranks hold, in --spare-slots: a list "
                       "of numbers, or in each step those with most rows in "
                       "the step before")),
      rebalance("rebalance", cl::init("0"), cl::value_desc("steps"),
                cl::cat(category),
                cl::desc("Move experts, after each so many steps, to where "
                         "their loads want them, with copies in --spare-slots "
                         "(default: never)")),
      spareSlots("spare-slots", cl::init("0"), cl::value_desc("number"),
                 cl::cat(category),
                 cl::desc("Slots of each rank beyond those that the experts "
                          "need (default: 0)")),
      hiddenBlocks("hidden-blocks", cl::value_desc("number"), cl::cat(category),
                   cl::desc("Blocks that the hidden dimension of experts is "
                            "summed in; runs with the same number agree bit "
                            "for bit (default: the ranks that share an "
                            "expert)")),
      communicator("communicator", cl::init("auto"),
                   cl::value_desc("inprocess|mpi|nccl|tcp|auto"),
                   cl::cat(category),
                   cl::desc("What carries messages (default: auto, threads of "
                            "this process or what the launcher offers)")) {}

/// The place of the option's value among the words.
static llvm::Expected<int> readWord(const cl::opt<std::string> &option,
                                    llvm::ArrayRef<llvm::StringRef> words) {
  auto found = llvm::find(words, option.getValue());
  if (found != words.end())
    return found - words.begin();
  return expected(option.ArgStr, llvm::join(words, ", "), option.getValue());
}

llvm::Expected<std::vector<int64_t>>
tools::parseTokenList(llvm::StringRef text) {
  std::vector<int64_t> tokens;
  int64_t all = 0;
  for (llvm::StringRef item : llvm::split(text, ',')) {
    int64_t &number = tokens.emplace_back();
    if (item.getAsInteger(10, number) || number < 0 ||
        __builtin_add_overflow(all, number, &all))
      return expected("tokens", "a number, or one of 0 or more for each rank",
                      text);
  }
  return tokens;
}

static llvm::Error readNumbers(const RankCommandLine &line,
                               RankOptions &options) {
  if (llvm::Error error = readInto(options.ranks, line.ranks, 1, maxRanks))
    return error;
  if (llvm::Error error =
          readInto(options.ranksPerNode, line.ranksPerNode, 0, maxRanks))
    return error;
  if (llvm::Error error = readInto(options.copies, line.copies, 0, maxRanks))
    return error;
  if (llvm::Error error = readInto(options.degree, line.degree, 1, 4096))
    return error;
  if (llvm::Error error =
          readInto(options.spareSlots, line.spareSlots, 0, maxRanks))
    return error;
  if (llvm::Error error =
          readInto(options.rebalance, line.rebalance, 0, 1 << 30))
    return error;
  if (llvm::Error error =
          readInto(options.hiddenBlocks, line.hiddenBlocks, 1, maxRanks))
    return error;
  if (!llvm::to_float(line.timeout.getValue(), options.timeoutSeconds) ||
      !(options.timeoutSeconds > 0) || std::isinf(options.timeoutSeconds))
    return expected("timeout", "seconds above 0", line.timeout.getValue());
  return llvm::Error::success();
}

static llvm::Error readWords(const RankCommandLine &line,
                             RankOptions &options) {
  llvm::Expected<int> exchange =
      readWord(line.exchange, {"linear", "hierarchical"});
  if (!exchange)
    return exchange.takeError();
  options.exchange = *exchange;
  llvm::Expected<int> schedule = readWord(line.schedule, {"equal", "groups"});
  if (!schedule)
    return schedule.takeError();
  options.schedule =
      *schedule == 0 ? mlir::moe::Schedule::Equal : mlir::moe::Schedule::Groups;
  llvm::Expected<int> clock = readWord(line.clock, {"real", "virtual"});
  if (!clock)
    return clock.takeError();
  options.virtualClock = *clock == 1;
  llvm::Expected<int> carrier =
      readWord(line.communicator, {"inprocess", "mpi", "nccl", "tcp", "auto"});
  if (!carrier)
    return carrier.takeError();
  options.communicator = line.communicator;
  return llvm::Error::success();
}

/// A file that can be read or, of another kind of mistake, a seed.
static llvm::Error readSlotTable(const RankCommandLine &line,
                                 RankOptions &options) {
  options.slotTable = line.slotTable;
  llvm::StringRef text = options.slotTable;
  uint64_t seed;
  if (text.consume_front("permuted:")) {
    if (text.getAsInteger(10, seed))
      return expected("slot-table", "a file or permuted:SEED",
                      options.slotTable);
  } else if (!text.empty() && !llvm::sys::fs::exists(text)) {
    return llvm::createStringError("--slot-table: " + text +
                                   ": expected a file, got none");
  }
  return llvm::Error::success();
}

static llvm::Error checkTogether(const RankOptions &options) {
  for (auto [option, file] :
       {std::pair{"--topology", &options.topology},
        std::pair{"--clock-calibration", &options.clockCalibration}}) {
    if (!file->empty() && !options.virtualClock)
      return llvm::createStringError(
          llvm::Twine(option) +
          ": expected --clock virtual beside it, got --clock real");
    if (!file->empty() && !llvm::sys::fs::exists(*file))
      return llvm::createStringError(llvm::Twine(option) + ": " + *file +
                                     ": expected a file, got none");
  }
  if (llvm::Error error = checkFolder("trace", options.trace))
    return error;
  if (!options.trace.empty() && llvm::sys::fs::is_directory(options.trace))
    return llvm::createStringError("--trace: " + options.trace +
                                   ": expected a file, got a folder");
  return llvm::Error::success();
}

llvm::Error RankCommandLine::read(RankOptions &options) const {
  if (llvm::Error error = readNumbers(*this, options))
    return error;
  if (llvm::Error error = readWords(*this, options))
    return error;
  if (llvm::Error error = readSlotTable(*this, options))
    return error;
  llvm::Expected<ShadowChoice> choice = parseShadows(shadows);
  if (!choice)
    return choice.takeError();
  options.shadows = std::move(*choice);
  options.topology = topology;
  options.clockCalibration = clockCalibration;
  options.trace = trace;
  options.givesCopies = copies.getNumOccurrences() > 0;
  options.givesSchedule = schedule.getNumOccurrences() > 0;
  if (spareSlots.getNumOccurrences() > 0)
    options.compiledOption = spareSlots.ArgStr.str();
  return checkTogether(options);
}
