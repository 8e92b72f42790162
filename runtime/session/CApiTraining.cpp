// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/training.h.

#include "moira/training.h"

#include "session/CApiSupport.h"
#include "session/Optimizer.h"
#include "session/Residuals.h"

using namespace moira;
using namespace moira::runtime;

struct moira_residuals {
  std::shared_ptr<const Residuals> residuals;
};

//===----------------------------------------------------------------------===//
// Signatures
//===----------------------------------------------------------------------===//

int32_t moira_bundle_own_results(const moira_bundle *bundle, int32_t entry,
                                 int32_t *count) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(count);
    Result<const EntrySpec *> spec = entryAt(bundle, entry);
    if (!spec.ok())
      return spec.status();
    *count = static_cast<int32_t>((*spec)->ownResults());
    return Status();
  });
}

int32_t moira_bundle_backward(const moira_bundle *bundle, int32_t entry,
                              int32_t *backward) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(backward);
    Result<const EntrySpec *> spec = entryAt(bundle, entry);
    if (!spec.ok())
      return spec.status();
    if ((*spec)->backward.empty())
      return Status(MOIRA_NOT_FOUND,
                    concat("entry '", (*spec)->name,
                           "': expected one compiled with gradients, got one "
                           "without"));
    *backward = bundle->program->manifest().findEntry((*spec)->backward);
    return Status();
  });
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

int32_t moira_session_forward(moira_session *session, const char *entry,
                              const DLTensor *const *inputs,
                              int32_t input_count, DLManagedTensor **results,
                              int32_t result_count,
                              moira_residuals **residuals) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(residuals);
    Result<StepArguments> step =
        readStep(*session, entry, inputs, input_count, results, result_count,
                 /*withResiduals=*/false);
    if (!step.ok())
      return session->refuse(step.status());
    auto handle = std::make_unique<moira_residuals>();
    auto turn = session->turn();
    MOIRA_RETURN_IF_ERROR(session->session->forward(
        step->entry, step->inputs, step->results, handle->residuals));
    handOut(std::move(step->results), results, session->gpu);
    *residuals = handle.release();
    return Status();
  });
}

void moira_residuals_destroy(moira_residuals *residuals) { delete residuals; }

using BackwardStep = Status (Session::*)(const Residuals &,
                                         const std::vector<TensorView> &,
                                         std::vector<ResultTensor> &);

/// Both ways to compute gradients; an empty list of results counts as given.
static int32_t runBackward(BackwardStep step, moira_session *session,
                           const moira_residuals *residuals,
                           const DLTensor *const *gradients,
                           int32_t gradientCount, DLManagedTensor **results,
                           int32_t resultCount) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(residuals);
    Result<std::vector<TensorView>> views =
        readInputs(gradients, gradientCount, session->gpu);
    if (!views.ok())
      return session->refuse(views.status().within("backward"));
    Result<std::vector<ResultTensor>> tensors =
        readResults(results, resultCount, session->gpu, *views);
    if (!tensors.ok())
      return session->refuse(tensors.status().within("backward"));
    std::vector<ResultTensor> filled = *tensors;
    auto turn = session->turn();
    MOIRA_RETURN_IF_ERROR(
        (session->session.get()->*step)(*residuals->residuals, *views, filled));
    // The session allocates all for an empty list; nobody asked for them.
    if (resultCount > 0)
      handOut(std::move(filled), results, session->gpu);
    return Status();
  });
}

int32_t
moira_session_backward(moira_session *session, const moira_residuals *residuals,
                       const DLTensor *const *gradients, int32_t gradient_count,
                       DLManagedTensor **results, int32_t result_count) {
  return runBackward(&Session::backward, session, residuals, gradients,
                     gradient_count, results, result_count);
}

int32_t moira_session_accumulate(moira_session *session,
                                 const moira_residuals *residuals,
                                 const DLTensor *const *gradients,
                                 int32_t gradient_count,
                                 DLManagedTensor **results,
                                 int32_t result_count) {
  return runBackward(&Session::accumulate, session, residuals, gradients,
                     gradient_count, results, result_count);
}

int32_t moira_session_zero_gradients(moira_session *session) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    session->session->zeroGradients();
    return Status();
  });
}

int32_t moira_session_gradient_norm(moira_session *session, double *norm) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(norm);
    auto turn = session->turn();
    Result<double> value = session->session->gradientNorm();
    if (!value.ok())
      return value.status();
    *norm = *value;
    return Status();
  });
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

static const char *const ruleNames[] = {"sgd", "adam", "adamw"};

static Status checkRule(int32_t rule) {
  if (rule >= MOIRA_SGD && rule <= MOIRA_ADAMW)
    return Status();
  return Status(
      MOIRA_INVALID_ARGUMENT,
      concat("expected a rule from MOIRA_SGD to MOIRA_ADAMW, got ", rule));
}

int32_t moira_update_defaults(moira_update_options *options, int32_t rule) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(options);
    MOIRA_RETURN_IF_ERROR(checkRule(rule));
    UpdateOptions usual;
    moira_update_options value{};
    value.rule = rule;
    value.learning_rate = usual.learningRate;
    value.momentum = usual.momentum;
    value.beta1 = usual.beta1;
    value.beta2 = usual.beta2;
    value.epsilon = usual.epsilon;
    value.weight_decay = usual.weightDecay;
    value.gradient_scale = usual.gradientScale;
    return writeStruct(value, options);
  });
}

int32_t moira_session_update(moira_session *session,
                             const moira_update_options *options) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(session);
    MOIRA_REQUIRE(options);
    moira_update_options value{};
    MOIRA_RETURN_IF_ERROR(readStruct(options, value));
    MOIRA_RETURN_IF_ERROR(checkRule(value.rule));
    UpdateOptions update;
    update.rule = ruleNames[value.rule];
    update.learningRate = value.learning_rate;
    update.momentum = value.momentum;
    update.nesterov = value.nesterov != 0;
    update.beta1 = value.beta1;
    update.beta2 = value.beta2;
    update.epsilon = value.epsilon;
    update.weightDecay = value.weight_decay;
    update.gradientScale = value.gradient_scale;
    auto turn = session->turn();
    return session->session->update(update);
  });
}
