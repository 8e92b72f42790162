# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds libmoira_runtime, checks its version, and turns codes into errors."""

import ctypes
import os
import pathlib
import threading
import weakref

from . import _abi
from ._abi import Status

_FOLDER = pathlib.Path(__file__).resolve().parent
#: Beside this package in a checkout: what scripts/build makes.
_BUILD = _FOLDER.parent.parent / "build"


class MoiraError(RuntimeError):
    """A call failed.

    Attributes:
        code: a `moira.Status`, such as `Status.NOT_FOUND`.
        message: one line that names what was expected and what was found.
    """

    def __init__(self, code, message):
        super().__init__(message)
        try:
            self.code = Status(code)
        except ValueError:  # of a newer library
            self.code = code
        self.message = message

    def __reduce__(self):
        return type(self), (self.code, self.message)

    def __str__(self):
        name = self.code.name if isinstance(self.code, Status) else self.code
        return f"{self.message} [{name}]"


def invalid(message):
    return MoiraError(Status.INVALID_ARGUMENT, message)


def _candidates():
    """Where the library may be, best first."""
    given = os.environ.get("MOIRA_RUNTIME")
    if given:
        # What is named is meant: no other one is tried.
        return [given]
    return [str(path) for path in (_FOLDER / "lib" / "libmoira_runtime.so",
                                   _BUILD / "lib" / "libmoira_runtime.so")
            if path.exists()] + ["libmoira_runtime.so.0"]


def _preload():
    """Loads what a wheel brought along for the library; it is found by name
    from then on."""
    for path in sorted((_FOLDER / "lib").glob("libtbb.so.*")):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def check_version(found, path):
    """Refuses a library whose structs and codes may differ from ours."""
    if found != _abi.ABI_VERSION:
        raise ImportError(
            f"{path}: expected a moira runtime with abi version "
            f"{_abi.ABI_VERSION}, got {found}")


def _load():
    failures = []
    for path in _candidates():
        try:
            if os.path.dirname(path) == str(_FOLDER / "lib"):
                _preload()
            # CDLL gives the interpreter's lock back during calls.
            library = ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
            continue
        try:
            version = library.moira_abi_version
        except AttributeError:
            raise ImportError(f"{path}: expected a moira runtime, got a "
                              "library without moira_abi_version") from None
        version.restype, version.argtypes = ctypes.c_uint32, []
        check_version(version(), path)
        for name, (result, arguments) in _abi.FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise ImportError(f"{path}: expected a moira runtime with "
                                  f"{name}, got an older one") from None
            function.restype, function.argtypes = result, arguments
        return library, path
    raise ImportError(
        "expected libmoira_runtime in the package, in build/lib of the "
        "checkout, at $MOIRA_RUNTIME or on the loader's path: "
        + "; ".join(failures))


#: The library and where it was found.
lib, library_path = _load()


def check(code):
    """Raises a MoiraError unless `code` is MOIRA_OK.

    The message is that of the calling thread's last failure, so this stands in
    the thread of the call, before any other.
    """
    if code:
        raise MoiraError(code, lib.moira_error_message().decode(
            "utf-8", "replace"))


def encode(text):
    return None if text is None else os.fsencode(text)


# The threads of the library do not follow into a fork of the process, so that
# calls there could wait for ever.
_process = 0


def _forked():
    global _process
    _process += 1


os.register_at_fork(after_in_child=_forked)


class _Cell:
    """The pointer, shared by a handle and its finalizer."""

    __slots__ = ("pointer", "users", "closed", "destroy", "lock", "process")

    def __init__(self, pointer, destroy):
        self.pointer, self.destroy = pointer, destroy
        self.process = _process
        self.users, self.closed = 0, False
        self.lock = threading.Lock()

    def close(self):
        if self.process != _process:
            return
        with self.lock:
            self.closed = True
            pointer = self.pointer if self.users == 0 else None
            if pointer:
                self.pointer = None
        if pointer:
            self.destroy(pointer)


class Handle:
    """Owns a pointer of the library: ends it once, on `close`, at the end of a
    `with` block or with the last reference, whichever is first, and not while
    another thread's call uses it."""

    def __init__(self, pointer, destroy, what):
        self._cell = _Cell(pointer, destroy)
        self._closed_message = (
            f"expected open {what}, got closed ones" if what.endswith("s")
            else f"expected an open {what}, got a closed one")
        self._forked_message = (f"{what}: expected the process that made it, "
                                "got a fork of it")
        self._finalizer = weakref.finalize(self, _Cell.close, self._cell)

    @property
    def closed(self):
        """Whether `close` was called."""
        return self._cell.closed

    def close(self):
        """Frees what the handle holds, at the latest when calls that run in
        other threads end. Legal more than once; other calls fail then."""
        self._finalizer.detach()
        self._cell.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _use(self):
        return _Use(self)


class _Use:
    """`with handle._use() as pointer:` keeps the pointer alive meanwhile."""

    __slots__ = ("cell",)

    def __init__(self, handle):
        self.cell = cell = handle._cell
        if cell.process != _process:
            raise invalid(handle._forked_message)
        with cell.lock:
            if cell.closed:
                raise invalid(handle._closed_message)
            cell.users += 1

    def __enter__(self):
        return self.cell.pointer

    def __exit__(self, *_):
        cell = self.cell
        with cell.lock:
            cell.users -= 1
            last = cell.closed and cell.users == 0
        if last:
            cell.close()
