// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a store and its clients say to each other. A request is a head, a key
// and a value; an answer is a head and a value.

#ifndef MOIRA_RUNTIME_BOOTSTRAP_STOREPROTOCOL_H
#define MOIRA_RUNTIME_BOOTSTRAP_STOREPROTOCOL_H

#include "bootstrap/Wire.h"

#include <optional>
#include <string>

namespace moira::runtime {

/// Whatever says it is longer is no message of ours, and is not read.
inline constexpr uint32_t storeMaxKey = 256;
inline constexpr uint32_t storeMaxValue = 1 << 20;

enum class StoreAsk : uint32_t {
  Hello = 1, ///< first of all: value = `storeGreeting`
  Set = 2,
  Get = 3, ///< answered when there is a value, or late
  Add = 4  ///< value: 8 bytes to be added; answered with the sum
};
enum class StoreSays : uint32_t { Ok = 0, Late = 1, Refused = 2 };

struct StoreHead {
  static constexpr size_t size = 20;
  static constexpr uint32_t magic = 0x54534f4d; ///< "MOST"
  StoreAsk ask = StoreAsk::Hello;
  uint32_t keyBytes = 0, valueBytes = 0;
  uint32_t milliseconds = 0; ///< how long a Get may wait

  void put(unsigned char *at) const {
    putNumber(at, magic, 4);
    putNumber(at + 4, static_cast<uint32_t>(ask), 4);
    putNumber(at + 8, keyBytes, 4);
    putNumber(at + 12, valueBytes, 4);
    putNumber(at + 16, milliseconds, 4);
  }
  /// Nothing where the bytes are no head.
  static std::optional<StoreHead> get(const unsigned char *at) {
    StoreHead head;
    uint64_t ask = getNumber(at + 4, 4);
    head.keyBytes = static_cast<uint32_t>(getNumber(at + 8, 4));
    head.valueBytes = static_cast<uint32_t>(getNumber(at + 12, 4));
    head.milliseconds = static_cast<uint32_t>(getNumber(at + 16, 4));
    if (getNumber(at, 4) != magic || ask < 1 || ask > 4 ||
        head.keyBytes > storeMaxKey || head.valueBytes > storeMaxValue)
      return std::nullopt;
    head.ask = static_cast<StoreAsk>(ask);
    return head;
  }
};

/// Heads of answers: StoreSays and the bytes of the value.
inline constexpr size_t storeAnswerHead = 8;

/// What both sides must agree on.
inline std::string storeGreeting(const std::string &job, int ranks) {
  return std::to_string(ranks) + " ranks of job '" + job.substr(0, 200) + "'";
}

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BOOTSTRAP_STOREPROTOCOL_H
