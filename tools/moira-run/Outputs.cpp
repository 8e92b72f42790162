// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Outputs.h"

#include "io/Npy.h"
#include "io/Safetensors.h"
#include "support/CommandLine.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace moira;
using namespace moira::tools;

static bool isNpy(llvm::StringRef path) { return path.ends_with(".npy"); }

llvm::Error tools::checkOutput(llvm::StringRef path,
                               llvm::ArrayRef<runtime::TensorSpec> specs) {
  if (isNpy(path) && specs.size() != 1)
    return llvm::createStringError(
        path + ": expected a program with one result for .npy, got " +
        llvm::Twine(specs.size()) + " (use .safetensors)");
  llvm::StringRef folder = llvm::sys::path::parent_path(path);
  if (!folder.empty() && !llvm::sys::fs::is_directory(folder))
    return llvm::createStringError(
        path + ": expected an existing folder, got '" + folder + "'");
  return llvm::Error::success();
}

llvm::Error tools::writeOutput(llvm::StringRef path,
                               llvm::ArrayRef<runtime::TensorSpec> specs,
                               llvm::ArrayRef<runtime::ResultTensor> results,
                               const runtime::FileTensors *more) {
  if (isNpy(path))
    return toError(io::writeNpy(path.str(), results[0].dtype, results[0].shape,
                                results[0].data));
  std::vector<io::SafetensorsSpec> tensors;
  std::vector<const void *> data;
  for (size_t i = 0; i < specs.size(); ++i) {
    std::string name =
        specs[i].name.empty() ? concat("result", i) : specs[i].name;
    tensors.push_back({name, results[i].dtype, results[i].shape});
    data.push_back(results[i].data);
  }
  if (more)
    for (const auto &[name, tensor] : more->tensors()) {
      tensors.push_back({name, tensor.dtype, tensor.shape});
      data.push_back(tensor.data.data());
    }
  return toError(io::writeSafetensors(path.str(), tensors, data));
}
