// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiled objects in a folder. Any number of processes may use one folder.

#ifndef MOIRA_LIB_JIT_OBJECTCACHE_H
#define MOIRA_LIB_JIT_OBJECTCACHE_H

#include "moira/JIT/HostCompiler.h"

#include <optional>

namespace moira {

class ObjectCache {
public:
  /// `directory` is made when something is first written.
  explicit ObjectCache(std::string directory)
      : directory(std::move(directory)) {}

  /// Where the object of this program, compiled with these options by this
  /// build of the compiler, stands.
  std::string pathOf(mlir::ModuleOp module, const JitOptions &options) const;

  /// Nothing where there is no such file, or one that is damaged.
  std::optional<CompiledObject> read(const std::string &path) const;

  /// Failures are ignored: the next process compiles again.
  void write(const std::string &path, const CompiledObject &object) const;

private:
  std::string directory;
};

} // namespace moira

#endif // MOIRA_LIB_JIT_OBJECTCACHE_H
