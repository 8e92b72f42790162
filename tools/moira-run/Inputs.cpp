// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Inputs.h"

#include "base/Convert.h"
#include "base/Random.h"
#include "io/Npy.h"
#include "io/Safetensors.h"
#include "support/CommandLine.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

#include <cmath>
#include <cstring>
#include <numeric>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// Tokens of a run that says nothing else.
static constexpr int64_t defaultTokens = 256;

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// Opens "FILE.npy", "FILE.safetensors" or "FILE.safetensors:TENSOR". Without a
/// tensor's name, the file's only tensor or the one called like the input.
static Result<io::MappedTensor> openTensor(llvm::StringRef value,
                                           const TensorSpec &spec) {
  if (value.ends_with(".npy")) {
    io::NpyOptions options;
    options.voidAsBf16 = spec.dtype == DataType::BF16;
    return io::readNpy(value.str(), options);
  }
  llvm::StringRef path = value, tensor;
  size_t place = value.rfind(".safetensors:");
  if (place != llvm::StringRef::npos) {
    size_t colon = value.find(':', place);
    path = value.take_front(colon);
    tensor = value.drop_front(colon + 1);
  } else if (!value.ends_with(".safetensors")) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat(value.str(), ": expected a file name that ends in "
                                      ".npy, .safetensors or "
                                      ".safetensors:TENSOR, got another"));
  }
  auto file = io::Safetensors::open(path.str());
  if (!file.ok())
    return file.status();
  std::string name = tensor.str();
  if (name.empty()) {
    std::vector<std::string> names = (*file)->names();
    name = names.size() == 1 ? names[0] : spec.name;
  }
  return (*file)->tensor(name);
}

/// Checks what a file holds against the entry's signature. Floats of other
/// widths are converted.
static llvm::Error checkFile(const io::MappedTensor &found,
                             const TensorSpec &spec, llvm::StringRef value) {
  bool fits = isConvertible(found.dtype, spec.dtype) &&
              found.shape.size() == spec.shape.size();
  for (size_t i = 0; fits && i < found.shape.size(); ++i)
    fits = spec.shape[i] == -1 || spec.shape[i] == found.shape[i];
  if (fits)
    return llvm::Error::success();
  return llvm::createStringError(value + ": input '" + spec.name +
                                 "': expected " +
                                 toString(spec.dtype, spec.shape) + ", got " +
                                 toString(found.dtype, found.shape));
}

llvm::Error Inputs::give(Entry &entry, llvm::StringRef value) {
  entry.origin = value.str();
  double number = 0;
  if (entry.spec.shape.empty() && llvm::to_float(value, number)) {
    entry.number = number;
    return llvm::Error::success();
  }
  Result<io::MappedTensor> tensor = openTensor(value, entry.spec);
  if (!tensor.ok())
    return toError(tensor.status());
  if (llvm::Error error = checkFile(*tensor, entry.spec, value))
    return error;
  entry.mapped = std::move(*tensor);
  return llvm::Error::success();
}

