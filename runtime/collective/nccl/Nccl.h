// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that are GPUs, connected by NCCL. Neither NCCL nor the driver is
// linked: both are loaded when they are asked for.

#ifndef MOIRA_RUNTIME_COLLECTIVE_NCCL_NCCL_H
#define MOIRA_RUNTIME_COLLECTIVE_NCCL_NCCL_H

#include "collective/Transport.h"

#include <memory>

namespace moira::runtime {

struct NcclOptions {
  /// The file of the library; "": MOIRA_NCCL_LIB, else libnccl.so.2.
  std::string library;
  int device = 0; ///< number of the GPU on this machine
  /// Seconds that a rank waits for the others when it starts.
  double connectSeconds = 60;
};

/// A transport whose messages lie in memory of the GPU or of the host. Those of
/// the GPU in a batch are one group of ncclSend and ncclRecv, on a stream of
/// its own; both ends of a message are of one kind.
///
/// `control`, a transport among the same ranks in host memory, carries messages
/// of the host, hands out the communicator's id and carries failures, of which
/// NCCL has no notion: a rank that hears of one aborts its communicator.
/// Collective. MOIRA_UNAVAILABLE where the library, the driver or the GPU is
/// missing on some rank, or where Moira was built without nccl.h.
Result<std::unique_ptr<Transport>> openNccl(std::unique_ptr<Transport> control,
                                            const NcclOptions &options);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_NCCL_NCCL_H
