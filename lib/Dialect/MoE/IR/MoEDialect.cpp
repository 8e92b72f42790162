// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "moira/Dialect/MoE/IR/HiddenPlaces.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::moe;

#include "moira/Dialect/MoE/IR/MoEDialect.cpp.inc"
#include "moira/Dialect/MoE/IR/MoEEnums.cpp.inc"

/// Parses `[decode, prefill]`.
static ParseResult parseRowClasses(OpAsmParser &parser, ArrayAttr &classes) {
  SmallVector<Attribute> values;
  auto parseOne = [&]() -> ParseResult {
    StringRef keyword;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<RowClass> value = symbolizeRowClass(keyword);
    if (!value)
      return parser.emitError(loc)
             << "expected decode or prefill, got '" << keyword << "'";
    values.push_back(RowClassAttr::get(parser.getContext(), *value));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne))
    return failure();
  classes = ArrayAttr::get(parser.getContext(), values);
  return success();
}

static void printRowClasses(OpAsmPrinter &printer, Operation *,
                            ArrayAttr classes) {
  printer << "[";
  llvm::interleaveComma(classes, printer, [&](Attribute value) {
    printer << stringifyRowClass(cast<RowClassAttr>(value).getValue());
  });
  printer << "]";
}

/// Parses an optional `public`, `private` or `nested`.
static OptionalParseResult parseVisibility(OpAsmParser &parser,
                                           StringAttr &result) {
  StringRef keyword;
  if (failed(parser.parseOptionalKeyword(&keyword,
                                         {"public", "private", "nested"})))
    return std::nullopt;
  result = parser.getBuilder().getStringAttr(keyword);
  return success();
}

static void printVisibility(OpAsmPrinter &printer, Operation *,
                            StringAttr visibility) {
  printer << visibility.getValue();
}

#define GET_OP_CLASSES
#include "moira/Dialect/MoE/IR/MoEOps.cpp.inc"

namespace {
/// All ops may be inlined: functions that hold layers are inlined before
/// lowering.
struct MoEInlinerInterface : public DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final {
    return true;
  }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final {
    return true;
  }
};
} // namespace

void MoEDialect::initialize() {
  registerAttributes();
  addOperations<
#define GET_OP_LIST
#include "moira/Dialect/MoE/IR/MoEOps.cpp.inc"
      >();
  addInterfaces<MoEInlinerInterface>();
}

Operation *MoEDialect::materializeConstant(OpBuilder &builder, Attribute value,
                                           Type type, Location loc) {
  return arith::ConstantOp::materialize(builder, value, type, loc);
}

/// What an entry says of its gradients.
static LogicalResult verifyBackward(Operation *op, NamedAttribute attribute) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function && !isa<VariantsOp>(op))
    return op->emitOpError("expected '")
           << attribute.getName().getValue() << "' on a function only";
  if (attribute.getName() == kBackwardAttrName) {
    if (isa<FlatSymbolRefAttr>(attribute.getValue()))
      return success();
    return op->emitOpError("expected a function's name as '")
           << kBackwardAttrName << "', got " << attribute.getValue();
  }
  auto count = dyn_cast<IntegerAttr>(attribute.getValue());
  if (count && count.getType().isInteger(64) && count.getInt() >= 0 &&
      (!function || count.getInt() <= function.getNumResults()))
    return success();
  return op->emitOpError("expected an i64 of 0 or more, and not more than "
                         "there are results, as '")
         << kResidualsAttrName << "', got " << attribute.getValue();
}

LogicalResult MoEDialect::verifyOperationAttribute(Operation *op,
                                                   NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name == "moe.row_class") {
    if (!isa<RowClassAttr>(attribute.getValue()))
      return op->emitOpError("expected #moe.row_class as '")
             << name << "', got " << attribute.getValue();
    return success();
  }
  if (name == kQueueAttrName) {
    auto queue = dyn_cast<StringAttr>(attribute.getValue());
    if (!queue || (queue != "compute" && queue != "communication"))
      return op->emitOpError("expected \"compute\" or \"communication\" as '")
             << name << "', got " << attribute.getValue();
    return success();
  }
  if (name == kStageAttrName) {
    auto stage = dyn_cast<IntegerAttr>(attribute.getValue());
    if (!stage || !stage.getType().isInteger(64) || stage.getInt() < 0)
      return op->emitOpError("expected an i64 of 0 or more as '")
             << name << "', got " << attribute.getValue();
    return success();
  }
  if (name == kBackwardAttrName || name == kResidualsAttrName)
    return verifyBackward(op, attribute);
  if (name == kHiddenPlacesAttrName)
    return detail::verifyHiddenPlaces(op, attribute.getValue());
  // Notes that passes leave for each other.
  if (llvm::is_contained({"moe.abi", "moe.cost", "moe.costs",
                          "moe.flops_per_token", "moe.kind", "moe.layers",
                          "moe.numerics", "moe.ranks", "moe.routing",
                          "moe.schedule", "moe.update", "moe.variant"},
                         name))
    return success();
  return op->emitOpError("expected no attribute '") << name << "' on an op";
}

