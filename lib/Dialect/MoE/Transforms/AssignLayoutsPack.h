// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions that bring one tensor of a checkpoint into a parameter's form.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_ASSIGNLAYOUTSPACK_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_ASSIGNLAYOUTSPACK_H

#include "FormKernelsProduct.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::moe::detail {

/// How a matrix of a parameter, `[d0, d1]` in the program, is kept in memory;
/// or a vector `[d1]`.
struct Packing {
  /// The places of d0 and d1 that are kept.
  Columns first, second;
  /// Whether d0 is N (`nk`) or K (`kn`). Without panels of no meaning.
  WeightLayout layout = WeightLayout::NK;
  /// The panels; of width 0: row-major, as in the program.
  PanelForm form;

  bool operator==(const Packing &other) const {
    return first == other.first && second == other.second &&
           layout == other.layout && form == other.form;
  }
};

/// The attribute of a pack op for a form; null where nothing is cut.
HiddenAttr getHidden(MLIRContext *context, const PanelForm &form);

/// A parameter as the program has it: `slices` matrices or vectors.
struct ParameterShape {
  RankedTensorType logical;
  int64_t slices = 1;
  /// The shape of one slice.
  ArrayRef<int64_t> slice;

  /// `shard`: what a rank holds of it, or null; then each slot is a slice.
  ParameterShape(ParamAttr param, RankedTensorType logical, Attribute shard);
};

/// The type of the packed parameter.
RankedTensorType getPackedType(const ParameterShape &shape,
                               const Packing &packing);

/// Makes pack functions, one per different packing, at the end of a module.
class PackFunctions {
public:
  explicit PackFunctions(ModuleOp module) : module(module), symbols(module) {}

  /// Returns `moe.packing` for a parameter, with its function.
  DictionaryAttr getPacking(Location loc, ParamAttr param,
                            const ParameterShape &shape,
                            const Packing &packing);

private:
  func::FuncOp create(Location loc, ParamAttr param,
                      const ParameterShape &shape, const Packing &packing,
                      RankedTensorType source);

  ModuleOp module;
  SymbolTable symbols;
  struct Entry {
    std::string key;
    func::FuncOp function;
  };
  SmallVector<Entry> entries;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_ASSIGNLAYOUTSPACK_H
