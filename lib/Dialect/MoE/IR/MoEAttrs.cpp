// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::moe;

#define GET_ATTRDEF_CLASSES
#include "moira/Dialect/MoE/IR/MoEAttrs.cpp.inc"

void MoEDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "moira/Dialect/MoE/IR/MoEAttrs.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// RouterAttr
//===----------------------------------------------------------------------===//

/// Parses one enum keyword into `result`; says what it may be.
template <typename Enum>
static ParseResult parseKeywordEnum(AsmParser &parser, Enum &result,
                                    std::optional<Enum> (*symbolize)(StringRef),
                                    StringRef expected) {
  StringRef keyword;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<Enum> value = symbolize(keyword);
  if (!value)
    return parser.emitError(loc)
           << "expected " << expected << ", got '" << keyword << "'";
  result = *value;
  return success();
}

static ParseResult parseNumber(AsmParser &parser, APFloat &result) {
  double value;
  if (parser.parseFloat(value))
    return failure();
  result = APFloat(value);
  return success();
}

Attribute RouterAttr::parse(AsmParser &parser, Type) {
  Score score = Score::Softmax;
  GroupScore groupScore = GroupScore::Max;
  Normalize normalize = Normalize::None;
  bool afterTopK = false, expertChoice = false;
  int64_t groups = 1, keep = 1;
  APFloat eps(0.0), scale(1.0);
  llvm::StringSet<> seen;
  auto parseKey = [&]() -> ParseResult {
    StringRef key;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&key))
      return failure();
    if (!seen.insert(key).second)
      return parser.emitError(loc) << "expected '" << key << "' only once";
    if (key == "after_top_k")
      return afterTopK = true, success();
    if (key == "expert_choice")
      return expertChoice = true, success();
    if (!llvm::is_contained({"score", "groups", "keep", "group_score",
                             "normalize", "eps", "scale"},
                            key))
      return parser.emitError(loc)
             << "expected score, after_top_k, groups, keep, group_score, "
                "normalize, eps, scale or expert_choice, got '"
             << key << "'";
    if (parser.parseEqual())
      return failure();
    if (key == "score")
      return parseKeywordEnum<Score>(
          parser, score, symbolizeScore,
          "softmax, sigmoid, sqrtsoftplus or identity");
    if (key == "group_score")
      return parseKeywordEnum<GroupScore>(
          parser, groupScore, symbolizeGroupScore, "max or sum_top2");
    if (key == "normalize")
      return parseKeywordEnum<Normalize>(parser, normalize, symbolizeNormalize,
                                         "none, sum_plus_eps or max_sum_eps");
    if (key == "groups")
      return parser.parseInteger(groups);
    if (key == "keep")
      return parser.parseInteger(keep);
    return parseNumber(parser, key == "eps" ? eps : scale);
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater,
                                     parseKey))
    return {};
  return parser.getChecked<RouterAttr>(loc, parser.getContext(), score,
                                       afterTopK, groups, keep, groupScore,
                                       normalize, eps, scale, expertChoice);
}

/// Prints the shortest decimal that reads back as the same double; MLIR's own
/// printer goes from 6 digits straight to 17 (1.0e-20 would read
/// 9.9999999999999995E-21).
static void printNumber(AsmPrinter &printer, const APFloat &value) {
  SmallString<32> text;
  for (unsigned digits = 1; digits <= 17; ++digits) {
    text.clear();
    value.toString(text, digits, /*FormatMaxPadding=*/3,
                   /*TruncateZero=*/true);
    if (APFloat(value.getSemantics(), text).bitwiseIsEqual(value))
      break;
  }
  // The lexer wants a point in every number that is not an integer.
  if (!text.str().contains('.'))
    text += ".0";
  printer.getStream() << StringRef(text).lower();
}

void RouterAttr::print(AsmPrinter &printer) const {
  llvm::ListSeparator comma;
  auto &os = printer.getStream();
  os << "<";
  if (getScore() != Score::Softmax)
    os << comma << "score = " << stringifyScore(getScore());
  if (getAfterTopK())
    os << comma << "after_top_k";
  if (getGroups() != 1)
    os << comma << "groups = " << getGroups();
  if (getKeep() != 1)
    os << comma << "keep = " << getKeep();
  if (getGroupScore() != GroupScore::Max)
    os << comma << "group_score = " << stringifyGroupScore(getGroupScore());
  if (getNormalize() != Normalize::None)
    os << comma << "normalize = " << stringifyNormalize(getNormalize());
  if (!getEps().isZero()) {
    os << comma << "eps = ";
    printNumber(printer, getEps());
  }
  if (!getScale().isExactlyValue(1.0)) {
    os << comma << "scale = ";
    printNumber(printer, getScale());
  }
  if (getExpertChoice())
    os << comma << "expert_choice";
  os << ">";
}

