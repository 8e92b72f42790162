//===- Status.h - Outcome of a runtime call ---------------------*- C++ -*-===//
//
// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The runtime reports failures by value: nothing is thrown over its border.
// A message is one line, lower case, without a final stop.
//
//===----------------------------------------------------------------------===//

#ifndef MOIRA_BASE_STATUS_H
#define MOIRA_BASE_STATUS_H

#include "moira/abi.h"

#include <cassert>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace moira {

/// Success, or a MOIRA_* code with the line that explains it.
struct [[nodiscard]] Status {
  int32_t code = MOIRA_OK;
  std::string message;

  Status() = default;
  Status(int32_t code, std::string message)
      : code(code), message(std::move(message)) {}

  bool ok() const { return code == MOIRA_OK; }

  /// The same failure with `context: ` before the message.
  Status within(const std::string &context) const {
    return ok() ? *this : Status(code, context + ": " + message);
  }
};

/// A value, or the status that says why there is none.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : held(std::move(value)) {}
  /// `status` must be a failure.
  Result(Status status) : state(std::move(status)) { assert(!state.ok()); }

  bool ok() const { return held.has_value(); }
  const Status &status() const { return state; }

  /// The value; only when ok().
  T &value() & { return *held; }
  const T &value() const & { return *held; }
  T &&value() && { return std::move(*held); }
  T &operator*() { return *held; }
  const T &operator*() const { return *held; }
  T *operator->() { return &*held; }
  const T *operator->() const { return &*held; }

private:
  std::optional<T> held;
  Status state;
};

/// Writes all arguments, one after the other, into a string.
template <typename... Args> std::string concat(const Args &...args) {
  std::ostringstream stream;
  (stream << ... << args);
  return stream.str();
}

/// A name such as "INVALID_ARGUMENT"; "UNKNOWN" for other numbers.
const char *statusName(int32_t code);

} // namespace moira

/// Leaves the function with the status of `expression` unless it is ok.
#define MOIRA_RETURN_IF_ERROR(expression)                                      \
  do {                                                                         \
    ::moira::Status moiraStatus = (expression);                                \
    if (!moiraStatus.ok())                                                     \
      return moiraStatus;                                                      \
  } while (false)

#endif // MOIRA_BASE_STATUS_H
