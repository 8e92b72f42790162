# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What happened in the last steps of a session."""

import ctypes
from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional, Tuple, Union

from . import _abi
from ._abi import Status
from ._library import check, lib


@dataclass(frozen=True)
class Layer:
    """A layer with experts in one step."""

    layer: int
    experts: int
    counts: Tuple[int, ...]  #: rows per expert before drops
    sizes: Tuple[int, ...]  #: and after
    routed: int  #: sum of counts
    dropped: int  #: of these
    degree: int
    exchange: str  #: "linear" or "hierarchical"
    seconds: Dict[str, float]  #: by part: "gate", "expert", ...
    #: Rows of each rank for each expert; None where they were not gathered.
    matrix: Optional[Tuple[Tuple[int, ...], ...]]
    bytes_sent: int  #: to other ranks: rows and weights
    bytes_received: int
    shadows: Tuple[int, ...]  #: experts that all ranks held
    #: Seconds that the plan was to take, the way back with it; 0: nobody said.
    predicted: float
    reason: str  #: why the plan is as it is; "": it was set


@dataclass(frozen=True)
class Step:
    """One step; seconds of all layers and of the rest add up to `total`."""

    step: int  #: 0, 1, ... in the session
    entry: str
    variant: str
    rows: int  #: dim 0 of the first input
    error: Union[Status, int]  #: Status.OK where it succeeded
    total: float  #: seconds
    seconds: Dict[str, float]  #: outside of layers, by part
    layers: Tuple[Layer, ...]

    def as_dict(self) -> Dict[str, Any]:
        """The same as dicts, lists and numbers, for `json.dumps`."""
        values = asdict(self)
        values["error"] = int(self.error)
        return values


@dataclass(frozen=True)
class Memory:
    """Bytes that a session holds."""

    parameters: int
    workspace: int
    results: int  #: allocated by the runtime and not deleted yet
    residuals: int  #: of forward steps, with what is kept for the next
    training: int  #: gradients and states of optimizers
    peak: int  #: highest sum so far
    limit: int  #: 0: none


def _parts(seconds):
    return dict(zip(_abi.PARTS, seconds))


def _read_layer(pointer, index, number):
    row = _abi.LayerRow()
    check(lib.moira_statistics_layer(pointer, index, number,
                                     ctypes.byref(row)))
    # Rows live as long as the statistics: copied here.
    counts = tuple(row.counts[:row.experts]) if row.counts else ()
    sizes = tuple(row.sizes[:row.experts]) if row.sizes else ()
    matrix = None
    if row.ranks:
        flat = row.matrix[:row.ranks * row.experts]
        matrix = tuple(tuple(flat[r * row.experts:(r + 1) * row.experts])
                       for r in range(row.ranks))
    return Layer(row.layer, row.experts, counts, sizes, row.routed,
                 row.dropped, row.degree,
                 "hierarchical" if row.exchange else "linear",
                 _parts(row.seconds), matrix, row.bytes_sent,
                 row.bytes_received, tuple(row.shadows[:row.shadow_count]),
                 row.predicted, row.reason.decode())


def read(pointer, bundle):
    """The rows of a `moira_statistics`, oldest first."""
    entries = list(bundle.entries.values())
    steps = []
    for index in range(lib.moira_statistics_steps(pointer)):
        row = _abi.StepRow()
        check(lib.moira_statistics_step(pointer, index, ctypes.byref(row)))
        entry = entries[row.entry]
        try:
            error = Status(row.error)
        except ValueError:
            error = row.error
        steps.append(Step(
            row.step, entry.name, entry.variants[row.variant], row.rows,
            error, row.total, _parts(row.seconds),
            tuple(_read_layer(pointer, index, i)
                  for i in range(row.layers))))
    return steps
