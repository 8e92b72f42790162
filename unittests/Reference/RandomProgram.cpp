// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RandomProgram.h"

#include <algorithm>
#include <limits>
#include <sstream>

namespace moira::reference {

namespace {
/// Numbers from Philox, so that a seed means the same program everywhere
/// (distributions of the C++ library differ between implementations).
class Source {
public:
  explicit Source(uint64_t seed) : seed(seed) {}

  /// Uniform in [low, high].
  int64_t in(int64_t low, int64_t high) {
    return low + next() % (high - low + 1);
  }
  bool oneIn(int64_t n) { return in(1, n) == 1; }
  template <typename T> T pick(std::initializer_list<T> values) {
    return values.begin()[in(0, values.size() - 1)];
  }
  /// Uniform in (0, 1).
  double unit() { return uniformOf(next()); }

private:
  uint32_t next() {
    uint64_t n = drawn++;
    return philox({uint32_t(n), uint32_t(n >> 32), 0, 0},
                  {uint32_t(seed), uint32_t(seed >> 32)})[0];
  }
  uint64_t seed, drawn = 0;
};
} // namespace

static void drawRouter(Source &source, Layer &layer) {
  Router &r = layer.router;
  r.score = source.pick({Score::Softmax, Score::Softmax, Score::Sigmoid,
                         Score::SqrtSoftplus, Score::Identity});
  r.normalize = source.pick(
      {Normalize::None, Normalize::SumPlusEps, Normalize::MaxSumEps});
  r.eps = source.pick({0.0, 0x1p-20, 1e-20});
  r.scale = source.pick({1.0, 1.0, 2.5, 0.5});
  if (source.oneIn(8)) {
    r.expertChoice = true;
    return;
  }
  r.topK = source.in(1, std::min<int64_t>(layer.experts, 4));
  if (source.oneIn(8))
    r.topK = layer.experts;
  bool scored = r.score == Score::Softmax || r.score == Score::Sigmoid;
  r.afterTopK = scored && source.oneIn(3);
  std::vector<int64_t> divisors;
  for (int64_t g = 2; g <= layer.experts; ++g)
    if (layer.experts % g == 0)
      divisors.push_back(g);
  if (divisors.empty() || source.oneIn(2))
    return;
  int64_t groups = divisors[source.in(0, divisors.size() - 1)];
  int64_t size = layer.experts / groups;
  int64_t least = (r.topK + size - 1) / size;
  r.groups = groups;
  r.keep = source.in(least, groups);
  if (size >= 2 && source.oneIn(2))
    r.groupScore = GroupScore::SumTop2;
}

/// Logits whose scores differ clearly: a permutation of steps of 1/4 with a
/// small offset. Or small integers, full of ties.
static Reals drawLogits(Source &source, const Layer &layer, int64_t tokens) {
  int64_t experts = layer.experts;
  Reals logits(tokens, experts);
  bool ties = source.oneIn(3);
  // Logits that are weights must not sum to almost 0 when divided by the sum.
  bool shift = layer.router.score == Score::Identity &&
               layer.router.normalize != Normalize::None;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int64_t> steps;
    for (int64_t e = 0; e < experts; ++e)
      steps.push_back(e);
    for (int64_t e = experts - 1; e > 0; --e)
      std::swap(steps[e], steps[source.in(0, e)]);
    for (int64_t e = 0; e < experts; ++e) {
      double spread = (steps[e] - experts / 2) * 0.25;
      double value =
          ties ? source.in(-2, 2) : spread + source.in(0, 15) * 0x1p-10;
      logits(t, e) = shift ? value + 4 : value;
    }
  }
  const double special[] = {std::numeric_limits<double>::quiet_NaN(),
                            -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::infinity()};
  // As a weight, the largest finite value would only overflow.
  bool bounded = layer.router.score == Score::Softmax ||
                 layer.router.score == Score::Sigmoid;
  int64_t last = bounded ? 2 : 1;
  if (tokens > 0 && source.oneIn(4))
    for (int64_t n = source.in(1, 2 * experts); n > 0; --n)
      logits(source.in(0, tokens - 1), source.in(0, experts - 1)) =
          special[source.in(0, last)];
  return logits;
}

