// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Both JSON documents are read as streams of events by handlers that know the
// grammar, so that no tree is built, nesting is bounded and duplicate keys are
// seen.

#include "io/Safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

using namespace moira;
using namespace moira::io;

using Json = nlohmann::json;

/// The format's own limit.
static constexpr int64_t longestHeader = 100'000'000;
static constexpr size_t highestRank = 64;

namespace {
struct TypeInfo {
  const char *name;
  int64_t bits;
  std::optional<DataType> dtype;
};

/// Handler of parser events that accepts nothing; grammars override what they
/// allow. Every callback returns whether to go on.
class EventHandler : public nlohmann::json_sax<Json> {
public:
  /// Empty when the document was accepted.
  std::string problem;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("boolean"); }
  bool number_integer(number_integer_t) override {
    return unexpected("negative number");
  }
  bool number_unsigned(number_unsigned_t) override {
    return unexpected("number");
  }
  bool number_float(number_float_t, const string_t &) override {
    return unexpected("fraction");
  }
  bool string(string_t &) override { return unexpected("string"); }
  bool binary(binary_t &) override { return unexpected("binary"); }
  bool start_object(size_t) override { return unexpected("object"); }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return unexpected("array"); }
  bool end_array() override { return true; }
  bool key(string_t &) override { return unexpected("key"); }
  bool parse_error(size_t position, const std::string &,
                   const Json::exception &) override {
    return malformed(position);
  }
  bool malformed(size_t position) {
    return fail("malformed JSON at byte " + std::to_string(position));
  }

protected:
  bool fail(std::string what) {
    if (problem.empty())
      problem = std::move(what);
    return false;
  }
  virtual bool unexpected(const char *what) {
    return fail(std::string("unexpected ") + what);
  }
};

/// { name: {"dtype": string, "shape": [..], "data_offsets": [b, e]}, ...,
///   "__metadata__": {string: string} }
class HeaderHandler : public EventHandler {
public:
  explicit HeaderHandler(SafetensorsHeader &header) : header(header) {}

  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool key(string_t &key) override;
  bool string(string_t &value) override;
  bool number_unsigned(number_unsigned_t value) override;

private:
  enum class State {
    Start,        // before the document
    Names,        // in the document, between tensors
    TensorStart,  // after a tensor's name
    Fields,       // in a tensor, between fields
    Type,         // after "dtype":
    ShapeStart,   // after "shape":
    Shape,        // in the shape
    OffsetsStart, // after "data_offsets":
    Offsets,      // in the offsets
    MetadataStart,
    Metadata, // in the metadata, between entries
    MetadataValue
  };

  bool unexpected(const char *what) override {
    std::string where;
    if (state == State::MetadataStart || state == State::Metadata ||
        state == State::MetadataValue)
      where = " in the metadata";
    else if (state != State::Start && state != State::Names)
      where = " in tensor " + quoteName(entry.name);
    return fail(std::string("unexpected ") + what + where);
  }
  bool startField(const string_t &key, bool &seen, State next);
  bool finishTensor();

  SafetensorsHeader &header;
  State state = State::Start;
  SafetensorsEntry entry;
  std::vector<int64_t> offsets;
  bool hasType = false, hasShape = false, hasOffsets = false;
  bool hasMetadata = false;
  std::string metadataKey;
};

/// { "weight_map": {name: file}, anything else }
class IndexHandler : public EventHandler {
public:
  using Index = std::map<std::string, std::string, std::less<>>;
  explicit IndexHandler(Index &index) : index(index) {}

  bool hasMap = false;

  bool start_object(size_t) override { return enter(true); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(false); }
  bool end_array() override { return leave(); }
  bool key(string_t &key) override;
  bool string(string_t &value) override;
  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t &) override {
    return scalar();
  }

private:
  /// Index files nest two deep; more room is left for other keys.
  static constexpr int deepest = 16;

  bool enter(bool object);
  bool leave() {
    --depth;
    inMap = false;
    return true;
  }
  bool scalar() {
    if (depth == 0)
      return fail("expected an object");
    if (inMap || atMap)
      return fail("expected file names in 'weight_map'");
    return true;
  }

  Index &index;
  int depth = 0;
  bool atMap = false; // after "weight_map":
  bool inMap = false;
  std::string tensorName;
};
} // namespace

static bool parseEvents(std::string_view text, EventHandler &handler) {
  // The library takes a NUL for the end of the document.
  if (size_t nul = text.find('\0'); nul != std::string_view::npos)
    return handler.malformed(nul);
  return Json::sax_parse(text.begin(), text.end(), &handler);
}

//===----------------------------------------------------------------------===//
// Header grammar
//===----------------------------------------------------------------------===//

