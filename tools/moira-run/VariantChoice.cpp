// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "VariantChoice.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

static std::string listVariants(const EntrySpec &entry) {
  std::string known;
  for (const VariantSpec &variant : entry.variants)
    known += (known.empty() ? "'" : ", '") + variant.name + "'";
  return known;
}

/// Whether a variant has the r and the schedule that were asked for.
static bool matches(const VariantSpec &variant, const RankOptions &options) {
  llvm::StringRef schedule = mlir::moe::stringifySchedule(options.schedule);
  if (options.givesCopies && variant.copies != options.copies)
    return false;
  // Where no rows travel nothing is cut.
  return !options.givesSchedule || variant.copies == 0 ||
         variant.schedule == schedule;
}

llvm::Expected<std::string> tools::chooseVariant(const EntrySpec &entry,
                                                 const RunOptions &options,
                                                 int64_t rows) {
  if (!options.variant.empty())
    return options.variant;
  bool isChoice = options.isBundle || options.variants;
  if (!isChoice || (!options.grid.givesCopies && !options.grid.givesSchedule))
    return std::string();
  EntrySpec matching;
  for (const VariantSpec &variant : entry.variants)
    if (matches(variant, options.grid))
      matching.variants.push_back(variant);
  if (!matching.variants.empty())
    return matching.variants[matching.variantForRows(rows)].name;
  std::string wanted;
  if (options.grid.givesCopies)
    wanted = concat("r = ", options.grid.copies);
  if (options.grid.givesSchedule)
    wanted += concat(wanted.empty() ? "" : ", ", "schedule ",
                     mlir::moe::stringifySchedule(options.grid.schedule).str());
  return llvm::createStringError(options.program +
                                 ": expected one of the variants " +
                                 listVariants(entry) + ", got " + wanted);
}
