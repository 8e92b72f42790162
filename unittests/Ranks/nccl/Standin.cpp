// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A library with some of NCCL's and the CUDA driver's functions, for tests
// without a GPU. Ranks are threads or processes of one machine, "device" memory
// is host memory. Where NCCL would hang or move the wrong bytes, because ranks
// disagree on order, grouping, counts or types, it says ncclInvalidUsage and
// ncclGetLastError says why. With MOIRA_NCCL_STANDIN_LOG = FILE it appends one
// line per call to FILE, "RANK CALL ...".

#include "Communicator.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <fcntl.h>
#include <functional>
#include <random>
#include <sstream>
#include <unistd.h>

using namespace standin;

#define EXPORTED extern "C" __attribute__((visibility("default")))

/// Tells the transport where messages must lie.
EXPORTED int moira_nccl_uses_host_memory;
int moira_nccl_uses_host_memory = 1;

//===----------------------------------------------------------------------===//
// Groups of this thread
//===----------------------------------------------------------------------===//

namespace {
struct Call {
  ncclComm *comm;
  CUstream_st *stream;
  Operation operation;
};
} // namespace

static thread_local int depth = 0;
static thread_local std::vector<Call> calls;
static thread_local std::string threadError;

template <typename... Parts>
static void log(const ncclComm *comm, const Parts &...parts) {
  const char *path = getenv("MOIRA_NCCL_STANDIN_LOG");
  if (!path)
    return;
  std::ostringstream line;
  line << comm->rank;
  ((line << ' ' << parts), ...);
  line << '\n';
  // Appended in one piece: ranks share the file.
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  const std::string text = line.str();
  if (file >= 0 && write(file, text.data(), text.size()) < 0)
    perror("MOIRA_NCCL_STANDIN_LOG");
  if (file >= 0)
    close(file);
}

static ncclResult_t runGroup() {
  std::vector<Call> all = std::move(calls);
  calls.clear();
  ncclResult_t result = ncclSuccess;
  while (!all.empty()) {
    ncclComm *comm = all.front().comm;
    CUstream_st *stream = all.front().stream;
    std::vector<Operation> operations;
    std::vector<Call> others;
    for (const Call &call : all) {
      if (call.comm != comm)
        others.push_back(call);
      else if (call.stream != stream)
        return comm->fault(ncclInvalidUsage, "a group on two streams");
      else
        operations.push_back(call.operation);
    }
    log(comm, "group", ++comm->groups, operations.size());
    for (const Operation &operation : operations)
      log(comm, operation.isSend ? "send" : "recv", comm->groups,
          operation.peer, operation.count, nameOf(operation.type));
    ncclResult_t one = comm->submit(std::move(operations), stream);
    if (one != ncclSuccess)
      result = one;
    all = std::move(others);
  }
  return result;
}

static ncclResult_t add(ncclComm *comm, CUstream_st *stream,
                        const Operation &operation, const char *name) {
  if (!comm)
    return ncclInvalidArgument;
  ncclResult_t ready = comm->beginCall(name);
  if (ready != ncclSuccess)
    return ready;
  if (operation.peer < 0 || operation.peer >= comm->ranks)
    return comm->fault(ncclInvalidArgument,
                       std::string(name) + ": no such peer");
  if (bytesOf(operation.type) == 0)
    return comm->fault(ncclInvalidArgument,
                       std::string(name) + ": no such type");
  if (operation.count > 0 && !operation.data)
    return comm->fault(ncclInvalidArgument, std::string(name) + ": no memory");
  calls.push_back({comm, stream, operation});
  return depth > 0 ? ncclSuccess : runGroup();
}

EXPORTED ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclGroupEnd() {
  if (depth == 0) {
    threadError = "ncclGroupEnd without ncclGroupStart";
    return ncclInvalidUsage;
  }
  return --depth > 0 ? ncclSuccess : runGroup();
}

