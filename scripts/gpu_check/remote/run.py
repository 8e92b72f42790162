#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks and times Moira's GPU code on this machine, which needs a GPU with its
driver; PyTorch and Triton are compared with where they are installed.

usage: run.py [--device=cuda|emulated] [--seconds=280] [--no-peers]

Writes results.json and results.md beside this file. Ends with 0 where every
case that ran has passed.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RUNNER = HERE / "bin/moira-gpu-check"
#: What compute-sanitizer looks for, a tool each.
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self, most=1e9):
        return max(1, int(min(most, self.end - time.monotonic())))

    def passed(self):
        return time.monotonic() >= self.end


def lines_of(text):
    """The lines of JSON in what a program has printed."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
    return found


def runner(mode, device, limit, *options, before=()):
    """What the runner says; an error is a result too."""
    command = [*before, str(RUNNER), mode, str(HERE), f"--device={device}",
               *options]
    try:
        done = subprocess.run(command, text=True, capture_output=True,
                              timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        out = error.stdout or b""
        return lines_of(out.decode() if isinstance(out, bytes) else out), (
            f"did not end in {limit} s"), 124
    return lines_of(done.stdout), done.stderr.strip(), done.returncode


def clocks():
    """What the driver's tool says of the card; nothing where it is missing."""
    fields = ("name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,"
              "power.draw,power.limit,temperature.gpu")
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
            text=True, capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = done.stdout.splitlines()[0].split(", ")
    return dict(zip(fields.split(","), values))


def check(device, deadline, results):
    print("== conformance", flush=True)
    found, error, code = runner("conformance", device, deadline.left(150),
                                f"--seconds={deadline.left(120)}",
                                *(["--check=race,bounds,uninit,sync"]
                                  if device == "emulated" else []))
    for case in found:
        print(f"{case['state']:8} {case['case']:32} "
              f"{case['identical']} of {case['elements']} bit-identical, "
              f"{case['launches']} launches"
              + (f": {case['detail']}" if case["detail"] else ""), flush=True)
    expected = len(json.loads((HERE / "cases.json").read_text())["conformance"])
    results["conformance"] = found
    counts = {state: sum(case["state"] == state for case in found)
              for state in ("passed", "failed", "skipped")}
    counts["missing"] = expected - len(found)
    results["conformance_counts"] = counts
    print(counts, error, flush=True)
    return code == 0 and counts["failed"] == 0 and counts["missing"] == 0 \
        and counts["passed"] > 0


def sanitize(device, deadline, results):
    print("== compute-sanitizer", flush=True)
    tool = shutil.which("compute-sanitizer") or next(
        (path for path in ("/usr/local/cuda/bin/compute-sanitizer",)
         if os.path.exists(path)), None)
    if device != "cuda" or not tool:
        results["sanitizer"] = {"skipped": "it is for cuda" if device != "cuda"
                                else "expected compute-sanitizer, got none"}
        print("skipped:", results["sanitizer"]["skipped"], flush=True)
        return True
    good = True
    results["sanitizer"] = {}
    for name in SANITIZERS:
        if deadline.left() < 60:
            results["sanitizer"][name] = {"skipped": "no time left"}
            continue
        found, error, code = runner(
            "conformance", device, min(25, deadline.left()), "--small",
            before=[tool, "--tool", name, "--error-exitcode", "9"])
        # What did not end in time has found nothing.
        results["sanitizer"][name] = {"cases": len(found), "exit": code,
                                      "said": error[-400:]}
        good &= code in (0, 124)
        print(name, results["sanitizer"][name], flush=True)
    return good


def measure(device, deadline, results):
    print("== times", flush=True)
    # A step is a graph from its fourth time on.
    runs = ["--runs=2", "--warm-ups=3"] if device == "emulated" else []
    results["clocks_before"] = clocks()
    good = True
    for key, options in (("measured", []), ("measured_as_graphs",
                                            ["--graphs"])):
        found, error, code = runner("measure", device, deadline.left(70),
                                    f"--seconds={deadline.left(50)}", *runs,
                                    *options)
        results[key] = found
        print(*options, *map(json.dumps, found), *[error] * bool(error),
              sep="\n", flush=True)
        good &= code == 0
    results["clocks_after"] = clocks()
    return good


