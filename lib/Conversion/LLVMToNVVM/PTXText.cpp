// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "PTXText.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir::moe::detail;
using llvm::StringRef;

bool PTXInstruction::has(StringRef word) const {
  return llvm::is_contained(words, word);
}

bool PTXInstruction::startsWith(StringRef dotted) const {
  llvm::SmallVector<StringRef> parts;
  dotted.split(parts, '.');
  return parts.size() <= words.size() &&
         std::equal(parts.begin(), parts.end(), words.begin(),
                    [](StringRef a, const std::string &b) { return a == b; });
}

std::optional<int64_t> mlir::moe::detail::parsePTXNumber(StringRef text) {
  text.consume_back("U");
  int64_t number = 0;
  if (!text.getAsInteger(0, number))
    return number;
  uint64_t large = 0;
  if (!text.getAsInteger(0, large))
    return int64_t(large);
  return std::nullopt;
}

namespace {
class Parser {
public:
  explicit Parser(StringRef text) : rest(text) {}

  std::optional<std::vector<PTXInstruction>> run() {
    std::vector<PTXInstruction> all;
    for (skip(); !rest.empty(); skip()) {
      // A scope for registers; nothing hides another here.
      if (rest.consume_front("{") || rest.consume_front("}") ||
          rest.consume_front(";"))
        continue;
      PTXInstruction instruction;
      StringRef start = rest;
      if (!parse(instruction)) {
        rest = start;
        return std::nullopt;
      }
      instruction.text =
          start.take_front(start.size() - rest.size()).rtrim("; \t\n").str();
      all.push_back(std::move(instruction));
    }
    return all;
  }

  StringRef rest;

private:
  void skip() { rest = rest.ltrim(); }
  bool take(StringRef token) {
    skip();
    return rest.consume_front(token);
  }
  std::string takeName() {
    skip();
    StringRef name = rest.take_while([](char c) {
      return llvm::isAlnum(c) || llvm::StringRef("$%_.:-").contains(c);
    });
    rest = rest.drop_front(name.size());
    return name.str();
  }

  bool parse(PTXInstruction &instruction) {
    if (take("@")) {
      instruction.isNegated = take("!");
      instruction.predicate = takeName();
      if (instruction.predicate.empty())
        return false;
    }
    std::string opcode = takeName();
    if (opcode.empty())
      return false;
    if (StringRef(opcode).starts_with("."))
      opcode = "." + StringRef(opcode).drop_front().str();
    for (StringRef word : llvm::split(StringRef(opcode).ltrim('.'), '.'))
      instruction.words.push_back(word.str());
    bool isDeclaration = StringRef(opcode).starts_with(".");
    if (isDeclaration) {
      // ".reg .b32 a, b": the type is a word too.
      instruction.words[0] = "." + instruction.words[0];
      instruction.words.push_back(StringRef(takeName()).ltrim('.').str());
    }
    skip();
    if (rest.empty() || take(";"))
      return true;
    do {
      PTXOperand operand;
      if (!parse(operand))
        return false;
      instruction.operands.push_back(std::move(operand));
    } while (take(","));
    skip();
    return rest.empty() || take(";") || rest.starts_with("}");
  }

  bool parse(PTXOperand &operand) {
    if (take("{")) {
      operand.kind = PTXOperand::List;
      do {
        operand.members.push_back(takeName());
        if (operand.members.back().empty())
          return false;
      } while (take(","));
      return take("}");
    }
    if (take("[")) {
      operand.kind = PTXOperand::Address;
      operand.name = takeName();
      if (take("+")) {
        std::optional<int64_t> offset = parsePTXNumber(takeName());
        if (!offset)
          return false;
        operand.offset = *offset;
      }
      return !operand.name.empty() && take("]");
    }
    operand.name = takeName();
    return !operand.name.empty();
  }
};
} // namespace

std::optional<std::vector<PTXInstruction>>
mlir::moe::detail::parsePTX(StringRef text, std::string &rest) {
  Parser parser(text);
  auto all = parser.run();
  rest = parser.rest.split(';').first.trim().str();
  return all;
}
