// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the files of the C API share: handles, and the end of exceptions.

#ifndef MOIRA_RUNTIME_SESSION_CAPISUPPORT_H
#define MOIRA_RUNTIME_SESSION_CAPISUPPORT_H

#include "session/BundleGrids.h"
#include "session/Dlpack.h"
#include "session/Handles.h"
#include "session/RankGroup.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

struct moira_bundle {
  std::shared_ptr<moira::runtime::BundleGrids> grids;
  /// Of the grid that the handle describes.
  std::shared_ptr<const moira::runtime::Program> program;
};

struct moira_ranks {
  std::shared_ptr<moira::runtime::RankGroup> group;
};

struct moira_session {
  std::unique_ptr<moira::runtime::Session> session;
  std::shared_ptr<moira::runtime::RankGroup> group; ///< null: one rank
  std::shared_ptr<const moira::runtime::Program> program;
  /// What tensors on the session's GPU say of it.
  DLDevice gpu = moira::runtime::hostDevice;

  /// Held by what runs with other ranks: sessions of one group take turns.
  std::unique_lock<std::mutex> turn() const {
    return group ? std::unique_lock<std::mutex>(group->turn)
                 : std::unique_lock<std::mutex>();
  }
  bool hasOthers() const { return group && group->ranks() > 1; }
  /// Ends the step of all ranks with what is wrong with this one's arguments.
  moira::Status refuse(const moira::Status &fault) const {
    return group ? group->agree(fault,
                                [](moira::runtime::Communicator &) {
                                  return moira::Status();
                                })
                 : fault;
  }
};

struct moira_statistics {
  std::vector<moira::runtime::StepRow> steps;
  std::shared_ptr<const moira::runtime::Program> program;
  int rank = 0;
};

namespace moira::runtime {

/// The caller's inputs, which must not be null, on the host or `gpu`.
Result<std::vector<TensorView>> readInputs(const DLTensor *const *inputs,
                                           int32_t count,
                                           DLDevice gpu = hostDevice);
/// The name of the entry to run; NULL stands for the only one.
Result<std::string> entryName(const Session &session, const char *entry);
/// The caller's tensors; an element without data is for the runtime to fill, on
/// the GPU where one of `inputs` is there.
Result<std::vector<ResultTensor>>
readResults(DLManagedTensor **results, int32_t count, DLDevice gpu,
            const std::vector<TensorView> &inputs);
/// What a call that runs a step was given, checked as far as the manifest
/// tells.
struct StepArguments {
  std::string entry;
  std::vector<TensorView> inputs;
  std::vector<ResultTensor> results;
};
/// `results` are all of the entry's, or without those that are residuals.
Result<StepArguments> readStep(const moira_session &session, const char *entry,
                               const DLTensor *const *inputs,
                               int32_t inputCount, DLManagedTensor **results,
                               int32_t resultCount, bool withResiduals);
/// Runs a step, with other ranks in turn, and hands its results out.
Status runInvoke(moira_session *session, StepArguments &step,
                 DLManagedTensor **results);
/// The entry at `index`, or what is wrong with the arguments.
Result<const EntrySpec *> entryAt(const moira_bundle *bundle, int32_t index);
/// Hands out a copy of a text, for moira_text_free.
Status writeText(const Result<std::string> &text, char **target);
/// Gives the tensors that the runtime made to the places that were NULL.
void handOut(std::vector<ResultTensor> tensors, DLManagedTensor **results,
             DLDevice gpu);

/// Runs `action`, a function that returns a Status.
template <typename Action> int32_t guarded(const Action &action) {
  try {
    return reportStatus(action());
  } catch (const std::bad_alloc &) {
    // No memory to say so in more words.
    return reportStatus(Status(MOIRA_OUT_OF_MEMORY, "out of memory"));
  } catch (const std::exception &error) {
    return reportStatus(Status(MOIRA_FAILED, error.what()));
  } catch (...) {
    return reportStatus(Status(MOIRA_FAILED, "unknown failure"));
  }
}

inline Status nullArgument(const char *name) {
  return Status(MOIRA_INVALID_ARGUMENT,
                concat(name, ": expected a pointer, got null"));
}

#define MOIRA_REQUIRE(argument)                                                \
  do {                                                                         \
    if (!(argument))                                                           \
      return nullArgument(#argument);                                          \
  } while (false)

/// Copies what the caller's version of a struct has; the rest keeps its
/// default. The first field of `Struct` is struct_size.
template <typename Struct>
Status readStruct(const Struct *given, Struct &value) {
  if (given->struct_size < sizeof(uint32_t))
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("expected struct_size to be set, got ", given->struct_size));
  std::memcpy(&value, given,
              std::min<size_t>(given->struct_size, sizeof(Struct)));
  return Status();
}

/// The other way round; keeps the caller's struct_size.
template <typename Struct> Status writeStruct(Struct value, Struct *target) {
  uint32_t size = target->struct_size;
  if (size < sizeof(uint32_t))
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected struct_size to be set, got ", size));
  value.struct_size = size;
  std::memcpy(target, &value, std::min<size_t>(size, sizeof(Struct)));
  return Status();
}

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_CAPISUPPORT_H