static const TypeInfo *findType(std::string_view name) {
  static constexpr TypeInfo types[] = {{"F32", 32, DataType::F32},
                                       {"F64", 64, DataType::F64},
                                       {"F16", 16, DataType::F16},
                                       {"BF16", 16, DataType::BF16},
                                       {"BOOL", 8, DataType::I1},
                                       {"I8", 8, DataType::I8},
                                       {"I32", 32, DataType::I32},
                                       {"I64", 64, DataType::I64},
                                       {"U8", 8, {}},
                                       {"I16", 16, {}},
                                       {"U16", 16, {}},
                                       {"U32", 32, {}},
                                       {"U64", 64, {}},
                                       {"F8_E4M3", 8, {}},
                                       {"F8_E5M2", 8, {}},
                                       {"F8_E8M0", 8, {}},
                                       {"F8_E4M3FNUZ", 8, {}},
                                       {"F8_E5M2FNUZ", 8, {}},
                                       {"F6_E2M3", 6, {}},
                                       {"F6_E3M2", 6, {}},
                                       {"F4", 4, {}},
                                       {"C64", 64, {}}};
  for (const TypeInfo &type : types)
    if (name == type.name)
      return &type;
  return nullptr;
}

bool HeaderHandler::start_object(size_t) {
  switch (state) {
  case State::Start:
    state = State::Names;
    return true;
  case State::TensorStart:
    state = State::Fields;
    return true;
  case State::MetadataStart:
    state = State::Metadata;
    return true;
  default:
    return unexpected("object");
  }
}

bool HeaderHandler::end_object() {
  if (state == State::Fields)
    return finishTensor();
  if (state == State::Metadata)
    state = State::Names;
  return true;
}

bool HeaderHandler::start_array(size_t) {
  if (state == State::ShapeStart)
    state = State::Shape;
  else if (state == State::OffsetsStart)
    state = State::Offsets;
  else
    return unexpected("array");
  return true;
}

bool HeaderHandler::end_array() {
  state = State::Fields;
  return true;
}

bool HeaderHandler::startField(const string_t &key, bool &seen, State next) {
  if (std::exchange(seen, true))
    return fail("tensor " + quoteName(entry.name) + ": duplicate key " +
                quoteName(key));
  state = next;
  return true;
}

bool HeaderHandler::key(string_t &key) {
  if (state == State::Metadata) {
    metadataKey = key;
    state = State::MetadataValue;
    return true;
  }
  if (state == State::Names) {
    if (key == "__metadata__") {
      if (std::exchange(hasMetadata, true))
        return fail("duplicate key '__metadata__'");
      state = State::MetadataStart;
      return true;
    }
    entry = SafetensorsEntry();
    entry.name = key;
    offsets.clear();
    hasType = hasShape = hasOffsets = false;
    state = State::TensorStart;
    return true;
  }
  // Keys occur only inside objects, so that the state is Fields here.
  if (key == "dtype")
    return startField(key, hasType, State::Type);
  if (key == "shape")
    return startField(key, hasShape, State::ShapeStart);
  if (key == "data_offsets")
    return startField(key, hasOffsets, State::OffsetsStart);
  return fail("tensor " + quoteName(entry.name) + ": unexpected key " +
              quoteName(key));
}

bool HeaderHandler::string(string_t &value) {
  if (state == State::Type) {
    entry.type = value;
    state = State::Fields;
    return true;
  }
  if (state == State::MetadataValue) {
    if (!header.metadata.emplace(metadataKey, value).second)
      return fail("duplicate key " + quoteName(metadataKey) +
                  " in the metadata");
    state = State::Metadata;
    return true;
  }
  return unexpected("string");
}

bool HeaderHandler::number_unsigned(number_unsigned_t value) {
  if (state == State::Shape) {
    if (value > uint64_t(INT64_MAX) || entry.shape.size() == highestRank)
      return fail("tensor " + quoteName(entry.name) + ": shape is too large");
    entry.shape.push_back(static_cast<int64_t>(value));
    return true;
  }
  if (state == State::Offsets) {
    if (value > uint64_t(INT64_MAX) || offsets.size() == 2)
      return fail("tensor " + quoteName(entry.name) +
                  ": expected two data_offsets below 2^63");
    offsets.push_back(static_cast<int64_t>(value));
    return true;
  }
  return unexpected("number");
}

bool HeaderHandler::finishTensor() {
  auto failTensor = [&](const std::string &what) {
    return fail("tensor " + quoteName(entry.name) + ": " + what);
  };
  if (!hasType || !hasShape || !hasOffsets)
    return failTensor("expected the keys dtype, shape and data_offsets");
  if (offsets.size() != 2)
    return failTensor("expected two data_offsets, got " +
                      std::to_string(offsets.size()));
  const TypeInfo *type = findType(entry.type);
  if (!type)
    return failTensor("unknown dtype " + quoteName(entry.type));
  entry.dtype = type->dtype;
  std::optional<int64_t> bytes = shapeBytes(entry.shape, type->bits);
  if (!bytes)
    return failTensor("no valid size for " + entry.type +
                      runtime::toString(entry.shape));
  entry.begin = offsets[0];
  entry.end = offsets[1];
  // Both are >= 0, so that the difference does not overflow.
  if (entry.end - entry.begin != *bytes)
    return failTensor(concat("expected ", *bytes, " bytes for ", entry.type,
                             runtime::toString(entry.shape),
                             ", got data_offsets [", entry.begin, ", ",
                             entry.end, "]"));
  header.entries.push_back(std::move(entry));
  state = State::Names;
  return true;
}

