// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/SessionImpl.h"

#include "base/Hash.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

Session::Impl::Impl(std::shared_ptr<const Program> newProgram,
                    const SessionOptions &options)
    : program(std::move(newProgram)), manifest(program->manifest()),
      log(options.logLevel), account(std::make_shared<MemoryAccount>(
                                 options.memoryLimit, options.poisonMemory)),
      pool(options.threads), communicator(options.communicator),
      step(&pool, account),
      parameters(*program, pool, account, options.progress),
      ring(options.statisticsSteps), sinks(options.sinks),
      forcedVariant(manifest.entries.size(), -1),
      layerPlans(manifest, communicator ? communicator->ranks() : 1),
      shadows(layerPlans, parameters),
      residualPool(std::make_shared<ResidualPool>(account)) {
  step.setCommunicator(communicator);
  for (const EntrySpec &spec : manifest.entries)
    layerSeconds.emplace_back(spec.layers.size(),
                              std::numeric_limits<double>::infinity());
  timedSteps.assign(manifest.entries.size(), -1);
  adaptations.resize(manifest.entries.size());
  rebalancings.resize(manifest.entries.size());
  step.setShadows(&shadows);
  const std::string &text = program->manifestText();
  programHash = hashBytes(text.data(), text.size());
}

/// A program for a GPU needs one; another takes none.
Status Session::Impl::openDevice(std::shared_ptr<Device> given) {
  if (bool(manifest.device) != bool(given))
    return Status(MOIRA_INVALID_ARGUMENT,
                  given ? concat("expected a program for a GPU to run on ",
                                 given->name(), ", got one for the processor")
                        : std::string("expected a device for a program for a "
                                      "GPU, got none"));
  if (!given)
    return Status();
  Result<std::unique_ptr<DeviceStep>> made =
      DeviceStep::create(program, std::move(given), account);
  if (!made.ok())
    return made.status();
  device = std::move(*made);
  step.setDevice(device.get());
  return Status();
}

//===----------------------------------------------------------------------===//
// Checks before a step
//===----------------------------------------------------------------------===//

Result<int> Session::Impl::findEntry(const std::string &name) const {
  int entry = manifest.findEntry(name);
  if (entry >= 0)
    return entry;
  std::string known;
  for (const EntrySpec &spec : manifest.entries)
    known += (known.empty() ? "'" : ", '") + spec.name + "'";
  return Status(MOIRA_NOT_FOUND, concat("expected an entry of the program (",
                                        known.empty() ? "it has none" : known,
                                        "), got '", name, "'"));
}

Status Session::Impl::checkBound() const {
  std::vector<int> missing = parameters.unbound();
  if (missing.empty())
    return Status();
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("expected all parameters to be bound, got ",
                       missing.size(), " that are not, first '",
                       manifest.parameters[missing.front()].name, "'"));
}

/// An entry with collectives runs on the ranks that it was compiled for; what
/// has none runs anywhere.
Status Session::Impl::checkRanks(const EntrySpec &spec) const {
  int there = communicator ? communicator->ranks() : 1;
  if (spec.ranks == 1 || spec.ranks == there)
    return Status();
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("expected ", spec.ranks,
                       " ranks, as the entry was compiled for, got ", there));
}

static Status checkTensor(const TensorSpec &spec, DataType dtype,
                          const Shape &shape, const void *data,
                          bool needsData) {
  bool fits = dtype == spec.dtype && shape.size() == spec.shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = shape[i] >= 0 && (spec.shape[i] == -1 || spec.shape[i] == shape[i]);
  if (!fits)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected ", toString(spec.dtype, spec.shape),
                         ", got ", toString(dtype, shape)));
  std::optional<int64_t> bytes = compactBytes(dtype, shape);
  if (!bytes)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected a size that fits 64 bits, got ",
                         toString(dtype, shape)));
  if (!needsData || *bytes == 0)
    return Status();
  if (!data)
    return Status(MOIRA_INVALID_ARGUMENT, "expected data, got a null pointer");
  if (reinterpret_cast<uintptr_t>(data) % byteSize(dtype) != 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected data aligned to ", byteSize(dtype),
                         " bytes, got less"));
  return Status();
}

Status runtime::checkInputs(const EntrySpec &spec,
                            const std::vector<TensorView> &inputs,
                            bool needData) {
  if (inputs.size() != spec.inputs.size())
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected ", spec.inputs.size(), " inputs, got ",
                         inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    Status status = checkTensor(spec.inputs[i], inputs[i].dtype,
                                inputs[i].shape, inputs[i].data, needData);
    MOIRA_RETURN_IF_ERROR(
        status.within(concat("input ", i, " '", spec.inputs[i].name, "'")));
  }
  return Status();
}

