// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Variants/Passes.h"

#include "mlir/IR/AttrTypeSubElements.h"

#include <numeric>

namespace mlir::moe {
#define GEN_PASS_DEF_SHRINKSIZESPASS
#include "moira/Variants/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {

struct ShrinkSizes : public moe::impl::ShrinkSizesPassBase<ShrinkSizes> {
  using ShrinkSizesPassBase::ShrinkSizesPassBase;
  void runOnOperation() override;

private:
  void collect(Type type);
  /// What a large size becomes.
  int64_t shrink(int64_t size) const {
    return size >= largest && !llvm::is_contained(kept, size) &&
                   size % divisor == 0
               ? size / divisor
               : size;
  }

  llvm::SmallSetVector<int64_t, 8> sizes;
  /// Numbers of experts: ranks and choices go by them.
  SmallVector<int64_t> kept;
  int64_t divisor = 1;
};

} // namespace

void ShrinkSizes::collect(Type type) {
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    for (int64_t size : tensor.getShape())
      if (size >= largest && !llvm::is_contained(kept, size))
        sizes.insert(size);
}

void ShrinkSizes::runOnOperation() {
  ModuleOp module = getOperation();
  sizes.clear();
  kept.clear();
  module.walk([&](ExpertOp op) { kept.push_back(op.getNumExperts()); });
  module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      collect(type);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (Type type : block.getArgumentTypes())
          collect(type);
  });
  if (sizes.empty())
    return;
  int64_t common = 0, smallest = INT64_MAX;
  for (int64_t size : sizes) {
    common = std::gcd(common, size);
    smallest = std::min(smallest, size);
  }
  // Powers of two, so that what divides sizes still does.
  divisor = 1;
  while (common % (2 * divisor) == 0 && smallest / (2 * divisor) >= least)
    divisor *= 2;
  if (divisor == 1)
    return;
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](RankedTensorType type) -> std::optional<Type> {
    SmallVector<int64_t> shape;
    for (int64_t size : type.getShape())
      shape.push_back(shrink(size));
    return RankedTensorType::get(shape, type.getElementType(),
                                 type.getEncoding());
  });
  replacer.addReplacement(
      [&](DenseI64ArrayAttr list) -> std::optional<Attribute> {
        SmallVector<int64_t> numbers;
        for (int64_t number : list.asArrayRef())
          numbers.push_back(shrink(number));
        return DenseI64ArrayAttr::get(list.getContext(), numbers);
      });
  replacer.addReplacement([&](IntegerAttr number) -> std::optional<Attribute> {
    if (!number.getType().isIndex() || !sizes.contains(number.getInt()))
      return std::nullopt;
    return IntegerAttr::get(number.getType(), shrink(number.getInt()));
  });
  // Elements of a constant belong to its size; one element fits any.
  replacer.addReplacement(
      [&](DenseElementsAttr elements) -> std::optional<Attribute> {
        auto type = dyn_cast<RankedTensorType>(elements.getType());
        if (!type || !elements.isSplat())
          return std::nullopt;
        return elements.resizeSplat(
            cast<ShapedType>(replacer.replace(Type(type))));
      });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true,
                                        /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
  numDivisor = divisor;
}