/// Gives each --input to the entry's input that it names, or to the next one.
llvm::Error Inputs::assign(const RunOptions &options) {
  std::vector<bool> given(entries.size());
  size_t next = 0;
  for (llvm::StringRef text : options.inputs) {
    auto [name, value] = text.split('=');
    auto byName = llvm::find_if(entries, [&, name = name](const Entry &entry) {
      return entry.spec.name == name;
    });
    size_t index = byName - entries.begin();
    if (!text.contains('=')) {
      index = next++;
      value = text;
    }
    if (index >= entries.size()) {
      std::string known;
      for (const Entry &entry : entries)
        known += (known.empty() ? "'" : ", '") + entry.spec.name + "'";
      return llvm::createStringError(
          "--input: expected one of the inputs " +
          (known.empty() ? "(the entry has none)" : known) + ", got '" + text +
          "'");
    }
    if (given[index])
      return llvm::createStringError("--input: expected input '" +
                                     entries[index].spec.name +
                                     "' once, got '" + text + "' too");
    given[index] = true;
    if (llvm::Error error = give(entries[index], value))
      return error;
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

bool tools::hasTokens(const TensorSpec &spec) {
  return !spec.shape.empty() && spec.shape[0] == -1;
}

/// Tokens of a batch: given, or those of the first file that has some. Files
/// first, because the tokens of one are the tokens of all.
static int64_t countTokens(const RunOptions &options,
                           std::optional<int64_t> ofFile) {
  const std::vector<int64_t> &list = options.grid.tokens;
  if (!list.empty())
    return std::accumulate(list.begin(), list.end(), int64_t(0));
  return options.tokens ? *options.tokens : ofFile.value_or(defaultTokens);
}

llvm::Expected<Inputs> Inputs::plan(const EntrySpec &entry,
                                    const RunOptions &options) {
  Inputs inputs;
  inputs.seed = options.seed;
  inputs.account = std::make_shared<MemoryAccount>();
  for (const TensorSpec &spec : entry.inputs) {
    inputs.entries.emplace_back();
    inputs.entries.back().spec = spec;
  }
  if (llvm::Error error = inputs.assign(options))
    return error;

  std::optional<int64_t> ofFile;
  for (Entry &entry : inputs.entries)
    for (size_t i = 0; entry.mapped && i < entry.spec.shape.size(); ++i)
      if (entry.spec.shape[i] == -1 && !ofFile)
        ofFile = entry.mapped->shape[i];
  int64_t tokens = countTokens(options, ofFile);
  for (Entry &entry : inputs.entries) {
    Shape shape = entry.mapped ? entry.mapped->shape : entry.spec.shape;
    for (int64_t &size : shape)
      size = size == -1 ? tokens : size;
    if (!compactBytes(entry.spec.dtype, shape))
      return llvm::createStringError("input '" + entry.spec.name +
                                     "': expected a size that fits 64 bits, "
                                     "got " +
                                     toString(entry.spec.dtype, shape));
    inputs.tensors.push_back({entry.spec.dtype, shape, nullptr});
    if (shape.empty() && !entry.mapped && !entry.number) {
      entry.number = 1;
      entry.origin = "1";
    }
  }
  if (llvm::Error error = inputs.planSplit(options, entry.ranks))
    return error;
  return inputs;
}

void Inputs::splitEvenly(int64_t all, int64_t ranks) {
  split.clear();
  int64_t begin = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t count = all / ranks + (rank < all % ranks ? 1 : 0);
    split.push_back({begin, count});
    begin += count;
  }
}

/// Gives each rank its rows: those of --tokens=5,0,7,3, else an even share.
llvm::Error Inputs::planSplit(const RunOptions &options, int ranks) {
  const std::vector<int64_t> &list = options.grid.tokens;
  if (!list.empty() && int64_t(list.size()) != ranks)
    return llvm::createStringError("--tokens: expected " + llvm::Twine(ranks) +
                                   " numbers, one for each rank, got " +
                                   llvm::Twine(list.size()));
  int64_t all = 0;
  for (size_t i = entries.size(); i-- > 0;)
    if (hasTokens(entries[i].spec))
      all = tensors[i].shape[0];
  splitEvenly(all, ranks);
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!list.empty())
      split[rank] = {begin, list[rank]};
    begin += split[rank].count;
  }
  for (size_t i = 0; ranks > 1 && i < entries.size(); ++i)
    if (hasTokens(entries[i].spec) && tensors[i].shape[0] != begin)
      return llvm::createStringError("input '" + entries[i].spec.name +
                                     "': expected " + llvm::Twine(begin) +
                                     " tokens, those of all ranks, got " +
                                     llvm::Twine(tensors[i].shape[0]));
  return llvm::Error::success();
}

std::vector<int64_t> Inputs::tokensByRank() const {
  std::vector<int64_t> tokens;
  for (const Rows &rows : split)
    tokens.push_back(rows.count);
  return tokens;
}

int64_t Inputs::rows() const {
  return tensors.empty() || tensors[0].shape.empty() ? 0 : tensors[0].shape[0];
}

