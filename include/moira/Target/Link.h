// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TARGET_LINK_H
#define MOIRA_TARGET_LINK_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>

namespace moira {

/// The C and mathematics libraries of this process: all that generated code may
/// need besides its context.
class SystemLibraries {
public:
  /// Finds them once.
  static const SystemLibraries &get();

  /// The address of a symbol, or nullptr.
  void *find(const char *symbol) const;
  /// Path of the loaded library "libm.so.6" or "libc.so.6"; empty when there
  /// is no such file.
  const std::string &mathPath() const { return math; }
  const std::string &cPath() const { return c; }

private:
  SystemLibraries();

  void *handle = nullptr;
  std::string math, c;
};

/// Links an object file (position independent, without undefined symbols other
/// than those of SystemLibraries) into a shared object and returns its bytes.
/// Runs ld.lld, or else the system's compiler driver; nothing is left on disk.
llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>>
linkSharedObject(llvm::MemoryBufferRef object);

} // namespace moira

#endif // MOIRA_TARGET_LINK_H
