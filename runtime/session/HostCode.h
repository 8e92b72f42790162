// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Host code of a bundle, loaded from memory.

#ifndef MOIRA_RUNTIME_SESSION_HOSTCODE_H
#define MOIRA_RUNTIME_SESSION_HOSTCODE_H

#include "session/Manifest.h"

#include <memory>
#include <string_view>

namespace moira::runtime {

/// Fails with MOIRA_UNAVAILABLE unless this machine has the architecture and
/// the CPU features that the code was made for. Features whose name the
/// runtime does not know pass.
Status checkTarget(const Target &target);

/// A loaded shared object, unloaded by the destructor.
class HostCode {
public:
  /// `image` is copied. The object's initialisers run here.
  static Result<std::shared_ptr<HostCode>> load(std::string_view image);
  ~HostCode();

  /// The address of a symbol, or nullptr.
  void *find(const char *symbol) const;

  HostCode(const HostCode &) = delete;
  HostCode &operator=(const HostCode &) = delete;

private:
  HostCode(void *handle, int descriptor)
      : handle(handle), descriptor(descriptor) {}

  void *handle;
  int descriptor;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_HOSTCODE_H
