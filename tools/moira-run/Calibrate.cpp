// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Calibrate.h"

#include "collective/Record.h"
#include "support/CommandLine.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
using std::chrono::steady_clock;

// Five sizes of the products, two of all else: with both directions and both
// kinds of links 20 points.
static constexpr int kernelSizes = 5, repetitions = 9;
static constexpr int64_t defaultTokens = 4096;

//===----------------------------------------------------------------------===//
// The layer
//===----------------------------------------------------------------------===//

/// Tokens of all ranks, the most first: a quarter of those before each time.
static std::vector<int64_t> sizesOf(const RunOptions &options, int ranks) {
  std::vector<int64_t> sizes;
  int64_t next = options.tokens.value_or(defaultTokens);
  for (int i = 0; i < kernelSizes; ++i, next /= 4) {
    int64_t size = std::max<int64_t>(next / ranks, 1) * ranks;
    if (sizes.empty() || size < sizes.back())
      sizes.push_back(size);
  }
  return sizes;
}

/// The rows of each group that a rank's products have in a step.
static Result<std::vector<int64_t>> groupsOf(const LayerRow &row,
                                             const LayerSpec &layer,
                                             const std::vector<int32_t> &table,
                                             int copies,
                                             const RankGroups &ranks) {
  std::vector<int64_t> groups;
  if (copies == 0) {
    groups.assign(row.sizes.begin(), row.sizes.end());
    return groups;
  }
  ExchangeLayout layout;
  MOIRA_RETURN_IF_ERROR(
      layArrivals(row, layer, copies, table.data(), ranks, layout));
  for (int slot = 0; slot < layout.slots(); ++slot)
    groups.push_back(layout.slotRows(slot));
  return groups;
}

namespace {
/// The steps of a size.
struct LayerTimes {
  using Parts = std::array<std::vector<double>, MOIRA_PART_COUNT>;
  Parts forwardRuns, backwardRuns;
  PartSeconds forward{}, backward{}; ///< medians
  std::vector<int64_t> groups;
  int64_t rows = 0;    ///< that the rank routed
  int64_t allRows = 0; ///< that all ranks routed; 0: not told

  static void take(const LayerRow &row, Parts &runs) {
    for (int part = 0; part < MOIRA_PART_COUNT; ++part)
      runs[part].push_back(row.seconds[part]);
  }
  /// The usual step is what is predicted, so not the fastest one.
  static void takeMedians(Parts &runs, PartSeconds &medians) {
    for (int part = 0; part < MOIRA_PART_COUNT; ++part) {
      std::vector<double> &list = runs[part];
      if (list.empty())
        continue;
      std::nth_element(list.begin(), list.begin() + list.size() / 2,
                       list.end());
      medians[part] = list[list.size() / 2];
    }
  }
  /// What a step's exchanges take of two ranks, whoever waits for the other's
  /// products not counted: three operations, threads that wake and rows that
  /// are packed among them, which messages alone do not show.
  void addExchange(const LayerCostSpec &cost, int experts,
                   std::vector<CalibrationPoint> &points) const {
    double mine =
        double(std::accumulate(groups.begin(), groups.end(), int64_t(0)));
    double other = double(allRows) - mine;
    double waits = mine > 0 ? std::max(other / mine - 1, 0.0) : 0;
    double seconds =
        forward[MOIRA_PART_EXCHANGE] - waits * forward[MOIRA_PART_EXPERT];
    double bytes = double(sizeof(RankRecord)) + 4.0 * experts +
                   double(rows) / 2 * double(cost.rowBytes + cost.resultBytes);
    if (allRows > 0 && seconds > 0)
      points.push_back({Measured::Intra, 1, bytes / 3, seconds / 3});
  }
  void addPoints(bool kernelsOnly, std::vector<CalibrationPoint> &points) {
    takeMedians(forwardRuns, forward);
    takeMedians(backwardRuns, backward);
    int64_t sum = 0, count = 0;
    for (int64_t group : groups) {
      sum += group;
      count += group > 0;
    }
    auto kernel = [&](Measured kind, double seconds) {
      if (count > 0 && seconds > 0)
        points.push_back(
            {kind, double(count), double(sum) / double(count), seconds});
    };
    kernel(Measured::Forward, forward[MOIRA_PART_EXPERT]);
    kernel(Measured::Backward, backward[MOIRA_PART_EXPERT]);
    for (auto [kind, part] :
         {std::pair(Measured::Gate, MOIRA_PART_GATE),
          std::pair(Measured::Dispatch, MOIRA_PART_DISPATCH),
          std::pair(Measured::Combine, MOIRA_PART_COMBINE)})
      if (!kernelsOnly && forward[part] > 0)
        points.push_back({kind, 1, double(rows), forward[part]});
  }
};
} // namespace

