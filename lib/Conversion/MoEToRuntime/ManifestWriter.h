// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Writes the manifest: what a bundle says about its entries and parameters. The
// schema is docs/bundle.md; the runtime reads it in session/Manifest.h.

#ifndef MOIRA_LIB_CONVERSION_MOETORUNTIME_MANIFESTWRITER_H
#define MOIRA_LIB_CONVERSION_MOETORUNTIME_MANIFESTWRITER_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"

#include <string>

namespace mlir::moe {

class ManifestWriter {
public:
  ManifestWriter(StringRef moduleName, StringRef triple, StringRef cpu,
                 StringRef features);

  /// The C symbols of a step's entries.
  struct Symbols {
    std::string step, workspace, shapes;
  };
  static Symbols getSymbols(func::FuncOp step);

  /// Adds a step (context first, memrefs, results still there). Gives the
  /// index in the parameter table of each parameter argument, in order.
  LogicalResult addStep(func::FuncOp step, SmallVectorImpl<int64_t> &indices);

  /// A pack entry to emit: `symbol` wraps `function`, or copies `sliceBytes`.
  struct Pack {
    std::string symbol, function;
    int64_t sliceBytes;
  };
  ArrayRef<Pack> getPacks() const { return packs; }

  llvm::StringSet<> getEntrySymbols() const { return symbols; }
  /// The kernels of a program for a GPU.
  void setDevice(llvm::json::Object description) {
    header["device"] = std::move(description);
  }
  std::string serialize() const;

private:
  FailureOr<int64_t> addParameter(func::FuncOp step, unsigned argument);
  FailureOr<llvm::json::Array>
  describeResults(func::FuncOp step, ArrayRef<int64_t> parameterIndex);
  llvm::json::Array describeLayers(func::FuncOp step,
                                   ArrayRef<int64_t> parameterIndex) const;
  void addCosts(func::FuncOp step, ArrayRef<int64_t> parameterIndex,
                int64_t index, llvm::json::Object &layer) const;
  llvm::json::Array describeWeights(func::FuncOp step,
                                    ArrayRef<int64_t> parameterIndex,
                                    ArrayAttr weights) const;
  void completeLayers(llvm::json::Array &layers) const;
  /// How often rows travel in a step for many ranks.
  static std::optional<int64_t> getCopies(func::FuncOp step);

  llvm::json::Object header;
  llvm::MapVector<StringRef, llvm::json::Object> entries;
  llvm::json::Array parameters;
  llvm::StringMap<int64_t> parameterIndex;
  /// Rows of one parameter, or part of one, in different layouts.
  llvm::StringMap<SmallVector<int64_t>> parameterRows;
  /// Results that are gradients of parameters.
  struct Gradient {
    std::string entry;
    size_t result;
    std::string identity;
  };
  SmallVector<Gradient> gradients;
  SmallVector<Pack> packs;
  llvm::StringSet<> symbols;
};

} // namespace mlir::moe

#endif // MOIRA_LIB_CONVERSION_MOETORUNTIME_MANIFESTWRITER_H
