// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reading JSON that nobody vouches for: every value is checked where it is
// read, and the first error ends the reading.

#ifndef MOIRA_RUNTIME_SESSION_MANIFESTREADER_H
#define MOIRA_RUNTIME_SESSION_MANIFESTREADER_H

#include "base/Types.h"

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

namespace moira::runtime {

// Keys stay in the order in which they are written.
using Json = nlohmann::ordered_json;

/// A place in the document, and the first error. After an error every read
/// gives a default.
class Reader {
public:
  Reader(const Json *value, std::string path, Status &error)
      : value(value), path(std::move(path)), error(error) {}

  void fail(const std::string &what) const {
    if (error.ok())
      error = Status(MOIRA_DATA_LOSS, "manifest: " + place() + what);
  }

  /// Says it of this place unless `holds`.
  void require(bool holds, const std::string &what) const {
    if (!holds)
      fail(what);
  }

  Reader at(const char *key) const {
    const Json *member = find(key);
    Reader child(member, path.empty() ? key : path + "." + key, error);
    if (!member)
      child.fail("expected a value, got none");
    return child;
  }
  bool has(const char *key) const { return find(key) != nullptr; }

  std::string text() const {
    if (value && value->is_string())
      return value->get<std::string>();
    mismatch("a string");
    return {};
  }
  /// A string of at least one character.
  std::string word() const {
    std::string result = text();
    if (result.empty())
      fail("expected a string that is not empty");
    return result;
  }
  std::string textOr(const char *key) const {
    return has(key) ? at(key).text() : std::string();
  }
  bool flag() const {
    if (value && value->is_boolean())
      return value->get<bool>();
    mismatch("true or false");
    return false;
  }
  /// An integer of at least `minimum`.
  int64_t integer(int64_t minimum) const {
    if (!value || !value->is_number_integer() ||
        (value->is_number_unsigned() &&
         value->get<uint64_t>() > uint64_t(INT64_MAX))) {
      mismatch("an integer of 64 bits");
      return minimum;
    }
    int64_t number = value->get<int64_t>();
    if (number >= minimum)
      return number;
    fail(concat("expected at least ", minimum, ", got ", number));
    return minimum;
  }
  /// An integer of 32 bits, of at least `minimum`.
  int32_t small(int32_t minimum) const {
    int64_t number = integer(minimum);
    if (number <= INT32_MAX)
      return static_cast<int32_t>(number);
    fail(concat("expected at most ", INT32_MAX, ", got ", number));
    return minimum;
  }
  int64_t integerOr(const char *key, int64_t minimum, int64_t other) const {
    return has(key) ? at(key).integer(minimum) : other;
  }
  DataType dtype() const {
    std::string spelled = text();
    std::optional<DataType> found = parseDataType(spelled);
    if (!found)
      fail("expected an element type (f32, f64, f16, bf16, i1, i8, i32, i64), "
           "got '" +
           printable(spelled) + "'");
    return found.value_or(DataType::F32);
  }
  /// Dims of at least `minimum`, whose product fits.
  Shape shape(DataType dtype, int64_t minimum) const {
    Shape dims;
    for (const Reader &item : items())
      dims.push_back(item.integer(minimum));
    // No program comes near; keeps sums in range.
    constexpr size_t maxRank = 16;
    if (dims.size() > maxRank)
      fail(concat("expected at most ", maxRank, " dims, got ", dims.size()));
    Shape known = dims;
    for (int64_t &dim : known)
      dim = dim < 0 ? 1 : dim;
    if (!compactBytes(dtype, known))
      fail("expected a size in bytes that fits 64 bits, got " + toString(dims));
    return dims;
  }
  /// The elements of an array.
  std::vector<Reader> items() const {
    std::vector<Reader> result;
    if (!value || !value->is_array()) {
      mismatch("an array");
      return result;
    }
    for (size_t i = 0; i < value->size(); ++i)
      result.emplace_back(&(*value)[i], concat(path, "[", i, "]"), error);
    return result;
  }

  /// A foreign string on one line of bounded length.
  static std::string printable(const std::string &text) {
    std::string result;
    for (char c : text.substr(0, 64))
      result += c >= 0x20 && c < 0x7f ? c : '?';
    return text.size() > 64 ? result + "..." : result;
  }

private:
  std::string place() const { return path.empty() ? "" : path + ": "; }

  const Json *find(const char *key) const {
    if (!value)
      return nullptr;
    if (!value->is_object()) {
      mismatch("an object");
      return nullptr;
    }
    auto found = value->find(key);
    return found == value->end() ? nullptr : &*found;
  }
  void mismatch(const char *wanted) const {
    fail(concat("expected ", wanted, ", got ",
                value ? value->type_name() : "none"));
  }

  const Json *value; ///< null where there is none
  std::string path;
  Status &error;
};

/// Finds a name that stands twice in a list.
class Names {
public:
  void add(const Reader &place, const std::string &name) {
    if (!name.empty() && !seen.insert(name).second)
      place.fail("expected a name used once, got '" + Reader::printable(name) +
                 "' again");
  }

private:
  std::unordered_set<std::string> seen;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_MANIFESTREADER_H
