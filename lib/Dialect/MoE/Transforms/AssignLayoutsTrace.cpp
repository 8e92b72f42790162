// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AssignLayoutsTrace.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

bool ParameterUse::setForm(WeightLayout layout, PanelForm form) {
  packing.layout = layout;
  int64_t parts = getParts();
  if (parts > 1) {
    bool isFirst = *gather.getDim() == 1;
    bool isN = isFirst == (layout == WeightLayout::NK);
    int64_t &blocks = isN ? form.blocksOfN : form.blocksOfK;
    if (blocks % parts != 0)
      return false;
    blocks /= parts;
  }
  packing.form = form;
  return true;
}

/// The places of one shard that make up `columns` of `size` places, which
/// `shards` shards of `parts` parts make together.
static std::optional<Columns> selectOfShard(Columns columns, int64_t size,
                                            int64_t shards, int64_t parts) {
  if (columns.size % shards != 0)
    return std::nullopt;
  int64_t kept = columns.size / shards;
  if (parts == 1) {
    // All, or the elements of one of several things that take turns.
    if (columns.offset >= columns.stride ||
        columns.stride * columns.size != size)
      return std::nullopt;
    return Columns{columns.offset, columns.stride, kept};
  }
  if (columns.stride != 1 || columns.size * parts != size ||
      columns.offset % columns.size != 0)
    return std::nullopt;
  return Columns{columns.offset / shards, 1, kept};
}

/// Narrows `use`, whose packing is that of what `use.gather` gives, to a shard.
static bool narrowToShard(ParameterUse &use) {
  if (!use.gather || !use.gather.getDim())
    return true;
  auto dim = static_cast<int64_t>(*use.gather.getDim());
  auto whole = cast<RankedTensorType>(use.gather->getResult(0).getType());
  bool isFirst = whole.getRank() == 3 && dim == 1;
  Columns &columns = isFirst ? use.packing.first : use.packing.second;
  std::optional<Columns> narrow =
      selectOfShard(columns, whole.getDimSize(dim), use.getParts(),
                    static_cast<int64_t>(use.gather.getParts()));
  if (!narrow)
    return false;
  columns = *narrow;
  return true;
}

/// The static argument of `entry` that `value` is, or that `gather` gathers.
static BlockArgument getArgument(Value value, Block &entry) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || argument.getOwner() != &entry)
    return {};
  auto type = dyn_cast<RankedTensorType>(argument.getType());
  return type && type.hasStaticShape() ? argument : BlockArgument();
}

static std::optional<ParameterUse> traceWeight(Value weight, Block &entry) {
  auto type = cast<RankedTensorType>(weight.getType());
  MLIRContext *context = weight.getContext();
  Access access{weight, AffineMap::getMultiDimIdentityMap(3, context)};
  while (
      isa_and_present<tensor::ExtractSliceOp, tensor::ExpandShapeOp,
                      tensor::CollapseShapeOp>(access.value.getDefiningOp())) {
    Access next = lookThroughOnce(access);
    if (next.value == access.value)
      return std::nullopt;
    access = next;
  }
  ParameterUse use{};
  auto source = cast<RankedTensorType>(access.value.getType());
  use.gather = access.value.getDefiningOp<GatherWeightsOp>();
  use.argument =
      getArgument(use.gather ? use.gather.getWeights() : access.value, entry);
  if (!use.argument)
    return std::nullopt;
  ArrayRef<AffineExpr> coords = access.map.getResults();
  if (source.getRank() == 3) {
    // All experts, in order.
    if (coords[0] != getAffineDimExpr(0, context) &&
        !(coords[0] == getAffineConstantExpr(0, context) &&
          source.getDimSize(0) == 1))
      return std::nullopt;
    if (source.getDimSize(0) != type.getDimSize(0))
      return std::nullopt;
    coords = coords.drop_front();
  }
  if (coords.size() != 2)
    return std::nullopt;
  for (auto [i, coord] : llvm::enumerate(coords)) {
    std::optional<LinearCoord> linear = getLinearCoord(coord);
    if (!linear || linear->dim.value_or(0) != i + 1)
      return std::nullopt;
    (i == 0 ? use.packing.first : use.packing.second) = {
        linear->offset, linear->stride, type.getDimSize(i + 1)};
  }
  if (!narrowToShard(use))
    return std::nullopt;
  return use;
}

std::optional<ParameterUse>
mlir::moe::detail::traceParameter(func::FuncOp function, Value weight) {
  std::optional<ParameterUse> use =
      traceWeight(weight, function.getBody().front());
  if (!use)
    return std::nullopt;
  auto param = function.getArgAttrOfType<ParamAttr>(
      use->argument.getArgNumber(), kParamAttrName);
  if (!param)
    return std::nullopt;
  auto type = cast<RankedTensorType>(use->argument.getType());
  Attribute shard =
      function.getArgAttr(use->argument.getArgNumber(), kShardAttrName);
  if (ParameterShape(param, type, shard).slice.size() != 2)
    return std::nullopt;
  return use;
}

