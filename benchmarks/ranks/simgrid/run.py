#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulates the runtime's exchanges on clusters of 64 and 512 GPUs, and writes
docs/exchange.md's table and plot. docs/exchange.md explains both."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RESULTS = ROOT / "benchmarks/results/ranks-simgrid.json"
GPUS = 8  # of a node
SOURCES = [HERE / "exchange.cpp"] + [
    ROOT / "runtime" / name for name in (
        "base/Status.cpp", "collective/RaggedExchange.cpp",
        "collective/mpi/MpiLife.cpp", "collective/mpi/MpiTransport.cpp")]
# Ranks: sends in flight per rank, sizes in bytes from each rank to each, and
# further flags. With all sends in flight the simulator's time grows with their
# square. It shares out the links anew whenever a message begins or ends, half a
# million times with 512 ranks. There, what ends within 0.1 us ends together:
# with 64 ranks that changes times by 4 % at 32 KiB and by 1 % at 64 KiB. And
# messages of 16 KiB and more wait for their receiver: else a send has ended at
# once, all are in flight, and the copies of 64 KiB messages take 17 GB.
CASES = {16: (16, [1 << 10, 64 << 10], []),
         64: (16, [256, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10,
                   256 << 10], []),
         512: (8, [2 << 10, 32 << 10, 64 << 10],
               ["surf/precision:1e-7", "smpi/send-is-detached-thresh:16384",
                "smpi/shared-malloc-blocksize:67108864"])}
# Only what the links and a fixed cost per message give: 0.5 us of a rank's time
# to send and to receive each. Cross traffic (acknowledgements) is left out.
FLAGS = ["smpi/simulate-computation:no", "smpi/privatization:no",
         "smpi/display-timing:no", "network/TCP-gamma:0",
         "network/crosstraffic:no", "network/bandwidth-factor:1",
         "network/latency-factor:1", "smpi/bw-factor:0:1",
         "smpi/lat-factor:0:1", "smpi/os:0:0.5e-6:0", "smpi/or:0:0.5e-6:0",
         "smpi/ois:0:0.5e-6:0", "smpi/shared-malloc:global",
         "smpi/send-is-detached-thresh:65536", "contexts/stack-size:512"]


def compile_all(folder):
    program, platform = folder / "exchange", folder / "platform.so"
    flags = ["-std=c++17", "-O2", "-DOMPI_SKIP_MPICXX"]
    subprocess.run(["smpicxx", *flags, "-Wl,-Bsymbolic", "-I", ROOT / "runtime",
                    "-I", ROOT / "runtime/include", *SOURCES, "-o", program],
                   check=True)
    subprocess.run(["g++", *flags, "-shared", "-fPIC", HERE / "platform.cpp",
                    "-o", platform, "-lsimgrid"], check=True)
    return program, platform


def simulate(folder, program, platform, ranks, sizes, limit):
    """The lines that the program prints: dictionaries."""
    sends, _, flags = CASES[ranks]
    hosts = folder / f"hosts{ranks}"
    hosts.write_text("".join(f"node{n}-{g}\n" for n in range(ranks // GPUS)
                             for g in range(GPUS)))
    command = ["smpirun", "-np", str(ranks), "-hostfile", hosts,
               "-platform", platform, *(f"--cfg={flag}" for flag in FLAGS + flags),
               "--log=root.thres:warning", program, str(GPUS), str(sends),
               *map(str, sizes)]
    environment = dict(os.environ, MOIRA_SIM_NODES=str(ranks // GPUS),
                       MOIRA_SIM_GPUS=str(GPUS))
    begin = time.monotonic()
    result = subprocess.run(command, env=environment, text=True,
                            stdout=subprocess.PIPE, timeout=limit, check=True)
    rows = [json.loads(line) for line in result.stdout.splitlines()
            if line.startswith("{")]
    print(f"{ranks} ranks: {len(rows)} exchanges simulated in "
          f"{time.monotonic() - begin:.0f} s", file=sys.stderr)
    return [dict(row, flags=flags) for row in rows]


def kept(cases):
    """The results that a run of `cases`, sizes by ranks, does not replace."""
    if not RESULTS.exists():
        return []
    return [row for row in json.loads(RESULTS.read_text())["exchanges"]
            if row["bytes_per_peer"] not in cases.get(row["ranks"], [])]


def chosen_cases(options):
    """Sizes by ranks."""
    if options.quick:
        return {16: CASES[16][1]}
    ranks = options.ranks or [count for count in CASES if count > 16]
    return {count: options.bytes or CASES[count][1] for count in ranks}


def simulate_all(cases, limit):
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program, platform = compile_all(folder)
        for ranks, sizes in cases.items():
            rows += simulate(folder, program, platform, ranks, sizes, limit)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true",
                        help="16 ranks, two sizes; prints the table only")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS",
                        help="for each number of ranks (default: 3600)")
    parser.add_argument("--ranks", type=int, action="append", metavar="N",
                        choices=sorted(CASES),
                        help="only these; the others keep their results")
    parser.add_argument("--bytes", type=int, action="append", metavar="N",
                        help="only this size; the others keep their results")
    options = parser.parse_args()
    if not shutil.which("smpicxx") or not shutil.which("smpirun"):
        print("skipped: no SimGrid here (package libsimgrid-dev)")
        return 77  # what ctest takes for "skipped"
    cases = chosen_cases(options)
    rows = simulate_all(cases, options.limit)
    if options.quick:
        print(report.table(rows))
        return 0
    rows += kept(cases)
    print(report.table(rows))
    version = subprocess.run(["smpirun", "--version"], text=True,
                             stdout=subprocess.PIPE).stdout.split("\n")[0]
    document = {"simulator": version.strip(), "ranks_per_node": GPUS,
                "flags": FLAGS, "exchanges": rows}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    (ROOT / "docs/exchange.svg").write_text(report.plot(rows))
    report.fill(ROOT / "docs/exchange.md", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
