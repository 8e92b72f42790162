// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/runtime.h: sessions.

#include "device/Device.h"
#include "io/CheckpointSource.h"
#include "session/CApiSupport.h"

using namespace moira;
using namespace moira::runtime;

Session &runtime::unwrap(moira_session *session) { return *session->session; }

static SessionOptions toOptions(const moira_session_options &value) {
  SessionOptions options;
  options.threads = value.threads;
  options.memoryLimit = value.memory_limit;
  if (value.statistics_steps != 0)
    options.statisticsSteps = std::max(0, value.statistics_steps);
  options.logLevel = static_cast<LogLevel>(std::clamp(value.log_level, 0, 3));
  if (value.ranks)
    options.communicator = value.ranks->group->communicator();
  return options;
}

/// The device that an option names, and what tensors there say of it.
static Result<std::pair<std::shared_ptr<Device>, DLDevice>>
openDevice(const char *name) {
  std::pair<std::shared_ptr<Device>, DLDevice> opened = {nullptr, hostDevice};
  std::string_view text = name ? name : "cpu";
  if (text == "cpu")
    return opened;
  if (text == "emulated" || text == "emulated:80") {
    EmulatedOptions options;
    options.architecture = text == "emulated" ? 90 : 80;
    opened.first = openEmulated(options);
    opened.second = {kDLExtDev, 0};
    return opened;
  }
  int ordinal = text == "cuda" ? 0 : -1;
  if (text.substr(0, 5) == "cuda:" && text.size() > 5 && text.size() < 9 &&
      text.find_first_not_of("0123456789", 5) == text.npos)
    ordinal = std::stoi(std::string(text.substr(5)));
  if (ordinal < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("device: expected 'cpu', 'cuda', 'cuda:N', 'emulated' "
                         "or 'emulated:80', got '",
                         text, "'"));
  Result<std::unique_ptr<Device>> device = openCuda(ordinal);
  if (!device.ok())
    return device.status();
  opened.first = std::move(*device);
  opened.second = {kDLCUDA, ordinal};
  return opened;
}

int32_t moira_session_create(moira_bundle *bundle,
                             const moira_session_options *options,
                             moira_session **session) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(bundle);
    MOIRA_REQUIRE(session);
    moira_session_options value{};
    if (options)
      MOIRA_RETURN_IF_ERROR(readStruct(options, value));
    Result<std::shared_ptr<const Program>> program =
        bundle->grids->forRanks(value.ranks ? value.ranks->group->ranks() : 1);
    if (!program.ok())
      return program.status();
    auto device = openDevice(value.device);
    if (!device.ok())
      return device.status();
    SessionOptions own = toOptions(value);
    own.device = device->first;
    Result<std::unique_ptr<Session>> made = Session::create(*program, own);
    if (!made.ok())
      return made.status();
    *session = new moira_session{std::move(*made),
                                 value.ranks ? value.ranks->group : nullptr,
                                 *program, device->second};
    return Status();
  });
}

void moira_session_destroy(moira_session *session) { delete session; }

int32_t moira_session_bind(moira_session *session, const char *name,
                           const DLTensor *tensor) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(name);
    Result<TensorView> view = fromDlpack(tensor);
    if (!view.ok())
      return view.status().within(concat("parameter '", name, "'"));
    return session->session->bind(name, *view);
  });
}

int32_t moira_session_bind_checkpoint(moira_session *session,
                                      const char *path) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(path);
    Result<std::unique_ptr<io::CheckpointSource>> source =
        io::CheckpointSource::open(path);
    if (!source.ok())
      return source.status();
    return session->session->bindSource(**source);
  });
}

int32_t moira_session_bind_random(moira_session *session, uint64_t seed) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    return session->session->bindRandom(seed);
  });
}

int32_t moira_session_unbound(moira_session *session, int64_t *count,
                              const char **name) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    std::vector<std::string> names = session->session->unbound();
    if (count)
      *count = static_cast<int64_t>(names.size());
    if (!name)
      return Status();
    *name = nullptr;
    // The manifest's own string: it lives long enough.
    if (!names.empty())
      for (const ParameterSpec &spec : session->session->manifest().parameters)
        if (spec.name == names.front())
          *name = spec.name.c_str();
    return Status();
  });
}

int32_t moira_session_set_variant(moira_session *session, const char *entry,
                                  const char *variant) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(entry);
    return session->session->setVariant(entry, variant ? variant : "");
  });
}

