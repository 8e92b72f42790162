// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/StatisticsJson.h"

#include "cost/JsonReader.h"

#include <cerrno>
#include <cstring>

using namespace moira;
using namespace moira::runtime;

static OrderedJson partsToJson(const PartSeconds &seconds) {
  OrderedJson parts = OrderedJson::object();
  for (int part = 0; part < MOIRA_PART_COUNT; ++part)
    parts[partName(part)] = seconds[part];
  return parts;
}

static OrderedJson layerToJson(const LayerRow &layer) {
  OrderedJson json = {
      {"layer", layer.layer},
      {"plan",
       {{"degree", layer.plan.degree},
        {"exchange", layer.plan.exchange == 1 ? "hierarchical" : "linear"},
        {"shadows", layer.shadows},
        {"reason", layer.reason}}},
      {"routed", layer.routed},
      {"dropped", layer.dropped},
      {"counts", layer.counts},
      {"sizes", layer.sizes}};
  if (!layer.matrix.empty() && !layer.counts.empty()) {
    // A row for each rank.
    OrderedJson matrix = OrderedJson::array();
    size_t experts = layer.counts.size();
    for (size_t i = 0; i + experts <= layer.matrix.size(); i += experts)
      matrix.push_back(
          std::vector<int32_t>(layer.matrix.begin() + int64_t(i),
                               layer.matrix.begin() + int64_t(i + experts)));
    json["matrix"] = std::move(matrix);
  }
  if (layer.predicted > 0)
    json["predicted"] = layer.predicted;
  json["seconds"] = layer.total();
  json["parts"] = partsToJson(layer.seconds);
  json["bytes_sent"] = layer.bytesSent;
  json["bytes_received"] = layer.bytesReceived;
  return json;
}

std::string moira::runtime::toJsonLine(const StepRow &row,
                                       const Manifest &manifest, int rank) {
  const EntrySpec &entry = manifest.entries[row.entry];
  OrderedJson json = {{"rank", rank},
                      {"step", row.step},
                      {"entry", entry.name},
                      {"variant", entry.variants[row.variant].name},
                      {"rows", row.rows},
                      {"error", row.error},
                      {"seconds", row.total},
                      {"parts", partsToJson(row.seconds)},
                      {"layers", OrderedJson::array()}};
  if (manifest.device) {
    json["launches"] = row.launches;
    json["waits"] = row.waits;
    json["device_seconds"] = row.deviceSeconds;
    json["device_allocations"] = row.deviceAllocations;
  }
  for (const LayerRow &layer : row.layers)
    json["layers"].push_back(layerToJson(layer));
  // Names come from files: they may be no Unicode.
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Result<std::shared_ptr<JsonLinesFile>>
JsonLinesFile::open(const std::string &path) {
  std::FILE *file = std::fopen(path.c_str(), "wb");
  if (!file)
    return Status(MOIRA_NOT_FOUND,
                  concat("expected a file that can be written, got '", path,
                         "': ", std::strerror(errno)));
  return std::shared_ptr<JsonLinesFile>(new JsonLinesFile(path, file));
}

JsonLinesFile::~JsonLinesFile() { std::fclose(file); }

void JsonLinesFile::write(const std::string &line) {
  std::lock_guard<std::mutex> lock(mutex);
  if (failure == 0 &&
      (std::fwrite(line.data(), 1, line.size(), file) != line.size() ||
       std::fputc('\n', file) == EOF))
    failure = errno;
}

Status JsonLinesFile::flush() {
  std::lock_guard<std::mutex> lock(mutex);
  if (failure == 0 && std::fflush(file) != 0)
    failure = errno;
  if (failure == 0)
    return Status();
  return Status(MOIRA_DATA_LOSS, concat("expected to write '", path,
                                        "', got: ", std::strerror(failure)));
}
