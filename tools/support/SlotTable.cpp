// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/SlotTable.h"

#include "base/Random.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// The placement that all layers have.
static llvm::Expected<LayerPlacement> commonPlacement(const EntrySpec &entry) {
  const LayerPlacement *common = nullptr;
  for (const LayerSpec &layer : entry.layers) {
    if (!layer.placement)
      continue;
    const LayerPlacement &own = *layer.placement;
    if (common &&
        (own.units() != common->units() || own.slots != common->slots))
      return llvm::createStringError(
          "--slot-table: expected layers with as many experts and slots, got " +
          llvm::Twine(common->units()) + " units in " +
          llvm::Twine(common->slots) + " slots and " +
          llvm::Twine(own.units()) + " in " + llvm::Twine(own.slots));
    common = &own;
  }
  if (!common)
    return llvm::createStringError(
        "--slot-table: expected a program for several ranks, got one for one");
  return *common;
}

static llvm::Error checkUnits(llvm::StringRef path, int64_t units,
                              llvm::ArrayRef<int32_t> table) {
  std::vector<bool> stands(units);
  for (int32_t unit : table)
    if (unit >= 0)
      stands[unit] = true;
  auto missing = llvm::find(stands, false);
  if (missing == stands.end())
    return llvm::Error::success();
  return llvm::createStringError(
      path + ": expected a slot for each of " + llvm::Twine(units) +
      " units, got none for unit " +
      llvm::Twine(std::distance(stands.begin(), missing)));
}

static llvm::Expected<std::vector<int32_t>>
readTable(llvm::StringRef path, int ranks, const LayerPlacement &placement) {
  auto file = llvm::MemoryBuffer::getFile(path);
  if (std::error_code error = file.getError())
    return llvm::createStringError(error, path +
                                              ": expected a readable file, "
                                              "got '" +
                                              error.message() + "'");
  llvm::Expected<llvm::json::Value> json =
      llvm::json::parse((*file)->getBuffer());
  if (!json) {
    llvm::consumeError(json.takeError());
    return llvm::createStringError(path + ": expected JSON, got other text");
  }
  const llvm::json::Array *lists = json->getAsArray();
  if (!lists || int64_t(lists->size()) != ranks)
    return llvm::createStringError(
        path + ": expected a list of " + llvm::Twine(ranks) +
        " lists, one for each rank, got " +
        (lists ? llvm::Twine(lists->size()) : llvm::Twine("another value")));
  std::vector<int32_t> table;
  for (auto [rank, value] : llvm::enumerate(*lists)) {
    const llvm::json::Array *slots = value.getAsArray();
    if (!slots || int64_t(slots->size()) != placement.slots)
      return llvm::createStringError(
          path + ": rank " + llvm::Twine(rank) + ": expected a list of " +
          llvm::Twine(placement.slots) + " units, got " +
          (slots ? llvm::Twine(slots->size()) : llvm::Twine("another value")));
    for (const llvm::json::Value &slot : *slots) {
      std::optional<int64_t> unit = slot.getAsInteger();
      if (!unit || *unit < -1 || *unit >= placement.units())
        return llvm::createStringError(path + ": rank " + llvm::Twine(rank) +
                                       ": expected units from -1 to " +
                                       llvm::Twine(placement.units() - 1) +
                                       ", got another value");
      table.push_back(*unit);
    }
  }
  if (llvm::Error error = checkUnits(path, placement.units(), table))
    return error;
  return table;
}

/// All places in a random order, the same on every machine.
static std::vector<int32_t> permute(uint64_t seed, int ranks,
                                    const LayerPlacement &placement) {
  std::vector<int32_t> table;
  int64_t places = int64_t(ranks) * placement.slots;
  for (int64_t i = 0; i < places; ++i)
    table.push_back(i < placement.units() ? i : -1);
  PhiloxKey key = streamKey(seed, "slot table");
  for (int64_t i = places - 1; i > 0; --i) {
    PhiloxCounter words = philox({uint32_t(i), uint32_t(i >> 32), 0, 0}, key);
    uint64_t number = uint64_t(words[1]) << 32 | words[0];
    std::swap(table[i], table[number % (i + 1)]);
  }
  return table;
}

llvm::Expected<std::vector<int32_t>>
tools::makeSlotTable(llvm::StringRef text, const EntrySpec &entry) {
  if (text.empty())
    return std::vector<int32_t>();
  llvm::Expected<LayerPlacement> placement = commonPlacement(entry);
  if (!placement)
    return placement.takeError();
  uint64_t seed;
  llvm::StringRef number = text;
  if (number.consume_front("permuted:") && !number.getAsInteger(10, seed))
    return permute(seed, entry.ranks, *placement);
  return readTable(text, entry.ranks, *placement);
}