int64_t Inputs::bytes() const {
  int64_t all = 0;
  for (const TensorView &view : tensors)
    all += *compactBytes(view.dtype, view.shape);
  return all;
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

/// Writes a number as an element.
static void storeNumber(DataType dtype, double number, void *target) {
  if (isFloat(dtype)) {
    convert(DataType::F64, &number, dtype, target, 1);
    return;
  }
  auto integer = static_cast<int64_t>(number);
  std::memcpy(target, &integer, byteSize(dtype)); // little-endian
}

Rows Inputs::madeOf(const Entry &entry, const TensorView &view) const {
  if (!hasTokens(entry.spec))
    return {0, 1};
  return split.size() == 1 ? Rows{0, view.shape[0]} : made;
}

/// Bytes of a token in a tensor that has tokens, else of all of it.
static int64_t rowBytes(const TensorSpec &spec, const TensorView &view) {
  Shape row = view.shape;
  if (hasTokens(spec))
    row[0] = 1;
  return *compactBytes(view.dtype, row);
}

llvm::Error Inputs::fillOne(Entry &entry, const TensorView &view) {
  Rows part = madeOf(entry, view);
  int64_t rowSize = rowBytes(entry.spec, view);
  int64_t rowCount = rowSize / byteSize(view.dtype);
  int64_t count = part.count * rowCount, first = part.begin * rowCount;
  const char *mapped = nullptr;
  if (entry.mapped)
    mapped = reinterpret_cast<const char *>(entry.mapped->data) +
             first * byteSize(entry.mapped->dtype);
  if (mapped && entry.mapped->dtype == view.dtype &&
      reinterpret_cast<uintptr_t>(mapped) % byteSize(view.dtype) == 0) {
    entry.data = mapped;
    return llvm::Error::success();
  }
  Result<Storage> storage = Storage::allocate(account, MemoryKind::Workspace,
                                              count * byteSize(view.dtype));
  if (!storage.ok())
    return toError(
        storage.status().within(concat("input '", entry.spec.name, "'")));
  entry.storage = std::move(*storage);
  void *data = entry.storage.data();
  if (mapped)
    convert(entry.mapped->dtype, mapped, view.dtype, data, count);
  else if (entry.number)
    storeNumber(view.dtype, *entry.number, data);
  else if (view.dtype == DataType::I1)
    std::memset(data, 1, count); // a mask that keeps every token
  else                           // variance 1
    fillUniform(view.dtype, data, first, count,
                streamKey(seed, "input " + entry.spec.name), std::sqrt(3.0));
  entry.data = data;
  return llvm::Error::success();
}

llvm::Error Inputs::fill(Rows part) {
  made = part;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (llvm::Error error = fillOne(entries[i], tensors[i]))
      return error;
    bool all = !hasTokens(entries[i].spec) || split.size() == 1 ||
               made.count == tokens();
    tensors[i].data = all ? entries[i].data : nullptr;
  }
  return llvm::Error::success();
}

std::vector<TensorView> Inputs::viewsOf(int rank) const {
  std::vector<TensorView> views = tensors;
  if (split.size() == 1)
    return views;
  for (size_t i = 0; i < views.size(); ++i) {
    if (!hasTokens(entries[i].spec))
      continue;
    views[i].shape[0] = split[rank].count;
    if (auto *data = static_cast<const char *>(entries[i].data))
      views[i].data = data + (split[rank].begin - made.begin) *
                                 rowBytes(entries[i].spec, views[i]);
  }
  return views;
}

//===----------------------------------------------------------------------===//
// Steps that differ
//===----------------------------------------------------------------------===//

void Inputs::resize(int64_t count) {
  splitEvenly(count, int64_t(split.size()));
  for (size_t i = 0; i < entries.size(); ++i)
    if (hasTokens(entries[i].spec))
      tensors[i].shape[0] = count;
}

std::optional<size_t> Inputs::findNumber(llvm::StringRef name) const {
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].spec.name == name && entries[i].number)
      return i;
  return std::nullopt;
}

void Inputs::setNumber(size_t index, double number) {
  entries[index].number = number;
  storeNumber(tensors[index].dtype, number, entries[index].storage.data());
}

void Inputs::setData(size_t index, const void *data, llvm::StringRef origin) {
  entries[index].origin = origin.str();
  entries[index].data = data;
  tensors[index].data = data;
}
