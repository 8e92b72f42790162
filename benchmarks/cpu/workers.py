# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processes that run one implementation each, and how to talk to them."""

import json
import os
import select
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class WorkerError(Exception):
    pass


def peers_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("MOIRA_PEERS") or os.path.join(cache, "moira",
                                                         "peers")


class Implementation:
    """How to start the worker of a peer. Several may share a peer's name: the
    best of them counts."""

    def __init__(self, peer, name, command, environment=None, python=False):
        self.peer = peer
        self.name = name
        self.command = command
        self.environment = environment or {}
        self.python = python  # needs what benchmarks/setup-peers installs

    def missing(self):
        """Why it cannot start, or nothing."""
        if os.path.exists(self.command[0]):
            return ""
        if self.python:
            return "not installed; benchmarks/setup-peers does it"
        return f"{os.path.basename(self.command[0])} was not built"


def implementations(binaries):
    """Everything that can be asked for, Moira and the limits first."""

    def built(peer, name=None, arguments=(), environment=None, program=None):
        path = os.path.join(binaries, f"moira-bench-{program or peer}")
        return Implementation(peer, name or peer, [path, *arguments],
                              environment)

    def python(peer):
        interpreter = os.path.join(peers_folder(), "venv", "bin", "python3")
        script = os.path.join(HERE, "peers", f"{peer}_worker.py")
        # Memory that libraries take from malloc is in huge pages too.
        return Implementation(
            peer, peer, [interpreter, script],
            {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, python=True)

    # BLIS picks portable code on processors that it does not know; the
    # numbers are its own names of kernels: 0 skx, 6 zen3.
    return [
        built("limits"),
        built("moira"),
        built("openblas", program="blas", arguments=["libopenblas.so.0"]),
        built("blis", "blis-skx", ["libblis.so.4"], {"BLIS_ARCH_TYPE": "0"},
              "blas"),
        built("blis", "blis-zen3", ["libblis.so.4"], {"BLIS_ARCH_TYPE": "6"},
              "blas"),
        built("onednn"),
        built("libxsmm", program="xsmm"),
        python("torch"),
        python("onnxruntime"),
        python("ggml"),
    ]


PYTHON_PEERS = ("torch", "onnxruntime", "ggml")


def environment(cores, extra):
    """Of a worker: its libraries use `cores` threads, which sleep when they
    have no work, and choose their kernels themselves."""
    result = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENBLAS_", "BLIS_", "OMP_", "GOMP_", "KMP_",
                                "MKL_", "DNNL_", "ONEDNN_", "LIBXSMM_"))
    }
    result.update({
        "OMP_NUM_THREADS": str(cores),
        "OPENBLAS_NUM_THREADS": str(cores),
        "BLIS_NUM_THREADS": str(cores),
        "MKL_NUM_THREADS": str(cores),
        "OMP_DYNAMIC": "FALSE",
        # Threads wait awake for the next product of the same run (well under
        # a millisecond), and sleep before another worker's turn comes.
        "GOMP_SPINCOUNT": "100000",
        "KMP_BLOCKTIME": "1",
        "OPENBLAS_THREAD_TIMEOUT": "22",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    })
    result.update(extra)
    return result


class Worker:
    """A running process."""

    def __init__(self, implementation, cores):
        self.peer = implementation.peer
        self.name = implementation.name
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            implementation.command, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors,
            start_new_session=True,  # an interrupt is for bench.py alone
            env=environment(cores, implementation.environment))
        self.pending = b""

    def ask(self, timeout, **message):
        self.send(**message)
        return self.receive(timeout)

    def send(self, **message):
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise WorkerError(self.last_words()) from None

    def receive(self, timeout):
        end = time.monotonic() + timeout
        while b"\n" not in self.pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [],
                                              left)[0]:
                self.kill()
                raise WorkerError(f"no answer within {timeout:.0f} s")
            text = os.read(self.process.stdout.fileno(), 1 << 16)
            if not text:
                raise WorkerError(self.last_words())
            self.pending += text
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def last_words(self):
        """What an ended process said last."""
        self.kill()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        lines = [line for line in lines if line.strip()]
        said = f": {lines[-1].strip()[:200]}" if lines else ""
        return f"ended with code {self.process.returncode}{said}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def quit(self):
        if self.process.poll() is None:
            try:
                self.send(do="quit")
                self.process.wait(10)
            except (WorkerError, subprocess.TimeoutExpired):
                self.kill()
        self.errors.close()