static Result<PlanOptions> readPlan(const moira_plan_options *plan) {
  MOIRA_REQUIRE(plan);
  moira_plan_options value{};
  MOIRA_RETURN_IF_ERROR(readStruct(plan, value));
  if (value.slot_count < 0 || (value.slot_count > 0 && !value.slot_table))
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("slot_table: expected ", value.slot_count, " slots, got none"));
  if (value.shadow_count < 0 || (value.shadow_count > 0 && !value.shadows))
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("shadows: expected ", value.shadow_count, " experts, got none"));
  PlanOptions options;
  options.degree = value.degree == 0 ? 1 : value.degree;
  options.exchange = value.exchange;
  if (value.slot_table)
    options.slotTable.assign(value.slot_table,
                             value.slot_table + value.slot_count);
  if (value.shadows)
    options.shadows.assign(value.shadows, value.shadows + value.shadow_count);
  return options;
}

int32_t moira_session_set_plan(moira_session *session,
                               const moira_plan_options *plan) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    Result<PlanOptions> read = readPlan(plan);
    return read.ok() ? session->session->setPlan(*read) : read.status();
  });
}

int32_t moira_session_set_layer_plan(moira_session *session, int64_t layer,
                                     const moira_plan_options *plan) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    Result<PlanOptions> read = readPlan(plan);
    return read.ok() ? session->session->setPlan(layer, *read) : read.status();
  });
}

Result<StepArguments>
moira::runtime::readStep(const moira_session &owner, const char *entry,
                         const DLTensor *const *inputs, int32_t inputCount,
                         DLManagedTensor **results, int32_t resultCount,
                         bool withResiduals) {
  const Session &session = *owner.session;
  Result<std::string> name = entryName(session, entry);
  if (!name.ok())
    return name.status();
  auto failed = [&](const Status &status) {
    return status.within(concat("entry '", *name, "'"));
  };
  Result<std::vector<TensorView>> views =
      readInputs(inputs, inputCount, owner.gpu);
  if (!views.ok())
    return failed(views.status());
  // The session would allocate all for an empty list. It knows best what to say
  // of an entry that is not there. No result is read before their number is
  // known to be right.
  int index = session.manifest().findEntry(*name);
  if (index >= 0) {
    const EntrySpec &spec = session.manifest().entries[index];
    int64_t wanted =
        withResiduals ? int64_t(spec.results.size()) : spec.ownResults();
    if (resultCount != wanted)
      return failed(
          Status(MOIRA_INVALID_ARGUMENT,
                 concat("expected ", wanted, " results, got ", resultCount)));
  }
  Result<std::vector<ResultTensor>> tensors =
      readResults(results, resultCount, owner.gpu, *views);
  if (!tensors.ok())
    return failed(tensors.status());
  return StepArguments{std::move(*name), std::move(*views),
                       std::move(*tensors)};
}

Status moira::runtime::runInvoke(moira_session *session, StepArguments &step,
                                 DLManagedTensor **results) {
  auto turn = session->turn();
  MOIRA_RETURN_IF_ERROR(
      session->session->invoke(step.entry, step.inputs, step.results));
  handOut(std::move(step.results), results, session->gpu);
  return Status();
}

int32_t moira_session_invoke(moira_session *session, const char *entry,
                             const DLTensor *const *inputs, int32_t input_count,
                             DLManagedTensor **results, int32_t result_count) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    Result<StepArguments> step =
        readStep(*session, entry, inputs, input_count, results, result_count,
                 /*withResiduals=*/true);
    if (!step.ok())
      return session->refuse(step.status());
    return runInvoke(session, *step, results);
  });
}

int32_t moira_session_predict_peak(moira_session *session, const char *entry,
                                   const DLTensor *const *inputs,
                                   int32_t input_count, int64_t *bytes) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(bytes);
    Result<std::string> name = entryName(*session->session, entry);
    if (!name.ok())
      return name.status();
    Result<std::vector<TensorView>> views =
        readInputs(inputs, input_count, session->gpu);
    if (!views.ok())
      return views.status();
    Result<int64_t> peak = session->session->predictPeak(*name, *views);
    if (!peak.ok())
      return peak.status();
    *bytes = *peak;
    return Status();
  });
}

int32_t moira_session_memory(moira_session *session, moira_memory *memory) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(memory);
    MemoryFigures figures = session->session->memory();
    moira_memory value{};
    value.parameters = figures.parameters;
    value.workspace = figures.workspace;
    value.results = figures.results;
    value.peak = figures.peak;
    value.limit = figures.limit;
    value.residuals = figures.residuals;
    value.training = figures.training;
    return writeStruct(value, memory);
  });
}
