// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StepSource.h"

#include "base/Draws.h"
#include "support/CommandLine.h"

#include "llvm/Support/Path.h"

#include <cmath>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

llvm::Error StepSource::openTrace(const EntrySpec &entry, size_t count) {
  if (options->loads.empty())
    return llvm::Error::success();
  if (count == 0 || entry.layers.size() != count)
    return llvm::createStringError(
        "--loads: expected a program each of whose layers has a gate that "
        "chooses experts for tokens, got " +
        llvm::Twine(count) + " of these for " +
        llvm::Twine(entry.layers.size()) + " layers");
  if (options->isFile) {
    Result<RecordedLoads> read = RecordedLoads::read(options->loads);
    if (!read.ok())
      return toError(read.status());
    recorded = std::move(*read);
  }
  for (size_t i = 0; i < count; ++i) {
    Gate gate;
    gate.input = entry.inputs.size() - count + i;
    gate.experts = static_cast<int>(entry.layers[i].experts);
    gate.choices = static_cast<int>(entry.inputs[gate.input].shape.back());
    gate.layer = recorded ? int64_t(i) % recorded->layers() : int64_t(i);
    if (recorded && recorded->experts() != gate.experts)
      return llvm::createStringError(
          options->loads + ": expected loads of " + llvm::Twine(gate.experts) +
          " experts, got " + llvm::Twine(recorded->experts()));
    if (!recorded) {
      LoadOptions load;
      if (Status status = load.parse(options->loads); !status.ok())
        return toError(status.within("--loads"));
      load.ranks = std::max(1, static_cast<int>(entry.ranks));
      load.experts = gate.experts;
      load.topK = gate.choices;
      load.tokens = 1;
      load.seed = options->seed;
      load.layer = gate.layer;
      Result<LoadTrace> trace = LoadTrace::create(load);
      if (!trace.ok())
        return toError(trace.status().within("--loads"));
      gate.trace = std::move(*trace);
    }
    gates.push_back(std::move(gate));
  }
  return llvm::Error::success();
}

llvm::Expected<StepSource> StepSource::create(const StepOptions &options,
                                              const EntrySpec &entry,
                                              size_t gates, Inputs &inputs) {
  StepSource source(options, inputs);
  if (llvm::Error error = source.openTrace(entry, gates))
    return error;
  for (const StepOptions::Varied &varied : options.varied) {
    std::optional<size_t> found = inputs.findNumber(varied.name);
    if (!found)
      return llvm::createStringError(
          "--vary: expected the name of a scalar input, got '" + varied.name +
          "'");
    source.variedInputs.push_back(*found);
  }
  return source;
}

/// Of this step; between two steps of a file that stand for several, shares go
/// over in equal parts.
llvm::Error StepSource::findShares(Gate &gate) {
  if (!recorded) {
    gate.shares = gate.trace->next();
    return llvm::Error::success();
  }
  int64_t place = step / options->spread, within = step % options->spread;
  if (place + (within > 0) >= recorded->steps())
    return llvm::createStringError(
        options->loads + ": expected loads of step " + llvm::Twine(step) +
        ", got " + llvm::Twine(recorded->steps()) + " steps");
  recorded->shares(place, gate.layer, gate.shares);
  if (within == 0)
    return llvm::Error::success();
  recorded->shares(place + 1, gate.layer, later);
  double share = double(within) / double(options->spread);
  for (size_t e = 0; e < later.size(); ++e)
    gate.shares[e] += (later[e] - gate.shares[e]) * share;
  return llvm::Error::success();
}

/// Gives tokens their experts: pairs in the order of experts go to token 0, 1,
/// ... and again, so that no token has an expert twice.
void StepSource::choose(Gate &gate) {
  std::vector<int64_t> tokens = inputs->tokensByRank();
  int ranks = static_cast<int>(tokens.size());
  PhiloxKey key =
      streamKey(options->seed, concat("loads of layer ", gate.layer));
  gate.ids.resize(size_t(inputs->tokens()) * gate.choices);
  int32_t *ids = gate.ids.data();
  int64_t drawn = -1;
  for (int rank = 0; rank < ranks; ++rank) {
    if (tokens[rank] != drawn)
      drawRows(gate.shares, ranks, tokens[rank], gate.choices, key, step,
               matrix);
    drawn = tokens[rank];
    pending.clear();
    for (int e = 0; e < gate.experts; ++e)
      pending.insert(pending.end(), matrix[size_t(rank) * gate.experts + e], e);
    for (int64_t t = 0; t < tokens[rank]; ++t)
      for (int j = 0; j < gate.choices; ++j)
        *ids++ = pending[size_t(j) * tokens[rank] + t];
  }
  inputs->setData(gate.input, gate.ids.data(), options->loads);
}

llvm::Error StepSource::next() {
  int64_t draw = step / options->hold;
  Draws draws(streamKey(options->seed, "steps"), 0, uint32_t(draw),
              uint32_t(draw >> 32));
  // Drawn whether used or not: one option changes nothing for another.
  double place = draws.uniform();
  if (options->tokens) {
    auto [least, most] = *options->tokens;
    inputs->resize(std::llround(double(least) *
                                std::pow(double(most) / double(least), place)));
  }
  for (size_t i = 0; i < variedInputs.size(); ++i) {
    const std::vector<double> &values = options->varied[i].values;
    inputs->setNumber(variedInputs[i],
                      values[draws.below(int64_t(values.size()))]);
  }
  for (Gate &gate : gates) {
    if (llvm::Error error = findShares(gate))
      return error;
    choose(gate);
  }
  ++step;
  return llvm::Error::success();
}
