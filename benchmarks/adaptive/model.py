# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How well the cost model predicts. docs/adaptive.md explains."""

import json
import os
import statistics

from workloads import EXAMPLES, Workload

LOADS = ("uniform", "zipf:1", "4-of-16", "10-of-64", "one-hot", "one-device",
         "training")
VARIANTS = ["--variants", "r=auto schedule=equal,groups rows=prefill"]


def points(quick):
    """Runs whose loads and sizes no calibration has seen."""
    for loads in LOADS[:2] + LOADS[4:5] if quick else LOADS:
        for grad in ([],) if quick else ([], ["--grad"]):
            # A size drawn for each step.
            options = ["--steps", "2" if quick else "6", "--tokens",
                       "log-uniform:512-24000", "--loads", loads + ":9",
                       *VARIANTS, *grad]
            yield Workload(loads, "training.mlir",
                           [*options, "--spare-slots", "2"], [9])
            # Names that are of many experts.
            if loads not in ("4-of-16", "10-of-64"):
                yield Workload(loads, "sizes.mlir",
                               [*options, "--vary", "factor=2"], [9])


class Errors:
    """Collects what was predicted and what it took."""

    def __init__(self):
        self.plans, self.sessions, self.regrets = [], [], []

    def add(self, report):
        for step in report["steps"]:
            took, said = step["fixed_seconds"], step["fixed_predicted"]
            self.plans += [abs(p / t - 1) for t, p in zip(took, said)]
            chosen = took[min(range(len(said)), key=lambda i: said[i])]
            self.regrets.append(chosen / min(took) - 1)
            # The plan that sessions ran, by their own time.
            if "shadow" not in step["plan"] and step["plan"] in report["plans"]:
                place = report["plans"].index(step["plan"])
                self.sessions.append(abs(said[place] / step["seconds"] - 1))

    def result(self):
        def mean(list_):
            return sum(list_) / len(list_) if list_ else None
        ordered = sorted(self.plans)
        return {"mape": mean(ordered),
                "p95": ordered[int(0.95 * (len(ordered) - 1))],
                "top1_regret": mean(self.regrets), "points": len(ordered),
                "sessions": {"mape": mean(self.sessions),
                             "points": len(self.sessions)}}


def measure_model(runner, quick):
    errors = Errors()
    for run in points(quick):
        errors.add(runner.adaptive(run, 9))
    return errors.result()


def layer_times(path):
    """Of a file of statistics: the medians of what the layer took, on the
    slower rank, and of what was predicted. The first five steps warm up."""
    steps = {}
    with open(path) as file:
        for row in map(json.loads, file):
            steps.setdefault(row["step"], []).append(row["layers"][0])
    late = [layers for step, layers in sorted(steps.items()) if step >= 5]
    took = [max(layer["seconds"] for layer in layers) for layers in late]
    said = [layers[0]["predicted"] for layers in late
            if "predicted" in layers[0]]
    return statistics.median(took), statistics.median(said)


def measure_real(runner, folder):
    """Two ranks on this machine: calibrated with at most 20 points, then the
    median step under other loads against what was predicted for it."""
    program = os.path.join(EXAMPLES, "training.mlir")
    path = os.path.join(folder, "this-machine.json")
    two = ["--ranks", "2", "--threads", "1"]
    runner.call(program, [*two, "--tokens", "4096", "--calibrate", path])
    rows = []
    for loads in ("uniform", "zipf:1", "one-hot"):
        for tokens in (512, 1500, 3000):
            lines = os.path.join(folder, f"{loads}-{tokens}.jsonl")
            report = runner.report(program, [
                *two, "--tokens", str(tokens), "--loads", loads, "--steps",
                "25", "--adapt", "model", "--calibration", path,
                "--statistics", lines])
            took, said = layer_times(lines)
            # The plan that the model takes for the best; the first is nobody's.
            rows.append({"loads": loads, "tokens": tokens,
                         "plan": report["steps"][-1]["plan"], "seconds": took,
                         "predicted": said, "error": said / took - 1})
    return {"mape": sum(abs(r["error"]) for r in rows) / len(rows),
            "points": len(rows), "rows": rows}
