// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "device/cuda/Driver.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace moira;
using namespace moira::runtime;
using namespace moira::runtime::cuda;

Result<Driver> Driver::load(const std::string &file) {
  const char *variable = getenv("MOIRA_CUDA_LIB");
  std::string path = !file.empty()           ? file
                     : variable && *variable ? variable
                                             : "libcuda.so.1";
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Status(
        MOIRA_UNAVAILABLE,
        concat("CUDA: ", dlerror(), " (MOIRA_CUDA_LIB names another file)"));
  Driver driver;
  std::string missing;
#define MOIRA_DRIVER_LOAD(member, symbol, parameters)                          \
  driver.member =                                                              \
      reinterpret_cast<int(*) parameters>(dlsym(library, #symbol));            \
  if (!driver.member)                                                          \
    missing += std::string(" ") + #symbol;
  MOIRA_DRIVER_FUNCTIONS(MOIRA_DRIVER_LOAD)
#undef MOIRA_DRIVER_LOAD
  if (!missing.empty())
    return Status(MOIRA_UNAVAILABLE,
                  concat("CUDA: ", path, " lacks", missing,
                         "; expected a driver of CUDA 12 or later"));
  return driver;
}

Status Driver::check(int error, const char *symbol) const {
  static constexpr int outOfMemory = 2;
  if (!error)
    return Status();
  const char *name = nullptr, *text = nullptr;
  if (errorName(error, &name) || !name)
    name = "an unknown error";
  if (errorText(error, &text) || !text)
    text = "no description";
  return Status(error == outOfMemory ? MOIRA_OUT_OF_MEMORY : MOIRA_FAILED,
                concat(symbol, ": ", name, " (", error, "): ", text));
}
