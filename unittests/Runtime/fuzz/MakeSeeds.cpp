// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the seeds of BundleFuzzer: `moira-make-bundle-seeds FOLDER`.

#include "Runtime/TestFiles.h"
#include "Runtime/TestProgram.h"
#include "session/BundleFile.h"

#include <filesystem>

using namespace moira;
using namespace moira::test;

int main(int argc, char **argv) {
  if (argc != 2)
    return 1;
  std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  std::string manifest = testManifest().serialize();
  int count = 0;
  auto add = [&](char way, const std::string &bytes) {
    writeFile(folder + "/seed" + std::to_string(count++), way + bytes);
  };
  add(2, manifest);
  add(2, R"({"moira":{"version":"","abi":2},"entries":[],"parameters":[]})");
  add(2, R"({"moira":{"version":"","abi":2},"entries":[{"name":"e","ranks":8,
    "inputs":[],"results":[],"layers":[{"index":0,"experts":2,"top_k":1,
    "placement":{"experts":2,"shards":4,"copies":2,"slots":1}}],"variants":[{
    "name":"v","step":"s","workspace":"w","schedule":"groups"}]}],
    "parameters":[{"name":"p.{}","slices":1,"stacked":true,"source":{"dtype":
    "bf16","shape":[4,2]},"logical_shape":[2,8,2],"packed_slice_bytes":16,
    "pack":"k","placement":{"experts":2,"shards":4,"dim":0,"parts":2,
    "interleaved":true}}]})");
  for (const char *packed : {"", "packed parameters"}) {
    std::vector<unsigned char> bundle =
        runtime::encodeBundle({manifest, "code", packed});
    std::string bytes(bundle.begin(), bundle.end());
    for (char way : {0, 1})
      add(way, bytes);
    add(1, bytes.substr(0, bytes.size() / 2));
  }
  return 0;
}
