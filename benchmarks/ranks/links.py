# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two hosts on one machine, with a real link of a chosen rate between them.

Each host is a network namespace with one end of a pair of virtual Ethernet
devices. What leaves an end passes a token bucket (`tc qdisc ... tbf`), so the
link has that rate in each direction. Needs root and iproute2.
"""

import os
import shutil
import socket
import subprocess
import sys
import time

PREFIX = f"moira{os.getpid()}"
ADDRESSES = ("10.211.0.1", "10.211.0.2")
# Less than a rate of 400 Mbit/s sends between two ticks would slow it down; more
# lets short messages pass faster than the link.
BURST = "64kb"


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def missing():
    """Why there can be no link here, or ''."""
    if os.geteuid() != 0:
        return "links need root"
    for tool in ("ip", "tc", "taskset"):
        if not shutil.which(tool):
            return f"links need '{tool}'"
    return ""


class Link:
    """A context manager; `rate` in Mbit/s."""

    def __init__(self, rate):
        self.rate = rate
        self.hosts = [f"{PREFIX}a", f"{PREFIX}b"]

    def __enter__(self):
        try:
            for host in self.hosts:
                run("ip", "netns", "add", host)
            run("ip", "link", "add", "eth0", "netns", self.hosts[0], "type",
                "veth", "peer", "name", "eth0", "netns", self.hosts[1])
            for host, address in zip(self.hosts, ADDRESSES):
                run("ip", "-n", host, "addr", "add", f"{address}/24", "dev",
                    "eth0")
                run("ip", "-n", host, "link", "set", "lo", "up")
                run("ip", "-n", host, "link", "set", "eth0", "up")
                run("tc", "-n", host, "qdisc", "add", "dev", "eth0", "root",
                    "tbf", "rate", f"{self.rate}mbit", "burst", BURST,
                    "limit", "4mb")
        except subprocess.CalledProcessError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            subprocess.run(("ip", "netns", "del", host), check=False,
                           stderr=subprocess.DEVNULL)

    def start(self, host, command, environment=None, **options):
        """Starts a command on host 0 or 1, on a core of its own."""
        cores = sorted(os.sched_getaffinity(0))
        inside = ["ip", "netns", "exec", self.hosts[host], "taskset", "-c",
                  str(cores[host % len(cores)])]
        return subprocess.Popen(inside + command,
                                env={**os.environ, **(environment or {})},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, **options)

    def start_ranks(self, command, environment=None):
        """One rank per host, found by the variables of torchrun."""
        processes = []
        for rank in (0, 1):
            own = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                   "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank),
                   "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29400",
                   **(environment or {})}
            processes.append(self.start(rank, command, own))
        return processes

    def run_ranks(self, command, environment=None, timeout=120):
        """What rank 0 prints. Ends both on failure."""
        processes = self.start_ranks(command, environment)
        try:
            outputs = [p.communicate(timeout=timeout) for p in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
        for process, (_, errors) in zip(processes, outputs):
            if process.returncode:
                raise RuntimeError(f"{' '.join(command)}: {errors.strip()}")
        return outputs[0][0]

    def measure(self, seconds=1.5):
        """Bytes per second of plain sockets, both directions at once, and the
        seconds that a byte takes there (half a round trip)."""
        script = os.path.abspath(__file__)
        server = self.start(0, [sys.executable, script, "serve", str(seconds)])
        time.sleep(0.3)
        client = self.start(1, [sys.executable, script, "call", str(seconds)])
        texts = [p.communicate(timeout=60) for p in (server, client)]
        if server.returncode or client.returncode:
            raise RuntimeError(f"link: {texts[0][1]}{texts[1][1]}")
        rates = [float(text.split()[0]) for text, _ in texts]
        return min(rates), float(texts[1][0].split()[1])


def transfer(connection, seconds):
    """Sends for so long and receives all that comes; returns the received bytes
    per second after the first tenth."""
    connection.setblocking(False)
    block = bytes(1 << 16)
    begin = time.monotonic()
    received, first = 0, None
    open_for_writing, done = True, False
    while not done:
        now = time.monotonic() - begin
        if open_for_writing:
            if now > seconds:
                connection.shutdown(socket.SHUT_WR)
                open_for_writing = False
            else:
                try:
                    connection.send(block)
                except BlockingIOError:
                    pass
        try:
            got = len(connection.recv(1 << 20))
            done = got == 0
            if first is None and now > seconds / 10:
                first = (now, received)
            received += got
            last = time.monotonic() - begin
        except BlockingIOError:
            time.sleep(0.0002)
    return (received - first[1]) / (last - first[0])


def ping(connection, calling, rounds=50):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(rounds):
        begin = time.monotonic()
        if calling:
            connection.sendall(b"x")
        connection.recv(1)
        if not calling:
            connection.sendall(b"x")
        times.append(time.monotonic() - begin)
    return sorted(times)[rounds // 2] / 2


def main():
    seconds = float(sys.argv[2])
    if sys.argv[1] == "serve":
        with socket.create_server((ADDRESSES[0], 29399)) as server:
            connection, _ = server.accept()
    else:
        connection = socket.create_connection((ADDRESSES[0], 29399), 10)
    latency = ping(connection, sys.argv[1] == "call")
    print(transfer(connection, seconds), latency)


if __name__ == "__main__":
    main()