static llvm::Error measureLayer(const LoadedProgram &program,
                                const RunOptions &options, const Grid &grid,
                                RankSessions &sessions,
                                std::vector<CalibrationPoint> &points) {
  const EntrySpec &entry = program.entry();
  const LayerSpec &layer = entry.layers.front();
  RankGroups ranks;
  if (auto group = grid.communicator(grid.local().front()))
    ranks = group->groups();
  std::vector<int64_t> sizes = sizesOf(options, grid.ranks());
  for (size_t i = 0; i < sizes.size(); ++i) {
    RunOptions sized = options;
    sized.tokens = sizes[i];
    sized.grid.tokens.clear();
    llvm::Expected<Inputs> inputs = Inputs::plan(program.signature(), sized);
    if (!inputs)
      return inputs.takeError();
    if (llvm::Error error = inputs->fill())
      return error;
    sessions.forgetGradients();
    LayerTimes times;
    bool moved = false;
    for (int run = 0; run < repetitions; ++run) {
      auto ran = sessions.run(entry.name, *inputs, 1);
      if (!ran)
        return ran.takeError();
      std::vector<StepRow> rows = sessions.first().statistics();
      const LayerRow &row = rows.front().layers.front();
      int copies = entry.variants[rows.front().variant].copies;
      if (copies > 1)
        return llvm::createStringError(
            "--calibrate: expected rows that travel once or stay (--r 0 or 1), "
            "got r = " +
            llvm::Twine(copies));
      if (run == 0)
        continue; // warms up
      Result<std::vector<int64_t>> groups = groupsOf(
          row, layer, sessions.first().slotTable(layer.index), copies, ranks);
      if (!groups.ok())
        return toError(groups.status().within("--calibrate"));
      times.groups = std::move(*groups);
      times.rows = row.routed;
      times.allRows =
          std::accumulate(row.matrix.begin(), row.matrix.end(), int64_t(0));
      moved = copies == 1;
      LayerTimes::take(row, times.forwardRuns);
      if (options.grad && !rows.back().layers.empty())
        LayerTimes::take(rows.back().layers.front(), times.backwardRuns);
    }
    bool kernelsOnly = i != 0 && i != 2;
    times.addPoints(kernelsOnly, points);
    if (!kernelsOnly && moved && ranks.ranks == 2 && layer.cost)
      times.addExchange(*layer.cost, int(layer.experts), points);
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Links
//===----------------------------------------------------------------------===//

/// Seconds of a message each way between the two ranks of a pair, half of it.
static Result<double> pingPong(Communicator &pair, std::vector<char> &data) {
  double best = 0;
  for (int run = 0; run < 2 * repetitions; ++run) {
    MOIRA_RETURN_IF_ERROR(pair.barrier());
    auto started = steady_clock::now();
    for (int root : {0, 1})
      MOIRA_RETURN_IF_ERROR(
          pair.broadcast(root, data.data(), int64_t(data.size())));
    double passed =
        std::chrono::duration<double>(steady_clock::now() - started).count();
    best = run == 0 ? passed / 2 : std::min(best, passed / 2);
  }
  return best;
}

/// Points of the links between rank 0 and `peer`, on rank 0.
static Status measureLink(Communicator &group, int peer, Measured kind,
                          std::vector<CalibrationPoint> &points) {
  bool takesPart = group.rank() == 0 || group.rank() == peer;
  Result<std::unique_ptr<Communicator>> pair = group.split(takesPart ? 1 : -1);
  if (!pair.ok() || !*pair)
    return pair.status();
  for (int64_t bytes : {int64_t(64), int64_t(4) << 20}) {
    std::vector<char> data(bytes);
    Result<double> seconds = pingPong(**pair, data);
    if (!seconds.ok())
      return seconds.status();
    if (group.rank() == 0)
      points.push_back({kind, 1, double(bytes), *seconds});
  }
  return Status();
}

static llvm::Error measureLinks(const Grid &grid,
                                std::vector<CalibrationPoint> &points) {
  // Steps of two ranks have told it already.
  bool known = llvm::any_of(points, [](const CalibrationPoint &point) {
    return point.kind == Measured::Intra;
  });
  if (grid.ranks() == 1 || known)
    return llvm::Error::success();
  std::vector<std::vector<CalibrationPoint>> found(grid.ranks());
  Status status = grid.agree([&](int rank) -> Status {
    Communicator &group = *grid.communicator(rank);
    MOIRA_RETURN_IF_ERROR(measureLink(group, 1, Measured::Intra, found[rank]));
    int node = group.groups().groupSize;
    if (node > 1 && node < group.ranks())
      MOIRA_RETURN_IF_ERROR(
          measureLink(group, node, Measured::Inter, found[rank]));
    return Status();
  });
  if (!status.ok())
    return toError(status);
  points.insert(points.end(), found[0].begin(), found[0].end());
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Both
//===----------------------------------------------------------------------===//

llvm::Expected<Measurements> tools::calibrate(const LoadedProgram &program,
                                              const RunOptions &options,
                                              const Grid &grid,
                                              RankSessions &sessions) {
  const EntrySpec &entry = program.entry();
  if (entry.layers.empty() || !entry.layers.front().placement)
    return llvm::createStringError(
        "--calibrate: expected a program with a layer, compiled for several "
        "ranks, got another");
  if (!entry.inputs.empty() && !hasTokens(entry.inputs.front()))
    return llvm::createStringError(
        "--calibrate: expected a first input of any number of tokens, got " +
        toString(entry.inputs[0].dtype, entry.inputs[0].shape));
  Measurements measured;
  if (llvm::Error error =
          measureLayer(program, options, grid, sessions, measured.points))
    return error;
  if (llvm::Error error = measureLinks(grid, measured.points))
    return error;
  auto fitted = Calibration::fit(
      measured.points,
      concat(program.program().manifest().target.cpu, ", ", sessions.threads(),
             " threads per rank, ", grid.transport()));
  if (!fitted.ok())
    return toError(fitted.status());
  measured.calibration = std::move(*fitted);
  return measured;
}

void tools::printMeasurements(const Measurements &measured,
                              llvm::raw_ostream &stream) {
  stream << "calibration of " << measured.calibration.machine << '\n'
         << "  part        count       amount     measured       fitted\n";
  for (const CalibrationPoint &point : measured.points)
    stream << llvm::format(
        "  %-9s %7.0f %12.1f %12s %12s\n", measuredName(point.kind),
        point.count, point.amount, formatSeconds(point.seconds).c_str(),
        formatSeconds(measured.calibration.predict(point)).c_str());
}