static void drawGateInputs(Source &source, const Layer &layer, int64_t tokens,
                           GateInputs &in) {
  in.logits = drawLogits(source, layer, tokens);
  if (source.oneIn(3))
    for (int64_t e = 0; e < layer.experts; ++e)
      in.bias.push_back(source.in(-8, 8) * 0x1p-5);
  if (source.oneIn(3))
    for (int64_t t = 0; t < tokens; ++t)
      in.mask.push_back(!source.oneIn(4));
  if (layer.router.expertChoice) {
    in.expertRows = source.in(0, tokens + 1);
    return;
  }
  if (source.oneIn(4))
    in.k = source.in(1, layer.choices() + 2);
  if (source.oneIn(5))
    in.threshold = source.in(1, 12) * 0x1p-5;
  if (layer.choices() > 1 && source.oneIn(5))
    for (int64_t t = 0; t < tokens; ++t)
      in.secondUniform.push_back(float(source.unit()));
  if (source.oneIn(6)) {
    Ids ids(tokens, layer.choices(), -1);
    for (int64_t t = 0; t < tokens; ++t) {
      int64_t start = source.in(0, layer.experts - 1);
      for (int64_t j = 0; j < ids.cols; ++j)
        if (!source.oneIn(6))
          ids(t, j) = (start + j) % layer.experts;
    }
    in.replay = ids;
  }
}

static void drawPlacement(Source &source, Layer &layer, int64_t tokens) {
  layer.order =
      source.pick({Order::ChoiceMajor, Order::TokenMajor,
                   Order::BatchPrioritized, Order::ExpertProbability});
  layer.padded = source.oneIn(3);
  if (source.oneIn(2)) {
    Capacity c;
    c.rule = source.pick({CapacityRule::Tutel, CapacityRule::GShard,
                          CapacityRule::Switch, CapacityRule::Fixed});
    c.factor = source.pick({0.25, 0.5, 1.0, 1.25, 2.0});
    if (c.rule == CapacityRule::Tutel && source.oneIn(3))
      c.factor = source.pick({0.0, -0.5, -1.25});
    if (c.rule == CapacityRule::Fixed)
      c.factor = source.in(0, 6);
    c.minimum = source.oneIn(4) ? source.in(1, 5) : 0;
    c.alignment = source.pick({1, 1, 2, 4});
    layer.capacity = c;
  }
  if (source.oneIn(3)) {
    int64_t left = tokens;
    for (int64_t n = source.in(1, 3); n > 0; --n) {
      int64_t size = source.in(0, left);
      layer.blocks.push_back(size);
      left -= size;
    }
    layer.blocks.push_back(left);
  }
  layer.weightsOnInput = source.oneIn(4);
}

/// Integers in -2..2, or multiples of 1/8 in (-1, 1]: exact in every type.
static double drawValue(Source &source, bool integers) {
  return integers ? source.in(-2, 2) : source.in(-7, 8) * 0.125;
}

static Reals drawMatrix(Source &source, int64_t rows, int64_t cols,
                        bool integers) {
  Reals m(rows, cols);
  for (double &value : m.data)
    value = drawValue(source, integers);
  return m;
}

static void drawExperts(Source &source, RandomProgram &p) {
  Layer &layer = p.layer;
  layer.gated = source.oneIn(2);
  layer.activation = p.integers
                         ? source.pick({Activation::Identity, Activation::Relu})
                         : source.pick({Activation::Relu, Activation::Square,
                                        Activation::Silu});
  bool biases = source.oneIn(3);
  for (int64_t e = 0; e < layer.experts; ++e) {
    auto matrix = [&](int64_t rows, int64_t cols) {
      return drawMatrix(source, rows, cols, p.integers);
    };
    p.inputs.w1.push_back(matrix(layer.hidden, layer.features));
    p.inputs.w2.push_back(matrix(layer.outFeatures, layer.hidden));
    if (layer.gated)
      p.inputs.wg.push_back(matrix(layer.hidden, layer.features));
    if (biases) {
      p.inputs.b1.push_back(matrix(1, layer.hidden).data);
      p.inputs.b2.push_back(matrix(1, layer.outFeatures).data);
    }
  }
}

/// Tokens of each rank: even, none on some, or all on one. Returns their sum.
static int64_t drawTokens(Source &source, RandomGrid &grid) {
  int64_t kind = source.in(0, 3), all = 0;
  int64_t lucky = source.in(0, grid.ranks - 1);
  for (int64_t rank = 0; rank < grid.ranks; ++rank) {
    int64_t tokens = kind == 0   ? 5
                     : kind == 1 ? (rank == lucky ? 20 : 0)
                     : kind == 2 ? source.in(0, 9)
                                 : source.in(0, 2) * source.in(0, 6);
    grid.tokens.push_back(tokens);
    all += tokens;
  }
  return all;
}