def peers(device, deadline, results, wanted):
    print("== peers", flush=True)
    results["peers"] = []
    if not wanted or device != "cuda":
        results["peers_skipped"] = "not asked for" if not wanted else (
            "they need a GPU")
        print("skipped:", results["peers_skipped"], flush=True)
        return
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "peers.py"),
             f"--seconds={deadline.left(110)}"], text=True,
            capture_output=True, timeout=deadline.left(140), check=False)
        results["peers"] = lines_of(done.stdout)
        if done.returncode:
            results["peers_skipped"] = done.stderr.strip()[-400:]
    except subprocess.TimeoutExpired as error:
        out = error.stdout or ""  # bytes in some versions of Python
        results["peers"] = lines_of(
            out if isinstance(out, str) else out.decode())
        results["peers_skipped"] = "no time left"
    for line in results["peers"]:
        print(json.dumps(line), flush=True)


def table(results):
    """The times as Markdown."""
    shapes = json.loads((HERE / "cases.json").read_text())["shapes"]
    by_peer = {}
    for line in results["peers"]:
        by_peer.setdefault(line["measured"], {})[line["peer"]] = line
    names = sorted({line["peer"] for line in results["peers"]})

    def cell(line):
        if not line:
            return "-"
        if "median_seconds" not in line:
            return line.get("skipped") or line.get("error", "-")[:40]
        text = f"{line['median_seconds'] * 1e3:.3f} ms"
        if "tflops" in line:
            text += f", {line['tflops']:.1f} TFLOP/s"
        if "terabytes_per_second" in line:
            text += f", {line['terabytes_per_second']:.2f} TB/s"
        return text

    device = results["device"]
    rows = [f"# {device.get('device')}, sm_{device.get('architecture')}, "
            f"{results['date']}", "",
            "Medians of CUDA events around a step's kernels. Conformance: "
            f"{results['conformance_counts']}.", "",
            "".join(f"| {head} " for head in ["program", "T, d, n, E, K",
                                              "moira", "moira, a graph",
                                              *names]) + "|",
            "| --- | --- | --- | --- |" + " --- |" * len(names)]
    graphs = {line["measured"]: line for line in results["measured_as_graphs"]}
    for line in results["measured"]:
        name = line["measured"]
        shape = ", ".join(map(str, shapes.get(name, ()))) or "-"
        cells = [cell(line), cell(graphs.get(name))] + [cell(by_peer.get(name, {}).get(peer))
                                for peer in names]
        rows.append(f"| {name} | {shape} | " + " | ".join(cells) + " |")
    for peer, reason in sorted({(line["peer"], line["skipped"])
                                for line in results["peers"]
                                if "skipped" in line}):
        rows.append(f"\n{peer}: skipped, {reason}")
    return "\n".join(rows) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda",
                        choices=("cuda", "emulated"))
    parser.add_argument("--seconds", type=int, default=280)
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    # No limit for the emulated device, which a loaded machine runs slowly.
    deadline = Deadline(options.seconds if options.device == "cuda" else 1e7)
    if options.device == "emulated":
        deadline.left = lambda most=0: 1000000
    results = {"date": datetime.date.today().isoformat()}
    found, error, code = runner("device", options.device, 60)
    if code:
        print(error, file=sys.stderr)
        return 2
    results["device"] = found[0]
    good = check(options.device, deadline, results)
    good &= sanitize(options.device, deadline, results)
    good &= measure(options.device, deadline, results)
    peers(options.device, deadline, results, not options.no_peers)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (HERE / "results.md").write_text(table(results))
    print(f"{HERE}/results.md, {HERE}/results.json:",
          "passed" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
