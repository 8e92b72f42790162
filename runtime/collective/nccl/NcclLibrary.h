// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of NCCL and of the CUDA driver that we call.

#ifndef MOIRA_RUNTIME_COLLECTIVE_NCCL_NCCLLIBRARY_H
#define MOIRA_RUNTIME_COLLECTIVE_NCCL_NCCLLIBRARY_H

#include "collective/Transport.h"

#include <cuda.h>
#include <nccl.h>

namespace moira::runtime {

// Names are given twice because cuda.h renames some functions (to _v2) and the
// library exports only the new name: a member is called as written here, the
// symbol is what the header makes of it.
#define MOIRA_NCCL_FUNCTIONS(X)                                                \
  X(ncclGetVersion)                                                            \
  X(ncclGetUniqueId)                                                           \
  X(ncclCommInitRankConfig)                                                    \
  X(ncclCommFinalize)                                                          \
  X(ncclCommDestroy)                                                           \
  X(ncclCommAbort)                                                             \
  X(ncclCommGetAsyncError)                                                     \
  X(ncclGetErrorString)                                                        \
  X(ncclGetLastError)                                                          \
  X(ncclGroupStart)                                                            \
  X(ncclGroupEnd)                                                              \
  X(ncclSend)                                                                  \
  X(ncclRecv)
#define MOIRA_CUDA_FUNCTIONS(X)                                                \
  X(initialize, cuInit)                                                        \
  X(deviceGet, cuDeviceGet)                                                    \
  X(retainContext, cuDevicePrimaryCtxRetain)                                   \
  X(releaseContext, cuDevicePrimaryCtxRelease)                                 \
  X(setContext, cuCtxSetCurrent)                                               \
  X(createStream, cuStreamCreate)                                              \
  X(queryStream, cuStreamQuery)                                                \
  X(destroyStream, cuStreamDestroy)                                            \
  X(pointerAttribute, cuPointerGetAttribute)                                   \
  X(errorString, cuGetErrorString)

struct NcclLibrary {
#define MOIRA_MEMBER(function) decltype(&::function) function = nullptr;
  MOIRA_NCCL_FUNCTIONS(MOIRA_MEMBER)
#undef MOIRA_MEMBER
#define MOIRA_MEMBER(name, function) decltype(&::function) name = nullptr;
  MOIRA_CUDA_FUNCTIONS(MOIRA_MEMBER)
#undef MOIRA_MEMBER
  /// Device, but for the library that takes NCCL's place in tests, which moves
  /// memory of the host where it says so.
  MemorySpace memory = MemorySpace::Device;
  /// Whether NCCL can move what stands at `data`.
  bool moves(const void *data) const;

  /// `file` "": MOIRA_NCCL_LIB, else libnccl.so.2. The driver is libcuda.so.1
  /// unless NCCL's library has its functions too. Both stay loaded.
  static Result<NcclLibrary> load(const std::string &file);

  /// What `call` says of itself. ncclInProgress is no error.
  Status check(ncclResult_t result, const char *call, ncclComm_t comm) const;
  Status check(CUresult result, const char *call) const;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_NCCL_NCCLLIBRARY_H
