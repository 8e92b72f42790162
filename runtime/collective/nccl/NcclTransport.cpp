// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's communicator is made not to block: a call that would wait for others
// answers ncclInProgress, and ncclCommGetAsyncError says when it has ended. So
// `post` waits for nobody, and a rank that fails ends within a bounded time
// whatever the others do.

#include "bootstrap/Socket.h"
#include "collective/SelfMessages.h"
#include "collective/nccl/Nccl.h"
#include "collective/nccl/NcclLibrary.h"

#include <thread>

using namespace moira;
using namespace moira::runtime;

namespace {

class NcclTransport final : public Transport {
public:
  NcclTransport(std::unique_ptr<Transport> control, const NcclLibrary &library)
      : control(std::move(control)), library(library) {}
  ~NcclTransport() override;
  Status connect(const NcclOptions &options);

  const char *name() const override { return "nccl"; }
  int rank() const override { return control->rank(); }
  int ranks() const override { return control->ranks(); }
  MemorySpace memory() const override { return library.memory; }
  Status post(const Batch &batch) override;
  Result<bool> test() override;
  void idle() override;
  void abort(const Failure &failure) override { control->abort(failure); }
  std::optional<Failure> failure() override { return control->failure(); }

private:
  Status openStream(int device);
  Status shareId(ncclUniqueId &id, Deadline deadline);
  Status complete(const Batch &batch, Deadline deadline);
  Status postGroup(const Batch &batch);
  Result<bool> isReady();
  Status give(const Status &status);
  void stop();

  std::unique_ptr<Transport> control;
  const NcclLibrary library;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  ncclComm_t communicator = nullptr;
  Batch onHost, onDevice; ///< parts of the last batch
  bool pending = false;   ///< a group is under way
  bool hostDone = true;   ///< `control` has nothing under way
  int waits = 0;          ///< calls of `idle` since the last batch
};

} // namespace

/// Ends NCCL's part: afterwards its kernels touch no memory.
void NcclTransport::stop() {
  if (communicator)
    (void)library.ncclCommAbort(communicator);
  communicator = nullptr;
  pending = false;
}

/// What fails here fails on all ranks.
Status NcclTransport::give(const Status &status) {
  if (!status.ok())
    control->abort({rank(), status.code, status.message});
  return status;
}

Status NcclTransport::openStream(int ordinal) {
  MOIRA_RETURN_IF_ERROR(library.check(library.initialize(0), "cuInit"));
  MOIRA_RETURN_IF_ERROR(
      library.check(library.deviceGet(&device, ordinal), "cuDeviceGet"));
  MOIRA_RETURN_IF_ERROR(library.check(library.retainContext(&context, device),
                                      "cuDevicePrimaryCtxRetain"));
  MOIRA_RETURN_IF_ERROR(
      library.check(library.setContext(context), "cuCtxSetCurrent"));
  return library.check(library.createStream(&stream, CU_STREAM_NON_BLOCKING),
                       "cuStreamCreate");
}

/// Carries a batch of the control transport.
Status NcclTransport::complete(const Batch &batch, Deadline deadline) {
  MOIRA_RETURN_IF_ERROR(control->post(batch));
  while (true) {
    Result<bool> done = control->test();
    if (!done.ok())
      return done.status();
    if (*done)
      return Status();
    if (std::chrono::steady_clock::now() > deadline)
      return Status(MOIRA_UNAVAILABLE,
                    concat("no answer of rank ", control->awaited()));
    control->idle();
  }
}

Status NcclTransport::shareId(ncclUniqueId &id, Deadline deadline) {
  Batch batch;
  if (rank() == 0) {
    MOIRA_RETURN_IF_ERROR(library.check(library.ncclGetUniqueId(&id),
                                        "ncclGetUniqueId", nullptr));
    for (int peer = 1; peer < ranks(); ++peer)
      batch.sends.push_back({peer, &id, sizeof(id)});
  } else {
    batch.receives.push_back({0, &id, sizeof(id)});
  }
  return complete(batch, deadline);
}

