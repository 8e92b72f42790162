// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From what ranks hold of parameters, of their gradients or of the states of
// optimizers to the tensors that a checkpoint has.

#ifndef MOIRA_RUNTIME_SESSION_FILETENSORS_H
#define MOIRA_RUNTIME_SESSION_FILETENSORS_H

#include "session/PackedLayout.h"

#include <map>
#include <string>
#include <vector>

namespace moira::runtime {

class Communicator;

/// One tensor under the checkpoint's name, of its shape.
struct FileTensor {
  DataType dtype = DataType::F32;
  Shape shape;
  std::vector<char> data; ///< zero where nothing was put

  TensorView view() const { return {dtype, shape, data.data()}; }
};

/// Tensors in the order of their names.
class FileTensors {
public:
  /// Puts one slice of a row in place: `unit` of its placement, or slice
  /// number; `places` is the layout's `packed` or `program`. The name gets
  /// `prefix`.
  void put(const ParameterSpec &spec, const PackedLayout &layout,
           const Places &places, int64_t unit, DataType dtype,
           const void *slice, const std::string &prefix = "");
  /// Makes the tensors of a parameter, zero, so that all ranks have the same
  /// ones.
  void make(const ParameterSpec &spec, DataType dtype,
            const std::string &prefix = "");
  /// Brings together what processes have put. What each place holds was put by
  /// one of them. Collective.
  Status merge(Communicator &group);

  const std::map<std::string, FileTensor> &tensors() const { return all; }

private:
  std::map<std::string, FileTensor> all;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_FILETENSORS_H
