// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/adapt.h.

#include "moira/adapt.h"

#include "session/Adaptation.h"
#include "session/CApiSupport.h"
#include "session/Rebalancing.h"

#include <nlohmann/json.hpp>

using namespace moira;
using namespace moira::runtime;

static constexpr SelectionMode modes[] = {
    SelectionMode::Fixed, SelectionMode::Model, SelectionMode::Measured};

int32_t moira_adapt_defaults(moira_adapt_options *options) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(options);
    static const AdaptOptions usual;
    moira_adapt_options value{};
    value.mode = MOIRA_ADAPT_MEASURED;
    value.lag = usual.selection.lag;
    value.max_shadows = usual.maxShadows;
    value.degrees = usual.degrees.data();
    value.degree_count = static_cast<int32_t>(usual.degrees.size());
    value.trial_loss = usual.selection.trialLoss;
    value.initial_loss = usual.selection.initialLoss;
    value.trial_spacing = usual.selection.trialSpacing;
    value.trials_per_bucket = usual.selection.trialsPerBucket;
    return writeStruct(value, options);
  });
}

static std::string textOr(const char *text, const char *otherwise) {
  return text ? text : otherwise;
}

/// The texts of both structs that describe the machine.
template <typename Given, typename Options>
static Status readMachine(const Given &given, Options &options) {
  if (given.topology) {
    Result<Topology> topology = Topology::parse(given.topology);
    if (!topology.ok())
      return topology.status();
    options.topology = std::move(*topology);
  }
  if (given.calibration) {
    Result<Calibration> calibration = Calibration::parse(given.calibration);
    if (!calibration.ok())
      return calibration.status();
    options.calibration = std::move(*calibration);
  }
  return Status();
}

static Result<AdaptOptions> readOptions(const moira_adapt_options *given) {
  AdaptOptions options;
  if (!given)
    return options;
  moira_adapt_options value{};
  value.struct_size = sizeof(value);
  // What an older caller does not know keeps its usual value.
  moira_adapt_defaults(&value);
  MOIRA_RETURN_IF_ERROR(readStruct(given, value));
  if (value.mode < MOIRA_ADAPT_FIXED || value.mode > MOIRA_ADAPT_MEASURED)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected a mode from MOIRA_ADAPT_FIXED to "
                         "MOIRA_ADAPT_MEASURED, got ",
                         value.mode));
  if (value.degree_count < 1 || !value.degrees)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected 1 or more degrees, got ",
                         value.degrees ? value.degree_count : 0));
  options.selection.mode = modes[value.mode];
  options.selection.lag = value.lag;
  options.selection.trialLoss = value.trial_loss;
  options.selection.initialLoss = value.initial_loss;
  options.selection.trialSpacing = value.trial_spacing;
  options.selection.trialsPerBucket = value.trials_per_bucket;
  options.selection.numerics = textOr(value.numerics, "");
  options.maxShadows = value.max_shadows;
  options.degrees.assign(value.degrees, value.degrees + value.degree_count);
  options.qualified = textOr(value.qualified, "none");
  options.flightLog = textOr(value.flight_log, "");
  options.replay = textOr(value.replay, "");
  MOIRA_RETURN_IF_ERROR(readMachine(value, options));
  return options;
}

/// Runs `action` with a session and the name of one of its entries.
template <typename Action>
static int32_t onEntry(moira_session *session, const char *entry,
                       const Action &action) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    Result<std::string> name = entryName(*session->session, entry);
    if (!name.ok())
      return name.status();
    return action(*session->session, *name);
  });
}

int32_t moira_session_adapt(moira_session *session, const char *entry,
                            const moira_adapt_options *options) {
  return onEntry(session, entry, [&](Session &of, const std::string &name) {
    Result<AdaptOptions> read = readOptions(options);
    return read.ok() ? of.adapt(name, *read) : read.status();
  });
}

int32_t moira_session_stop_adapting(moira_session *session, const char *entry) {
  return onEntry(session, entry, [&](Session &of, const std::string &name) {
    return of.stopAdapting(name);
  });
}

//===----------------------------------------------------------------------===//
// Texts
//===----------------------------------------------------------------------===//

