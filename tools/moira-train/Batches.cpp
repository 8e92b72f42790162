// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Batches.h"

#include "io/MappedFile.h"
#include "io/Npy.h"
#include "support/CommandLine.h"

#include "llvm/Support/MemoryBuffer.h"

#include <cstring>

using namespace moira;
using namespace moira::tools;

/// The finalizer of SplitMix64.
static uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

int64_t tools::windowOf(uint64_t seed, uint64_t number, int64_t size,
                        int64_t length) {
  uint64_t places = size - length;
  return static_cast<int64_t>(mix(mix(seed) + number * 0x9E3779B97F4A7C15) %
                              places);
}

llvm::Expected<Batches> Batches::open(const TrainOptions &options,
                                      int64_t length) {
  Batches batches;
  batches.length = length;
  batches.seed = options.seed;
  if (!options.batches.empty()) {
    Result<io::MappedTensor> rows = io::readNpy(options.batches);
    if (!rows.ok())
      return toError(rows.status());
    if (rows->dtype != io::DataType::I32 || rows->shape.size() != 2 ||
        rows->shape[1] != length + 1)
      return llvm::createStringError(
          options.batches + ": expected " +
          toString(io::DataType::I32, {-1, length + 1}) + ", got " +
          toString(rows->dtype, rows->shape));
    batches.rows = std::move(*rows);
    return batches;
  }
  for (const std::string &path : options.text) {
    auto file = llvm::MemoryBuffer::getFile(path);
    if (std::error_code error = file.getError())
      return llvm::createStringError(
          error,
          path + ": expected a readable file, got '" + error.message() + "'");
    batches.text += (*file)->getBuffer();
  }
  auto size = static_cast<int64_t>(batches.text.size());
  double share = options.evalEvery > 0 ? options.evalShare : 0;
  batches.trained =
      size - static_cast<int64_t>(share * static_cast<double>(size));
  if (batches.trained <= length)
    return llvm::createStringError(
        "--text: expected more than " + llvm::Twine(length) +
        " bytes to train on, got " + llvm::Twine(batches.trained));
  if (options.evalEvery > 0 && batches.evaluations() < 1)
    return llvm::createStringError(
        "--eval-share: expected more than " + llvm::Twine(length) +
        " bytes to evaluate, got " + llvm::Twine(size - batches.trained));
  return batches;
}

/// Copies `length + 1` tokens from `read` into row `row`.
template <typename Read>
static void fillRow(Batch &batch, int64_t row, const Read &read) {
  for (int64_t i = 0; i < batch.length; ++i) {
    batch.tokens[row * batch.length + i] = read(i);
    batch.targets[row * batch.length + i] = read(i + 1);
  }
}

static Batch makeBatch(int64_t sequences, int64_t length) {
  Batch batch{sequences, length, {}, {}};
  batch.tokens.resize(sequences * length);
  batch.targets.resize(sequences * length);
  return batch;
}

llvm::Expected<Batch> Batches::train(int64_t first, int64_t count) const {
  Batch batch = makeBatch(count, length);
  if (rows && (first > rows->shape[0] || count > rows->shape[0] - first))
    return llvm::createStringError(rows->file->path() + ": expected at least " +
                                   llvm::Twine(first + count) + " rows, got " +
                                   llvm::Twine(rows->shape[0]));
  for (int64_t row = 0; row < count; ++row) {
    int64_t number = first + row;
    if (rows) {
      const uint8_t *data = rows->data + number * (length + 1) * 4;
      fillRow(batch, row, [&](int64_t i) {
        int32_t value;
        std::memcpy(&value, data + i * 4, 4);
        return value;
      });
      continue;
    }
    int64_t begin = windowOf(seed, number, trained, length);
    fillRow(batch, row, [&](int64_t i) {
      return static_cast<unsigned char>(text[begin + i]);
    });
  }
  return batch;
}

Batch Batches::evaluate(int64_t first, int64_t count) const {
  Batch batch = makeBatch(count, length);
  for (int64_t row = 0; row < count; ++row)
    fillRow(batch, row, [&](int64_t i) {
      return static_cast<unsigned char>(
          text[trained + (first + row) * length + i]);
    });
  return batch;
}
