// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "device/Device.h"

using namespace moira::runtime;

Device::~Device() = default;
Module::~Module() = default;
Graph::~Graph() = default;
Kernel::~Kernel() = default;
