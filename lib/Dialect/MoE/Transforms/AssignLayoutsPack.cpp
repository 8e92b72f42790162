// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AssignLayoutsPack.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

ParameterShape::ParameterShape(ParamAttr param, RankedTensorType logical,
                               Attribute shard)
    : logical(logical), slice(logical.getShape()) {
  if (!param.getName().contains("{}") && logical.getRank() != 3 && !shard)
    return;
  slices = slice.front();
  slice = slice.drop_front();
}

/// `[ceil(N/w), K, w]`, or the kept places of the slice.
static SmallVector<int64_t> getPackedSlice(const ParameterShape &shape,
                                           const Packing &packing) {
  if (shape.slice.size() == 1)
    return {packing.second.size};
  if (packing.form.width == 0)
    return {packing.first.size, packing.second.size};
  bool nk = packing.layout == WeightLayout::NK;
  int64_t n = nk ? packing.first.size : packing.second.size;
  int64_t k = nk ? packing.second.size : packing.first.size;
  SmallVector<int64_t> sizes = packing.form.shape(/*experts=*/1, n, k);
  sizes.erase(sizes.begin());
  return sizes;
}

RankedTensorType mlir::moe::detail::getPackedType(const ParameterShape &shape,
                                                  const Packing &packing) {
  SmallVector<int64_t> sizes = getPackedSlice(shape, packing);
  // Panels have a leading dim in any case.
  bool stacked =
      static_cast<int64_t>(shape.slice.size()) < shape.logical.getRank();
  if (packing.form.width != 0 || stacked)
    sizes.insert(sizes.begin(), shape.slices);
  return RankedTensorType::get(sizes, shape.logical.getElementType());
}

/// Where this argument stands along d0 of what the checkpoint holds.
static Columns getPart(ParamAttr param, int64_t size) {
  if (param.getInterleaved())
    return {param.getPart(), param.getParts(), size};
  return {param.getPart() * size, 1, size};
}

/// Where each element of a slice stands, as numbers, so that what knows only
/// the manifest can find it.
static DictionaryAttr describeForm(Builder &builder, ParamAttr param,
                                   const ParameterShape &shape,
                                   const Packing &packing) {
  auto columns = [&](Columns kept) {
    return builder.getDenseI64ArrayAttr({kept.offset, kept.stride, kept.size});
  };
  const PanelForm &form = packing.form;
  bool nk = packing.layout == WeightLayout::NK;
  SmallVector<NamedAttribute> fields{
      {"second", columns(packing.second)},
      {"width", builder.getI64IntegerAttr(form.width)},
      {"pairs", builder.getBoolAttr(form.pairs)},
      {"first_is_n", builder.getBoolAttr(nk)},
      {"blocks_n", builder.getI64IntegerAttr(form.blocksOfN)},
      {"blocks_k", builder.getI64IntegerAttr(form.blocksOfK)},
      {"transpose", builder.getBoolAttr(param.getTranspose())},
      {"part", columns(getPart(param, shape.slice.front()))}};
  if (shape.slice.size() == 2)
    fields.emplace_back("first", columns(packing.first));
  return builder.getDictionaryAttr(fields);
}

DictionaryAttr PackFunctions::getPacking(Location loc, ParamAttr param,
                                         const ParameterShape &shape,
                                         const Packing &packing) {
  SmallVector<int64_t> file(shape.slice);
  if (file.size() == 2) {
    file[0] *= param.getParts();
    if (param.getTranspose())
      std::swap(file[0], file[1]);
  }
  Type element = shape.logical.getElementType();
  auto source = RankedTensorType::get(file, element);
  Columns part = getPart(param, shape.slice.front());
  std::string key;
  llvm::raw_string_ostream stream(key);
  auto print = [&](Columns columns) {
    stream << columns.offset << ":" << columns.stride << ":" << columns.size
           << " ";
  };
  print(part);
  print(packing.first);
  print(packing.second);
  const PanelForm &form = packing.form;
  stream << source << form.width << ' ' << static_cast<int>(packing.layout)
         << form.pairs << form.blocksOfN << ':' << form.blocksOfK
         << param.getTranspose();
  auto *it = llvm::find_if(
      entries, [&](const Entry &entry) { return entry.key == key; });
  if (it == entries.end()) {
    entries.push_back({key, create(loc, param, shape, packing, source)});
    it = &entries.back();
  }
  Builder builder(module.getContext());
  return builder.getDictionaryAttr(
      {{"form", describeForm(builder, param, shape, packing)},
       {"function", FlatSymbolRefAttr::get(it->function)},
       {"logical", TypeAttr::get(shape.logical)},
       {"slices", builder.getI64IntegerAttr(shape.slices)},
       {"source", TypeAttr::get(source)}});
}

