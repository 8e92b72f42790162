// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "io/Npy.h"

#include "io/AtomicFile.h"
#include "io/MappedFile.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

using namespace moira;
using namespace moira::io;

static constexpr char magic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
/// NumPy itself refuses longer headers unless told otherwise.
static constexpr int64_t longestHeader = 10000;
/// NumPy's own limit.
static constexpr size_t highestRank = 64;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
/// What the header's dictionary says.
struct NpyHeader {
  std::string descr;
  bool fortranOrder = false;
  Shape shape;
};

/// Parses the subset of Python literals that stands in headers: one dictionary
/// with string keys, and strings, booleans and tuples of integers as values.
class HeaderParser {
public:
  explicit HeaderParser(std::string_view text) : text(text) {}

  /// Empty on a malformed header; `problem` then says what is wrong.
  std::optional<NpyHeader> parse();
  std::string problem;

private:
  bool fail(std::string what) {
    if (problem.empty())
      problem = std::move(what);
    return false;
  }
  void skipSpace() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t' ||
                                text[at] == '\n' || text[at] == '\r'))
      ++at;
  }
  bool consume(char c) {
    skipSpace();
    if (at == text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }
  bool expect(char c) {
    return consume(c) || fail(std::string("expected '") + c + "' at byte " +
                              std::to_string(at) + " of the header");
  }
  bool parseString(std::string &value);
  bool parseBool(bool &value);
  bool parseInteger(int64_t &value);
  bool parseShape(Shape &shape);
  bool parseEntry(NpyHeader &header);

  std::string_view text;
  size_t at = 0;
  bool hasDescr = false, hasOrder = false, hasShape = false;
};
} // namespace

bool HeaderParser::parseString(std::string &value) {
  skipSpace();
  char quote = at < text.size() ? text[at] : '\0';
  if (quote != '\'' && quote != '"')
    return fail("expected a string at byte " + std::to_string(at) +
                " of the header");
  size_t end = text.find(quote, at + 1);
  if (end == std::string_view::npos)
    return fail("unterminated string in the header");
  value = text.substr(at + 1, end - at - 1);
  at = end + 1;
  return true;
}

bool HeaderParser::parseBool(bool &value) {
  skipSpace();
  for (bool candidate : {false, true}) {
    std::string_view word = candidate ? "True" : "False";
    if (text.substr(at, word.size()) != word)
      continue;
    value = candidate;
    at += word.size();
    return true;
  }
  return fail("expected True or False for 'fortran_order'");
}

bool HeaderParser::parseInteger(int64_t &value) {
  skipSpace();
  size_t begin = at;
  for (value = 0; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, text[at] - '0', &value))
      return fail("dimension in 'shape' is too large");
  if (at == begin)
    return fail("expected a non-negative integer in 'shape'");
  // Python 2 wrote long integers with a suffix.
  if (at < text.size() && text[at] == 'L')
    ++at;
  return true;
}

bool HeaderParser::parseShape(Shape &shape) {
  if (!expect('('))
    return false;
  while (!consume(')')) {
    int64_t dim;
    if (!parseInteger(dim))
      return false;
    shape.push_back(dim);
    if (shape.size() > highestRank)
      return fail("expected at most " + std::to_string(highestRank) +
                  " dimensions");
    if (consume(','))
      continue;
    if (shape.size() == 1)
      return fail("expected a tuple for 'shape'");
    if (!expect(')'))
      return false;
    break;
  }
  return true;
}

bool HeaderParser::parseEntry(NpyHeader &header) {
  std::string key;
  if (!parseString(key) || !expect(':'))
    return false;
  auto first = [&](bool &seen) {
    return !std::exchange(seen, true) ||
           fail("duplicate key " + quoteName(key));
  };
  if (key == "descr") {
    skipSpace();
    if (at < text.size() && text[at] == '[')
      return fail("expected a plain element type, got a structured one");
    return first(hasDescr) && parseString(header.descr);
  }
  if (key == "fortran_order")
    return first(hasOrder) && parseBool(header.fortranOrder);
  if (key == "shape")
    return first(hasShape) && parseShape(header.shape);
  return fail("unexpected key " + quoteName(key));
}

