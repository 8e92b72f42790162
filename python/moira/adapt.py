# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans that follow the loads (docs/selection.md)."""

import ctypes
import json
import os
from typing import Any, List, Mapping, Optional, Sequence, Union

from . import _abi
from ._library import check, encode, invalid, lib
from .ranks import Json, json_text

_MODES = ("fixed", "model", "measured")


class Adapting:
    """The part of a session of several ranks that chooses its plans.

    All ranks call `adapt`, `stop_adapting`, `force` and `load_learned` alike,
    between the same steps.
    """

    # Of the session that this is a part of.
    bundle: Any
    _use: Any

    def _name(self, entry):
        return encode(self.bundle.find(entry).name)

    def _text(self, call, entry):
        """A text that the library makes."""
        pointer = ctypes.c_void_p()
        with self._use() as handle:
            check(call(handle, self._name(entry), ctypes.byref(pointer)))
        try:
            return ctypes.string_at(pointer).decode()
        finally:
            lib.moira_text_free(pointer)

    def adapt(self, entry: Optional[str] = None, *, mode: str = "measured",
              lag: int = 1, degrees: Sequence[int] = (1, 2, 4, 8),
              max_shadows: int = -1, topology: Optional[Json] = None,
              calibration: Optional[Json] = None,
              flight_log: Union[str, os.PathLike, None] = None,
              replay: Union[str, os.PathLike, None] = None,
              **options: Any) -> None:
        """Lets the session choose variants and plans of `entry` from the next
        step on. What was learned before is forgotten.

        Args:
            mode: "measured", "model" or "fixed".
            lag: 1: a step's loads decide for the next one; 0: for its own, all
                but the variant.
            degrees: pipeline chunks to choose from.
            max_shadows: experts shadowed at most; -1: as many as fit.
            topology: docs/topology.md; a dict, JSON or a path.
            calibration: docs/cost-model.md, likewise.
            flight_log: a file that rank 0 writes.
            replay: such a file, whose decisions are made again and compared.
            options: trial_loss, initial_loss, trial_spacing,
                trials_per_bucket, numerics, qualified (moira/adapt.h).

        Raises:
            MoiraError: INVALID_ARGUMENT where the program does not say what
                its layers cost, or is not for several ranks.
        """
        if mode not in _MODES:
            raise invalid(f"mode: expected one of {_MODES}, got {mode!r}")
        struct = _abi.AdaptOptions()
        check(lib.moira_adapt_defaults(ctypes.byref(struct)))
        for name, value in options.items():
            if name not in _MORE:
                raise invalid(f"adapt: expected an option of "
                              f"{', '.join(_MORE)}, got '{name}'")
            setattr(struct, name,
                    encode(value) if isinstance(value, str) else value)
        kept = (ctypes.c_int32 * len(degrees))(*degrees)
        struct.mode, struct.lag = _MODES.index(mode), lag
        struct.degrees, struct.degree_count = kept, len(degrees)
        struct.max_shadows = max_shadows
        struct.topology = json_text(topology, "topology")
        struct.calibration = json_text(calibration, "calibration")
        struct.flight_log = encode(flight_log)
        struct.replay = encode(replay)
        with self._use() as handle:
            check(lib.moira_session_adapt(handle, self._name(entry),
                                          ctypes.byref(struct)))

    def stop_adapting(self, entry: Optional[str] = None) -> None:
        """Goes back to what `set_variant` and `set_plan` say."""
        with self._use() as handle:
            check(lib.moira_session_stop_adapting(handle, self._name(entry)))

    def candidates(self, entry: Optional[str] = None) -> List[str]:
        """The plans to choose from, such as "r=1 degree=2"."""
        return json.loads(self._text(lib.moira_session_candidates, entry))

    def force(self, candidate: Optional[str],
              entry: Optional[str] = None) -> None:
        """All layers run this one from the next step on; None: chosen
        again."""
        with self._use() as handle:
            check(lib.moira_session_force(handle, self._name(entry),
                                          encode(candidate)))

    def forbid(self, variant: str, forbidden: bool = True,
               entry: Optional[str] = None) -> None:
        """This rank may not run a variant, or may again; then no rank runs it,
        from the step after the next one on. Ranks may differ in this."""
        with self._use() as handle:
            check(lib.moira_session_forbid(handle, self._name(entry),
                                           encode(variant), int(forbidden)))

    def explain(self, entry: Optional[str] = None) -> Any:
        """Why the last decision is as it is, by layer (docs/selection.md)."""
        return json.loads(self._text(lib.moira_session_explain, entry))

    def save_learned(self, entry: Optional[str] = None) -> str:
        """What was learned, as JSON."""
        return self._text(lib.moira_session_save_learned, entry)

    def load_learned(self, learned: Union[str, Mapping[str, Any]],
                     entry: Optional[str] = None) -> None:
        """Takes what `save_learned` gave.

        Raises:
            MoiraError: for a table of other layers, candidates or ranks; then
                nothing has changed.
        """
        text = (learned.encode() if isinstance(learned, str)
                else json.dumps(learned).encode())
        with self._use() as handle:
            check(lib.moira_session_load_learned(handle, self._name(entry),
                                                 text))


    def announce_tokens(self, tokens: int,
                        entry: Optional[str] = None) -> None:
        """Tokens that all ranks together bring to the next step, the same
        number on all ranks; -1: not known."""
        with self._use() as handle:
            check(lib.moira_session_announce_tokens(
                handle, self._name(entry), tokens))

    # --- Where weights stand for long ----------------------------------------

    def slot_table(self, layer: int) -> List[int]:
        """Units of weights by rank and slot, one rank after the other; empty
        for a layer that is not on several ranks."""
        count = ctypes.c_int64()
        with self._use() as handle:
            check(lib.moira_session_slot_table(handle, layer, None, 0,
                                               ctypes.byref(count)))
            table = (ctypes.c_int32 * count.value)()
            check(lib.moira_session_slot_table(handle, layer, table,
                                               count.value, None))
        return list(table)

    def move_weights(self, layer: int, table: Sequence[int]) -> None:
        """Gives a layer another table and moves weights, kept gradients and
        states of optimizers there. All ranks call it with equal tables."""
        given = (ctypes.c_int32 * len(table))(*table)
        with self._use() as handle:
            check(lib.moira_session_move_weights(handle, layer, given,
                                                 len(table)))

    def count_loads(self, entry: Optional[str] = None, *,
                    threshold: float = 0, max_rounds: int = 0, steps: int = 0,
                    topology: Optional[Json] = None,
                    calibration: Optional[Json] = None) -> None:
        """Counts the loads of an entry's steps from now on, for `rebalance`.

        Args:
            threshold: rows of the fullest rank over the mean that are left
                alone; 0: 1.1.
            max_rounds: of one slot for another, in a call; 0: 16.
            steps: that a table is expected to last; 0: 100.
            topology, calibration: as for `adapt`.
        """
        options = _abi.RebalanceOptions(
            threshold=threshold, max_rounds=max_rounds, steps=steps,
            topology=json_text(topology, "topology"),
            calibration=json_text(calibration, "calibration"))
        with self._use() as handle:
            check(lib.moira_session_count_loads(handle, self._name(entry),
                                                ctypes.byref(options)))

    def rebalance(self, entry: Optional[str] = None) -> int:
        """Moves experts to where the loads since the last call want them:
        how many layers have changed. All ranks call it."""
        moved = ctypes.c_int64()
        with self._use() as handle:
            check(lib.moira_session_rebalance(handle, self._name(entry),
                                              ctypes.byref(moved)))
        return moved.value

_MORE = ("trial_loss", "initial_loss", "trial_spacing", "trials_per_bucket",
         "numerics", "qualified")
