// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/runtime.h: statistics.

#include "session/CApiSupport.h"
#include "session/StatisticsJson.h"

#include <cstdlib>

using namespace moira;
using namespace moira::runtime;

int32_t moira_session_statistics(moira_session *session,
                                 moira_statistics **statistics) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(statistics);
    *statistics =
        new moira_statistics{session->session->statistics(), session->program,
                             session->group ? session->group->rank() : 0};
    return Status();
  });
}

void moira_statistics_destroy(moira_statistics *statistics) {
  delete statistics;
}

int64_t moira_statistics_steps(const moira_statistics *statistics) {
  return statistics ? static_cast<int64_t>(statistics->steps.size()) : 0;
}

static Status checkIndex(const char *what, int64_t index, int64_t count) {
  if (index >= 0 && index < count)
    return Status();
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("expected a ", what, " below ", count, ", got ", index));
}

int32_t moira_statistics_step(const moira_statistics *statistics, int64_t index,
                              moira_step_row *row) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(statistics);
    MOIRA_REQUIRE(row);
    MOIRA_RETURN_IF_ERROR(
        checkIndex("step", index, moira_statistics_steps(statistics)));
    const StepRow &step = statistics->steps[index];
    moira_step_row value{};
    value.step = step.step;
    value.entry = step.entry;
    value.variant = step.variant;
    value.rows = step.rows;
    value.error = step.error;
    value.layers = static_cast<int32_t>(step.layers.size());
    value.total = step.total;
    std::copy(step.seconds.begin(), step.seconds.end(), value.seconds);
    return writeStruct(value, row);
  });
}

void moira_text_free(char *text) { std::free(text); }

Status runtime::writeText(const Result<std::string> &text, char **target) {
  if (!text.ok())
    return text.status();
  auto *copy = static_cast<char *>(std::malloc(text->size() + 1));
  if (!copy)
    throw std::bad_alloc();
  std::memcpy(copy, text->c_str(), text->size() + 1);
  *target = copy;
  return Status();
}

int32_t moira_statistics_json(const moira_statistics *statistics, int64_t index,
                              char **json) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(statistics);
    MOIRA_REQUIRE(json);
    MOIRA_RETURN_IF_ERROR(
        checkIndex("step", index, moira_statistics_steps(statistics)));
    std::string line =
        toJsonLine(statistics->steps[index], statistics->program->manifest(),
                   statistics->rank);
    return writeText(line, json);
  });
}

int32_t moira_statistics_layer(const moira_statistics *statistics,
                               int64_t index, int32_t layer,
                               moira_layer_row *row) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(statistics);
    MOIRA_REQUIRE(row);
    MOIRA_RETURN_IF_ERROR(
        checkIndex("step", index, moira_statistics_steps(statistics)));
    const std::vector<LayerRow> &layers = statistics->steps[index].layers;
    MOIRA_RETURN_IF_ERROR(checkIndex("layer", layer, layers.size()));
    const LayerRow &found = layers[layer];
    moira_layer_row value{};
    value.layer = found.layer;
    value.experts = static_cast<int64_t>(found.counts.size());
    value.counts = found.counts.data();
    value.sizes = found.sizes.data();
    value.routed = found.routed;
    value.dropped = found.dropped;
    value.degree = found.plan.degree;
    value.exchange = found.plan.exchange;
    std::copy(found.seconds.begin(), found.seconds.end(), value.seconds);
    value.matrix = found.matrix.data();
    value.ranks =
        found.counts.empty()
            ? 0
            : static_cast<int32_t>(found.matrix.size() / found.counts.size());
    value.bytes_sent = found.bytesSent;
    value.bytes_received = found.bytesReceived;
    value.shadows = found.shadows.data();
    value.shadow_count = static_cast<int32_t>(found.shadows.size());
    value.predicted = found.predicted;
    value.reason = found.reason;
    return writeStruct(value, row);
  });
}