Status NcclTransport::connect(const NcclOptions &options) {
  const Deadline deadline = deadlineIn(options.connectSeconds);
  MOIRA_RETURN_IF_ERROR(give(openStream(options.device)));
  ncclUniqueId id = {};
  MOIRA_RETURN_IF_ERROR(give(shareId(id, deadline)));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  MOIRA_RETURN_IF_ERROR(
      give(library.check(library.ncclCommInitRankConfig(&communicator, ranks(),
                                                        id, rank(), &config),
                         "ncclCommInitRankConfig", communicator)));
  while (true) {
    Result<bool> ready = isReady();
    if (!ready.ok())
      return ready.status();
    if (*ready)
      return Status();
    if (std::chrono::steady_clock::now() > deadline)
      return give(Status(MOIRA_UNAVAILABLE,
                         concat("not all of ", ranks(),
                                " ranks joined NCCL's communicator in ",
                                options.connectSeconds, " s")));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Whether NCCL has ended what it was asked for; fails if a rank has failed.
Result<bool> NcclTransport::isReady() {
  Result<bool> alive = control->test();
  if (!alive.ok()) {
    stop();
    return alive.status();
  }
  hostDone = *alive;
  if (!communicator)
    return Status(MOIRA_FAILED, "NCCL's communicator has been aborted");
  ncclResult_t state = ncclSuccess;
  Status status =
      library.check(library.ncclCommGetAsyncError(communicator, &state),
                    "ncclCommGetAsyncError", communicator);
  if (status.ok())
    status = library.check(state, "NCCL", communicator);
  if (!status.ok()) {
    (void)give(status);
    stop();
    return status;
  }
  return state != ncclInProgress;
}

Status NcclTransport::postGroup(const Batch &batch) {
  auto check = [this](ncclResult_t result, const char *call) {
    return library.check(result, call, communicator);
  };
  MOIRA_RETURN_IF_ERROR(check(library.ncclGroupStart(), "ncclGroupStart"));
  Status status;
  for (const Message &message : batch.sends)
    if (status.ok())
      status = check(
          library.ncclSend(message.data, static_cast<size_t>(message.bytes),
                           ncclInt8, message.peer, communicator, stream),
          "ncclSend");
  for (const Message &message : batch.receives)
    if (status.ok())
      status = check(
          library.ncclRecv(message.data, static_cast<size_t>(message.bytes),
                           ncclInt8, message.peer, communicator, stream),
          "ncclRecv");
  // A group that was begun is ended, whatever happened in it.
  Status ended = check(library.ncclGroupEnd(), "ncclGroupEnd");
  return status.ok() ? ended : status;
}

Status NcclTransport::post(const Batch &batch) {
  MOIRA_RETURN_IF_ERROR(checkBatch(batch, ranks()));
  if (pending || !hostDone)
    return Status(MOIRA_FAILED,
                  "expected the previous batch to have completed");
  Result<bool> ready = isReady();
  if (!ready.ok())
    return ready.status();
  // The thread of a queue is another one than that which has connected.
  MOIRA_RETURN_IF_ERROR(
      give(library.check(library.setContext(context), "cuCtxSetCurrent")));
  onHost = onDevice = Batch();
  auto share = [this](const std::vector<Message> &from,
                      std::vector<Message> Batch::*side) {
    for (const Message &message : from)
      if (message.bytes > 0)
        ((library.moves(message.data) ? onDevice : onHost).*side)
            .push_back(message);
  };
  share(batch.sends, &Batch::sends);
  share(batch.receives, &Batch::receives);
  waits = 0;
  if (!onHost.sends.empty() || !onHost.receives.empty()) {
    MOIRA_RETURN_IF_ERROR(give(control->post(onHost)));
    hostDone = false;
  }
  // A group of nothing is legal, but no rank waits for it.
  if (onDevice.sends.empty() && onDevice.receives.empty())
    return Status();
  pending = true;
  return give(postGroup(onDevice));
}

Result<bool> NcclTransport::test() {
  Result<bool> ready = isReady();
  if (!ready.ok() || !*ready || !hostDone)
    return ready.ok() && !hostDone ? Result<bool>(false) : ready;
  if (!pending)
    return true;
  CUresult state = library.queryStream(stream);
  if (state == CUDA_ERROR_NOT_READY)
    return false;
  Status status = library.check(state, "cuStreamQuery");
  if (!status.ok()) {
    (void)give(status);
    stop();
    return status;
  }
  pending = false;
  return true;
}

void NcclTransport::idle() {
  if (++waits <= 50)
    return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

NcclTransport::~NcclTransport() {
  if (context)
    library.setContext(context);
  if (communicator && pending)
    control->abort({rank(), MOIRA_FAILED, "left in the middle of a batch"});
  if (communicator && !control->failure()) {
    // The other ranks may be later; one that fails ends the wait.
    (void)library.ncclCommFinalize(communicator);
    Deadline deadline = deadlineIn(10);
    Result<bool> ready = isReady();
    while (ready.ok() && !*ready &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      ready = isReady();
    }
    if (ready.ok() && *ready) {
      (void)library.ncclCommDestroy(communicator);
      communicator = nullptr;
    }
  }
  stop();
  if (stream)
    library.destroyStream(stream);
  if (context)
    library.releaseContext(device);
}

Result<std::unique_ptr<Transport>>
moira::runtime::openNccl(std::unique_ptr<Transport> control,
                         const NcclOptions &options) {
  Result<NcclLibrary> library = NcclLibrary::load(options.library);
  if (!library.ok()) {
    control->abort(
        {control->rank(), library.status().code, library.status().message});
    return library.status();
  }
  auto transport =
      std::make_unique<NcclTransport>(std::move(control), *library);
  MOIRA_RETURN_IF_ERROR(transport->connect(options));
  return std::unique_ptr<Transport>(std::move(transport));
}
