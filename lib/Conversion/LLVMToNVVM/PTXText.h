// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The text of inline PTX, cut into instructions.

#ifndef MOIRA_LIB_CONVERSION_LLVMTONVVM_PTXTEXT_H
#define MOIRA_LIB_CONVERSION_LLVMTONVVM_PTXTEXT_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>
#include <vector>

namespace mlir::moe::detail {

struct PTXOperand {
  enum Kind { Name, List, Address } kind = Name;
  std::string name; ///< "$0", "%r1", "0x10"; of an address, its base
  std::vector<std::string> members; ///< of a list
  int64_t offset = 0;               ///< of an address
};

struct PTXInstruction {
  std::string predicate; ///< "" for none
  bool isNegated = false;
  /// "ld", "global", "b32".
  llvm::SmallVector<std::string> words;
  std::vector<PTXOperand> operands;
  std::string text; ///< for messages

  bool has(llvm::StringRef word) const;
  /// Whether the first words are these.
  bool startsWith(llvm::StringRef dotted) const;
};

/// Cuts it. Declarations of registers are instructions whose first word is
/// ".reg". None, and the text that is not understood in `rest`, on failure.
std::optional<std::vector<PTXInstruction>> parsePTX(llvm::StringRef text,
                                                    std::string &rest);

/// An integer as PTX writes it.
std::optional<int64_t> parsePTXNumber(llvm::StringRef text);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_LLVMTONVVM_PTXTEXT_H