int32_t moira_session_candidates(moira_session *session, const char *entry,
                                 char **json) {
  return onEntry(session, entry,
                 [&](Session &of, const std::string &name) -> Status {
                   MOIRA_REQUIRE(json);
                   Result<std::vector<Candidate>> list = of.candidates(name);
                   if (!list.ok())
                     return list.status();
                   nlohmann::json names = nlohmann::json::array();
                   for (const Candidate &candidate : *list)
                     names.push_back(candidate.describe());
                   return writeText(names.dump(), json);
                 });
}

int32_t moira_session_force(moira_session *session, const char *entry,
                            const char *candidate) {
  return onEntry(session, entry, [&](Session &of, const std::string &name) {
    return of.forceCandidate(name, textOr(candidate, ""));
  });
}

int32_t moira_session_forbid(moira_session *session, const char *entry,
                             const char *variant, int32_t forbidden) {
  return onEntry(session, entry,
                 [&](Session &of, const std::string &name) -> Status {
                   MOIRA_REQUIRE(variant);
                   return of.forbidVariant(name, variant, forbidden != 0);
                 });
}

int32_t moira_session_explain(moira_session *session, const char *entry,
                              char **json) {
  return onEntry(session, entry,
                 [&](Session &of, const std::string &name) -> Status {
                   MOIRA_REQUIRE(json);
                   return writeText(of.explainJson(name), json);
                 });
}

int32_t moira_session_save_learned(moira_session *session, const char *entry,
                                   char **json) {
  return onEntry(session, entry,
                 [&](Session &of, const std::string &name) -> Status {
                   MOIRA_REQUIRE(json);
                   return writeText(of.saveLearned(name), json);
                 });
}

int32_t moira_session_load_learned(moira_session *session, const char *entry,
                                   const char *json) {
  return onEntry(session, entry,
                 [&](Session &of, const std::string &name) -> Status {
                   MOIRA_REQUIRE(json);
                   return of.loadLearned(name, json);
                 });
}

//===----------------------------------------------------------------------===//
// Where weights stand
//===----------------------------------------------------------------------===//

int32_t moira_session_announce_tokens(moira_session *session, const char *entry,
                                      int64_t tokens) {
  return onEntry(session, entry, [&](Session &of, const std::string &name) {
    return of.announceTokens(name, tokens);
  });
}

int32_t moira_session_slot_table(moira_session *session, int64_t layer,
                                 int32_t *table, int64_t capacity,
                                 int64_t *count) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    std::vector<int32_t> slots = session->session->slotTable(layer);
    int64_t all = static_cast<int64_t>(slots.size());
    if (table)
      std::copy_n(slots.begin(), std::clamp<int64_t>(capacity, 0, all), table);
    if (count)
      *count = all;
    return Status();
  });
}

int32_t moira_session_move_weights(moira_session *session, int64_t layer,
                                   const int32_t *table, int64_t count) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    if (!table || count < 1)
      return session->refuse(Status(
          MOIRA_INVALID_ARGUMENT,
          concat("table: expected 1 or more slots, got ", table ? count : 0)));
    auto turn = session->turn();
    return session->session->moveWeights(layer, {table, table + count});
  });
}

int32_t moira_session_count_loads(moira_session *session, const char *entry,
                                  const moira_rebalance_options *options) {
  return onEntry(session, entry,
                 [&](Session &of, const std::string &name) -> Status {
                   moira_rebalance_options value{};
                   if (options)
                     MOIRA_RETURN_IF_ERROR(readStruct(options, value));
                   RebalanceOptions read;
                   if (value.threshold != 0)
                     read.threshold = value.threshold;
                   if (value.max_rounds != 0)
                     read.maxRounds = value.max_rounds;
                   if (value.steps != 0)
                     read.steps = value.steps;
                   MOIRA_RETURN_IF_ERROR(readMachine(value, read));
                   return of.countLoads(name, read);
                 });
}

int32_t moira_session_rebalance(moira_session *session, const char *entry,
                                int64_t *moved) {
  return onEntry(session, entry,
                 [&](Session &of, const std::string &name) -> Status {
                   auto turn = session->turn();
                   Result<int64_t> layers = of.rebalance(name);
                   if (!layers.ok())
                     return layers.status();
                   if (moved)
                     *moved = *layers;
                   return Status();
                 });
}
