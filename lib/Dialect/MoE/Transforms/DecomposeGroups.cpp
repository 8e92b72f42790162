// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DecomposeGroups.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

std::pair<Sizes, Sizes> mlir::moe::detail::expertBounds(DecomposeBuilder &b,
                                                        Value tensor,
                                                        Value expert) {
  Sizes offsets = {expert}, sizes = {b.getIndexAttr(1)};
  int64_t rank = cast<ShapedType>(tensor.getType()).getRank();
  for (int64_t d = 1; d < rank; ++d) {
    offsets.push_back(b.getIndexAttr(0));
    sizes.push_back(b.size(tensor, d));
  }
  return {offsets, sizes};
}

Value mlir::moe::detail::expertSlice(DecomposeBuilder &b, Value tensor,
                                     Value expert) {
  auto [offsets, sizes] = expertBounds(b, tensor, expert);
  return b.slice(tensor, offsets, sizes, sizes.size() - 1);
}

Values mlir::moe::detail::forEachGroup(
    DecomposeBuilder &b, Value groupSizes, bool padded, ValueRange outs,
    llvm::function_ref<Values(const Group &, ValueRange)> body) {
  Value zero = b.index(0);
  Values carried(outs);
  if (!padded)
    carried.push_back(zero); // rows of lower experts
  Values results = b.loop(
      zero, b.dim(groupSizes, 0), carried, [&](Value expert, ValueRange args) {
        Value size = b.toIndex(b.extract(groupSizes, expert));
        Value begin = padded ? zero : args.back();
        Values next = body({b, padded, expert, begin, size},
                           args.take_front(outs.size()));
        if (!padded)
          next.push_back(b.add(begin, size));
        return next;
      });
  results.truncate(outs.size());
  return results;
}
