# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables for people, JSON for programs."""

import json
import os

from stats import median

COLUMNS = (
    ("case", 56), ("rows", 6), ("ms", 9), ("peak", 6), ("band", 6),
    ("ratio", 6), ("low", 6), ("best peer", 26),
)


def percent(value):
    return "-" if value is None else f"{100 * value:.1f}"


def number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


class Table:
    """Prints one line per case as soon as it is measured."""

    def __init__(self, stream):
        self.stream = stream
        self.write([name for name, _ in COLUMNS])

    def write(self, cells):
        line = [cells[0].ljust(COLUMNS[0][1])]
        line += [cell.rjust(width)
                 for cell, (_, width) in zip(cells[1:-1], COLUMNS[1:-1])]
        line.append(" " + cells[-1])
        print(" ".join(line).rstrip(), file=self.stream, flush=True)

    def add(self, result):
        name = result["name"] + (" *" if result["held_out"] else "")
        self.write([
            name, number(result["rows"], 1), number(1e3 * result["seconds"], 3),
            percent(result["share_of_peak"]),
            percent(result["share_of_bandwidth"]),
            number(result["ratio_to_best_peer"]), number(result["ratio_low"]),
            result["best_mode"] or "-"])
        others = [f"{peer} {entry['ratio']:.2f}"
                  for peer, entry in sorted(result["peers"].items(),
                                            key=lambda item: item[1]["ratio"])]
        if others:
            print("    " + ", ".join(others), file=self.stream)
        if "parts" in result:
            parts = ", ".join(f"{name} {1e3 * seconds:.3f}"
                              for name, seconds in result["parts"].items())
            print(f"    ms: {parts}", file=self.stream)
        if "layer_over_experts" in result:
            print(f"    layer over experts "
                  f"{result['layer_over_experts']:.3f}", file=self.stream)
        if "share_of_copy" in result:
            print(f"    dispatch and combine: "
                  f"{percent(result['share_of_copy'])} % of copy bandwidth",
                  file=self.stream)
        for name, why in result["not_run"].items():
            if why.startswith("wrong result"):
                print(f"    {name}: {why}", file=self.stream)
        self.stream.flush()

    def add_failure(self, name, why):
        print(f"{name}\n    failed: {why}", file=self.stream, flush=True)


# --- goals -------------------------------------------------------------------

# Share of the sustained peak that an experts part should reach, by rows.
PEAK_GOALS = {
    "f32": ((128, 0.92), (32, 0.88), (7, 0.80)),
    "bf16": ((128, 0.90), (32, 0.86), (7, 0.78)),
}
BANDWIDTH_GOAL = 0.95  # below 7 rows
BOUND_GOAL = 0.92  # from 7 to 31 rows, where memory allows no more
LOW_GOAL = 0.97
LAYER_GOAL = 1.06
COPY_GOAL = 0.75
COMPILE_GOAL = 1.0
SCALING_GOAL = 1.9


def misses(result):
    """The goals that a case misses, in words."""
    found = []

    def need(name, value, goal):
        if value is not None and value < goal:
            found.append(f"{name} {value:.3f}, goal {goal}")

    if result["part"] == "forward":
        rows = result["rows"]
        goal = next((share for least, share in PEAK_GOALS[result["dtype"]]
                     if rows >= least), None)
        if goal is None:
            need("share of bandwidth", result["share_of_bandwidth"],
                 BANDWIDTH_GOAL)
        elif rows < 32 and result["share_of_bound"] >= BOUND_GOAL:
            pass
        else:
            need("share of peak", result["share_of_peak"], goal)
    need("ratio_low", result["ratio_low"], LOW_GOAL)
    need("share of copy", result.get("share_of_copy"), COPY_GOAL)
    over = result.get("layer_over_experts")
    if over is not None and over > LAYER_GOAL:
        found.append(f"layer over experts {over:.3f}, goal {LAYER_GOAL}")
    seconds = result["compile_seconds"]
    if seconds is not None and seconds > COMPILE_GOAL:
        found.append(f"compile time {seconds:.2f} s, goal {COMPILE_GOAL}")
    return found


def scaling(results):
    """Pairs of the same work on one core and on two: name, factor."""
    single = {result["name"][:-2]: result for result in results
              if result["cores"] == 1}
    return [(result["name"][:-3], single[result["name"][:-2]]["seconds"] /
             result["seconds"])
            for result in results
            if result["cores"] == 2 and result["name"][:-2] in single]


