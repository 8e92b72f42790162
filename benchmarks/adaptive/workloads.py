# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of real sessions on the virtual clock. docs/adaptive.md explains."""

import json
import math
import os
import statistics
import subprocess

from machines import HALF, SINGLE, write_both

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
EXAMPLES = os.path.join(ROOT, "examples", "adaptive")
TRACES = os.path.join(os.path.dirname(ROOT), "shared", "traces")
# Of each program: the machine, and the links of its cluster.
CLUSTERS = {"training.mlir": (SINGLE, "two-nodes.json"),
            "sizes.mlir": (HALF, "slow-nodes.json")}
# Seeds of loads with which clusters, slots and rules were chosen. All that is
# reported is of others.
TUNED_ON = [1, 2, 3]
HELD_OUT = [11, 12, 13]
# Steps that nobody is blamed for: what is not known must be tried.
LEARNING = 50


class Workload:
    def __init__(self, name, program, options, seeds, adapt=(), even=None):
        self.name, self.program = name, program
        self.options = options  # "{seed}" is the run's
        self.seeds = seeds
        self.adapt = list(adapt)  # options of runs that adapt
        self.even = even  # options with loads that are spread evenly


def workloads(quick, tiny=False):
    """`tiny` is for the test of the schema."""
    steps = 60 if tiny else 80 if quick else 1000
    training = ["--steps", str(steps), "--tokens", "8192", "--grad",
                "--spare-slots", "4", "--variants",
                "r=auto schedule=equal,groups rows=prefill"]
    seeds = HELD_OUT[:1] if tiny or quick else HELD_OUT
    adapt = ["--lag", "0"]  # shadows by a step's own counts
    even = [*training[:1], "6", *training[2:], "--loads", "uniform:11"]
    sizes = ["--steps", str(steps), "--tokens", "log-uniform:128-32768",
             "--vary", "factor=1,1.25,2,4", "--loads", "zipf:1:{seed}",
             "--variants", "r=auto schedule=equal,groups rows=prefill"]
    if tiny:
        return [Workload("sizes", "sizes.mlir",
                         ["--tokens" if o == "--tokens" else
                          "log-uniform:16-64" if o.startswith("log-uniform")
                          else o for o in sizes], seeds)]
    list_ = [Workload("training", "training.mlir",
                      [*training, "--loads", "training:{seed}"], seeds, adapt,
                      even)]
    recorded = os.path.join(TRACES, "gpt24x32_global_layers00-11.npy")
    if os.path.exists(recorded) and not quick:
        list_.append(Workload("recorded-training", "training.mlir",
                              [*training, "--loads", recorded + ":10"], [1],
                              [*adapt, "--rebalance", "50"], even))
    return [*list_, Workload("sizes", "sizes.mlir", sizes, seeds)]


