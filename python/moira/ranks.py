# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of ranks, for programs that were compiled for several."""

import ctypes
import json
import os
from typing import Any, List, Mapping, Optional, Union

from . import _abi, _inputs
from ._library import Handle, check, encode, invalid, lib

#: JSON as a dict, as text (which begins with "{") or as the path of a file.
Json = Union[str, "os.PathLike[str]", Mapping[str, Any]]


def json_text(given: Optional[Json], what: str) -> Optional[bytes]:
    """What the library gets; None stays None."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return json.dumps(given).encode()
    if isinstance(given, str) and given.lstrip().startswith("{"):
        return given.encode()
    if isinstance(given, (str, os.PathLike)):
        with open(given, "rb") as file:
            return file.read()
    raise invalid(f"{what}: expected a dict, a text of JSON or a path, got "
                  f"{type(given).__name__}")


def _options(ranks_per_node, timeout, transport=None, virtual_clock=False,
             topology=None):
    return _abi.RanksOptions(
        ranks_per_node=ranks_per_node, timeout=timeout,
        transport=encode(transport), virtual_clock=int(virtual_clock),
        topology=json_text(topology, "topology"))


class Ranks(Handle):
    """One rank's place in a group; `Session(bundle, ranks=...)` runs steps as
    that rank.

    All ranks of a group call the same collective functions in the same order:
    steps and ways back of sessions, `barrier`, `sum`, `broadcast`. What fails on
    one rank fails on all, with one message that names it.
    """

    def __init__(self, pointer: int):
        super().__init__(pointer, lib.moira_ranks_destroy, "rank")
        info = _abi.RanksInfo()
        check(lib.moira_ranks_describe(pointer, ctypes.byref(info)))
        self.rank: int = info.rank
        self.ranks: int = info.ranks  #: how many there are
        #: "inprocess", "tcp", "mpi", "nccl"; "none" for one rank.
        self.transport: str = info.transport.decode()
        #: Whether times are those of a described cluster.
        self.virtual_clock = bool(info.virtual_clock)

    @classmethod
    def threads(cls, ranks: int, *, ranks_per_node: int = 0,
                timeout: float = 60, virtual_clock: bool = False,
                topology: Optional[Json] = None) -> "List[Ranks]":
        """Ranks that are threads of this process, by rank.

        Args:
            ranks_per_node: for the hierarchical exchange; 0: as `topology`
                says, else not described.
            timeout: seconds that one operation may wait for other ranks.
            virtual_clock: times are those of the cluster that `topology`
                (docs/topology.md) describes.
        """
        options = _options(ranks_per_node, timeout,
                           virtual_clock=virtual_clock, topology=topology)
        pointers = (ctypes.c_void_p * max(ranks, 1))()
        check(lib.moira_ranks_threads(ranks, ctypes.byref(options), pointers))
        return [cls(pointer) for pointer in pointers]

    @classmethod
    def launched(cls, *, ranks_per_node: int = 0, timeout: float = 60,
                 transport: Optional[str] = None) -> "Ranks":
        """The rank that mpirun, srun or torchrun made this process; one rank
        alone where none of them has started it.

        Args:
            transport: "tcp", "mpi" or "nccl"; None: as MOIRA_TRANSPORT and the
                launcher say.
        """
        options = _options(ranks_per_node, timeout, transport)
        pointer = ctypes.c_void_p()
        check(lib.moira_ranks_launched(ctypes.byref(options),
                                       ctypes.byref(pointer)))
        return cls(pointer.value or 0)

    @classmethod
    def connect(cls, rank: int, ranks: int, port: int, *,
                host: Optional[str] = None, job: str = "",
                ranks_per_node: int = 0, timeout: float = 60,
                transport: Optional[str] = None) -> "Ranks":
        """A place in a group that no launcher made: rank 0 listens at `host`
        (None: this machine) and `port`. Strangers with another `job` are
        refused."""
        options = _options(ranks_per_node, timeout, transport)
        address = _abi.RanksAddress(rank=rank, ranks=ranks, host=encode(host),
                                    port=port, job=encode(job))
        pointer = ctypes.c_void_p()
        check(lib.moira_ranks_connect(ctypes.byref(address),
                                      ctypes.byref(options),
                                      ctypes.byref(pointer)))
        return cls(pointer.value or 0)

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        with self._use() as handle:
            check(lib.moira_ranks_barrier(handle))

    def sum(self, array: Any) -> Any:
        """Sums a writable array of all ranks in place, with the same bits
        everywhere, and returns it."""
        view = _inputs.view(array, "sum", "refuse", writable=True)
        tensor = view.tensor
        dtype = _abi.DTYPES.index(
            _abi.DTYPE_OF[tensor.dtype.code, tensor.dtype.bits])
        with self._use() as handle:
            check(lib.moira_ranks_sum(handle, tensor.data, _count(tensor),
                                      dtype))
        return array

    def broadcast(self, array: Any, root: int = 0) -> Any:
        """Fills a writable array of all ranks with that of `root`, and returns
        it."""
        view = _inputs.view(array, "broadcast", "refuse", writable=True)
        tensor = view.tensor
        size = _count(tensor) * tensor.dtype.bits // 8
        with self._use() as handle:
            check(lib.moira_ranks_broadcast(handle, root, tensor.data, size))
        return array

    def interrupt(self) -> None:
        """Ends the operation that waits, or the next one, with an error on all
        ranks."""
        with self._use() as handle:
            lib.moira_ranks_interrupt(handle)

    def __repr__(self):
        return f"moira.Ranks(rank {self.rank} of {self.ranks})"


def _count(tensor):
    count = 1
    for i in range(tensor.ndim):
        count *= tensor.shape[i]
    return count