# --- all of it ----------------------------------------------------------------


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


class Results:
    def __init__(self, results, versions, missing, failed, rounds, seconds, load):
        self.results = results
        self.versions = versions
        self.missing = missing  # name of a peer: why it does not start
        self.failed = failed  # name of a case: why it has no result
        self.rounds = rounds
        self.seconds = seconds
        self.load = load  # other work on the machine before the run

    def limits(self):
        """Medians over the cases, per type and number of cores."""
        found = {}
        for key in sorted({(r["dtype"], r["cores"]) for r in self.results}):
            entries = [r["limits"] for r in self.results
                       if (r["dtype"], r["cores"]) == key]
            found[f"{key[0]}, {key[1]} cores"] = {
                name: median([entry[name] for entry in entries])
                for name in entries[0]}
        return found

    def summary_rows(self):
        """Ratio to the best peer, and that of a run at the machine's limit, by
        rows and by whether held out."""
        rows = []
        for part in ("forward", "dx", "dw"):
            for held_out in (False, True):
                for label, test in (("7 to 64 rows", lambda r: 7 <= r <= 64),
                                    ("other", lambda r: r < 7 or r > 64)):
                    found = [r for r in self.results
                             if r["part"] == part and
                             r["held_out"] == held_out and test(r["rows"]) and
                             r["ratio_to_best_peer"] is not None]
                    if found:
                        rows.append((part, label, held_out, len(found),
                                     *(median([r[name] for r in found])
                                       for name in ("ratio_to_best_peer",
                                                    "ratio_at_limit"))))
        return rows

    def print_summary(self, stream):
        out = lambda text="": print(text, file=stream)
        out()
        if self.load > 0.5:
            out(f"note: {self.load:.1f} processes ran on the machine before; "
                "figures are worth what that allows")
        out("limits (GFLOP/s, GB/s)")
        for key, limits in self.limits().items():
            out(f"  {key}: multiply-add {limits['fma_gflops']:.1f}, read "
                f"{limits['read_gb_per_s']:.1f}, copy "
                f"{limits['copy_gb_per_s']:.1f}")
        out("in use")
        for name, version in self.versions.items():
            out(f"  {name}: {version}")
        for name, why in self.missing.items():
            out(f"  {name}: not run: {why}")
        reasons = self.reasons()
        if reasons:
            out("not run (cases)")
            for (name, why), count in reasons.items():
                out(f"  {name} ({count}): {why}")
        out("median ratio to the best peer, and what it would be at the limit")
        for part, label, held_out, count, *values in self.summary_rows():
            kind = "held out" if held_out else "tuned"
            ours, most = (number(value) for value in values)
            out(f"  {part}, {label}, {kind}: {ours} of {most} ({count} cases)")
        pairs = scaling(self.results)
        if pairs:
            out(f"two cores over one (goal {SCALING_GOAL})")
            for name, factor in pairs:
                out(f"  {name}: {factor:.2f}")
        out("goals missed")
        for result in self.results:
            for miss in misses(result):
                out(f"  {result['name']}: {miss}")
        for name, why in self.failed.items():
            out(f"failed: {name}: {why}")
        out(f"{len(self.results)} cases, {self.rounds} rounds, "
            f"{self.seconds:.0f} s; * held out of tuning")

    def reasons(self):
        """Why peers did not run, without the ways that were merely slow."""
        found = {}
        for result in self.results:
            for name, why in result["not_run"].items():
                if not why.startswith("slower than"):
                    found[name, why] = found.get((name, why), 0) + 1
        return found

    def write_json(self, path):
        machine = {"processor": processor(), "cores": os.cpu_count(),
                   "limits": self.limits(), "versions": self.versions,
                   "missing": self.missing, "rounds": self.rounds,
                   "load_before": self.load}
        with open(path, "w", encoding="utf-8") as file:
            shapes, layers = [], []
            for result in self.results:
                whole = result["part"] in ("layer", "movement")
                (layers if whole else shapes).append(result)
            json.dump({"machine": machine, "shapes": shapes, "layers": layers,
                       "failed": self.failed,
                       "scaling": dict(scaling(self.results))}, file, indent=1)
            file.write("\n")
