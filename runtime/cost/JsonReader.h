// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reading our own JSON files as if nobody vouched for them: every value is
// checked where it is read, and the first fault ends the reading.

#ifndef MOIRA_RUNTIME_COST_JSONREADER_H
#define MOIRA_RUNTIME_COST_JSONREADER_H

#include "base/Status.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moira::runtime {

// Keys stay in the order in which they are written.
using OrderedJson = nlohmann::ordered_json;

/// A place in a document. After a fault every read gives a default.
class JsonReader {
public:
  JsonReader(const OrderedJson *value, std::string path, Status &status)
      : value(value), path(std::move(path)), status(status) {}

  bool ok() const { return status.ok(); }
  void fail(const std::string &what) const {
    if (status.ok())
      status = Status(MOIRA_DATA_LOSS, path + ": " + what);
  }
  void require(bool holds, const std::string &what) const {
    if (!holds)
      fail(what);
  }

  JsonReader at(const std::string &key) const {
    const OrderedJson *member = nullptr;
    if (value && !value->is_object())
      mismatch("an object");
    else if (value && value->contains(key))
      member = &value->at(key);
    JsonReader child(member, path + "." + key, status);
    if (!member)
      child.fail("expected a value, got none");
    return child;
  }
  std::vector<JsonReader> items() const {
    std::vector<JsonReader> result;
    if (!value || !value->is_array()) {
      mismatch("an array");
      return result;
    }
    for (size_t i = 0; i < value->size(); ++i)
      result.emplace_back(&(*value)[i], concat(path, "[", i, "]"), status);
    return result;
  }

  /// A finite number of at least `minimum`.
  double number(double minimum) const {
    if (!value || !value->is_number()) {
      mismatch("a number");
      return minimum;
    }
    double got = value->get<double>();
    if (!std::isfinite(got) || got < minimum) {
      fail(concat("expected a number of at least ", minimum, ", got ", got));
      return minimum;
    }
    return got;
  }
  /// An integer of [minimum, 2^53].
  int64_t integer(int64_t minimum) const {
    if (!value || !value->is_number_integer()) {
      mismatch("an integer");
      return minimum;
    }
    double got = value->get<double>();
    if (got < double(minimum) || got > 0x1p53) {
      fail(concat("expected an integer of at least ", minimum, ", got ",
                  value->dump()));
      return minimum;
    }
    return value->get<int64_t>();
  }
  bool flag() const {
    if (value && value->is_boolean())
      return value->get<bool>();
    mismatch("true or false");
    return false;
  }
  bool has(const char *key) const {
    return value && value->is_object() && value->contains(key);
  }
  std::string text() const {
    if (value && value->is_string())
      return value->get<std::string>();
    mismatch("a string");
    return {};
  }

  /// The value itself, as JSON.
  std::string dump() const { return value ? value->dump() : "null"; }

private:
  void mismatch(const char *wanted) const {
    fail(concat("expected ", wanted, ", got ",
                value ? value->type_name() : "none"));
  }

  const OrderedJson *value; ///< null where there is none
  std::string path;
  Status &status;
};

/// A file with `format` and `version` at its top.
class JsonDocument {
public:
  JsonDocument(const std::string &text, const std::string &name,
               const std::string &format, int64_t version)
      : name(name) {
    try {
      json = OrderedJson::parse(text);
    } catch (const OrderedJson::exception &) {
      failure = Status(MOIRA_DATA_LOSS, name + ": expected JSON");
      return;
    }
    JsonReader top = root();
    std::string got = top.at("format").text();
    if (ok() && got != format)
      failure = Status(MOIRA_DATA_LOSS, concat(name, ": expected the format ",
                                               format, ", got another"));
    int64_t number = top.at("version").integer(0);
    if (ok() && number != version)
      failure = Status(MOIRA_VERSION, concat(name, ": expected version ",
                                             version, ", got ", number));
  }

  JsonReader root() { return JsonReader(&json, name, failure); }
  bool ok() const { return failure.ok(); }
  const Status &status() const { return failure; }

private:
  std::string name;
  OrderedJson json;
  Status failure;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_JSONREADER_H
