// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/AccessCounter.h"

#include <algorithm>
#include <vector>

using namespace moira::emulator;

static constexpr int banks = 32, bankBytes = 4, sectorBytes = 32;

int moira::emulator::bankPasses(const int64_t *offsets, int count, int bytes,
                                int &needed) {
  // Wide accesses are done for as many lanes at a time as fill the banks.
  int lanesAtOnce = std::max(1, banks * bankBytes / std::max(bytes, bankBytes));
  int passes = 0;
  needed = 0;
  for (int first = 0; first < count; first += lanesAtOnce) {
    std::vector<int64_t> words[banks];
    int most = 1;
    for (int i = first; i < std::min(count, first + lanesAtOnce); ++i)
      for (int64_t word = offsets[i] / bankBytes;
           word <= (offsets[i] + bytes - 1) / bankBytes; ++word) {
        std::vector<int64_t> &bank = words[word % banks];
        // Lanes that read one word share it.
        if (std::find(bank.begin(), bank.end(), word) == bank.end())
          bank.push_back(word);
        most = std::max(most, int(bank.size()));
      }
    passes += most;
    ++needed;
  }
  return passes;
}

void AccessCounter::count(const Group &group, bool isShared) {
  if (isShared) {
    int needed = 0;
    int passes =
        bankPasses(group.addresses.data(), group.count, group.bytes, needed);
    counters.sharedPasses += needed;
    counters.bankConflicts += passes - needed;
    return;
  }
  std::vector<int64_t> sectors, bytes;
  for (int i = 0; i < group.count; ++i) {
    for (int64_t sector = group.addresses[i] / sectorBytes;
         sector <= (group.addresses[i] + group.bytes - 1) / sectorBytes;
         ++sector)
      sectors.push_back(sector);
    bytes.push_back(group.addresses[i]);
  }
  auto countDistinct = [](std::vector<int64_t> &values) {
    std::sort(values.begin(), values.end());
    return std::unique(values.begin(), values.end()) - values.begin();
  };
  counters.sectors += countDistinct(sectors);
  counters.neededSectors +=
      (countDistinct(bytes) * group.bytes + sectorBytes - 1) / sectorBytes;
}

void AccessCounter::add(int warp, int lane, int32_t site, bool isShared,
                        int64_t address, int bytes) {
  Place &place =
      places[uint64_t(warp) << 33 | uint64_t(isShared) << 32 | uint32_t(site)];
  place.isShared = isShared;
  uint32_t number = place.times[lane]++;
  while (number - place.first >= place.groups.size())
    place.groups.emplace_back();
  Group &group = place.groups[number - place.first];
  group.bytes = bytes;
  group.addresses[group.count++] = address;
  while (!place.groups.empty() && place.groups.front().count == 32) {
    count(place.groups.front(), isShared);
    place.groups.pop_front();
    ++place.first;
  }
}

void AccessCounter::finish() {
  for (auto &entry : places)
    for (const Group &group : entry.second.groups)
      if (group.count)
        count(group, entry.second.isShared);
  places.clear();
}