std::optional<NpyHeader> HeaderParser::parse() {
  NpyHeader header;
  if (!expect('{'))
    return std::nullopt;
  while (!consume('}')) {
    if (!parseEntry(header))
      return std::nullopt;
    if (consume(','))
      continue;
    if (!expect('}'))
      return std::nullopt;
    break;
  }
  skipSpace();
  if (at != text.size())
    fail("unexpected text after the header's dictionary");
  for (auto [seen, key] :
       {std::pair(hasDescr, "descr"), std::pair(hasOrder, "fortran_order"),
        std::pair(hasShape, "shape")})
    if (!seen)
      fail(std::string("expected key '") + key + "' in the header");
  if (!problem.empty())
    return std::nullopt;
  return header;
}

/// The element type that `descr` means, or nothing with `problem` set.
static std::optional<DataType> elementOfDescr(const std::string &descr,
                                              NpyOptions options,
                                              std::string &problem) {
  struct Known {
    const char *code;
    DataType dtype;
  };
  static constexpr Known known[] = {
      {"f4", DataType::F32}, {"f8", DataType::F64}, {"f2", DataType::F16},
      {"b1", DataType::I1},  {"i1", DataType::I8},  {"i4", DataType::I32},
      {"i8", DataType::I64}};
  if (descr == "<V2" || descr == "|V2") {
    if (options.voidAsBf16)
      return DataType::BF16;
    problem = "element type " + quoteName(descr) +
              " has no meaning of its own; ask for bf16 to read it";
    return std::nullopt;
  }
  if (descr.size() == 3)
    for (const Known &entry : known) {
      if (descr.compare(1, 2, entry.code) != 0)
        continue;
      bool oneByte = runtime::byteSize(entry.dtype) == 1;
      if (descr[0] == '<' || (oneByte && descr[0] == '|'))
        return entry.dtype;
      if (descr[0] == '>') {
        problem = "expected little-endian elements, got " + quoteName(descr);
        return std::nullopt;
      }
    }
  problem = "expected element type f2, f4, f8, i1, i4, i8 or b1, got " +
            quoteName(descr);
  return std::nullopt;
}

/// Finds the header's dictionary; on failure `problem` is set.
static std::string_view findDictionary(const uint8_t *data, int64_t size,
                                       std::string &problem) {
  if (size < 6 || std::memcmp(data, magic, sizeof(magic)) != 0) {
    problem = "not an .npy file";
    return {};
  }
  unsigned major = size > 6 ? data[6] : 1;
  if (major < 1 || major > 3) {
    problem = concat("expected .npy format 1, 2 or 3, got ", major);
    return {};
  }
  int64_t begin = major == 1 ? 10 : 12;
  if (size < begin) {
    problem = "truncated .npy header";
    return {};
  }
  int64_t length = data[8] | data[9] << 8;
  if (major > 1)
    length |= int64_t(data[10]) << 16 | int64_t(data[11]) << 24;
  if (length > longestHeader) {
    problem = concat("expected an .npy header of at most ", longestHeader,
                     " bytes, got ", length);
    return {};
  }
  if (size - begin < length) {
    problem = concat("truncated .npy header: expected ", length, " bytes, got ",
                     size - begin);
    return {};
  }
  return {reinterpret_cast<const char *>(data) + begin,
          static_cast<size_t>(length)};
}

