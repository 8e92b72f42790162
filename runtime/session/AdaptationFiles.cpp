// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What of an adapting entry outlives a run: learned tables, flight logs,
// explanations.

#include "cost/JsonReader.h"
#include "io/MappedFile.h"
#include "session/Adaptation.h"

#include <cerrno>
#include <cstring>
#include <utility>

using namespace moira;
using namespace moira::runtime;

static constexpr int64_t learnedVersion = 1;

//===----------------------------------------------------------------------===//
// Flight logs
//===----------------------------------------------------------------------===//

std::string Adaptation::fileOf(const std::string &name,
                               const Layer &layer) const {
  return layers.size() == 1 ? name : concat(name, ".", layer.index);
}

/// Begins the log of a layer; where there was one, again. It begins with what
/// is known and where weights stand.
Status Adaptation::openLog(size_t index) {
  if (wanted.flightLog.empty() || ranks.rank != 0)
    return Status();
  Layer &layer = layers[index];
  std::string path = fileOf(wanted.flightLog, layer);
  endLog(layer);
  layer.file = std::fopen(path.c_str(), "wb");
  if (!layer.file)
    return Status(
        MOIRA_NOT_FOUND,
        concat("flight log: expected a file that can be written, got '", path,
               "': ", std::strerror(errno)));
  layer.recorder = std::make_unique<FlightRecorder>(*deciders[index]);
  if (!tables[index].empty())
    layer.recorder->addPlacement(tables[index].data());
  return writeLog(layer);
}

void Adaptation::endLog(Layer &layer) {
  layer.recorder.reset();
  if (std::FILE *file = std::exchange(layer.file, nullptr))
    std::fclose(file);
}

/// Step by step, so that a crash loses nothing that was decided before it.
Status Adaptation::writeLog(Layer &layer) {
  const std::string &bytes = layer.recorder->bytes();
  bool written =
      std::fwrite(bytes.data(), 1, bytes.size(), layer.file) == bytes.size() &&
      std::fflush(layer.file) == 0;
  layer.recorder->clear();
  if (written)
    return Status();
  int error = errno;
  endLog(layer); // what follows a gap cannot be replayed
  return Status(MOIRA_DATA_LOSS, concat("flight log: expected to write '",
                                        fileOf(wanted.flightLog, layer),
                                        "', got: ", std::strerror(error)));
}

/// Reads a log and makes its decisions again.
Status Adaptation::openReplay(size_t index) {
  Layer &layer = layers[index];
  std::string path = fileOf(wanted.replay, layer);
  auto file = io::MappedFile::open(path);
  if (!file.ok())
    return file.status().within("replay");
  Result<FlightLog> log = FlightLog::parse(
      std::string((*file)->data(), (*file)->data() + (*file)->size()), path);
  if (!log.ok())
    return log.status().within("replay");
  if (log->options().lag != wanted.selection.lag ||
      log->options().joint != wanted.selection.joint)
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("replay: ", path, ": expected a log of lag ",
               wanted.selection.lag, " and ",
               wanted.selection.joint ? "several layers" : "one layer",
               ", got another"));
  Result<std::unique_ptr<LayerModel>> model = makeModel(index);
  if (!model.ok())
    return model.status();
  auto again = Decider::create(space, std::move(*model), log->options());
  if (!again.ok())
    return again.status().within(concat("replay: ", path));
  return log
      ->replay(**again,
               [&](const FlightLog::Entry &entry, const Decision &decision) {
                 Followed followed;
                 followed.decision = decision;
                 followed.decision.reason = entry.reason;
                 int shadows =
                     (*again)->candidates()[decision.candidate].plan.shadows;
                 if (decision.shadows)
                   followed.shadows.assign(decision.shadows,
                                           decision.shadows + shadows);
                 layer.followed.push_back(std::move(followed));
               })
      .within("replay");
}

//===----------------------------------------------------------------------===//
// Learned tables
//===----------------------------------------------------------------------===//

std::string Adaptation::saveLearned() const {
  OrderedJson json = {{"format", "moira-learned-entry"},
                      {"version", learnedVersion},
                      {"layers", OrderedJson::array()}};
  for (size_t i = 0; i < layers.size(); ++i)
    json["layers"].push_back(
        {{"layer", layers[i].index},
         {"table", OrderedJson::parse(deciders[i]->saveLearned())}});
  return json.dump(1) + "\n";
}

Status Adaptation::loadLearned(const std::string &text,
                               const std::string &name) {
  JsonDocument document(text, name, "moira-learned-entry", learnedVersion);
  std::vector<JsonReader> items = document.root().at("layers").items();
  document.root().require(
      items.size() == layers.size(),
      concat("expected ", layers.size(), " layers, got ", items.size()));
  std::vector<std::string> before, learned;
  for (size_t i = 0; i < items.size() && document.ok(); ++i) {
    int64_t layer = items[i].at("layer").integer(0);
    items[i].require(
        layer == layers[i].index,
        concat("expected layer ", layers[i].index, ", got ", layer));
    learned.push_back(items[i].at("table").dump());
  }
  if (!document.ok())
    return document.status();
  for (size_t i = 0; i < learned.size(); ++i) {
    before.push_back(deciders[i]->saveLearned());
    Status status = deciders[i]->loadLearned(
        learned[i], concat(name, ".layers[", i, "].table"));
    if (status.ok())
      continue;
    // All or nothing: what was saved can be read.
    for (size_t j = 0; j <= i; ++j)
      (void)deciders[j]->loadLearned(before[j]);
    return status;
  }
  loaded = text;
  // As in a step, a rank without its log knows what the others know.
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i].recorder)
      MOIRA_RETURN_IF_ERROR(openLog(i));
  return Status();
}

//===----------------------------------------------------------------------===//
// Explanations
//===----------------------------------------------------------------------===//

std::vector<Explanation> Adaptation::explain() const {
  std::vector<Explanation> list;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = layers[i];
    Explanation why;
    if (wanted.replay.empty())
      why = deciders[i]->explain();
    // Rows are of the plan that runs, or there are none: deciders may have
    // begun anew. The reason may be that of all layers together.
    if (why.step != layer.decidedFor)
      why = Explanation();
    why.step = layer.decidedFor;
    why.decision = layer.decision;
    why.shadows = layer.plan.shadows;
    list.push_back(std::move(why));
  }
  return list;
}

std::string Adaptation::explainJson() const {
  OrderedJson json = {{"entry", entry.name}, {"layers", OrderedJson::array()}};
  std::vector<Explanation> list = explain();
  for (size_t i = 0; i < layers.size(); ++i) {
    OrderedJson item = {{"layer", layers[i].index}};
    item.update(OrderedJson::parse(list[i].toJson(candidates())));
    json["layers"].push_back(std::move(item));
  }
  return json.dump();
}
