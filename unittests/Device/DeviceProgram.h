// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A program for a GPU for tests, and the stand-in for the driver that it runs
// on.

#ifndef MOIRA_UNITTESTS_DEVICE_DEVICEPROGRAM_H
#define MOIRA_UNITTESTS_DEVICE_DEVICEPROGRAM_H

#include "Runtime/TestProgram.h"
#include "device/Device.h"
#include "moira/device_abi.h"

#include <memory>
#include <string>
#include <vector>

namespace moira::test {

/// The GPU code of the program, an image that the stand-in takes.
extern const char deviceCode[14];

/// Entry "main": x (i32[?]), and a number, to i32[?]; parameter "p" of i32[2];
/// a layer of two experts.
runtime::Manifest manifestOf(const std::string &arch = "sm_80");
/// The program with this code for its one step.
std::shared_ptr<const runtime::Program> programOf(runtime::Manifest manifest,
                                                  moira_step_entry step);
/// A copy of x times n times the second element of p, which the host reads.
void stepEntry(moira_ctx *ctx, const moira_buffer *inputs);
/// What generated code calls for the device.
const moira_device *tableOf(moira_ctx *ctx);

/// Options with the stand-in's device.
runtime::SessionOptions optionsWithDevice();
/// A session with the parameter bound to 1, 7.
std::unique_ptr<runtime::Session> sessionOf(moira_step_entry step);
/// Memory of the device with these values.
int32_t *onDevice(runtime::Device &device, const std::vector<int32_t> &values);
/// A variable of the stand-in.
int &fakeNumber(const char *name);

} // namespace moira::test

#endif // MOIRA_UNITTESTS_DEVICE_DEVICEPROGRAM_H
