// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the bundle of TestModule.c, or of TestRanks.c:
// `moira-make-test-bundle MODULE BUNDLE [ranks]`.

#include "Runtime/TestFiles.h"
#include "Runtime/TestProgram.h"
#include "session/BundleFile.h"

#include <cstdio>

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: %s MODULE BUNDLE [ranks]\n", argv[0]);
    return 1;
  }
  std::string manifest =
      (argc == 4 ? moira::test::ranksManifest() : moira::test::testManifest())
          .serialize();
  std::string code = moira::test::readFile(argv[1]);
  moira::Status status =
      moira::runtime::writeBundle(argv[2], {manifest, code, ""});
  if (!status.ok())
    std::fprintf(stderr, "error: %s\n", status.message.c_str());
  return status.ok() ? 0 : 1;
}
