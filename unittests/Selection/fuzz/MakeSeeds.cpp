// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// usage: moira-make-state-seeds FOLDER
//
// Writes sound inputs for StateFuzzer.cpp.

#include "io/AtomicFile.h"
#include "selection/FlightLog.h"

#include <cstdio>
#include <filesystem>

using namespace moira;
using namespace moira::runtime;

int main(int argc, char **argv) {
  if (argc != 2)
    return 1;
  std::filesystem::create_directories(argv[1]);
  LayerShape shape;
  shape.ranks = 2;
  shape.experts = 2;
  shape.slots = 2;
  SelectionSpace space;
  space.variants = {{"r0", 0, 0, "a"}, {"r1", 1, 0, "a"}};
  space.maxShadows = 1;
  auto model =
      LayerModel::create(shape, Topology::uniform(2, 1e9, 0), Calibration());
  auto decider = Decider::create(space, std::move(*model));
  FlightRecorder recorder(**decider);
  std::vector<int32_t> counts = {3, 1, 5, 0};
  std::vector<double> seconds = {1e-3, 2e-3};
  SharedStep record;
  record.counts = counts.data();
  record.seconds = seconds.data();
  for (record.step = 0; record.step < 3; ++record.step) {
    record.timedStep = record.step - 1;
    Result<Decision> decision = (*decider)->decide(record);
    if (!decision.ok())
      return 1;
    recorder.add(record, *decision);
  }
  recorder.addPlacement(nullptr);
  std::vector<CalibrationPoint> points = {{Measured::Forward, 1, 4, 1e-6},
                                          {Measured::Forward, 2, 8, 3e-6}};
  const std::string seeds[] = {std::string(1, '\0') +
                                   Calibration::fit(points)->toJson(),
                               std::string(1, '\1') + (*decider)->saveLearned(),
                               std::string(1, '\2') + recorder.bytes()};
  for (int i = 0; i < 3; ++i)
    if (!io::writeFile(concat(argv[1], "/seed", i), seeds[i].data(),
                       int64_t(seeds[i].size()))
             .ok())
      return 1;
  return 0;
}
