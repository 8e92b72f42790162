// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Run.h"

#include "io/Safetensors.h"
#include "session/BundleFile.h"
#include "session/Session.h"
#include "support/Compare.h"

#include <cstdlib>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

namespace {
/// A case that runs.
class Check {
public:
  Check(const ConformanceCase &check, Outcome &outcome)
      : check(check), outcome(outcome) {}
  Status run(std::shared_ptr<Device> device);

private:
  Result<std::vector<TensorView>> read(const std::vector<TensorSpec> &specs,
                                       size_t first);
  Status compare(const std::string &name, const ResultTensor &found);

  const ConformanceCase &check;
  Outcome &outcome;
  std::shared_ptr<const io::Safetensors> inputs, expected;
  std::vector<io::MappedTensor> mapped; ///< keeps files
};
} // namespace

/// The tensors of `inputs` that specs name, from `first` on.
Result<std::vector<TensorView>>
Check::read(const std::vector<TensorSpec> &specs, size_t first) {
  std::vector<TensorView> views;
  for (size_t i = first; i < specs.size(); ++i) {
    Result<io::MappedTensor> tensor = inputs->tensor(specs[i].name);
    if (!tensor.ok())
      return tensor.status();
    mapped.push_back(*tensor);
    views.push_back(tensor->view());
  }
  return views;
}

Status Check::compare(const std::string &name, const ResultTensor &found) {
  Result<io::MappedTensor> wanted = expected->tensor(name);
  if (!wanted.ok())
    return wanted.status();
  if (wanted->dtype != found.dtype || wanted->shape != found.shape)
    return Status(MOIRA_FAILED,
                  concat(name, ": expected ",
                         toString(wanted->dtype, wanted->shape), ", got ",
                         toString(found.dtype, found.shape)));
  TensorView view{found.dtype, found.shape, found.data};
  Comparison compared = compareValues(name, wanted->view(), view);
  outcome.elements += compared.elements;
  outcome.identical += compared.identical;
  outcome.maxRelative = std::max(outcome.maxRelative, compared.maxRelative);
  if (compared.beyond)
    return Status(MOIRA_FAILED,
                  concat(compared.firstBeyond, " (", compared.beyond, " of ",
                         compared.elements, ")"));
  if (check.exact && compared.identical != compared.elements)
    return Status(MOIRA_FAILED,
                  concat(name, ": expected every bit, got ",
                         compared.elements - compared.identical, " of ",
                         compared.elements, " elements that differ"));
  return Status();
}

Status Check::run(std::shared_ptr<Device> device) {
  auto file = BundleFile::open(check.bundle);
  if (!file.ok())
    return file.status();
  auto program = Program::load(*file);
  if (!program.ok())
    return program.status();
  auto opened = io::Safetensors::open(check.inputs);
  auto results = io::Safetensors::open(check.expected);
  for (const auto *checkpoint : {&opened, &results})
    if (!checkpoint->ok())
      return checkpoint->status();
  inputs = *opened;
  expected = *results;
  SessionOptions options;
  const bool graphs = device->keepsGraphs();
  options.device = std::move(device);
  options.threads = 1;
  auto session = Session::create(*program, options);
  if (!session.ok())
    return session.status();
  MOIRA_RETURN_IF_ERROR((*session)->bindRandom(0));
  const Manifest &manifest = (*program)->manifest();
  if (manifest.mainEntry() < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  "expected a program with one entry, got several");
  const EntrySpec &entry = manifest.entries[manifest.mainEntry()];
  Result<std::vector<TensorView>> views = read(entry.inputs, 0);
  if (!views.ok())
    return views.status();
  std::vector<ResultTensor> found, gradients;
  std::shared_ptr<const Residuals> residuals;
  if (check.backward)
    MOIRA_RETURN_IF_ERROR(
        (*session)->forward(entry.name, *views, found, residuals));
  else
    // As graphs: once to see memory of results, once to see what it does, once
    // to keep it, and twice from what was kept.
    for (int step = 0; step < (graphs ? 5 : 1); ++step)
      MOIRA_RETURN_IF_ERROR((*session)->invoke(entry.name, *views, found));
  outcome.launches = (*session)->statistics().back().launches;
  for (size_t i = 0; i < found.size(); ++i)
    MOIRA_RETURN_IF_ERROR(compare(entry.results[i].name.empty()
                                      ? concat("result", i)
                                      : entry.results[i].name,
                                  found[i]));
  if (!check.backward)
    return Status();
  const EntrySpec &back = manifest.entries[manifest.findEntry(entry.backward)];
  views = read(back.inputs, size_t(entry.residuals));
  if (!views.ok())
    return views.status();
  MOIRA_RETURN_IF_ERROR((*session)->backward(*residuals, *views, gradients));
  outcome.launches += (*session)->statistics().back().launches;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (const auto &of = back.results[i].gradient; of && of->input >= 0)
      MOIRA_RETURN_IF_ERROR(
          compare("d_" + entry.inputs[of->input].name, gradients[i]));
  return Status();
}

Outcome tools::checkCase(const ConformanceCase &check, const OpenDevice &open) {
  Outcome outcome;
  Result<std::shared_ptr<Device>> device = open(check.arch);
  if (!device.ok()) {
    outcome.state = "failed";
    outcome.detail = device.status().message;
    return outcome;
  }
  int needed = std::atoi(check.arch.c_str() + 3);
  int there = (*device)->architecture();
  bool isExact = check.arch.back() == 'a';
  if (isExact ? there != needed : there < needed) {
    outcome.state = "skipped";
    outcome.detail =
        concat("expected a GPU of ", check.arch, ", got one of sm_", there);
    return outcome;
  }
  Status status = Check(check, outcome).run(std::move(*device));
  outcome.state = status.ok() ? "passed" : "failed";
  outcome.detail = status.message;
  return outcome;
}
