// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Cases.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace moira;
using namespace moira::tools;
using nlohmann::json;

static MadeInput readInput(const json &object) {
  MadeInput input;
  std::string dtype = object.at("dtype");
  std::optional<runtime::DataType> parsed = runtime::parseDataType(dtype);
  if (!parsed)
    throw std::invalid_argument("the element type '" + dtype + "'");
  input.dtype = *parsed;
  input.shape = object.at("shape").get<runtime::Shape>();
  input.fill = object.at("fill");
  input.bound = object.value("bound", 1.0);
  input.value = object.value("value", int64_t(0));
  return input;
}

static Cases parse(const json &root, const std::string &folder) {
  auto path = [&](const json &object, const char *key) {
    return folder + "/" + object.at(key).get<std::string>();
  };
  Cases cases;
  for (const json &object : root.at("conformance")) {
    ConformanceCase made;
    made.name = object.at("name");
    made.bundle = path(object, "bundle");
    made.arch = object.at("arch");
    made.inputs = path(object, "inputs");
    made.expected = path(object, "expected");
    made.exact = object.at("exact");
    made.backward = object.at("backward");
    made.small = object.at("small");
    cases.conformance.push_back(std::move(made));
  }
  for (const json &object : root.at("measured")) {
    MeasuredCase made;
    made.name = object.at("name");
    made.bundle = path(object, "bundle");
    for (const json &input : object.at("inputs"))
      made.inputs.push_back(readInput(input));
    made.flops = object.at("flops");
    made.bytes = object.at("bytes");
    cases.measured.push_back(std::move(made));
  }
  return cases;
}

Result<Cases> tools::readCases(const std::string &folder) {
  std::string path = folder + "/cases.json";
  std::ifstream file(path);
  if (!file)
    return Status(MOIRA_NOT_FOUND,
                  path + ": expected a file that scripts/gpu-check has "
                         "written, got none");
  std::stringstream text;
  text << file.rdbuf();
  try {
    return parse(json::parse(text.str()), folder);
  } catch (const std::exception &error) {
    return Status(MOIRA_DATA_LOSS,
                  path + ": expected the cases of scripts/gpu-check, got " +
                      error.what());
  }
}
