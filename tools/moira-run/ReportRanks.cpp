// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each rank of a run did.

#include "Report.h"

#include "support/CommandLine.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
namespace json = llvm::json;

/// Kinds of traffic as the report names them, in the order of TrafficKind.
static constexpr const char *kindNames[trafficKinds] = {
    "rows_to_experts", "rows_to_tokens", "weights", "gradients", "sums",
    "shadows",         "moves",          "control"};

static std::string formatBytesInt(int64_t bytes) {
  return bytes == 0 ? "0" : formatBytes(static_cast<double>(bytes));
}

static void printPlan(const Report &report, llvm::raw_ostream &stream) {
  const RankOptions &grid = report.grid;
  stream << "ranks       " << report.ranks.size() << " (" << report.transport;
  if (grid.ranksPerNode > 0)
    stream << ", " << grid.ranksPerNode << " per node";
  stream << ")";
  if (const auto &placement = report.placement)
    stream << ": " << placement->slots
           << (placement->slots == 1 ? " slot, " : " slots, ")
           << placement->shards
           << (placement->shards == 1 ? " shard, r = " : " shards, r = ")
           << placement->copies;
  stream << ", degree " << grid.degree << ", "
         << (grid.exchange == 0 ? "linear" : "hierarchical");
  if (!report.schedule.empty())
    stream << ", " << report.schedule;
  stream << (grid.virtualClock ? ", virtual clock\n" : "\n");
}

void tools::printRanks(const Report &report, llvm::raw_ostream &stream) {
  if (report.ranks.size() < 2)
    return;
  printPlan(report, stream);
  stream << "  rank  tokens   rows in  to experts out/in    to tokens out/in"
            "     weights out/in        exchange compute\n";
  for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankFigures &own = report.ranks[rank];
    stream << llvm::format("  %4d  %6lld  %8lld", static_cast<int>(rank),
                           static_cast<long long>(own.tokens),
                           static_cast<long long>(own.rowsReceived));
    for (int kind = 0; kind < 3; ++kind)
      stream << llvm::formatv(
          "  {0,-19}", formatBytesInt(own.traffic[kind].bytesSent) + " / " +
                           formatBytesInt(own.traffic[kind].bytesReceived));
    stream << llvm::formatv("  {0,-8} {1}\n",
                            formatSeconds(own.exchangeSeconds),
                            formatSeconds(own.seconds - own.exchangeSeconds));
  }
}

static json::Object trafficToJson(const TrafficCount &count) {
  return json::Object{{"bytes_sent", count.bytesSent},
                      {"bytes_received", count.bytesReceived},
                      {"messages_sent", count.messagesSent},
                      {"messages_received", count.messagesReceived}};
}

json::Object tools::ranksToJson(const Report &report) {
  json::Array ranks;
  for (const RankFigures &own : report.ranks) {
    json::Object traffic;
    for (int kind = 0; kind < trafficKinds; ++kind)
      traffic[kindNames[kind]] = trafficToJson(own.traffic[kind]);
    ranks.push_back(json::Object{
        {"tokens", own.tokens},
        {"rows_received", own.rowsReceived},
        {"traffic", std::move(traffic)},
        {"memory", json::Object{{"weights", own.weightBytes},
                                {"read", own.readBytes},
                                {"peak", own.peakBytes}}},
        {"seconds",
         json::Object{{"step", own.seconds},
                      {"exchange", own.exchangeSeconds},
                      {"compute", own.seconds - own.exchangeSeconds}}}});
  }
  const RankOptions &grid = report.grid;
  json::Object object{
      {"count", int64_t(report.ranks.size())},
      {"transport", report.transport},
      {"per_node", grid.ranksPerNode},
      {"degree", grid.degree},
      {"exchange", grid.exchange == 0 ? "linear" : "hierarchical"},
      {"schedule", report.schedule},
      {"clock", grid.virtualClock ? "virtual" : "real"},
      {"by_rank", std::move(ranks)}};
  if (const auto &placement = report.placement)
    object["placement"] = json::Object{{"experts", placement->experts},
                                       {"shards", placement->shards},
                                       {"copies", placement->copies},
                                       {"slots", placement->slots}};
  return object;
}