/// The dictionary that moe-assign-layouts leaves on a packed parameter.
static LogicalResult verifyPacking(Operation *op, unsigned argIndex,
                                   Attribute value) {
  auto packing = dyn_cast<DictionaryAttr>(value);
  if (packing && packing.getAs<TypeAttr>("logical") &&
      packing.getAs<TypeAttr>("source") &&
      packing.getAs<IntegerAttr>("slices") &&
      packing.getAs<FlatSymbolRefAttr>("function"))
    return success();
  return op->emitOpError("expected logical, source, slices and function in "
                         "'moe.packing' of argument #")
         << argIndex << ", got " << value;
}

/// shard_c2.
static LogicalResult verifyShard(Operation *op, unsigned argIndex,
                                 Attribute value) {
  auto shard = dyn_cast<ShardAttr>(value);
  if (!shard)
    return op->emitOpError("expected #moe.shard as 'moe.shard' of argument #")
           << argIndex << ", got " << value;
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function || argIndex >= function.getNumArguments() ||
      !function.getArgAttr(argIndex, kParamAttrName))
    return op->emitOpError(
               "expected 'moe.shard' on a parameter only, got it on "
               "argument #")
           << argIndex;
  return success();
}

/// param_c3.
LogicalResult MoEDialect::verifyRegionArgAttribute(Operation *op,
                                                   unsigned regionIndex,
                                                   unsigned argIndex,
                                                   NamedAttribute attribute) {
  if (attribute.getName() == "moe.name")
    return success();
  if (attribute.getName() == kBlocksAttrName) {
    if (isa<UnitAttr>(attribute.getValue()))
      return success();
    return op->emitOpError("expected a unit attribute as 'moe.blocks' of "
                           "argument #")
           << argIndex << ", got " << attribute.getValue();
  }
  if (attribute.getName() == kShardAttrName)
    return verifyShard(op, argIndex, attribute.getValue());
  if (attribute.getName() == kPackingAttrName)
    return verifyPacking(op, argIndex, attribute.getValue());
  if (attribute.getName() != kParamAttrName)
    return op->emitOpError("expected 'moe.param' as attribute of argument #")
           << argIndex << ", got '" << attribute.getName().getValue() << "'";
  auto param = dyn_cast<ParamAttr>(attribute.getValue());
  if (!param)
    return op->emitOpError("expected #moe.param as 'moe.param' of argument #")
           << argIndex << ", got " << attribute.getValue();
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function || argIndex >= function.getNumArguments())
    return op->emitOpError("expected 'moe.param' on a function argument");
  auto type = dyn_cast<ShapedType>(function.getArgumentTypes()[argIndex]);
  // The rules are those of the program's type, not of the packed one.
  if (auto packing =
          function.getArgAttrOfType<DictionaryAttr>(argIndex, kPackingAttrName))
    if (auto logical = packing.getAs<TypeAttr>("logical"))
      type = dyn_cast<ShapedType>(logical.getValue());
  if (!type || !type.hasStaticShape() || type.getRank() < 1 ||
      type.getRank() > 3)
    return op->emitOpError("expected parameter #")
           << argIndex << " of static shape and rank 1 to 3, got "
           << function.getArgumentTypes()[argIndex];
  bool stacked = param.getName().contains("{}") || type.getRank() == 3;
  int64_t sliceRank = type.getRank() - (stacked ? 1 : 0);
  if (sliceRank < 1)
    return op->emitOpError("expected parameter #")
           << argIndex << " of rank >= 2 for the name '" << param.getName()
           << "', got " << type;
  if (sliceRank < 2 && (param.getTranspose() || param.getParts() > 1))
    return op->emitOpError("expected parameter #")
           << argIndex
           << " with two dims besides the stacked one for 'transpose' or "
              "'part', got "
           << type;
  return success();
}

bool mlir::moe::hasBufferForm(Operation *op) {
  return llvm::any_of(op->getOperandTypes(),
                      [](Type type) { return isa<MemRefType>(type); });
}

ShapedType mlir::moe::getDestinationType(Operation *op, ValueRange outs,
                                         unsigned i) {
  if (i < outs.size())
    return cast<ShapedType>(outs[i].getType());
  if (i < op->getNumResults())
    return dyn_cast<ShapedType>(op->getResult(i).getType());
  return {};
}
