# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loop that serves bench.py, for workers in Python. The messages are those
of the C++ workers; docs/benchmarks.md has them."""

import json
import mmap
import os
import struct
import sys
import time

# More than any cache holds.
EVICT_BYTES = 96 << 20


class Case:
    def __init__(self, message):
        for name, value in message.items():
            setattr(self, name, value)
        self.bf16 = self.dtype == "bf16"
        self.rows = sum(self.sizes)
        self.experts = len(self.sizes)
        self.groups = []  # (expert, begin, rows) of experts with rows
        begin = 0
        for expert, size in enumerate(self.sizes):
            if size:
                self.groups.append((expert, begin, size))
            begin += size


class DataFile:
    """A safetensors file: name to (type, shape, bytes)."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        length = struct.unpack("<Q", self.map[:8])[0]
        header = json.loads(self.map[8:8 + length])
        self.entries = header
        self.base = 8 + length

    def find(self, name):
        """(type, shape, offset, bytes), or None."""
        entry = self.entries.get(name)
        if entry is None:
            return None
        begin, end = entry["data_offsets"]
        return entry["dtype"], entry["shape"], self.base + begin, end - begin


class Implementation:
    """What a worker fills in."""

    def version(self):
        raise NotImplementedError

    def prepare(self, case, file):
        """Returns (modes, why ways do not run); raises with the reason where
        none does."""
        raise NotImplementedError

    def run(self, mode):
        raise NotImplementedError

    def error(self, mode, reference):
        """Runs and returns the result's largest error over its row's largest
        value; `reference` is as DataFile.find returns it."""
        raise NotImplementedError

    def evict(self):
        """Brings EVICT_BYTES of other data into the caches."""
        raise NotImplementedError

    def release(self):
        raise NotImplementedError


class Server:
    def __init__(self, implementation):
        self.made = implementation
        self.case = None
        self.file = None

    def timed(self, mode):
        start = time.perf_counter_ns()
        self.made.run(mode)
        return time.perf_counter_ns() - start

    def run(self, mode, repeat, evict):
        if repeat > 1:
            self.timed(mode)
        times = []
        for _ in range(repeat):
            if evict:
                self.made.evict()
            times.append(self.timed(mode))
        return {"ns": times}

    def prepare(self, message):
        self.case = Case(message["case"])
        self.file = DataFile(self.case.file)
        try:
            modes, reasons = self.made.prepare(self.case, self.file)
        except Exception as error:  # whatever the library throws is the answer
            return {"modes": [], "error": describe(error)}
        return {"modes": modes, "not_run": reasons}

    def answer(self, message):
        order = message["do"]
        if order == "version":
            return {"version": self.made.version()}
        if order == "prepare":
            return self.prepare(message)
        try:
            if order == "run":
                return self.run(message["mode"], message["repeat"],
                                message["evict"])
            if order == "check":
                return {"error": self.made.error(message["mode"],
                                                 self.file.find("reference"))}
        except Exception as error:
            return {"failed": describe(error)}
        self.made.release()
        self.case = self.file = None
        return {}


def describe(error):
    text = str(error).strip() or type(error).__name__
    return text.split("\n")[0][:200]


def serve(implementation):
    # Libraries print to stdout; only answers may reach the coordinator.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server(implementation)
    for line in sys.stdin:
        message = json.loads(line)
        if message["do"] == "quit":
            break
        channel.write(json.dumps(server.answer(message)) + "\n")
        channel.flush()
    # No library's clean-up is worth waiting for.
    os._exit(0)
