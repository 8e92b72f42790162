// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/IR/HiddenPlaces.h"

using namespace mlir;
using namespace mlir::moe;

/// Numbers of one operand.
static constexpr size_t kNumbers = 3;

std::optional<HiddenPlaces> mlir::moe::getHiddenPlaces(ExpertOp expert) {
  auto known = expert->getAttrOfType<DenseI64ArrayAttr>(kHiddenPlacesAttrName);
  if (!known)
    return std::nullopt;
  HiddenPlaces places;
  ArrayRef<int64_t> left = known.asArrayRef();
  for (; !left.empty(); left = left.drop_front(kNumbers)) {
    places.emplace_back();
    if (left[0] >= 0)
      places.back() = HiddenPlace{left[0], left[1], left[2] != 0};
  }
  return places;
}

void mlir::moe::setHiddenPlaces(ExpertOp expert,
                                ArrayRef<std::optional<HiddenPlace>> places) {
  SmallVector<int64_t> numbers;
  for (const std::optional<HiddenPlace> &place : places) {
    HiddenPlace known = place.value_or(HiddenPlace{-1});
    numbers.append({known.dim, known.parts, known.interleaved ? 1 : 0});
  }
  expert->setAttr(kHiddenPlacesAttrName,
                  DenseI64ArrayAttr::get(expert.getContext(), numbers));
}

LogicalResult mlir::moe::detail::verifyHiddenPlaces(Operation *op,
                                                    Attribute value) {
  auto expert = dyn_cast<ExpertOp>(op);
  auto known = dyn_cast<DenseI64ArrayAttr>(value);
  if (!expert || !known ||
      known.size() !=
          static_cast<int64_t>(kNumbers * expert.getPerExpert().size()))
    return op->emitOpError("expected '")
           << kHiddenPlacesAttrName
           << "' on a moe.expert only, three numbers per per-expert operand, "
              "got "
           << value;
  HiddenPlaces places = *getHiddenPlaces(expert);
  for (auto [i, place] : llvm::enumerate(places)) {
    if (!place)
      continue;
    // Attributes may be verified before the types of operands.
    auto type = dyn_cast<ShapedType>(expert.getPerExpert()[i].getType());
    if (!type || !type.hasRank())
      continue;
    int64_t dim = place->dim; // behind the experts
    if (dim >= type.getRank() - 1 || place->parts < 1 ||
        type.isDynamicDim(dim + 1) ||
        type.getDimSize(dim + 1) % place->parts != 0)
      return op->emitOpError("expected in '")
             << kHiddenPlacesAttrName
             << "' a static dim of whole parts for per-expert operand #" << i
             << ", " << type << ", got dim " << place->dim << " of "
             << place->parts << " parts";
  }
  return success();
}
