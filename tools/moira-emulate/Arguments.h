// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arguments of a kernel as the command line writes them.

#ifndef MOIRA_TOOLS_EMULATE_ARGUMENTS_H
#define MOIRA_TOOLS_EMULATE_ARGUMENTS_H

#include "base/Types.h"
#include "device/Device.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace moira::tools {

/// One argument: a number, or memory of the device.
struct EmulatedArgument {
  /// The number's bytes, or the address.
  alignas(8) unsigned char bytes[8] = {};
  int64_t size = 8;
  /// Memory: its type and shape; where it is written afterwards, if anywhere.
  runtime::DataType dtype = runtime::DataType::F32;
  runtime::Shape shape;
  std::string output;

  runtime::KernelArgument get() const { return {bytes, size}; }
};

/// What --help says of an argument.
extern const char *const argumentHelp;

/// Reads `i32:5`, `i64:5`, `f32:0.5`, `null`, `in:FILE.npy`,
/// `in:bf16:FILE.npy` (f32 converted), `out:f32[32x8]:FILE.npy` and
/// `inout:FILE.npy:FILE.npy`. Memory is allocated and filled through `queue`;
/// that of `out` holds 0xff.
llvm::Expected<EmulatedArgument> readArgument(llvm::StringRef text,
                                              runtime::Device &device,
                                              runtime::DeviceQueue queue);

/// Writes the argument's memory to its file, if it has one.
llvm::Error writeArgument(const EmulatedArgument &argument,
                          runtime::Device &device, runtime::DeviceQueue queue);

} // namespace moira::tools

#endif // MOIRA_TOOLS_EMULATE_ARGUMENTS_H