Status runtime::checkResults(const EntrySpec &spec, int64_t count,
                             std::vector<ResultTensor> &results) {
  if (results.empty())
    results.resize(count);
  if (int64_t(results.size()) != count)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected ", count, " results, got ", results.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].data)
      continue;
    Status status = checkTensor(spec.results[i], results[i].dtype,
                                results[i].shape, results[i].data, true);
    MOIRA_RETURN_IF_ERROR(status.within(concat("result ", i)));
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// Session
//===----------------------------------------------------------------------===//

Session::Session(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Session::~Session() = default;

/// More threads than this is a mistake in an option.
static constexpr int maxThreads = 4096;

Result<std::unique_ptr<Session>>
Session::create(std::shared_ptr<const Program> program,
                const SessionOptions &options) {
  if (!program)
    return Status(MOIRA_INVALID_ARGUMENT, "expected a program, got none");
  if (options.threads < 0 || options.threads > maxThreads)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected 0 to ", maxThreads, " threads, got ",
                         options.threads));
  if (options.memoryLimit < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected a memory limit of 0 or more bytes, got ",
                         options.memoryLimit));
  auto impl = std::make_unique<Impl>(std::move(program), options);
  MOIRA_RETURN_IF_ERROR(impl->openDevice(options.device));
  MOIRA_RETURN_IF_ERROR(impl->parameters.open());
  MOIRA_RETURN_IF_ERROR(impl->setPlan(std::nullopt, PlanOptions()));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const Program &Session::program() const { return *impl->program; }
int Session::threads() const { return impl->pool.threads(); }
MemoryFigures Session::memory() const { return impl->account->figures(); }

Status Session::bind(const std::string &name, const TensorView &tensor) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  impl->forgetMasters();
  return impl->parameters.bind(name, tensor);
}

Status Session::bindSource(ParameterSource &source) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  impl->forgetMasters();
  Status status = impl->parameters.bindSource(source);
  if (status.ok())
    impl->log.print(LogLevel::Info,
                    concat("bound parameters from ", source.describe()));
  return status;
}

Status Session::bindRandom(uint64_t seed) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  impl->forgetMasters();
  return impl->parameters.bindRandom(seed);
}

int64_t Session::readBytes() const { return impl->parameters.readBytes(); }

std::vector<std::string> Session::unbound() const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  std::vector<std::string> names;
  for (int parameter : impl->parameters.unbound())
    names.push_back(impl->manifest.parameters[parameter].name);
  return names;
}

Status Session::setVariant(const std::string &entry,
                           const std::string &variant) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  Result<int> found = impl->findEntry(entry);
  if (!found.ok())
    return found.status();
  int index = impl->manifest.entries[*found].findVariant(variant);
  if (index < 0 && !variant.empty())
    return Status(MOIRA_NOT_FOUND, concat("entry '", entry,
                                          "': expected one of its variants, "
                                          "got '",
                                          variant, "'"));
  impl->forcedVariant[*found] = variant.empty() ? -1 : index;
  return Status();
}

Status Session::invoke(const std::string &entry,
                       const std::vector<TensorView> &inputs,
                       std::vector<ResultTensor> &results) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  Result<int> found = impl->findEntry(entry);
  if (!found.ok()) // the others have begun the step
    return impl->together([&] { return found.status(); });
  const EntrySpec &spec = impl->manifest.entries[*found];
  std::vector<ResultTensor> filled = results;
  Status status = impl->together([&]() -> Status {
    MOIRA_RETURN_IF_ERROR(impl->checkRanks(spec));
    MOIRA_RETURN_IF_ERROR(impl->checkBound());
    MOIRA_RETURN_IF_ERROR(checkInputs(spec, inputs, /*needData=*/true));
    StepPlan &plan = impl->choosePlan(*found, inputs);
    MOIRA_RETURN_IF_ERROR(impl->adaptPlan(*found, plan));
    const EntrySpec &own = impl->program->signature(*found, plan.variant);
    MOIRA_RETURN_IF_ERROR(checkResults(own, own.results.size(), filled));
    return impl->runStep(*found, inputs, filled, plan);
  });
  impl->noteEnd(*found, status, impl->stepCount - 1, /*more=*/false);
  // On failure what the step allocated goes with `filled`.
  if (status.ok())
    results = std::move(filled);
  return status.within(concat("entry '", entry, "'"));
}

std::vector<StepRow> Session::statistics() const {
  return impl->ring.snapshot();
}