/// Gives the layer experts and a hidden dimension that the ranks can share.
static int64_t drawGrid(Source &source, Layer &layer, RandomGrid &grid) {
  grid.ranks = source.pick({2, 2, 3, 4, 4, 6, 8});
  if (source.oneIn(2)) { // ranks share experts
    std::vector<int64_t> divisors;
    for (int64_t d = 1; d <= grid.ranks; ++d)
      if (grid.ranks % d == 0)
        divisors.push_back(d);
    layer.experts = divisors[source.in(0, divisors.size() - 1)];
    grid.shards = grid.ranks / layer.experts;
  } else {
    layer.experts = grid.ranks * source.in(1, 3);
  }
  layer.hidden = grid.shards * source.in(1, 9);
  std::vector<int64_t> legal = {0};
  for (int64_t d = 1; d <= grid.shards; ++d)
    if (grid.shards % d == 0)
      legal.push_back(d);
  grid.copies = legal[source.in(0, legal.size() - 1)];
  grid.degree = source.pick({1, 2, 4, 8});
  grid.groups = source.oneIn(3);
  grid.hierarchical = source.oneIn(2);
  grid.ranksPerNode = source.pick({0, 1, 2, 2, 3});
  grid.spareSlots = source.oneIn(4) ? source.in(1, 2) : 0;
  if (source.oneIn(2)) {
    int64_t places = grid.ranks * grid.slots(layer.experts);
    for (int64_t i = 0; i < places; ++i)
      grid.slotTable.push_back(i < layer.experts * grid.shards ? i : -1);
    for (int64_t i = places - 1; i > 0; --i)
      std::swap(grid.slotTable[i], grid.slotTable[source.in(0, i)]);
  }
  return drawTokens(source, grid);
}

/// With a grid, sizes fit it, and every rank has a block of its own.
static RandomProgram drawProgram(Source &source, uint64_t seed,
                                 RandomGrid *grid) {
  RandomProgram p;
  p.seed = seed;
  p.integers = source.oneIn(2);
  Layer &layer = p.layer;
  int64_t tokens = source.oneIn(12) ? source.in(0, 1) : source.in(2, 40);
  layer.experts = source.oneIn(12) ? 1 : source.in(2, 12);
  layer.features = source.in(1, 19);
  layer.hidden = source.in(1, 23);
  layer.outFeatures = source.oneIn(2) ? layer.features : source.in(1, 19);
  if (grid)
    tokens = drawGrid(source, layer, *grid);
  layer.rowType = source.pick(
      {DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64});
  layer.router.wide = layer.rowType == DType::F64;
  drawRouter(source, layer);
  drawPlacement(source, layer, tokens);
  if (grid)
    layer.blocks = grid->tokens;
  drawGateInputs(source, layer, tokens, p.inputs.gate);
  if (layer.order == Order::BatchPrioritized && source.oneIn(2))
    for (int64_t t = 0; t < tokens; ++t)
      p.inputs.tokenPriority.push_back(source.in(-3, 3));
  p.inputs.x = drawMatrix(source, tokens, layer.features, p.integers);
  drawExperts(source, p);
  p.sameBits = layer.router.score != Score::SqrtSoftplus;
  return p;
}

RandomProgram randomProgram(uint64_t seed) {
  Source source(seed);
  return drawProgram(source, seed, nullptr);
}

RandomShardedProgram randomShardedProgram(uint64_t seed) {
  // Another stream than that of the program of this seed.
  Source source(seed + (uint64_t(1) << 63));
  RandomShardedProgram p;
  p.program = drawProgram(source, seed, &p.grid);
  return p;
}

Layer RandomShardedProgram::rankLayer() const {
  Layer layer = program.layer;
  layer.blocks.clear();
  return layer;
}

std::string RandomShardedProgram::describe() const {
  std::ostringstream os;
  os << program.describe() << "; W=" << grid.ranks << " s=" << grid.shards
     << " r=" << grid.copies << " degree " << grid.degree
     << (grid.groups ? " groups" : " equal")
     << (grid.hierarchical ? " hierarchical" : " linear") << " "
     << grid.ranksPerNode << " per node, " << grid.spareSlots
     << " spare, tokens";
  for (int32_t tokens : grid.tokens)
    os << " " << tokens;
  os << (grid.slotTable.empty() ? "" : ", slots permuted");
  return os.str();
}

std::string RandomProgram::describe() const {
  std::ostringstream os;
  os << "seed " << seed << ": T=" << inputs.x.rows << " E=" << layer.experts
     << " K=" << layer.choices() << " D=" << layer.features
     << " H=" << layer.hidden << " N=" << layer.outFeatures << " "
     << nameOf(layer.rowType) << (layer.padded ? " padded" : " ragged")
     << " order " << int(layer.order) << " blocks " << layer.blocks.size()
     << (layer.capacity ? " limited" : "") << (layer.gated ? " gated" : "")
     << (integers ? " integers" : "");
  return os.str();
}

} // namespace moira::reference
