// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/Machine.h"

#include <map>

using namespace moira;
using namespace moira::emulator;

const char *Machine::siteText(int32_t site) const {
  if (site < 0 || site >= plan->module->site_count)
    return "an unknown place";
  return plan->module->sites[site];
}

std::string Machine::describeActor(int32_t actor) const {
  if (actor < 0)
    return "several threads";
  if (actor < threadCount)
    return concat("thread ", actor);
  if (actor < 2 * threadCount)
    return concat("cp.async of thread ", actor - threadCount);
  if (actor < bulkEngine(0))
    return concat("wgmma of warpgroup ", actor - 2 * threadCount);
  return "a bulk copy";
}

std::string Machine::here(int32_t site) const {
  return concat("thread ", self(), " at ", siteText(site));
}

void Machine::report(FaultKind kind, int32_t site, int32_t other,
                     const std::string &text) {
  ++findings->faultsInAll;
  for (Fault &fault : findings->faults)
    if (fault.kind == kind && fault.site == site && fault.other == other) {
      ++fault.times;
      return;
    }
  if (int(findings->faults.size()) >= plan->options.faultLimit)
    return;
  Fault fault;
  fault.kind = kind;
  fault.site = site;
  fault.other = other;
  fault.text = concat("kernel ", plan->kernel->name, ", block (", index.x, ", ",
                      index.y, ", ", index.z, "): ", text);
  findings->faults.push_back(std::move(fault));
}

void Machine::reportConflict(const Conflict &conflict, const char *space,
                             int64_t offset, const Access &access) {
  std::string other =
      conflict.block == access.block
          ? describeActor(conflict.actor)
          : concat("a thread of ",
                   conflict.block < 0 ? "another block" : "block ",
                   conflict.block < 0 ? "" : concat(conflict.block));
  const char *verb = access.kind == AccessKind::Read ? " reads " : " writes ";
  std::string text =
      concat(describeActor(access.actor), " at ", siteText(access.site), verb,
             space, "+", offset, ", which ", other, " ",
             conflict.otherWrites ? "wrote" : "read", " at ",
             siteText(conflict.site), "; ",
             conflict.kind == Conflict::Proxy
                 ? "expected a proxy fence between them"
                 : "expected an order between them, got none");
  report(FaultKind::Race, access.site, conflict.site, text);
}

void Machine::reportDeadlock() {
  // What the threads wait for, and where.
  std::map<std::pair<std::string, int32_t>, std::vector<int>> waits;
  for (int i = 0; i < threadCount; ++i)
    if (!threads[i].done)
      waits[{threads[i].waitsFor ? threads[i].waitsFor : "their turn",
             threads[i].site}]
          .push_back(i);
  std::string text = "no thread can go on:";
  const char *separator = " ";
  for (const auto &[wait, who] : waits) {
    text +=
        concat(separator, who.size(), who.size() == 1 ? " thread" : " threads",
               " (first ", who.front(), ") in ", wait.first, " at ",
               siteText(wait.second));
    separator = "; ";
  }
  report(FaultKind::Deadlock, waits.empty() ? -1 : waits.begin()->first.second,
         -1, text);
}