//===----------------------------------------------------------------------===//
// Header
//===----------------------------------------------------------------------===//

/// Checks that the tensors fill [0, dataBytes) without overlap or hole; returns
/// what is wrong, or an empty string.
static std::string checkCover(const SafetensorsHeader &header,
                              int64_t dataBytes) {
  std::vector<const SafetensorsEntry *> order;
  order.reserve(header.entries.size());
  for (const SafetensorsEntry &entry : header.entries)
    order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const SafetensorsEntry *a, const SafetensorsEntry *b) {
              return std::tie(a->begin, a->end) < std::tie(b->begin, b->end);
            });
  int64_t next = 0;
  for (const SafetensorsEntry *entry : order) {
    if (entry->begin != next)
      return concat("tensor ", quoteName(entry->name),
                    ": expected data at offset ", next, ", got ", entry->begin);
    if (entry->end > dataBytes)
      return concat("truncated data: tensor ", quoteName(entry->name),
                    " ends at offset ", entry->end, ", got ", dataBytes,
                    " bytes of data");
    next = entry->end;
  }
  if (next != dataBytes)
    return concat("expected ", next, " bytes of data, got ", dataBytes);
  return {};
}

const SafetensorsEntry *SafetensorsHeader::find(std::string_view name) const {
  auto found =
      std::lower_bound(entries.begin(), entries.end(), name,
                       [](const SafetensorsEntry &entry,
                          std::string_view name) { return entry.name < name; });
  return found != entries.end() && found->name == name ? &*found : nullptr;
}

Result<SafetensorsHeader> io::parseSafetensorsHeader(const uint8_t *data,
                                                     int64_t size,
                                                     const std::string &where) {
  auto failure = [&](const std::string &what) {
    return Status(MOIRA_DATA_LOSS, where + ": " + what);
  };
  if (size < 8)
    return failure(concat("not a safetensors file: expected at least 8 bytes, "
                          "got ",
                          size));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | data[i];
  if (length > uint64_t(longestHeader))
    return failure(concat("expected a safetensors header of at most ",
                          longestHeader, " bytes, got ", length));
  if (length > uint64_t(size - 8))
    return failure(concat("truncated safetensors header: expected ", length,
                          " bytes, got ", size - 8));

  SafetensorsHeader header;
  HeaderHandler handler(header);
  std::string_view text(reinterpret_cast<const char *>(data) + 8, length);
  if (!parseEvents(text, handler))
    return failure("safetensors header: " + handler.problem);

  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry &a, const SafetensorsEntry &b) {
              return a.name < b.name;
            });
  auto twin = std::adjacent_find(
      header.entries.begin(), header.entries.end(),
      [](const SafetensorsEntry &a, const SafetensorsEntry &b) {
        return a.name == b.name;
      });
  if (twin != header.entries.end())
    return failure("duplicate tensor " + quoteName(twin->name));
  header.dataOffset = 8 + static_cast<int64_t>(length);
  std::string problem = checkCover(header, size - header.dataOffset);
  if (!problem.empty())
    return failure(problem);
  return header;
}

//===----------------------------------------------------------------------===//
// Index
//===----------------------------------------------------------------------===//

bool IndexHandler::enter(bool object) {
  if (inMap || (atMap && !object) || (depth == 0 && !object))
    return unexpected(object ? "object" : "array");
  if (++depth > deepest)
    return fail("expected at most " + std::to_string(deepest) +
                " levels of nesting");
  inMap = std::exchange(atMap, false);
  return true;
}

bool IndexHandler::key(string_t &key) {
  if (inMap) {
    tensorName = key;
  } else if (depth == 1 && key == "weight_map") {
    if (std::exchange(hasMap, true))
      return fail("duplicate key 'weight_map'");
    atMap = true;
  }
  return true;
}

bool IndexHandler::string(string_t &value) {
  if (!inMap)
    return scalar();
  if (value.empty() || value == "." || value == ".." ||
      value.find('/') != std::string::npos ||
      value.find('\0') != std::string::npos)
    return fail("tensor " + quoteName(tensorName) +
                ": expected a file name without directories, got " +
                quoteName(value));
  if (!index.emplace(tensorName, value).second)
    return fail("duplicate tensor " + quoteName(tensorName));
  return true;
}

Result<std::map<std::string, std::string, std::less<>>>
io::parseSafetensorsIndex(std::string_view text, const std::string &where) {
  auto failure = [&](const std::string &what) {
    return Status(MOIRA_DATA_LOSS, where + ": " + what);
  };
  if (text.size() > size_t(longestHeader))
    return failure(concat("expected an index of at most ", longestHeader,
                          " bytes, got ", text.size()));
  IndexHandler::Index index;
  IndexHandler handler(index);
  if (!parseEvents(text, handler))
    return failure("safetensors index: " + handler.problem);
  if (!handler.hasMap)
    return failure("safetensors index: expected key 'weight_map'");
  return index;
}
