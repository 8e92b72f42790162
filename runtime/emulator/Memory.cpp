// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/Machine.h"
#include <cstring>

using namespace moira;
using namespace moira::emulator;

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

void Regions::add(const void *start, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  regions[reinterpret_cast<uint64_t>(start)] = bytes;
}

void Regions::remove(const void *start) {
  std::lock_guard<std::mutex> lock(mutex);
  regions.erase(reinterpret_cast<uint64_t>(start));
}

Regions::Region Regions::find(const void *at) const {
  std::lock_guard<std::mutex> lock(mutex);
  uint64_t address = reinterpret_cast<uint64_t>(at);
  auto next = regions.upper_bound(address);
  if (next == regions.begin())
    return {};
  --next;
  Region region;
  region.start = next->first;
  region.bytes = next->second;
  return region.contains(address, 0) ? region : Region();
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

bool Machine::inShared(const void *at) const {
  int64_t offset = sharedOffset(at);
  // The whole window: what lies beyond the launch's part is out of bounds, not
  // global.
  return offset >= 0 && offset < (256 << 10);
}

Access Machine::makeAccess(AccessKind kind, int32_t site) {
  return {kind, false, self(), site, blockNumber, &thread().known};
}

void Machine::checkAlignment(const void *at, int64_t alignment, int32_t site) {
  if (reinterpret_cast<uintptr_t>(at) % alignment)
    fail(site, "expected an address aligned to ", alignment,
         " bytes, got one at ", reinterpret_cast<uintptr_t>(at) % alignment,
         " beyond");
}

bool Machine::checkShared(int64_t offset, int64_t bytes, int32_t site,
                          const char *what) {
  if (offset >= 0 && offset + bytes <= plan->sharedBytes)
    return true;
  std::string text =
      concat(here(site), " ", what, " ", bytes, " bytes at shared+", offset,
             "; expected an end within ", plan->sharedBytes);
  if (offset < 0 || offset + bytes > maxSharedBytes) {
    // Nothing is there to go on with.
    report(FaultKind::Bounds, site, -1, text);
    stop();
  }
  if (checks().bounds)
    report(FaultKind::Bounds, site, -1, text);
  return false;
}

void Machine::checkGlobal(const void *at, int64_t bytes, int32_t site,
                          const char *what) {
  uint64_t address = reinterpret_cast<uint64_t>(at);
  if (lastRegion.bytes && lastRegion.contains(address, bytes))
    return;
  Regions::Region region = plan->regions->find(at);
  if (region.bytes && region.contains(address, bytes)) {
    lastRegion = region;
    return;
  }
  // The access itself would end the process.
  report(FaultKind::Bounds, site, -1,
         concat(here(site), " ", what, " ", bytes, " bytes ",
                region.bytes ? concat("at offset ", address - region.start,
                                      " of an allocation of ", region.bytes)
                             : std::string("outside all allocations"),
                "; expected them within one"));
  stop();
}

void Machine::accessShared(int64_t offset, int64_t bytes,
                           const Access &access) {
  if (checks().uninit) {
    if (access.kind == AccessKind::Write)
      shadow.define(offset, bytes);
    else if (!shadow.isDefined(offset, bytes)) {
      report(FaultKind::Uninit, access.site, -1,
             concat(describeActor(access.actor), " at ", siteText(access.site),
                    " reads shared+", offset, ", which nobody wrote"));
      // Once is enough.
      shadow.define(offset, bytes);
    }
  }
  if (!races())
    return;
  Conflict conflict = shadow.access(offset, bytes, access);
  if (conflict.kind)
    reportConflict(conflict, "shared", offset, access);
}

void Machine::accessGlobal(const void *at, int64_t bytes,
                           const Access &access) {
  if (checks().bounds && plan->regions)
    checkGlobal(at, bytes, access.site,
                access.kind == AccessKind::Read ? "reads" : "writes");
  if (!races())
    return;
  Conflict conflict =
      plan->globalShadow->access(reinterpret_cast<uint64_t>(at), bytes, access);
  if (conflict.kind) {
    Regions::Region region =
        plan->regions ? plan->regions->find(at) : Regions::Region();
    reportConflict(conflict, region.bytes ? "an allocation" : "address 0",
                   reinterpret_cast<uint64_t>(at) - region.start, access);
  }
}

void Machine::access(void *at, int64_t bytes, int32_t space, AccessKind kind,
                     int32_t site, const void *value) {
  if (!checks().any())
    return;
  bool isShared = inShared(at);
  const char *what = kind == AccessKind::Read ? "reads" : "writes";
  if (space == MOIRA_EMU_SHARED && !isShared)
    checkShared(sharedOffset(at), bytes, site, what);
  if (space == MOIRA_EMU_GLOBAL && isShared)
    fail(site, "expected a pointer into global memory, got one into shared "
               "memory");
  if (checks().counters)
    accesses.add(self() / 32, lane(), site, isShared,
                 isShared ? sharedOffset(at) : reinterpret_cast<int64_t>(at),
                 int(bytes));
  Access one = makeAccess(kind, site);
  if (!isShared) {
    if (checks().bounds && plan->regions)
      checkGlobal(at, bytes, site, what);
    one.isSameValue = value && races() && memcmp(at, value, bytes) == 0;
    return accessGlobal(at, bytes, one);
  }
  int64_t offset = sharedOffset(at);
  checkShared(offset, bytes, site, what);
  if (checks().sync && mbarriers.count(offset & ~int64_t(7)))
    fail(site,
         "expected operations of mbarriers on the mbarrier at "
         "shared+",
         offset & ~int64_t(7), ", got an ordinary access");
  one.isSameValue = value && races() && memcmp(at, value, bytes) == 0;
  accessShared(offset, bytes, one);
}
