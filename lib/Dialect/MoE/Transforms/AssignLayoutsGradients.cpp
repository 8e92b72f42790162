// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AssignLayoutsGradients.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// The parameters of `function` in the order of their arguments.
static SmallVector<ParamAttr> listParameters(func::FuncOp function) {
  SmallVector<ParamAttr> parameters;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (auto param = function.getArgAttrOfType<ParamAttr>(i, kParamAttrName);
        param && !llvm::is_contained(parameters, param))
      parameters.push_back(param);
  return parameters;
}

/// The packing of `param`, where it is read in one way and whole.
static const PackedParameter *findPacked(func::FuncOp function,
                                         ArrayRef<PackedParameter> packed,
                                         ParamAttr param) {
  unsigned arguments = 0;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    arguments += function.getArgAttr(i, kParamAttrName) == param;
  const auto *found = llvm::find_if(
      packed, [&](const PackedParameter &one) { return one.param == param; });
  if (arguments != 1 || found == packed.end() || found->packing.form.width == 0)
    return nullptr;
  ParameterShape shape(param, found->logical, found->shard);
  if (shape.slice.size() != 2 ||
      !(found->packing.first == Columns{0, 1, shape.slice[0]}) ||
      !(found->packing.second == Columns{0, 1, shape.slice[1]}))
    return nullptr;
  return found;
}

/// The contraction over rows that computes `value`, for this reader only.
static GroupedMatmulOp findContraction(Value value) {
  while (auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>()) {
    if (!value.hasOneUse())
      return {};
    value = collapse.getSrc();
  }
  auto op = value.getDefiningOp<GroupedMatmulOp>();
  bool matches = op && op.getContraction() && !op.hasPanels() &&
                 value.hasOneUse() &&
                 cast<ShapedType>(value.getType()).hasStaticShape();
  return matches ? op : GroupedMatmulOp();
}

/// Lets `op` write the panels itself.
static Value packInKernel(OpBuilder &builder, GroupedMatmulOp op,
                          const Packing &packing, RankedTensorType type) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
  SmallVector<Value> rows(op.getRows());
  if (packing.layout == WeightLayout::KN)
    std::swap(rows[0], rows[1]);
  auto packed = GroupedMatmulOp::create(
      builder, op.getLoc(), TypeRange(type), rows, op.getSizes(), ValueRange(),
      ValueRange(), /*gather=*/Value(), ValueRange(), ValueRange(),
      ValueRange(), ValueRange(), WeightLayout::Panels, /*contraction=*/true,
      /*chained=*/false, HiddenAttr(), op.getLayerAttr());
  packed.getEpilogue().takeBody(op.getEpilogue());
  return packed.getResult(0);
}

static Value packValue(OpBuilder &builder, Location loc, Value value,
                       const Packing &packing, RankedTensorType type) {
  auto logical = cast<RankedTensorType>(value.getType());
  if (logical.getRank() == 2) {
    SmallVector<int64_t> shape(logical.getShape());
    shape.insert(shape.begin(), 1);
    value = tensor::ExpandShapeOp::create(
        builder, loc, logical.clone(shape), value,
        ArrayRef<ReassociationIndices>{{0, 1}, {2}});
  }
  return PackOp::create(builder, loc, TypeRange(type), value,
                        /*outs=*/ValueRange(), packing.layout,
                        getHidden(builder.getContext(), packing.form))
      .getResult(0);
}

unsigned mlir::moe::detail::packGradients(func::FuncOp function,
                                          ArrayRef<PackedParameter> packed) {
  auto end = cast<func::ReturnOp>(function.getBody().back().getTerminator());
  OpBuilder builder(end);
  SmallVector<ParamAttr> parameters = listParameters(function);
  SmallVector<Type> types(function.getResultTypes());
  llvm::StringMap<int64_t> seen;
  unsigned count = 0;
  for (unsigned i = 0; i < types.size(); ++i) {
    auto name = function.getResultAttrOfType<StringAttr>(i, kGradientAttrName);
    if (!name)
      continue;
    // Parts of one tensor have one name: they follow each other in order.
    int64_t nth = seen[name.getValue()]++;
    const auto *param = llvm::find_if(parameters, [&](ParamAttr one) {
      return one.getName() == name.getValue() && nth-- == 0;
    });
    const PackedParameter *found = param == parameters.end()
                                       ? nullptr
                                       : findPacked(function, packed, *param);
    if (!found || found->logical != types[i])
      continue;
    const PanelForm &form = found->packing.form;
    RankedTensorType type = getPackedType(
        ParameterShape(found->param, found->logical, found->shard),
        found->packing);
    Value value = end.getOperand(i);
    GroupedMatmulOp contraction = findContraction(value);
    if (contraction && form.blocksOfN == 1 && form.blocksOfK == 1)
      value = packInKernel(builder, contraction, found->packing, type);
    else
      value = packValue(builder, end.getLoc(), value, found->packing, type);
    end.setOperand(i, value);
    types[i] = type;
    function.setResultAttr(i, kPackedGradientAttrName, builder.getUnitAttr());
    ++count;
  }
  function.setFunctionType(
      builder.getFunctionType(function.getArgumentTypes(), types));
  return count;
}
