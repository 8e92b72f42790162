// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Plugin.h"
#include "collective/mpi/MpiTransport.h"

using namespace moira;
using namespace moira::runtime;

extern "C" __attribute__((visibility("default"))) void
moira_open_transport(uint32_t interface, PluginAnswer *answer) {
  if (interface != transportInterface) {
    answer->status =
        Status(MOIRA_VERSION, concat("expected transport interface ",
                                     transportInterface, ", got ", interface));
    return;
  }
  Result<std::unique_ptr<MpiTransport>> transport =
      MpiTransport::open(MpiOptions());
  if (transport.ok())
    answer->transport = transport->release();
  else
    answer->status = transport.status();
}