std::optional<ParameterUse>
mlir::moe::detail::traceVector(func::FuncOp function,
                               tensor::ExtractSliceOp slice) {
  ParameterUse use{};
  RankedTensorType source = slice.getSourceType();
  use.gather = slice.getSource().getDefiningOp<GatherWeightsOp>();
  use.argument =
      getArgument(use.gather ? use.gather.getWeights() : slice.getSource(),
                  function.getBody().front());
  if (!use.argument || !function.getArgAttrOfType<ParamAttr>(
                           use.argument.getArgNumber(), kParamAttrName))
    return std::nullopt;
  if (ShapedType::isDynamicShape(slice.getStaticOffsets()) ||
      ShapedType::isDynamicShape(slice.getStaticSizes()) ||
      source.getRank() != 2 || slice.getType().getRank() != 2 ||
      slice.getStaticOffsets()[0] != 0 ||
      slice.getStaticSizes()[0] != source.getDimSize(0))
    return std::nullopt;
  auto held = cast<RankedTensorType>(use.argument.getType());
  use.packing.first = {0, 1, held.getDimSize(0)};
  use.packing.second = {slice.getStaticOffsets()[1],
                        slice.getStaticStrides()[1], slice.getStaticSizes()[1]};
  if (!narrowToShard(use))
    return std::nullopt;
  return use;
}

Value mlir::moe::detail::gatherPacked(GatherWeightsOp gather, Value packed) {
  OpBuilder builder(gather);
  auto type = cast<RankedTensorType>(packed.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[0] =
      cast<RankedTensorType>(gather->getResult(0).getType()).getDimSize(0);
  IntegerAttr dim;
  if (gather.getDim()) {
    dim = builder.getI64IntegerAttr(1);
    shape[1] *= gather.getPlacement().getPartsPerGroup();
  }
  return GatherWeightsOp::create(builder, gather.getLoc(),
                                 TypeRange(type.clone(shape)), packed,
                                 /*outs=*/ValueRange(), dim, /*parts=*/1,
                                 gather.getPlacement(), gather.getLayerAttr())
      ->getResult(0);
}

/// Gathers whole shards `[slots, 1, ...]` in dim 1, and brings shard numbers to
/// their place.
static void orderGather(GatherWeightsOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  auto local = cast<RankedTensorType>(op.getWeights().getType());
  auto whole = cast<RankedTensorType>(op->getResult(0).getType());
  auto dim = static_cast<int64_t>(*op.getDim());
  auto parts = static_cast<int64_t>(op.getParts());
  // [slots, 1, ..., parts, length, ...]; the number of the shard goes before
  // the length.
  SmallVector<int64_t> shape{local.getDimSize(0), 1}, permutation{0};
  SmallVector<ReassociationIndices> expansion{{0, 1}}, collapse{{0}};
  for (int64_t d = 1; d < local.getRank(); ++d) {
    expansion.emplace_back();
    collapse.emplace_back();
    auto add = [&](int64_t size) {
      expansion.back().push_back(shape.size());
      permutation.push_back(shape.size());
      collapse.back().push_back(permutation.size() - 1);
      shape.push_back(size);
    };
    if (d != dim) {
      add(local.getDimSize(d));
      continue;
    }
    if (parts > 1)
      add(parts);
    permutation.push_back(1);
    collapse.back().push_back(permutation.size() - 1);
    add(local.getDimSize(d) / parts);
  }
  Value shards = tensor::ExpandShapeOp::create(builder, loc, local.clone(shape),
                                               op.getWeights(), expansion);
  shape[0] = whole.getDimSize(0);
  shape[1] = op.getPlacement().getPartsPerGroup();
  Value all = GatherWeightsOp::create(
                  builder, loc, TypeRange(local.clone(shape)), shards,
                  /*outs=*/ValueRange(), builder.getI64IntegerAttr(1),
                  /*parts=*/1, op.getPlacement(), op.getLayerAttr())
                  ->getResult(0);
  SmallVector<int64_t> ordered;
  for (int64_t d : permutation)
    ordered.push_back(shape[d]);
  Value empty =
      tensor::EmptyOp::create(builder, loc, ordered, local.getElementType());
  Value moved =
      linalg::TransposeOp::create(builder, loc, all, empty, permutation)
          ->getResult(0);
  op->getResult(0).replaceAllUsesWith(
      tensor::CollapseShapeOp::create(builder, loc, whole, moved, collapse));
  op.erase();
}

void mlir::moe::detail::orderGathers(func::FuncOp function) {
  SmallVector<GatherWeightsOp> gathers;
  function.walk([&](GatherWeightsOp op) {
    if (!hasBufferForm(op) && op.getDim() &&
        (*op.getDim() != 1 || op.getParts() != 1))
      gathers.push_back(op);
  });
  for (GatherWeightsOp op : gathers)
    orderGather(op);
}
