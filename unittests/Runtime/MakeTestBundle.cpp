// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the bundle of TestModule.c ("alone"), of TestRanks.c ("ranks") or of
// both, as grids of one and of two ranks ("grids"):
// `moira-make-test-bundle KIND MODULE BUNDLE`.

#include "Runtime/TestFiles.h"
#include "Runtime/TestProgram.h"
#include "session/BundleFile.h"

#include <cstdio>
#include <string>

using namespace moira::test;

static std::string manifestOf(const std::string &kind) {
  if (kind == "alone")
    return testManifest().serialize();
  if (kind == "ranks")
    return ranksManifest().serialize();
  return moira::runtime::serializeGrids(
      {{1, testManifest()}, {2, ranksManifest()}});
}

int main(int argc, char **argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s KIND MODULE BUNDLE\n", argv[0]);
    return 1;
  }
  std::string manifest = manifestOf(argv[1]), code = readFile(argv[2]);
  moira::Status status =
      moira::runtime::writeBundle(argv[3], {manifest, code, ""});
  if (!status.ok())
    std::fprintf(stderr, "error: %s\n", status.message.c_str());
  return status.ok() ? 0 : 1;
}
