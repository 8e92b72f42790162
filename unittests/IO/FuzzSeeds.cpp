// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira-fuzz-seeds FOLDER: small valid files for the fuzzers to start from.

#include "io/AtomicFile.h"
#include "io/Npy.h"
#include "io/Safetensors.h"

#include <cstdio>
#include <filesystem>

using namespace moira;
using io::DataType;

static const DataType types[] = {DataType::F32,  DataType::F64, DataType::F16,
                                 DataType::BF16, DataType::I1,  DataType::I8,
                                 DataType::I32,  DataType::I64};
static const io::Shape shapes[] = {{}, {3}, {0}, {2, 3}, {1, 2, 2}};
static const char zeros[64] = {};

static Status writeNpySeeds(const std::string &folder) {
  int number = 0;
  for (DataType dtype : types)
    for (const io::Shape &shape : shapes)
      MOIRA_RETURN_IF_ERROR(
          io::writeNpy(folder + "/" + std::to_string(number++) + ".npy", dtype,
                       shape, zeros));
  return Status();
}

static Status writeSafetensorsSeeds(const std::string &folder) {
  std::vector<io::SafetensorsSpec> specs;
  std::vector<const void *> data;
  for (DataType dtype : types)
    for (const io::Shape &shape : shapes) {
      std::string number = std::to_string(specs.size());
      specs.push_back({"layers." + number + ".weight", dtype, shape});
      data.push_back(zeros);
      MOIRA_RETURN_IF_ERROR(
          io::writeSafetensors(folder + "/" + number + ".safetensors",
                               {specs.begin() + specs.size() / 2, specs.end()},
                               {data.begin() + data.size() / 2, data.end()}));
    }
  constexpr const char index[] =
      R"({"metadata":{"total_size":4},"weight_map":{"a":"b.safetensors"}})";
  return io::writeFile(folder + "/index.json", index, sizeof(index) - 1);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 1;
  }
  std::string root = argv[1];
  std::error_code error;
  for (const char *name : {"/npy", "/safetensors"})
    std::filesystem::create_directories(root + name, error);
  Status status = writeNpySeeds(root + "/npy");
  if (status.ok())
    status = writeSafetensorsSeeds(root + "/safetensors");
  if (!status.ok())
    std::fprintf(stderr, "moira-fuzz-seeds: error: %s\n",
                 status.message.c_str());
  return status.ok() ? 0 : 1;
}