LogicalResult HiddenAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t blocks, HiddenDim dim) {
  // hidden_c1
  if (blocks < 1)
    return emitError() << "expected at least one hidden block, got " << blocks;
  return success();
}

LogicalResult
PlacementAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                      int64_t ranks, int64_t experts, int64_t shards,
                      int64_t copies, int64_t slots) {
  // placement_c1
  if (ranks < 1 || experts < 1 || shards < 1 || slots < 1)
    return emitError() << "expected at least one rank, expert, shard and slot, "
                          "got "
                       << ranks << ", " << experts << ", " << shards << " and "
                       << slots;
  // placement_c2
  if (copies < 0 || (copies > 0 && shards % copies != 0))
    return emitError() << "expected copies of 0 or a divisor of " << shards
                       << " shards, got " << copies;
  // placement_c3
  if (ranks * slots < experts * shards)
    return emitError() << "expected slots for " << experts * shards
                       << " shards of experts, got " << ranks << " * " << slots;
  return success();
}

LogicalResult ShardAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                int64_t experts, int64_t shards,
                                std::optional<int64_t> dim, int64_t parts,
                                bool) {
  // shard_c1
  if (experts < 1 || shards < 1 || parts < 1 || dim.value_or(0) < 0)
    return emitError() << "expected at least one expert, shard and part and a "
                          "dim of 0 or more, got "
                       << experts << ", " << shards << ", " << parts << " and "
                       << dim.value_or(0);
  return success();
}

ShardAttr ShardAttr::getInFile(ParamAttr param, int64_t sliceRank) const {
  if (!getDim() || sliceRank != 2)
    return *this;
  int64_t dim = *getDim(), parts = getParts();
  bool interleaved = getInterleaved();
  if (dim == 0 && param.getParts() > 1) {
    if (parts > 1 && interleaved != param.getInterleaved())
      return {};
    parts *= param.getParts();
    interleaved = param.getInterleaved();
  }
  if (param.getTranspose())
    dim = 1 - dim;
  return get(getContext(), getExperts(), getShards(), dim, parts, interleaved);
}

LogicalResult RouterAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 Score score, bool afterTopK, int64_t groups,
                                 int64_t keep, GroupScore, Normalize,
                                 APFloat eps, APFloat scale,
                                 bool expertChoice) {
  // router_c1
  if (keep < 1 || keep > groups)
    return emitError() << "expected 1 <= keep <= groups, got keep = " << keep
                       << ", groups = " << groups;
  // router_c2
  if (!eps.isFinite() || eps.isNegative())
    return emitError() << "expected a finite eps >= 0, got "
                       << eps.convertToDouble();
  if (!scale.isFinite())
    return emitError() << "expected a finite scale, got "
                       << scale.convertToDouble();
  // router_c3
  if (afterTopK && score != Score::Softmax && score != Score::Sigmoid)
    return emitError() << "expected softmax or sigmoid with after_top_k, got "
                       << stringifyScore(score);
  // router_c4
  if (expertChoice && (groups != 1 || afterTopK))
    return emitError()
           << "expected expert_choice without groups and after_top_k";
  return success();
}

//===----------------------------------------------------------------------===//
// ParamAttr
//===----------------------------------------------------------------------===//

Attribute ParamAttr::parse(AsmParser &parser, Type) {
  std::string name;
  bool transpose = false, interleaved = false;
  int64_t part = 0, parts = 1;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseString(&name))
    return {};
  while (succeeded(parser.parseOptionalComma())) {
    if (succeeded(parser.parseOptionalKeyword("transpose"))) {
      transpose = true;
    } else if (succeeded(parser.parseOptionalKeyword("interleaved"))) {
      interleaved = true;
    } else if (succeeded(parser.parseOptionalKeyword("part"))) {
      if (parser.parseEqual() || parser.parseInteger(part) ||
          parser.parseKeyword("of") || parser.parseInteger(parts))
        return {};
    } else {
      parser.emitError(parser.getCurrentLocation(),
                       "expected transpose, part or interleaved");
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<ParamAttr>(loc, parser.getContext(), name, transpose,
                                      part, parts, interleaved);
}

void ParamAttr::print(AsmPrinter &printer) const {
  auto &os = printer.getStream();
  os << "<\"";
  llvm::printEscapedString(getName(), os);
  os << "\"";
  if (getTranspose())
    os << ", transpose";
  if (getParts() != 1)
    os << ", part = " << getPart() << " of " << getParts();
  if (getInterleaved())
    os << ", interleaved";
  os << ">";
}

LogicalResult ParamAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                StringRef name, bool, int64_t part,
                                int64_t parts, bool) {
  // param_c1
  if (name.empty() || name.count("{}") > 1)
    return emitError() << "expected a name with at most one '{}', got '" << name
                       << "'";
  // param_c2
  if (part < 0 || part >= parts)
    return emitError() << "expected part in [0, " << parts << "), got " << part;
  return success();
}
