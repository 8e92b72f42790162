// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Log.h"

#include "io/AtomicFile.h"
#include "support/CommandLine.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace moira;
using namespace moira::tools;
namespace json = llvm::json;

/// Takes over what an earlier run wrote of the steps before `first`.
std::string Log::keep(llvm::StringRef text, int64_t first) {
  std::string kept;
  llvm::SmallVector<llvm::StringRef> lines;
  text.split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef line : lines) {
    llvm::Expected<json::Value> value = json::parse(line);
    // A run that was killed may have left half a line at the end.
    if (!value) {
      llvm::consumeError(value.takeError());
      continue;
    }
    const json::Object *object = value->getAsObject();
    std::optional<int64_t> step =
        object ? object->getInteger("step") : std::nullopt;
    if (!step || *step >= first)
      continue;
    kept += line;
    kept += '\n';
    auto place = static_cast<double>(*step);
    if (std::optional<double> loss = object->getNumber("loss"))
      training.emplace_back(place, *loss);
    if (std::optional<double> loss = object->getNumber("eval"))
      evaluations.emplace_back(place, *loss);
    if (firstStep < 0)
      firstStep = *step;
    std::vector<std::vector<int64_t>> rows;
    if (const json::Array *layers = object->getArray("loads"))
      for (const json::Value &layer : *layers) {
        rows.emplace_back();
        for (const json::Value &count : *layer.getAsArray())
          rows.back().push_back(count.getAsInteger().value_or(0));
      }
    if (loads.empty() || rows.size() == loads[0].size())
      loads.push_back(std::move(rows));
  }
  return kept;
}

llvm::Error Log::open(int64_t first) {
  if (options.log.empty())
    return llvm::Error::success();
  std::string kept;
  if (first > 0)
    if (auto file = llvm::MemoryBuffer::getFile(options.log, /*IsText=*/true,
                                                /*RequiresNullTerminator=*/true,
                                                /*IsVolatile=*/true))
      kept = keep((*file)->getBuffer(), first);
  // Replaced at once: a run that is killed here loses no line.
  if (Status status = io::writeFile(options.log, kept.data(),
                                    static_cast<int64_t>(kept.size()));
      !status.ok())
    return toError(status.within("--log"));
  std::error_code error;
  stream = std::make_unique<llvm::raw_fd_ostream>(options.log, error,
                                                  llvm::sys::fs::OF_Append);
  if (!error)
    return llvm::Error::success();
  return llvm::createStringError(error, "--log: " + options.log +
                                            ": expected to write, got '" +
                                            error.message() + "'");
}

llvm::Error Log::add(const TrainStep &step, std::optional<double> evaluation) {
  auto place = static_cast<double>(step.step);
  training.emplace_back(place, step.loss);
  if (evaluation)
    evaluations.emplace_back(place, *evaluation);
  if (firstStep < 0)
    firstStep = step.step;
  loads.push_back(step.loads);
  if (!stream)
    return llvm::Error::success();
  json::Object object{{"step", step.step},
                      {"loss", step.loss},
                      {"results", json::Array(step.results)},
                      {"lr", step.rate},
                      {"seconds", step.seconds}};
  if (step.norm >= 0)
    object["norm"] = step.norm;
  if (evaluation)
    object["eval"] = *evaluation;
  if (!step.plan.empty())
    object["plan"] = step.plan;
  json::Array layers;
  for (const std::vector<int64_t> &layer : step.loads)
    layers.push_back(json::Array(layer));
  object["loads"] = std::move(layers);
  *stream << json::Value(std::move(object)) << '\n';
  stream->flush();
  if (!stream->has_error())
    return llvm::Error::success();
  std::error_code error = stream->error();
  stream->clear_error();
  return llvm::createStringError(error, "--log: " + options.log +
                                            ": expected to write, got '" +
                                            error.message() + "'");
}

llvm::Error Log::finish() {
  auto write = [](const std::string &path, const std::string &text) {
    return toError(
        io::writeFile(path, text.data(), static_cast<int64_t>(text.size())));
  };
  if (!options.curve.empty())
    if (llvm::Error error =
            write(options.curve, drawLosses(training, evaluations)))
      return error;
  if (!options.loads.empty())
    return write(options.loads,
                 drawLoads(loads, std::max<int64_t>(0, firstStep)));
  return llvm::Error::success();
}
