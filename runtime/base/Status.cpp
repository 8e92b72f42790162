// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Status.h"

using namespace moira;

const char *moira::statusName(int32_t code) {
  switch (code) {
  case MOIRA_OK:
    return "OK";
  case MOIRA_INVALID_ARGUMENT:
    return "INVALID_ARGUMENT";
  case MOIRA_OUT_OF_MEMORY:
    return "OUT_OF_MEMORY";
  case MOIRA_NOT_FOUND:
    return "NOT_FOUND";
  case MOIRA_DATA_LOSS:
    return "DATA_LOSS";
  case MOIRA_VERSION:
    return "VERSION";
  case MOIRA_UNAVAILABLE:
    return "UNAVAILABLE";
  case MOIRA_FAILED:
    return "FAILED";
  default:
    return "UNKNOWN";
  }
}
