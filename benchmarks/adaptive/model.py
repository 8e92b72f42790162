# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How well the cost model predicts. docs/adaptive.md explains."""

from workloads import Workload

LOADS = ("uniform", "zipf:1", "4-of-16", "10-of-64", "one-hot", "one-device",
         "training")
VARIANTS = ["--variants", "r=auto schedule=equal,groups rows=prefill"]


def points(quick):
    """Runs whose loads and sizes no calibration has seen."""
    for loads in LOADS[:2] + LOADS[4:5] if quick else LOADS:
        for tokens in (8192,) if quick else (512, 8192, 24000):
            for grad in ([],) if quick else ([], ["--grad"]):
                options = ["--steps", "2", "--tokens", str(tokens), "--loads",
                           loads + ":9", *VARIANTS, *grad]
                yield Workload(loads, "training.mlir",
                               [*options, "--spare-slots", "2"], [9])
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