Result<MappedTensor> io::parseNpy(const uint8_t *data, int64_t size,
                                  const std::string &where,
                                  NpyOptions options) {
  auto failure = [&](const std::string &what) {
    return Status(MOIRA_DATA_LOSS, where + ": " + what);
  };
  std::string problem;
  std::string_view dictionary = findDictionary(data, size, problem);
  if (!problem.empty())
    return failure(problem);
  HeaderParser parser(dictionary);
  std::optional<NpyHeader> header = parser.parse();
  if (!header)
    return failure(parser.problem);
  std::optional<DataType> dtype =
      elementOfDescr(header->descr, options, problem);
  if (!dtype)
    return failure(problem);
  if (header->fortranOrder)
    return failure("expected C order, got Fortran order");
  std::optional<int64_t> bytes = shapeBytes(header->shape, *dtype);
  if (!bytes)
    return failure(concat("array is too large: ",
                          runtime::toString(*dtype, header->shape)));

  MappedTensor tensor;
  tensor.dtype = *dtype;
  tensor.shape = std::move(header->shape);
  tensor.data =
      reinterpret_cast<const uint8_t *>(dictionary.data()) + dictionary.size();
  tensor.bytes = *bytes;
  int64_t rest = data + size - tensor.data;
  if (rest != tensor.bytes)
    return failure(concat("expected ", tensor.bytes, " bytes of ",
                          runtime::toString(tensor.dtype, tensor.shape),
                          ", got ", rest));
  if (tensor.dtype == DataType::I1 && !isBoolean(tensor.data, tensor.bytes))
    return failure("expected booleans to be 0 or 1");
  return tensor;
}

Result<MappedTensor> io::readNpy(const std::string &path, NpyOptions options) {
  auto file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  auto tensor = parseNpy((*file)->data(), (*file)->size(), path, options);
  if (tensor.ok())
    tensor->file = *file;
  return tensor;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static const char *descrOf(DataType dtype) {
  switch (dtype) {
  case DataType::F32:
    return "<f4";
  case DataType::F64:
    return "<f8";
  case DataType::F16:
    return "<f2";
  case DataType::I1:
    return "|b1";
  case DataType::I8:
    return "|i1";
  case DataType::I32:
    return "<i4";
  case DataType::I64:
    return "<i8";
  default:
    return nullptr;
  }
}

std::string io::npyHeader(DataType dtype, const Shape &shape) {
  std::string dict = "{'descr': '";
  dict += descrOf(dtype);
  dict += "', 'fortran_order': False, 'shape': (";
  for (int64_t dim : shape)
    dict += std::to_string(dim) + ", ";
  if (shape.size() > 1)
    dict.resize(dict.size() - 2);
  else if (shape.size() == 1)
    dict.pop_back();
  dict += "), }";
  // The array starts at a multiple of 64 bytes.
  constexpr size_t prefix = 10;
  size_t length = (prefix + dict.size() + 1 + 63) / 64 * 64 - prefix;
  dict.append(length - dict.size() - 1, ' ');
  dict += '\n';
  std::string header(magic, sizeof(magic));
  header += {'\x01', '\x00', static_cast<char>(length & 0xff),
             static_cast<char>(length >> 8)};
  return header + dict;
}

/// Writes `count` bf16 values as f32.
static Status writeWidened(AtomicFile &file, const uint8_t *data,
                           int64_t count) {
  constexpr int64_t piece = 1 << 16;
  std::vector<uint32_t> buffer(std::min(count, piece));
  while (count != 0) {
    int64_t part = std::min(count, piece);
    for (int64_t i = 0; i < part; ++i)
      buffer[i] = uint32_t(data[2 * i]) << 16 | uint32_t(data[2 * i + 1]) << 24;
    MOIRA_RETURN_IF_ERROR(file.write(buffer.data(), 4 * part));
    data += 2 * part;
    count -= part;
  }
  return Status();
}

Status io::writeNpy(const std::string &path, DataType dtype, const Shape &shape,
                    const void *data) {
  std::optional<int64_t> bytes = shapeBytes(shape, dtype);
  if (!bytes || shape.size() > highestRank)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat(path, ": cannot write ",
                         runtime::toString(dtype, shape), " as .npy"));
  auto file = AtomicFile::create(path);
  if (!file.ok())
    return file.status();
  bool widen = dtype == DataType::BF16;
  std::string header = npyHeader(widen ? DataType::F32 : dtype, shape);
  MOIRA_RETURN_IF_ERROR(file->write(header.data(), header.size()));
  MOIRA_RETURN_IF_ERROR(
      widen
          ? writeWidened(*file, static_cast<const uint8_t *>(data), *bytes / 2)
          : file->write(data, *bytes));
  return file->commit();
}