class Runner:
    def __init__(self, build, folder):
        self.bin = os.path.join(build, "bin")
        self.calibrations = {}
        for program, (machine, _) in CLUSTERS.items():
            own = os.path.join(folder, program + ".d")
            os.mkdir(own)
            self.calibrations[program] = write_both(machine, own)

    def run(self, workload, seed, extra):
        """The report of a run."""
        truth, _ = self.calibrations[workload.program]
        topology = os.path.join(HERE, CLUSTERS[workload.program][1])
        return self.report(os.path.join(EXAMPLES, workload.program), [
            "--ranks", "8", "--threads", "1", "--clock", "virtual",
            "--topology", topology, "--clock-calibration", truth,
            *[o.format(seed=seed) for o in workload.options], *extra])

    def report(self, program, options):
        return json.loads(self.call(program, ["--json", *options]))

    def call(self, program, options):
        """What moira-run prints."""
        done = subprocess.run(
            [os.path.join(self.bin, "moira-run"), program, *options],
            text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return done.stdout

    def adaptive(self, workload, seed):
        return self.run(workload, seed, [
            "--adapt", "measured", "--calibration",
            self.calibrations[workload.program][1], "--compare-plans",
            *workload.adapt])


def plan_options(plan):
    """The options that make sessions run a plan, named as by the report."""
    options = []
    for word in plan.split():
        name, _, value = word.partition("=")
        options += {"r": ["--r", value], "degree": ["--degree", value],
                    "groups": ["--schedule", "groups"],
                    "hierarchical": ["--exchange", "hierarchical"]}[name]
    if "groups" not in plan and not plan.startswith("r=0"):
        options += ["--schedule", "equal"]
    return options


def fixed_sums(report, begin=0):
    sums = [0.0] * len(report["plans"])
    for step in report["steps"][begin:]:
        for i, seconds in enumerate(step["fixed_seconds"]):
            sums[i] += seconds
    return sums


def unmodelled(report):
    """Seconds of a step that are no plan's: what the program does beside what
    the simulator knows, such as telling others how many tokens there are."""
    plans, beside = report["plans"], []
    # Later ones may have other owners than the plans.
    for step in report["steps"][:LEARNING]:
        if "shadow" not in step["plan"] and step["plan"] in plans:
            beside.append(step["seconds"]
                          - step["fixed_seconds"][plans.index(step["plan"])])
    return statistics.median(beside) if beside else 0.0


def judge(report):
    """What a run was worth against plans that stay."""
    plans, steps = report["plans"], report["steps"]
    beside = unmodelled(report)
    for step in steps:
        step["fixed_seconds"] = [s + beside for s in step["fixed_seconds"]]
    sums = fixed_sums(report)
    plain = [i for i, name in enumerate(plans) if "shadow" not in name]
    best = min(plain, key=lambda i: sums[i])
    adaptive = sum(step["seconds"] for step in steps)
    late = steps[LEARNING:]
    oracle = sum(min(step["fixed_seconds"]) for step in late)
    shadowed = min(range(len(plans)), key=lambda i: sums[i])
    return {"adaptive_s": adaptive, "best_fixed": plans[best],
            "best_fixed_s": sums[best], "speedup": sums[best] / adaptive,
            "best_fixed_with_shadows": plans[shadowed],
            "best_fixed_with_shadows_s": sums[shadowed],
            "regret": sum(s["seconds"] for s in late) / oracle - 1
            if late else None,
            "beside_s": beside,
            "switches": sum(a["plan"] != b["plan"]
                            for a, b in zip(steps, steps[1:])),
            "steps": len(steps)}


# Two-sided 95 % points of Student's t by degrees of freedom.
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36,
           8: 2.31, 9: 2.26}


def interval(values):
    """Mean and half the width of its 95 % interval; nothing of one value."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean, STUDENT[len(values) - 1] * math.sqrt(variance / len(values))


def measure(runner, workload):
    """One row of the result."""
    judged = [judge(runner.adaptive(workload, seed))
              for seed in workload.seeds]
    total = {key: sum(j[key] for j in judged)
             for key in ("adaptive_s", "best_fixed_s",
                         "best_fixed_with_shadows_s")}
    speedup, half = interval([j["speedup"] for j in judged])
    regret, regret_half = interval([j["regret"] for j in judged])
    balanced = balance(runner, workload, judged)
    return {"name": workload.name, "seeds": workload.seeds, **total,
            "best_fixed": judged[0]["best_fixed"],
            "best_fixed_with_shadows": judged[0]["best_fixed_with_shadows"],
            "speedup": speedup, "speedup_half_interval": half,
            "regret": regret, "regret_half_interval": regret_half,
            "balanced": balanced, "runs": judged,
            "check": check(runner, workload, judged[0])}


def balance(runner, workload, judged):
    """What a run could be worth if loads were spread evenly in each step: the
    best plan then, over the best plan that stays under the loads there were."""
    if not workload.even:
        return None
    even = Workload(workload.name, workload.program, workload.even, [11],
                    workload.adapt)
    report = runner.adaptive(even, 11)
    seconds = statistics.median(min(step["fixed_seconds"])
                                for step in report["steps"])
    return {"step_s": seconds,
            "speedup": sum(j["best_fixed_s"] for j in judged)
            / (seconds * sum(j["steps"] for j in judged))}


def check(runner, workload, judged):
    """The best fixed plan by sessions, against what was computed for it."""
    report = runner.run(workload, workload.seeds[0],
                        plan_options(judged["best_fixed"]))
    sessions = sum(step["seconds"] for step in report["steps"])
    return {"plan": judged["best_fixed"], "sessions_s": sessions,
            "error": judged["best_fixed_s"] / sessions - 1}
