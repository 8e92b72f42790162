// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_LIB_JIT_LOADEDOBJECT_H
#define MOIRA_LIB_JIT_LOADEDOBJECT_H

#include "moira/jit.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>

namespace llvm::orc {
class ExecutionSession;
class ObjectLinkingLayer;
} // namespace llvm::orc

namespace moira {

/// An object file in executable memory, until the destructor.
class LoadedObject {
public:
  /// Loads and links all of `object`, whose undefined symbols must be those of
  /// SystemLibraries, and looks up `symbols`. `shown` hear of its functions.
  static llvm::Expected<std::shared_ptr<LoadedObject>>
  load(std::unique_ptr<llvm::MemoryBuffer> object,
       llvm::ArrayRef<std::string> symbols, const JitSymbols &shown);
  ~LoadedObject();

  /// The address of one of the symbols that were looked up, or nullptr.
  void *find(llvm::StringRef symbol) const { return addresses.lookup(symbol); }

private:
  LoadedObject();
  llvm::Error open(std::unique_ptr<llvm::MemoryBuffer> object,
                   llvm::ArrayRef<std::string> symbols,
                   const JitSymbols &shown);

  std::unique_ptr<llvm::orc::ExecutionSession> session;
  std::unique_ptr<llvm::orc::ObjectLinkingLayer> layer;
  llvm::StringMap<void *> addresses;
};

} // namespace moira

#endif // MOIRA_LIB_JIT_LOADEDOBJECT_H
