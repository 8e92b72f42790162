// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/JIT/Variants.h"

#include "llvm/ADT/StringExtras.h"

using namespace moira;

static llvm::Error expected(const llvm::Twine &what, llvm::StringRef got) {
  return llvm::createStringError("--variants: expected " + what + ", got '" +
                                 got + "'");
}

/// Reads the items of `key`, each once.
template <typename List, typename Read>
static llvm::Error readList(llvm::StringRef key, llvm::StringRef text,
                            const llvm::Twine &what, List &list, Read read) {
  list.clear();
  for (llvm::StringRef item : llvm::split(text, ',')) {
    auto value = read(item);
    if (!value)
      return expected(key + "=" + what, text);
    if (llvm::is_contained(list, *value))
      return expected("each value of " + key + " once", text);
    list.push_back(*value);
  }
  return llvm::Error::success();
}

static std::optional<int64_t> readCopies(llvm::StringRef text) {
  int64_t number;
  if (text.getAsInteger(10, number) || number < 0 || number > 65536)
    return std::nullopt;
  return number;
}

llvm::Error moira::parseVariants(llvm::StringRef text, VariantOptions &variants,
                                 PipelineOptions &pipeline) {
  llvm::SmallVector<llvm::StringRef> words, seen;
  llvm::SplitString(text, words);
  for (llvm::StringRef word : words) {
    auto [key, value] = word.split('=');
    if (llvm::is_contained(seen, key))
      return expected("each key once", text);
    seen.push_back(key);
    llvm::Error error = llvm::Error::success();
    if (key == "r" && value == "auto")
      variants.copies.clear();
    else if (key == "r")
      error =
          readList(key, value, "auto or numbers", variants.copies, readCopies);
    else if (key == "schedule")
      error = readList(key, value, "equal or groups", variants.schedules,
                       [](llvm::StringRef name) {
                         return mlir::moe::symbolizeSchedule(name);
                       });
    else if (key == "rows")
      error = readList(key, value, "decode or prefill", pipeline.rowClasses,
                       [](llvm::StringRef name) {
                         return mlir::moe::symbolizeRowClass(name);
                       });
    else
      error = expected("r=, schedule= or rows=", word);
    if (error)
      return error;
  }
  return llvm::Error::success();
}
