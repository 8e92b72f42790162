# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cases that the CPU benchmark measures.

A case is one part of one model's layer under one load. Models are cut down to
what a machine of 24 GiB holds several times over and computes in a fraction of
a second; the name says how.
"""

import dataclasses
import math
import random

# Weights of a case, and the time of one run that is aimed at.
WEIGHT_BYTES = 720e6
SECONDS = 0.25
# Taken for that time: f32 multiply-adds of one core, twice that in bf16.
FLOPS_PER_SECOND = 100e9


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    width: int
    experts: int
    top_k: int
    gated: bool = True

    @property
    def matrices(self):
        return 3 if self.gated else 2


SHAPES = {
    "olmoe": Shape(2048, 1024, 64, 8),
    "mixtral": Shape(4096, 14336, 8, 2),
    "qwen3-30b": Shape(2048, 768, 128, 8),
    "deepseek-v2-lite": Shape(2048, 1408, 64, 6),
    "switch-base-8": Shape(768, 3072, 8, 1, gated=False),
}
TOKENS = (1, 4, 16, 64, 256, 1024, 4096)
LOADS = ("uniform", "zipf1.2", "one-hot", "trace-start", "trace-late")


@dataclasses.dataclass
class Case:
    model: str
    shape: Shape
    part: str  # forward, dx, dw, layer, movement
    tokens: int
    load: str
    dtype: str
    cores: int
    sizes: list  # rows per expert
    note: str = ""  # how the model was cut down
    held_out: bool = False
    file: str = ""

    @property
    def name(self):
        return (f"{self.part}/{self.model}{self.note}/t{self.tokens}/"
                f"{self.load}/{self.dtype}/{self.cores}c")

    @property
    def element_bytes(self):
        return 2 if self.dtype == "bf16" else 4

    @property
    def active(self):
        return sorted(size for size in self.sizes if size > 0)

    @property
    def rows(self):
        """Median of the rows of experts that have rows."""
        active = self.active
        middle = len(active) // 2
        if len(active) % 2:
            return active[middle]
        return (active[middle - 1] + active[middle]) / 2

    @property
    def matrices(self):
        return self.shape.matrices if self.part in ("forward", "layer") else 1

    @property
    def flops(self):
        return (2.0 * sum(self.sizes) * self.shape.hidden * self.shape.width *
                self.matrices)

    @property
    def weight_bytes(self):
        """Weights in memory, of active and other experts."""
        return (self.shape.hidden * self.shape.width * self.matrices *
                len(self.sizes) * self.element_bytes)

    @property
    def bytes(self):
        """What passes between memory and the cores at least once: weights of
        active experts; for dw the gradient, in f32, and the rows."""
        shape = self.shape
        matrix = shape.hidden * shape.width
        if self.part == "dw":
            return (matrix * len(self.sizes) * 4 + sum(self.sizes) *
                    (shape.hidden + shape.width) * self.element_bytes)
        return matrix * self.matrices * len(self.active) * self.element_bytes

    @property
    def moved_bytes(self):
        """What dispatch and combine read and write, every row once."""
        rows = sum(self.sizes)
        return (2 * rows + 2 * self.tokens) * self.shape.hidden * \
            self.element_bytes

    def message(self):
        """As workers read it."""
        return {
            "name": self.name, "part": self.part, "dtype": self.dtype,
            "file": self.file, "cores": self.cores,
            "hidden": self.shape.hidden, "width": self.shape.width,
            "gated": self.shape.gated, "sizes": self.sizes,
            "tokens": self.tokens, "top_k": self.shape.top_k,
        }


# --- loads ------------------------------------------------------------------


def popularity(load, experts):
    """How likely each expert is, largest first."""
    if load == "zipf1.2":
        return [(i + 1) ** -1.2 for i in range(experts)]
    # Training without a balance loss starts nearly even and ends with most
    # rows at a few experts: log-normal with these spreads.
    spread = {"trace-start": 0.18, "trace-late": 3.6}[load]
    source = random.Random(f"{load} {experts}")
    return sorted((math.exp(source.gauss(0, spread)) for _ in range(experts)),
                  reverse=True)


def apportion(pairs, weights, most):
    """Splits `pairs` in proportion to `weights`, at most `most` each."""
    sizes = [0] * len(weights)
    left = pairs
    while left > 0:
        open_places = [i for i, size in enumerate(sizes) if size < most]
        total = sum(weights[i] for i in open_places)
        shares = [(i, left * weights[i] / total) for i in open_places]
        given = 0
        for i, share in shares:
            part = min(int(share), most - sizes[i])
            sizes[i] += part
            given += part
        if given == 0:
            # Less than one each: one to the largest remainders.
            shares.sort(key=lambda entry: (-entry[1], entry[0]))
            for i, _ in shares[:left]:
                sizes[i] += 1
                given += 1
        left -= given
    return sizes


def make_load(load, experts, top_k, tokens):
    """Rows per expert, largest first; a token goes to an expert once."""
    if load == "one-hot":
        return [tokens] * top_k + [0] * (experts - top_k)
    weights = ([1.0] * experts if load == "uniform" else
               popularity(load, experts))
    sizes = apportion(tokens * top_k, weights, tokens)
    return sorted(sizes, reverse=True)


# --- cutting down -----------------------------------------------------------


def spaced(values, count):
    """`count` of the values, evenly spaced, with the first."""
    return [values[i * len(values) // count] for i in range(count)]


def cut(shape, part, sizes, dtype, cores):
    """Fewer experts, and where one is too many, fewer rows. Returns the sizes
    and the factor on rows."""
    element = 2 if dtype == "bf16" else 4
    matrices = shape.matrices if part in ("forward", "layer") else 1
    matrix = shape.hidden * shape.width
    # The gradient of dw is in f32.
    expert_bytes = matrix * (4 if part == "dw" else matrices * element)
    flops = SECONDS * FLOPS_PER_SECOND * cores * (2 if dtype == "bf16" else 1)
    row_flops = 2.0 * matrix * matrices

    active = [size for size in sizes if size > 0]
    count = max(1, min(len(active), int(WEIGHT_BYTES / expert_bytes)))
    while count > 1 and sum(spaced(active, count)) * row_flops > flops:
        count -= 1
    kept = spaced(active, count)
    factor = min(1.0, flops / (sum(kept) * row_flops))
    if factor < 1:
        kept = [max(1, int(size * factor)) for size in kept]
    # Some of the experts without rows, as long as they fit.
    room = int(WEIGHT_BYTES / expert_bytes) - count
    idle = min(len(sizes) - len(active), max(0, room), count // 4 + 1)
    kept += [0] * idle
    random.Random(len(kept)).shuffle(kept)
    return kept, factor


def make(model, part, tokens, load, dtype, cores, cut_for=None):
    """`cut_for`: the cores that the case is cut down for, if not its own."""
    shape = SHAPES[model]
    sizes = make_load(load, shape.experts, shape.top_k, tokens)
    note = ""
    if part in ("forward", "dx", "dw"):
        sizes, factor = cut(shape, part, sizes, dtype, cut_for or cores)
        if len(sizes) < shape.experts:
            note = f"-{len(sizes)}of{shape.experts}"
        if factor < 1:
            note += f"-rows*{factor:.2g}"
    return Case(model, shape, part, tokens, load, dtype, cores, sizes, note)


# --- the list ---------------------------------------------------------------


def forward_cases():
    """Every model at every number of tokens; loads, types and cores rotate.
    Where most rows per expert lie, a second time with the other type."""
    for m, model in enumerate(SHAPES):
        for t, tokens in enumerate(TOKENS):
            dtypes = ("f32", "bf16") if (m + t) % 2 == 0 else ("bf16", "f32")
            count = 2 if tokens in (64, 256, 1024) else 1
            for i in range(count):
                yield make(model, "forward", tokens,
                           LOADS[(m + 2 * t + 3 * i) % len(LOADS)], dtypes[i],
                           1 + (m + t // 2 + i) % 2)


def gradient_cases():
    for p, part in enumerate(("dx", "dw")):
        for m, model in enumerate(SHAPES):
            for t, tokens in enumerate((64, 1024)):
                yield make(model, part, tokens, LOADS[(m + t + 2 * p) % 5],
                           "f32" if (m + t + p) % 2 == 0 else "bf16",
                           1 + (m // 2 + t) % 2)


def scaling_cases():
    """The same work on one core and on two."""
    for dtype in ("f32", "bf16"):
        for cores in (1, 2):
            yield make("olmoe", "forward", 4096, "uniform", dtype, cores, 1)
    for cores in (1, 2):
        yield make("deepseek-v2-lite", "forward", 1024, "trace-start", "bf16",
                   cores, 1)


def layer_cases():
    for model, tokens, dtype, cores in (("olmoe", 256, "bf16", 1),
                                        ("olmoe", 256, "f32", 2),
                                        ("olmoe", 4, "bf16", 2),
                                        ("switch-base-8", 1024, "f32", 1)):
        yield make(model, "layer", tokens, "uniform", dtype, cores)
    for dtype, cores in (("f32", 1), ("bf16", 2)):
        yield make("olmoe", "movement", 4096, "uniform", dtype, cores)


def all_cases():
    cases = []
    for kind in (forward_cases(), gradient_cases(), scaling_cases(),
                 layer_cases()):
        cases += kind
    for i, case in enumerate(cases):
        case.held_out = i % 3 == 2
    return cases


ROW_CLASSES = (1, 7, 32, 128)  # the least rows of each: every goal has one


def aspects(case):
    """What a case is an example of."""
    part = case.part
    yield from ((part, "model", case.model), (part, "tokens", case.tokens),
                (part, "load", case.load),
                (part, "type", case.dtype, case.cores))
    if part == "forward":
        rows = max(least for least in ROW_CLASSES if case.rows >= least)
        yield part, "rows", rows, case.dtype, case.cores
        yield part, "held out", case.held_out, 7 <= case.rows <= 64


def covering_cases():
    """A part of the list with an example of every aspect that the list has one
    of, and with all pairs of scaling and all layers: in half of the time."""
    cases = all_cases()
    others = [*scaling_cases(), *layer_cases()]
    names = {case.name for case in others}
    chosen = [case for case in cases if case.name in names]
    left = {aspect for case in cases for aspect in aspects(case)}
    left -= {aspect for case in chosen for aspect in aspects(case)}
    while left:
        best = max(cases, key=lambda case: len(left & set(aspects(case))))
        chosen.append(best)
        left -= set(aspects(best))
    return [case for case in cases if case in chosen]


def product_case(text):
    """One product of OLMoE's matrices: PART/ROWS/TYPE/EXPERTS, such as
    dw/128/f32/12, with as many rows for every expert."""
    fields = text.split("/")
    if (len(fields) != 4 or fields[0] not in ("forward", "dx", "dw") or
            fields[2] not in ("f32", "bf16") or
            not all(fields[i].isdigit() and int(fields[i]) for i in (1, 3))):
        raise ValueError("expected PART/ROWS/TYPE/EXPERTS of forward, dx, dw, "
                         f"of f32, bf16, got '{text}'")
    part, rows, dtype, experts = fields
    return Case("olmoe", SHAPES["olmoe"], part, int(rows) * int(experts),
                "uniform", dtype, 1, [int(rows)] * int(experts),
                f"-{experts}of64")


def quick_cases():
    """A few small ones, for a first look."""
    return [
        make("olmoe", "forward", 1, "uniform", "f32", 1),
        make("switch-base-8", "forward", 256, "uniform", "f32", 1),
        make("switch-base-8", "forward", 256, "trace-start", "bf16", 2),
        make("qwen3-30b", "forward", 4, "zipf1.2", "bf16", 1),
        make("switch-base-8", "forward", 1024, "uniform", "f32", 2),
    ]
