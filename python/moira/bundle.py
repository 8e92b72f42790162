# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled programs."""

import ctypes
import json
import os
from dataclasses import dataclass
from typing import Dict, Optional, Tuple, Union

from . import _abi
from ._library import Handle, check, encode, invalid, lib


@dataclass(frozen=True)
class TensorSpec:
    """An input or a result of an entry."""

    name: str  #: "" where it has none
    dtype: str  #: "f32", "f64", "f16", "bf16", "i1", "i8", "i32" or "i64"
    shape: Tuple[Optional[int], ...]  #: None: any size

    def __str__(self):
        sizes = ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name + ': ' if self.name else ''}{self.dtype}[{sizes}]"


@dataclass(frozen=True)
class Entry:
    """A function of the program.

    `backward` names the entry that computes its gradients, "" where there is
    none; `results` are then those of the program, without what it keeps for
    the way back.
    """

    name: str
    inputs: Tuple[TensorSpec, ...]
    results: Tuple[TensorSpec, ...]
    variants: Tuple[str, ...]
    ranks: int = 1
    backward: str = ""


@dataclass(frozen=True)
class Parameter:
    """A tensor of weights that a session binds by name.

    A name with `{}` takes one array of all slices, or one per slice under the
    name with a number.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]  #: of the array that `Session.bind` takes
    packed_bytes: int


def _tensor_spec(call, handle, entry, index):
    info = _abi.TensorInfo()
    check(call(handle, entry, index, ctypes.byref(info)))
    return TensorSpec(info.name.decode(), _abi.DTYPES[info.dtype],
                      tuple(None if d < 0 else d
                            for d in info.shape[:info.rank]))


def _read_entry(handle, index, manifest):
    info = _abi.EntryInfo()
    check(lib.moira_bundle_entry(handle, index, ctypes.byref(info)))
    variants = []
    for i in range(info.variants):
        name = ctypes.c_char_p()
        check(lib.moira_bundle_variant(handle, index, i, ctypes.byref(name)))
        variants.append(name.value.decode())
    # What only training needs is in the manifest alone.
    backward = manifest.get("backward", "")
    kept = manifest.get("residuals", 0) if backward else 0
    return Entry(
        info.name.decode(),
        tuple(_tensor_spec(lib.moira_bundle_input, handle, index, i)
              for i in range(info.inputs)),
        tuple(_tensor_spec(lib.moira_bundle_result, handle, index, i)
              for i in range(info.results - kept)),
        tuple(variants), info.ranks, backward)


def _read_parameter(manifest):
    """The array that a row of the parameter table is packed from."""
    shape = list(manifest["source"]["shape"])
    slices = manifest["slices"]
    placement = manifest.get("placement")
    if placement:  # a slice is a shard of an expert's slice of the file
        slices = placement.get("experts", 1)
        dim = placement.get("dim", -1)
        if dim >= 0:
            shape[dim] *= placement.get("shards", 1)
    if slices != 1 or manifest["stacked"]:
        shape.insert(0, slices)
    return Parameter(
        manifest["name"], manifest["source"]["dtype"], tuple(shape),
        manifest["slices"] * manifest["packed_slice_bytes"])


class Bundle(Handle):
    """A compiled program: code, layouts, manifest.

    Any number of sessions may run it. Any thread may use it. Sessions stay
    usable after `close`.
    """

    def __init__(self, source: Union[str, os.PathLike, bytes, bytearray,
                                     memoryview]):
        """Opens a file, or the bytes of one.

        The checks find damage, not malice: open bundles that you trust.

        Raises:
            MoiraError: NOT_FOUND, DATA_LOSS, VERSION, or UNAVAILABLE where
                this machine cannot run the code.
        """
        pointer = ctypes.c_void_p()
        if isinstance(source, (bytes, bytearray, memoryview)):
            data = bytes(source)
            # Of no bytes too there is an address.
            check(lib.moira_bundle_open_memory(
                ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p),
                len(data), ctypes.byref(pointer)))
            self.path = None
        elif isinstance(source, (str, os.PathLike)):
            self.path = os.fspath(source)
            check(lib.moira_bundle_open(encode(self.path),
                                        ctypes.byref(pointer)))
        else:
            raise invalid("expected a path or bytes of a bundle, got "
                          f"{type(source).__name__}")
        self._describe(pointer)

    def _describe(self, pointer):
        """Reads what the library's handle says of its grid."""
        super().__init__(pointer.value, lib.moira_bundle_close, "bundle")
        ranks, grids = ctypes.c_int32(), []
        while lib.moira_bundle_grid(pointer, len(grids),
                                    ctypes.byref(ranks)) == 0:
            grids.append(ranks.value)
        #: The numbers of ranks that the bundle has a program for.
        self.grids: Tuple[int, ...] = tuple(grids)
        text = ctypes.c_char_p()
        check(lib.moira_bundle_manifest(self._cell.pointer,
                                        ctypes.byref(text)))
        #: The manifest (docs/bundle.md) as a dict.
        self.manifest: dict = json.loads(text.value or b"")
        #: Entries by name, in the bundle's order.
        self.entries: Dict[str, Entry] = {}
        for i, described in enumerate(self.manifest["entries"]):
            entry = _read_entry(self._cell.pointer, i, described)
            self.entries[entry.name] = entry
        #: Parameters by name, in the table's order, each tensor once.
        self.parameters: Dict[str, Parameter] = {}
        for described in self.manifest["parameters"]:
            self._add_parameter(_read_parameter(described))

    def for_ranks(self, ranks: int) -> "Bundle":
        """The bundle as so many ranks see it: entries, parameters and manifest
        of that grid. One that was opened shows its first grid; sessions take
        the grid of their ranks in any case.

        Raises:
            MoiraError: INVALID_ARGUMENT where there is no such grid.
        """
        pointer = ctypes.c_void_p()
        with self._use() as handle:
            check(lib.moira_bundle_for_ranks(handle, ranks,
                                             ctypes.byref(pointer)))
        grid = Bundle.__new__(Bundle)
        grid.path = self.path
        grid._describe(pointer)
        return grid

    def _add_parameter(self, parameter):
        # Several rows are parts of one tensor, or layouts of it.
        known = self.parameters.get(parameter.name)
        size = parameter.packed_bytes + (known.packed_bytes if known else 0)
        self.parameters[parameter.name] = Parameter(
            parameter.name, parameter.dtype, parameter.shape, size)

    @property
    def entry(self) -> Entry:
        """The only entry of the program itself.

        Raises:
            MoiraError: INVALID_ARGUMENT where there are several.
        """
        # Ways back and updates of parameters run by other means.
        others = {e.backward for e in self.entries.values()}
        others.update(e["name"] for e in self.manifest["entries"]
                      if e.get("update"))
        found = [e for e in self.entries.values() if e.name not in others]
        if len(found) != 1:
            raise invalid("expected the name of an entry, since the program "
                          f"has {len(found)}: "
                          f"{', '.join(e.name for e in found)}")
        return found[0]

    def find(self, entry: Optional[str] = None) -> Entry:
        """The entry of this name; None: the only one.

        Raises:
            MoiraError: NOT_FOUND.
        """
        if entry is None:
            return self.entry
        if entry not in self.entries:
            raise _not_found("entry", entry, self.entries)
        return self.entries[entry]

    @property
    def inputs(self) -> Tuple[TensorSpec, ...]:
        """Those of the only entry."""
        return self.entry.inputs

    @property
    def results(self) -> Tuple[TensorSpec, ...]:
        """Those of the only entry."""
        return self.entry.results

    def session(self, **options):
        """Shorthand for `Session(bundle, **options)`."""
        from .session import Session
        return Session(self, **options)

    def __repr__(self):
        return f"moira.Bundle({self.path or 'in memory'!r})"


def _not_found(what, name, known):
    from ._library import MoiraError
    return MoiraError(_abi.Status.NOT_FOUND,
                      f"expected an {what} of {', '.join(known)}, got "
                      f"'{name}'")
