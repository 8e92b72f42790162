// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where parameters come from: a checkpoint, memory, a generator.

#ifndef MOIRA_RUNTIME_SESSION_PARAMETERSOURCE_H
#define MOIRA_RUNTIME_SESSION_PARAMETERSOURCE_H

#include "base/Types.h"

#include <string>

namespace moira::runtime {

/// Named tensors that a session can pack from.
class ParameterSource {
public:
  virtual ~ParameterSource() = default;

  /// The tensor of this name. Its bytes stay valid as long as the source. The
  /// data need not be aligned to the element. Fails with MOIRA_NOT_FOUND where
  /// the source has no such tensor, or with what went wrong on the way to it;
  /// the message names the file. A session calls it from one thread at a time.
  virtual Result<TensorView> find(const std::string &name) = 0;

  /// Says that the session has read these bytes of a tensor that `find`
  /// returned and needs no page of them in memory any longer. Called from
  /// several threads at the same time; reading the bytes again stays legal.
  virtual void releasePages(const void *begin, int64_t bytes) {
    (void)begin;
    (void)bytes;
  }

  /// The source in an error message: a path, or a few words.
  virtual std::string describe() const = 0;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_PARAMETERSOURCE_H
