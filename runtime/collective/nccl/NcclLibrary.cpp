// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/nccl/NcclLibrary.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace moira;
using namespace moira::runtime;

// Communicators that do not block, and ncclGetLastError, came with 2.14.
static constexpr int oldestVersion = 21400;

#define MOIRA_TEXT_OF(name) #name
#define MOIRA_TEXT(name) MOIRA_TEXT_OF(name)

Result<NcclLibrary> NcclLibrary::load(const std::string &file) {
  const char *variable = getenv("MOIRA_NCCL_LIB");
  std::string path = !file.empty()           ? file
                     : variable && *variable ? variable
                                             : "libnccl.so.2";
  void *nccl = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!nccl)
    return Status(MOIRA_UNAVAILABLE, concat("NCCL: ", dlerror(),
                                            " (MOIRA_NCCL_LIB names another "
                                            "file)"));
  void *driver = nccl;
  if (!dlsym(nccl, "cuInit"))
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver)
    return Status(MOIRA_UNAVAILABLE,
                  concat("NCCL needs the CUDA driver: ", dlerror()));
  NcclLibrary library;
  std::string missing;
#define MOIRA_LOAD(function)                                                   \
  library.function =                                                           \
      reinterpret_cast<decltype(&::function)>(dlsym(nccl, #function));         \
  if (!library.function)                                                       \
    missing += std::string(" ") + #function;
  MOIRA_NCCL_FUNCTIONS(MOIRA_LOAD)
#undef MOIRA_LOAD
#define MOIRA_LOAD(name, function)                                             \
  library.name = reinterpret_cast<decltype(&::function)>(                      \
      dlsym(driver, MOIRA_TEXT(function)));                                    \
  if (!library.name)                                                           \
    missing += std::string(" ") + MOIRA_TEXT(function);
  MOIRA_CUDA_FUNCTIONS(MOIRA_LOAD)
#undef MOIRA_LOAD
  if (!missing.empty())
    return Status(MOIRA_UNAVAILABLE, concat("NCCL: ", path, " lacks", missing));
  int version = 0;
  library.ncclGetVersion(&version);
  if (version < oldestVersion)
    return Status(MOIRA_UNAVAILABLE,
                  concat("NCCL: expected version ", oldestVersion,
                         " or later, ", path, " has ", version));
  const void *usesHost = dlsym(nccl, "moira_nccl_uses_host_memory");
  if (usesHost && *static_cast<const int *>(usesHost))
    library.memory = MemorySpace::Host;
  return library;
}

bool NcclLibrary::moves(const void *data) const {
  if (memory == MemorySpace::Host)
    return true;
  // The driver knows nothing of memory that is not its own.
  unsigned type = 0;
  return pointerAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                          reinterpret_cast<CUdeviceptr>(data)) ==
             CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

Status NcclLibrary::check(ncclResult_t result, const char *call,
                          ncclComm_t comm) const {
  if (result == ncclSuccess || result == ncclInProgress)
    return Status();
  const char *detail = ncclGetLastError(comm);
  return Status(
      MOIRA_FAILED,
      concat(call, ": ", ncclGetErrorString(result),
             detail && *detail ? concat(" (", detail, ")") : std::string()));
}

Status NcclLibrary::check(CUresult result, const char *call) const {
  if (result == CUDA_SUCCESS)
    return Status();
  const char *text = nullptr;
  if (errorString(result, &text) != CUDA_SUCCESS || !text)
    text = "unknown error";
  return Status(MOIRA_UNAVAILABLE, concat(call, ": ", text));
}