EXPORTED ncclResult_t ncclSend(const void *data, size_t count,
                               ncclDataType_t type, int peer, ncclComm_t comm,
                               cudaStream_t stream) {
  char *bytes = static_cast<char *>(const_cast<void *>(data));
  return add(comm, stream, {true, peer, bytes, count, type}, "ncclSend");
}

EXPORTED ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type,
                               int peer, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream,
             {false, peer, static_cast<char *>(data), count, type}, "ncclRecv");
}

//===----------------------------------------------------------------------===//
// Communicators
//===----------------------------------------------------------------------===//

EXPORTED ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  std::random_device random;
  std::memset(id, 0, sizeof(*id));
  snprintf(id->internal, sizeof(id->internal), "/moira-nccl-%08x%08x%08x",
           random(), random(), random());
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks,
                                             ncclUniqueId id, int rank,
                                             ncclConfig_t *config) {
  *comm = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks ||
      strncmp(id.internal, "/moira-nccl-", 12) != 0) {
    threadError = "no such rank, or no id of ncclGetUniqueId";
    return ncclInvalidArgument;
  }
  const bool blocking = !config || config->blocking != 0;
  id.internal[sizeof(id.internal) - 1] = 0;
  *comm = new ncclComm(id.internal, ranks, rank, blocking);
  log(*comm, "init", ranks);
  return blocking ? (*comm)->waitUntilIdle() : ncclInProgress;
}

EXPORTED ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks,
                                       ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

EXPORTED ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  ncclResult_t ready = comm->beginCall("ncclCommFinalize");
  if (ready != ncclSuccess)
    return ready;
  log(comm, "finalize");
  ready = comm->waitUntilIdle();
  comm->finalized = true;
  return ready;
}

EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  log(comm, "destroy");
  delete comm;
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  log(comm, "abort");
  delete comm;
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommGetAsyncError(ncclComm_t comm,
                                            ncclResult_t *state) {
  if (!comm)
    return ncclInvalidArgument;
  *state = static_cast<ncclResult_t>(comm->state.load());
  return ncclSuccess;
}

EXPORTED const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclInvalidArgument:
    return "invalid argument";
  case ncclInvalidUsage:
    return "invalid usage";
  case ncclInProgress:
    return "in progress";
  default:
    return "error";
  }
}

EXPORTED const char *ncclGetLastError(ncclComm_t comm) {
  return comm ? comm->lastError() : threadError.c_str();
}

//===----------------------------------------------------------------------===//
// The driver
//===----------------------------------------------------------------------===//

EXPORTED CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }

EXPORTED CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return ordinal < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) {
  static int one;
  *context = reinterpret_cast<CUcontext>(&one);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }

EXPORTED CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

EXPORTED CUresult cuStreamCreate(CUstream *stream, unsigned int) {
  *stream = new CUstream_st;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuStreamQuery(CUstream stream) {
  return stream->outstanding == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORTED CUresult cuStreamDestroy(CUstream stream) {
  delete stream;
  return CUDA_SUCCESS;
}

/// Memory of a device is what a test has named so.
EXPORTED const void *moira_nccl_device_begin = nullptr;
EXPORTED const void *moira_nccl_device_end = nullptr;

EXPORTED CUresult cuPointerGetAttribute(void *data,
                                        CUpointer_attribute attribute,
                                        CUdeviceptr pointer) {
  const void *place = reinterpret_cast<const void *>(pointer);
  if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
      std::less<const void *>()(place, moira_nccl_device_begin) ||
      !std::less<const void *>()(place, moira_nccl_device_end))
    return CUDA_ERROR_INVALID_VALUE;
  *static_cast<unsigned *>(data) = CU_MEMORYTYPE_DEVICE;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorString(CUresult result, const char **text) {
  *text = result == CUDA_ERROR_INVALID_DEVICE ? "no such device" : "error";
  return CUDA_SUCCESS;
}
