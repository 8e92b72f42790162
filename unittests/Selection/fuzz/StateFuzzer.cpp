// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What outlives a run, from bytes that nobody vouches for: calibrations,
// learned tables, flight logs. The first byte says which.

#include "selection/FlightLog.h"

#include <cstdlib>

using namespace moira;
using namespace moira::runtime;

static std::unique_ptr<Decider> makeDecider() {
  LayerShape shape;
  shape.ranks = 2;
  shape.experts = 2;
  shape.slots = 2;
  SelectionSpace space;
  space.variants = {{"r0", 0, 0, "a"}, {"r1", 1, 0, "a"}};
  space.maxShadows = 1;
  auto model =
      LayerModel::create(shape, Topology::uniform(2, 1e9, 0), Calibration());
  if (!model.ok())
    std::abort();
  auto decider = Decider::create(space, std::move(*model));
  if (!decider.ok())
    std::abort();
  return std::move(*decider);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const std::unique_ptr<Decider> decider = makeDecider();
  if (size == 0)
    return 0;
  std::string text(reinterpret_cast<const char *>(data + 1), size - 1);
  auto check = [](const Status &status) {
    // Success, or one line.
    if (!status.ok() && (status.message.empty() ||
                         status.message.find('\n') != std::string::npos))
      std::abort();
  };
  switch (data[0] % 3) {
  case 0: {
    Result<Calibration> read = Calibration::parse(text);
    check(read.status());
    if (read.ok() && !Calibration::parse(read->toJson()).ok())
      std::abort();
    break;
  }
  case 1:
    check(decider->loadLearned(text));
    break;
  default: {
    Result<FlightLog> log = FlightLog::parse(text);
    check(log.status());
    if (log.ok())
      check(log->replay(*decider));
  }
  }
  return 0;
}
