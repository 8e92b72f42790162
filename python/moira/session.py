# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs compiled programs."""

import collections.abc
import contextlib
import ctypes
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi, _inputs, statistics, tensor, training
from .adapt import Adapting
from ._library import Handle, check, encode, invalid, lib
from .bundle import Bundle
from .ranks import Ranks

_EXCHANGES = ("linear", "hierarchical")
_NOTHING: Any = object()  # None is a wrong array
_LOG_LEVELS: Dict[Any, int] = {
    "quiet": 0, "warning": 1, "info": 2, "debug": 3}


class Session(Adapting, Handle):
    """One user of a program: parameters, memory, threads, statistics.

    Any thread may call any method; calls on one session run one after the
    other, and Python's lock is free meanwhile. Sessions do not wait for each
    other and share the machine's threads.
    """

    def __init__(self, bundle: Bundle, *, threads: int = 0,
                 memory_limit: int = 0, statistics_steps: int = 256,
                 log_level: Union[int, str] = 0, copies: str = "warn",
                 ranks: Optional[Ranks] = None, device: str = "cpu"):
        """
        Args:
            bundle: the program; it may be closed afterwards.
            threads: 0: one per processor that this process may use.
            memory_limit: bytes held at the same time; 0: none.
            statistics_steps: rows of steps kept; 0: none.
            log_level: on stderr, "quiet", "warning", "info" or
                "debug", or 0 to 3.
            copies: what happens where an array must be copied because its
                layout is not compact and row-major: "warn" (a CopyWarning),
                "allow" (only a line in the log "moira") or "refuse".
            ranks: the place in a group that steps run with; it may be closed
                afterwards. Sessions that share one take turns, and all ranks
                run their steps in the same order.
            device: of a program for a GPU, "cuda", "cuda:N", "emulated" or
                "emulated:80". Inputs and results of steps may be arrays of
                that GPU; none is copied, and results are there where an input
                is.

        Raises:
            MoiraError: UNAVAILABLE without such a device or a program for it,
                OUT_OF_MEMORY where the parameters alone pass the limit.
        """
        if copies not in ("warn", "allow", "refuse"):
            raise invalid("copies: expected 'warn', 'allow' or 'refuse', got "
                          f"{copies!r}")
        level = _LOG_LEVELS.get(log_level, log_level)
        if level not in (0, 1, 2, 3):
            raise invalid("log_level: expected 'quiet', 'warning', 'info', "
                          f"'debug' or 0 to 3, got {log_level!r}")
        options = _abi.SessionOptions(
            threads=threads, memory_limit=memory_limit,
            statistics_steps=statistics_steps or -1, log_level=level,
            device=encode(device))
        pointer = ctypes.c_void_p()
        if len(bundle.grids) > 1:
            bundle = bundle.for_ranks(ranks.ranks if ranks else 1)
        with contextlib.ExitStack() as stack:
            if ranks is not None:
                options.ranks = stack.enter_context(ranks._use())
            check(lib.moira_session_create(
                stack.enter_context(bundle._use()), ctypes.byref(options),
                ctypes.byref(pointer)))
        super().__init__(pointer.value, lib.moira_session_destroy, "session")
        self.bundle = bundle
        self._copies = copies
        self._encoded = {name: name.encode() for name in bundle.entries}
        self._input_names = {
            entry.name: [
                f"entry '{entry.name}': input {i}"
                + (f" '{spec.name}'" if spec.name else "")
                for i, spec in enumerate(entry.inputs)]
            for entry in bundle.entries.values()}

    # --- Parameters ----------------------------------------------------------

    def bind(self, source: Union[str, os.PathLike, Mapping[str, Any]],
             value: Any = _NOTHING) -> None:
        """Packs parameters; arrays are not needed afterwards.

        ``bind("experts.{}.weight", array)`` binds one parameter, from all
        slices or, under a name with a number, slice by slice. ``bind({name:
        array, ...})`` binds several. ``bind(path)`` binds all that are not
        bound yet from a safetensors checkpoint: a file, an index or a folder
        with either. Float types are converted, rounding to nearest even.
        Binding again replaces.

        Raises:
            MoiraError: NOT_FOUND for a name that the program does not have or
                a tensor that the checkpoint lacks, INVALID_ARGUMENT for
                another shape or type, DATA_LOSS for a damaged file.
        """
        if value is not _NOTHING:
            self._bind_one(source, value)
        elif isinstance(source, collections.abc.Mapping):
            for name, array in source.items():
                self._bind_one(name, array)
        elif isinstance(source, (str, os.PathLike)):
            path = encode(os.fspath(source))
            with self._use() as handle:
                check(lib.moira_session_bind_checkpoint(handle, path))
        else:
            raise invalid("expected a name and an array, a dict of them or the "
                          f"path of a checkpoint, got {type(source).__name__}")

    def _bind_one(self, name, array):
        if not isinstance(name, str):
            raise invalid("expected the name of a parameter, got "
                          f"{type(name).__name__}")
        view = _inputs.view(array, f"parameter '{name}'", self._copies)
        with self._use() as handle:
            check(lib.moira_session_bind(handle, encode(name),
                                         ctypes.byref(view.tensor)))

    def bind_random(self, seed: int = 0) -> None:
        """Fills all parameters that are not bound yet with reproducible
        values, uniform in +-1/sqrt(fan in)."""
        with self._use() as handle:
            check(lib.moira_session_bind_random(handle, seed))

    @property
    def unbound(self) -> Tuple[int, Optional[str]]:
        """How many parameters are not bound, and the name of the first."""
        count, name = ctypes.c_int64(), ctypes.c_char_p()
        with self._use() as handle:
            check(lib.moira_session_unbound(handle, ctypes.byref(count),
                                            ctypes.byref(name)))
            # The name lives as long as the session.
            return count.value, name.value.decode() if name.value else None

    # --- How steps run -------------------------------------------------------

    def set_variant(self, variant: Optional[str],
                    entry: Optional[str] = None) -> None:
        """Makes an entry use a variant from the next step on; None goes back
        to the choice by rows.

        Raises:
            MoiraError: NOT_FOUND.
        """
        name = self.bundle.find(entry).name
        with self._use() as handle:
            check(lib.moira_session_set_variant(handle, encode(name),
                                                encode(variant)))

    def set_plan(self, *, degree: int = 1, exchange: str = "linear",
                 slot_table: Sequence[Sequence[int]] = (),
                 shadows: Sequence[int] = (),
                 layer: Optional[int] = None) -> None:
        """Sets what layers run with from the next step on. All ranks set the
        same.

        Args:
            degree: pipeline chunks.
            exchange: "linear" or "hierarchical".
            slot_table: which unit of weights stands where, a row for each
                rank; -1: free. Parameters in slots whose unit changes must be
                bound again.
            shadows: experts that all ranks hold, in slots that are free.
            layer: its number in the manifest; None: all.
        """
        if exchange not in _EXCHANGES:
            raise invalid(f"exchange: expected one of {_EXCHANGES}, got "
                          f"{exchange!r}")
        slots = [unit for row in slot_table for unit in row]
        plan = _abi.PlanOptions(
            degree=degree, exchange=_EXCHANGES.index(exchange),
            slot_table=(ctypes.c_int32 * len(slots))(*slots) if slots else None,
            slot_count=len(slots),
            shadows=(ctypes.c_int32 * len(shadows))(*shadows),
            shadow_count=len(shadows))
        with self._use() as handle:
            if layer is None:
                check(lib.moira_session_set_plan(handle, ctypes.byref(plan)))
            else:
                check(lib.moira_session_set_layer_plan(handle, layer,
                                                       ctypes.byref(plan)))

    # --- Steps ---------------------------------------------------------------

    def invoke(self, *inputs: Any, entry: Optional[str] = None,
               out: Optional[Sequence[Any]] = None,
               returns: Optional[str] = None) -> Tuple[Any, ...]:
        """Runs one step.

        Args:
            inputs: arrays of numpy or torch, or any that speak DLPack or the
                buffer protocol, in the order of the signature; or one dict by
                the inputs' names. They are read during the call only, and
                copied only where their layout is not compact.
            entry: None: the only one.
            out: an array or None per result. An array must have the very type
                and shape that the step produces; it is filled and returned.
            returns: "numpy", "torch" or "moira" (`moira.Tensor`); None: what
                the inputs are. All see memory of the runtime without a copy
                and outlive the session.

        Returns:
            One array per result.

        Raises:
            MoiraError: INVALID_ARGUMENT for inputs that do not fit the
                signature or parameters that are not bound, OUT_OF_MEMORY where
                the step would pass the limit, FAILED for a check inside the
                step. The session stays usable.
        """
        # What is kept for a way back goes at once.
        return self._run(self.bundle.find(entry), inputs, out, returns)[0]

    def __call__(self, *inputs, **options):
        """`invoke`; a single result comes alone."""
        results = self.invoke(*inputs, **options)
        return results[0] if len(results) == 1 else results

    def _views(self, spec, inputs, shapes=False):
        if len(inputs) == 1 and isinstance(inputs[0],
                                           collections.abc.Mapping):
            inputs = _in_order(spec, inputs[0])
        views, names = [], self._input_names[spec.name]
        for i, array in enumerate(inputs):
            if i >= len(names):
                raise invalid(f"entry '{spec.name}': expected {len(names)} "
                              f"inputs, got {len(inputs)}")
            what = names[i]
            if shapes and isinstance(array, (tuple, list)):
                views.append(_inputs.shape_only(array, spec.inputs[i].dtype))
            else:
                views.append(_inputs.view(array, what, self._copies))
        return views

    def _outs(self, spec, out):
        count = len(spec.results)
        if out is None:
            return [None] * count
        is_list = isinstance(out, (tuple, list))
        if not is_list or len(out) != count:
            found = len(out) if is_list else type(out).__name__
            raise invalid(f"entry '{spec.name}': out: expected a list of "
                          f"{count} arrays or None, got {found}")
        return out

    def _run(self, spec, inputs, out, returns):
        """Runs a step: its results, and a Residuals where the entry has a way
        back."""
        views = self._views(spec, inputs)
        places, kept = _inputs.places(
            self._outs(spec, out), lambda i: f"entry '{spec.name}': result {i}")
        kind = tensor.kind_for(returns, [view.framework for view in views])
        arguments = (self._encoded[spec.name], _inputs.pointers(views),
                     len(views), places, len(kept))
        residuals = None
        with self._use() as handle:
            if spec.backward:
                pointer = ctypes.c_void_p()
                check(lib.moira_session_forward(handle, *arguments,
                                                ctypes.byref(pointer)))
            else:
                check(lib.moira_session_invoke(handle, *arguments))
        if spec.backward:
            shapes = [(each.dtype, tuple(place.contents.dl_tensor.shape[
                :place.contents.dl_tensor.ndim]))
                for each, place in zip(spec.results, places)]
            residuals = training.Residuals(pointer.value, self, spec, shapes,
                                           kind)
        return tensor.collect(places, kept, kind), residuals

    # --- Training ------------------------------------------------------------

    def forward(self, *inputs: Any, entry: Optional[str] = None,
                out: Optional[Sequence[Any]] = None,
                returns: Optional[str] = None
                ) -> Tuple[Tuple[Any, ...], training.Residuals]:
        """Runs one step of an entry compiled with gradients: `invoke`, and
        what the way back needs.

        Raises:
            MoiraError: as `invoke`, and where the entry has no way back.
        """
        spec = self.bundle.find(entry)
        training.require_backward(spec)
        return self._run(spec, inputs, out, returns)

    def backward(self, residuals: training.Residuals, *gradients: Any,
                 returns: Optional[str] = None) -> training.Gradients:
        """Computes gradients.

        Args:
            residuals: of a forward step of this session, since which no
                parameter has been bound or updated.
            gradients: one for each result of a float type, of its very type
                and shape; None: zeros.
            returns: None: as the forward step's results.

        Raises:
            MoiraError: INVALID_ARGUMENT for residuals of another session or
                of other parameters, or gradients that do not fit.
        """
        self._check(residuals)
        of = training.signature(self.bundle, residuals.entry)
        views = training.result_gradients(residuals, gradients, self._copies)
        arrays = training.run(lib.moira_session_backward, residuals, views,
                              [None] * len(of), returns)
        return training.gather(residuals.entry, of, arrays)

    def accumulate(self, residuals: training.Residuals, *gradients: Any,
                   returns: Optional[str] = None) -> Tuple[Any, ...]:
        """Computes gradients and adds those of parameters to those that the
        session keeps, in the order of the calls.

        Returns:
            Gradients of the inputs; None for those without one.
        """
        self._check(residuals)
        of = [each for each in training.signature(self.bundle, residuals.entry)
              if each[0] == "input"]
        views = training.result_gradients(residuals, gradients, self._copies)
        arrays = training.run(lib.moira_session_accumulate, residuals, views,
                              [None] * len(of), returns)
        return training.gather(residuals.entry, of, arrays).inputs

    def _check(self, residuals):
        # The library compares too; this names the mistake in Python's terms.
        if not isinstance(residuals, training.Residuals):
            raise invalid("backward: expected the residuals of a forward step, "
                          f"got {type(residuals).__name__}")
        if residuals.session is not self:
            raise invalid("backward: expected residuals of this session, got "
                          "another's")

    def zero_gradients(self) -> None:
        """Forgets the gradients that the session keeps."""
        with self._use() as handle:
            check(lib.moira_session_zero_gradients(handle))

    @property
    def gradient_norm(self) -> float:
        """The root of the sum of squares of all kept gradients."""
        norm = ctypes.c_double()
        with self._use() as handle:
            check(lib.moira_session_gradient_norm(handle, ctypes.byref(norm)))
        return norm.value

    def update(self, rule: str = "adamw", **options: float) -> None:
        """Updates every parameter that has a kept gradient.

        Args:
            rule: "sgd", "adam" or "adamw"; the bundle must have its code
                (`optimizers` of `moira.compile`).
            options: learning_rate, momentum, nesterov, beta1, beta2, epsilon,
                weight_decay, gradient_scale.
        """
        struct = training.update_options(rule, options)
        with self._use() as handle:
            check(lib.moira_session_update(handle, ctypes.byref(struct)))

    # --- Memory and what happened --------------------------------------------

    def predict_peak(self, *inputs: Any, entry: Optional[str] = None) -> int:
        """The bytes that the session would hold at most during such a step.

        Args:
            inputs: as for `invoke`, or tuples of sizes: no data is read.
        """
        spec = self.bundle.find(entry)
        views = self._views(spec, inputs, shapes=True)
        peak = ctypes.c_int64()
        with self._use() as handle:
            check(lib.moira_session_predict_peak(
                handle, self._encoded[spec.name], _inputs.pointers(views),
                len(views), ctypes.byref(peak)))
        return peak.value

    @property
    def memory(self) -> statistics.Memory:
        """Bytes held now, and the peak."""
        info = _abi.MemoryInfo()
        with self._use() as handle:
            check(lib.moira_session_memory(handle, ctypes.byref(info)))
        return statistics.Memory(
            **{name: getattr(info, name)
               for name in statistics.Memory.__dataclass_fields__})

    def statistics(self) -> List[statistics.Step]:
        """The last steps, oldest first."""
        pointer = ctypes.c_void_p()
        with self._use() as handle:
            check(lib.moira_session_statistics(handle, ctypes.byref(pointer)))
        try:
            return statistics.read(pointer, self.bundle)
        finally:
            lib.moira_statistics_destroy(pointer)


def _in_order(spec, named):
    names = [s.name for s in spec.inputs]
    for name in named:
        if name not in names:
            raise invalid(f"entry '{spec.name}': expected an input of "
                          f"{', '.join(names)}, got '{name}'")
    missing = [name for name in names if name not in named]
    if missing:
        raise invalid(f"entry '{spec.name}': expected an input '{missing[0]}'"
                      ", got none")
    return [named[name] for name in names]