/// The kept places of `source`, given in the order of its dims.
static Value extract(OpBuilder &builder, Location loc, Value source,
                     ArrayRef<Columns> places) {
  auto type = cast<RankedTensorType>(source.getType());
  SmallVector<OpFoldResult> offsets, sizes, strides;
  bool whole = true;
  for (auto [columns, size] : llvm::zip(places, type.getShape())) {
    offsets.push_back(builder.getIndexAttr(columns.offset));
    sizes.push_back(builder.getIndexAttr(columns.size));
    strides.push_back(builder.getIndexAttr(columns.stride));
    whole &= columns == Columns{0, 1, size};
  }
  if (whole)
    return source;
  return tensor::ExtractSliceOp::create(builder, loc, source, offsets, sizes,
                                        strides);
}

HiddenAttr mlir::moe::detail::getHidden(MLIRContext *context,
                                        const PanelForm &form) {
  if (form.blocksOfN > 1)
    return HiddenAttr::get(context, form.blocksOfN, HiddenDim::N);
  if (form.blocksOfK > 1)
    return HiddenAttr::get(context, form.blocksOfK, HiddenDim::K);
  return {};
}

/// `[d0, d1]` in the file's order to panels; the transpose is part of packing.
static Value packMatrix(OpBuilder &builder, Location loc, Value matrix,
                        WeightLayout layout, const PanelForm &form,
                        RankedTensorType result) {
  auto type = cast<RankedTensorType>(matrix.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.insert(shape.begin(), 1);
  Value stacked = tensor::ExpandShapeOp::create(
      builder, loc, RankedTensorType::get(shape, type.getElementType()), matrix,
      ArrayRef<ReassociationIndices>{{0, 1}, {2}});
  SmallVector<int64_t> panels(result.getShape());
  panels.insert(panels.begin(), 1);
  auto panelType = RankedTensorType::get(panels, type.getElementType());
  Value packed = PackOp::create(builder, loc, TypeRange(panelType), stacked,
                                /*outs=*/ValueRange(), layout,
                                getHidden(builder.getContext(), form))
                     .getResult(0);
  SmallVector<ReassociationIndices> groups{{0, 1}};
  for (int64_t d = 2; d < panelType.getRank(); ++d)
    groups.push_back({d});
  return tensor::CollapseShapeOp::create(builder, loc, packed, groups);
}

func::FuncOp PackFunctions::create(Location loc, ParamAttr param,
                                   const ParameterShape &shape,
                                   const Packing &packing,
                                   RankedTensorType source) {
  MLIRContext *context = module.getContext();
  auto result = RankedTensorType::get(getPackedSlice(shape, packing),
                                      source.getElementType());
  OpBuilder builder(context);
  auto function = func::FuncOp::create(
      builder, loc, ("moe_pack_" + Twine(entries.size())).str(),
      builder.getFunctionType({source}, {result}));
  function.setPrivate();
  symbols.insert(function);
  builder.setInsertionPointToStart(function.addEntryBlock());

  SmallVector<Columns> places{packing.second};
  if (shape.slice.size() == 2)
    places.insert(places.begin(),
                  getPart(param, shape.slice.front()).select(packing.first));
  if (param.getTranspose())
    std::swap(places[0], places[1]);
  Value value = extract(builder, loc, function.getArgument(0), places);
  if (packing.form.width != 0) {
    bool nk = (packing.layout == WeightLayout::NK) != param.getTranspose();
    value = packMatrix(builder, loc, value,
                       nk ? WeightLayout::NK : WeightLayout::KN, packing.form,
                       result);
  } else if (param.getTranspose()) {
    Value empty = tensor::EmptyOp::create(builder, loc, result.getShape(),
                                          result.getElementType());
    value = linalg::TransposeOp::create(builder, loc, value, empty,
                                        ArrayRef<int64_t>{1, 0})
                ->getResult(0);
  }
  func::ReturnOp::create(builder, loc, value);
  return function;
}
