# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps with a way back (docs/gradients.md)."""

import ctypes
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union

from . import _abi, _inputs, tensor
from ._library import Handle, check, invalid, lib

FLOATS = ("f32", "f64", "f16", "bf16")
_RULES = ("sgd", "adam", "adamw")


class Residuals(Handle):
    """What a forward step leaves for its way back, with the plan that it ran
    with.

    Any number may be alive; one may be used several times, and its memory goes
    back to the session's pool with the last reference or `close`.
    """

    def __init__(self, pointer, session, entry, results, kind):
        super().__init__(pointer, lib.moira_residuals_destroy, "residuals")
        self.session = session
        self.entry = entry
        #: (dtype, shape) of the results of the forward step.
        self.results = results
        self._kind = kind


@dataclass(frozen=True)
class Gradients:
    """What a way back computes."""

    #: One per input of the entry; None for those without a gradient.
    inputs: Tuple[Any, ...]
    #: By parameter. Where the program takes a tensor in parts, such as gate
    #: and up projection, a tuple of these.
    parameters: Dict[str, Union[Any, Tuple[Any, ...]]]


def result_gradients(residuals, given, copies):
    """Views of the gradients of the forward step's results of a float type;
    None stands for zeros."""
    entry = residuals.entry
    wanted = [i for i, (dtype, _) in enumerate(residuals.results)
              if dtype in FLOATS]
    if len(given) != len(wanted):
        raise invalid(f"backward of entry '{entry.name}': expected "
                      f"{len(wanted)} gradients of results, got {len(given)}")
    views = []
    for i, array in zip(wanted, given):
        dtype, shape = residuals.results[i]
        if array is None:
            size = _abi.ITEMSIZE[dtype]
            for dim in shape:
                size *= dim
            zeros = ctypes.create_string_buffer(max(size, 1))
            views.append(_inputs.View(ctypes.addressof(zeros), dtype, shape,
                                      zeros, "none"))
        else:
            views.append(_inputs.view(
                array, f"backward of entry '{entry.name}': gradient of result "
                f"{i}", copies))
    return views


def signature(bundle, entry):
    """What each result of an entry's way back is the gradient of: ("input",
    index) or ("parameter", name)."""
    back = next(e for e in bundle.manifest["entries"]
                if e["name"] == entry.backward)
    found = []
    for result in back["results"]:
        of = result["gradient"]
        found.append(("input", of["input"]) if of.get("input", -1) >= 0
                     else ("parameter", of["parameter"]))
    return found


def require_backward(entry):
    if not entry.backward:
        raise invalid(f"entry '{entry.name}': expected one compiled with "
                      "gradients, got one without")


def gather(entry, of, arrays):
    """Gradients from the results of a way back."""
    inputs = [None] * len(entry.inputs)
    parameters: Dict[str, Any] = {}
    for (kind, key), array in zip(of, arrays):
        if kind == "input":
            inputs[key] = array
        else:
            parameters.setdefault(key, []).append(array)
    return Gradients(tuple(inputs), {
        name: parts[0] if len(parts) == 1 else tuple(parts)
        for name, parts in parameters.items()})


def run(call, residuals, views, outs, returns):
    """Runs a way back into `outs` places; None for each new array."""
    session = residuals.session
    places, kept = _inputs.places(
        outs, lambda i: f"backward of entry '{residuals.entry.name}': "
        f"gradient {i}")
    with session._use() as handle, residuals._use() as pointer:
        check(call(handle, pointer, _inputs.pointers(views), len(views),
                   places, len(outs)))
    frameworks = [view.framework for view in views]
    kind = tensor.kind_for(returns or residuals._kind, frameworks)
    return tensor.collect(places, kept, kind)


def update_options(rule: str, options: Dict[str, Any]
                   ) -> "_abi.UpdateOptions":
    """The struct for `rule` with some of its numbers replaced."""
    if rule not in _RULES:
        raise invalid(f"optimizer: expected one of {_RULES}, got {rule!r}")
    struct = _abi.UpdateOptions()
    check(lib.moira_update_defaults(ctypes.byref(struct), _RULES.index(rule)))
    known = [field[0] for field in struct._fields_[2:]]
    for name, value in options.items():
        if name not in known:
            raise invalid(f"optimizer: expected options of "
                          f"{', '.join(known)}, got '{name}'")
        setattr(struct, name, value)
    return struct
