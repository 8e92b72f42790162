// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/runtime.h: tensors that come in and go out.

#include "session/CApiSupport.h"

using namespace moira;
using namespace moira::runtime;

Result<std::vector<TensorView>>
runtime::readInputs(const DLTensor *const *inputs, int32_t count,
                    DLDevice gpu) {
  if (count < 0 || (count > 0 && !inputs))
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("inputs: expected ", count, " tensors, got none"));
  std::vector<TensorView> views;
  for (int32_t i = 0; i < count; ++i) {
    Result<TensorView> view = fromDlpack(inputs[i], gpu);
    if (!view.ok())
      return view.status().within(concat("input ", i));
    views.push_back(view.value());
  }
  return views;
}

/// The name of the entry to run; NULL stands for the only one.
Result<std::string> runtime::entryName(const Session &session,
                                       const char *entry) {
  if (entry)
    return std::string(entry);
  const std::vector<EntrySpec> &entries = session.manifest().entries;
  if (int only = session.manifest().mainEntry(); only >= 0)
    return entries[only].name;
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("entry: expected a name, since the program has ",
                       entries.size(), " entries, got null"));
}

/// The caller's tensors; an element without data is for the runtime to fill.
Result<std::vector<ResultTensor>>
runtime::readResults(DLManagedTensor **results, int32_t count, DLDevice gpu,
                     const std::vector<TensorView> &inputs) {
  if (count < 0 || (count > 0 && !results))
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("results: expected ", count, " places, got none"));
  std::vector<ResultTensor> tensors(count);
  bool onDevice =
      std::any_of(inputs.begin(), inputs.end(),
                  [](const TensorView &input) { return input.onDevice; });
  for (int32_t i = 0; i < count; ++i) {
    tensors[i].onDevice = onDevice;
    if (!results[i])
      continue;
    Result<TensorView> view = fromDlpack(&results[i]->dl_tensor, gpu);
    if (!view.ok())
      return view.status().within(concat("result ", i));
    tensors[i].onDevice = view->onDevice;
    tensors[i].dtype = view->dtype;
    tensors[i].shape = view->shape;
    tensors[i].data = const_cast<void *>(view->data);
  }
  return tensors;
}

void runtime::handOut(std::vector<ResultTensor> tensors,
                      DLManagedTensor **results, DLDevice gpu) {
  // All new tensors exist before the first is handed out.
  std::vector<DLManagedTensor *> made(tensors.size(), nullptr);
  try {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (!results[i])
        made[i] = toDlpack(std::move(tensors[i]), gpu);
  } catch (...) {
    for (DLManagedTensor *tensor : made)
      if (tensor)
        tensor->deleter(tensor);
    throw;
  }
  for (size_t i = 0; i < made.size(); ++i)
    if (made[i])
      results[i] = made[i];
}
