// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/Report.h"

#include <sstream>

using namespace moira::emulator;

bool moira::emulator::parseChecks(const std::string &text, Checks &checks) {
  checks = Checks();
  std::istringstream stream(text);
  std::string word;
  while (std::getline(stream, word, ',')) {
    if (word == "all")
      checks = Checks::all();
    else if (word == "race")
      checks.race = true;
    else if (word == "bounds")
      checks.bounds = true;
    else if (word == "uninit")
      checks.uninit = true;
    else if (word == "sync")
      checks.sync = true;
    else if (word == "counters")
      checks.counters = true;
    else
      return false;
  }
  return text.empty() || text.back() != ',';
}

const char *moira::emulator::faultName(FaultKind kind) {
  switch (kind) {
  case FaultKind::Race:
    return "race";
  case FaultKind::Bounds:
    return "bounds";
  case FaultKind::Uninit:
    return "uninit";
  case FaultKind::Sync:
    return "sync";
  case FaultKind::Deadlock:
    return "deadlock";
  }
  return "fault";
}

void Counters::add(const Counters &other) {
  switches += other.switches;
  barriers += other.barriers;
  warpOps += other.warpOps;
  mma += other.mma;
  wgmma += other.wgmma;
  sharedPasses += other.sharedPasses;
  bankConflicts += other.bankConflicts;
  sectors += other.sectors;
  neededSectors += other.neededSectors;
}

void LaunchReport::add(const LaunchReport &other) {
  faults.insert(faults.end(), other.faults.begin(), other.faults.end());
  faultsInAll += other.faultsInAll;
  counters.add(other.counters);
}

std::string LaunchReport::text() const {
  std::ostringstream stream;
  int64_t kept = 0;
  for (const Fault &fault : faults) {
    stream << faultName(fault.kind) << ": " << fault.text;
    if (fault.times > 1)
      stream << " (" << fault.times << " times)";
    stream << '\n';
    kept += fault.times;
  }
  if (faultsInAll > kept)
    stream << "and " << faultsInAll - kept << " more\n";
  return stream.str();
}
