// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StepOptions.h"

#include "support/CommandLine.h"

#include "cost/LoadTrace.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

#include <cmath>

using namespace moira;
using namespace moira::tools;
namespace cl = llvm::cl;

StepCommandLine::StepCommandLine(cl::OptionCategory &category)
    : steps("steps", cl::value_desc("number"), cl::cat(category),
            cl::desc("Run so many steps, with a line for each")),
      loads("loads", cl::value_desc("name[:seed]|file[:steps]"),
            cl::cat(category),
            cl::desc("Choose experts in each of the --steps by a trace instead "
                     "of the gates' own choice: uniform, zipf:S, 4-of-16, "
                     "10-of-64, one-hot, one-device, rotating-hot, training, "
                     "spiky-training; or a .npy file [steps, layers, experts] "
                     "or [steps, ranks, layers, experts], each of whose steps "
                     "stands for so many (default: 1)")),
      hold("hold", cl::init("1"), cl::value_desc("steps"), cl::cat(category),
           cl::desc("Steps that tokens and numbers stay for once drawn "
                    "(default: 1)")),
      picture("picture", cl::value_desc("file"), cl::cat(category),
              cl::desc("Draw the steps: times of the run and of fixed plans, "
                       "decisions, loads, as .svg (with --compare-plans)")),
      comparePlans("compare-plans", cl::cat(category),
                   cl::desc("Say of each step what every fixed plan would "
                            "have taken, on the calibrated virtual clock")),
      vary("vary", cl::value_desc("name=numbers"), cl::cat(category),
           cl::desc("A scalar input that is one of these numbers in each of "
                    "the --steps: f=1,1.25,2,4")) {}

llvm::StringRef StepOptions::asked() const {
  return !loads.empty()    ? "loads"
         : !varied.empty() ? "vary"
         : tokens          ? "tokens"
         : comparePlans    ? "compare-plans"
                           : "";
}

/// Splits what follows the last colon off, where it is a number.
static std::optional<int64_t> splitNumber(llvm::StringRef &text) {
  auto [before, after] = text.rsplit(':');
  int64_t number;
  if (after.empty() || after.getAsInteger(10, number))
    return std::nullopt;
  text = before;
  return number;
}

static llvm::Error readLoads(llvm::StringRef text, StepOptions &options) {
  if (text.empty())
    return llvm::Error::success();
  llvm::StringRef name = text;
  options.isFile = text.contains(".npy");
  if (options.isFile) {
    options.spread = splitNumber(name).value_or(1);
    options.loads = name.str();
    if (options.spread < 1)
      return expected("loads", "at least 1 step behind the colon", text);
    if (!llvm::sys::fs::exists(name))
      return llvm::createStringError("--loads: " + name +
                                     ": expected a file, got none");
    return llvm::Error::success();
  }
  // The number of "zipf:2" is no seed.
  runtime::LoadOptions parsed;
  if (!parsed.parse(name.str()).ok())
    if (std::optional<int64_t> seed = splitNumber(name))
      options.seed = uint64_t(*seed);
  options.loads = name.str();
  return toError(parsed.parse(options.loads).within("--loads"));
}

static llvm::Error readVaried(llvm::StringRef text, StepOptions &options) {
  auto [name, numbers] = text.split('=');
  StepOptions::Varied varied{name.str(), {}};
  for (llvm::StringRef number : llvm::split(numbers, ','))
    if (!llvm::to_float(number, varied.values.emplace_back()))
      return expected("vary", "name=number,number,...", text);
  if (name.empty())
    return expected("vary", "name=number,number,...", text);
  options.varied.push_back(std::move(varied));
  return llvm::Error::success();
}

llvm::Error StepCommandLine::read(StepOptions &options) const {
  if (llvm::Error error = readInto(options.steps, steps, 1, 10000000))
    return error;
  if (llvm::Error error = readLoads(loads.getValue(), options))
    return error;
  if (llvm::Error error = readInto(options.hold, hold, 1, 10000000))
    return error;
  options.comparePlans = comparePlans;
  options.picture = picture;
  if (!options.picture.empty() &&
      (!options.comparePlans ||
       !llvm::StringRef(options.picture).ends_with(".svg")))
    return expected("picture",
                    "a file name that ends in .svg, with "
                    "--compare-plans beside it",
                    options.picture);
  if (llvm::Error error = checkFolder("picture", options.picture))
    return error;
  for (const std::string &text : vary)
    if (llvm::Error error = readVaried(text, options))
      return error;
  llvm::StringRef asked =
      hold.getNumOccurrences() > 0 ? hold.ArgStr : options.asked();
  if (!options.active() && !asked.empty())
    return llvm::createStringError("--" + asked +
                                   ": expected --steps beside it, got none");
  return llvm::Error::success();
}

llvm::Expected<std::optional<std::pair<int64_t, int64_t>>>
tools::parseTokenRange(llvm::StringRef text) {
  llvm::StringRef range = text;
  if (!range.consume_front("log-uniform:"))
    return std::nullopt;
  auto [low, high] = range.split('-');
  std::pair<int64_t, int64_t> bounds;
  if (low.getAsInteger(10, bounds.first) ||
      high.getAsInteger(10, bounds.second) || bounds.first < 1 ||
      bounds.second < bounds.first)
    return expected("tokens", "log-uniform:LEAST-MOST with 1 <= LEAST <= MOST",
                    text);
  return bounds;
}
