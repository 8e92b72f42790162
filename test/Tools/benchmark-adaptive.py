# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %moira_src/benchmarks/adaptive/bench.py --tiny --only sizes --build %moira_lib/.. --json %t.json
# RUN: %python %s %moira_src/benchmarks/adaptive %t.json
"""Tests the adaptation benchmark's arithmetic, and the JSON of a small run."""

import json
import sys
import tempfile
import unittest

FOLDER, RESULT = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, FOLDER)

import machines  # noqa: E402
import model  # noqa: E402
import workloads  # noqa: E402


def report(chosen, plain, shadowed, plan="r=1 degree=2"):
    """Steps of two plans, of which the first ran unless it says otherwise."""
    return {"plans": ["r=1 degree=1", "r=1 degree=2", "r=1 degree=1 shadow=1"],
            "steps": [{"plan": plan, "seconds": c,
                       "fixed_seconds": [p, p + 1, s],
                       "fixed_predicted": [1.1 * p, p + 1, s]}
                      for c, p, s in zip(chosen, plain, shadowed)]}


class Judge(unittest.TestCase):
    def test_speedup_and_regret(self):
        # 50 steps to learn in, then 2 where the oracle takes 3 and 2.
        n = workloads.LEARNING
        judged = workloads.judge(report(
            [5] * n + [4, 2], [4] * n + [4, 4], [4] * n + [3, 2],
            plan="r=1 degree=1 shadow=1"))
        self.assertEqual(judged["best_fixed"], "r=1 degree=1")
        self.assertEqual(judged["best_fixed_s"], 4 * (n + 2))
        self.assertEqual(judged["best_fixed_with_shadows"],
                         "r=1 degree=1 shadow=1")
        self.assertAlmostEqual(judged["regret"], 6 / 5 - 1)
        self.assertAlmostEqual(judged["speedup"],
                               4 * (n + 2) / (5 * n + 6))

    def test_what_all_plans_pay(self):
        # The plan that ran takes 1 s more than was computed for it: so do all.
        judged = workloads.judge(report([6] * 60, [4] * 60, [9] * 60))
        self.assertEqual(judged["beside_s"], 1)
        self.assertEqual(judged["best_fixed_s"], 5 * 60)
        self.assertAlmostEqual(judged["regret"], 6 / 5 - 1)

    def test_times_of_layers(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for step in range(8):
                for rank in (0, 1):
                    layer = {"seconds": step + rank}
                    if step > 5:
                        layer["predicted"] = 10 * step
                    print(json.dumps({"step": step, "layers": [layer]}),
                          file=file)
            file.flush()
            # Steps 5 to 7 of the slower rank; of 5 nobody has said anything.
            self.assertEqual(model.layer_times(file.name), (7, 65))

    def test_balanced(self):
        class Runner:
            def adaptive(self, workload, seed):
                return report([2] * 3, [2, 3, 4], [9] * 3)

        workload = workloads.Workload("w", "p", [], [1], even=["--loads"])
        judged = [{"best_fixed_s": 60, "steps": 10}]
        self.assertEqual(workloads.balance(Runner(), workload, judged),
                         {"step_s": 3, "speedup": 2})
        workload.even = None
        self.assertIsNone(workloads.balance(Runner(), workload, judged))

    def test_interval(self):
        self.assertEqual(workloads.interval([3]), (3, None))
        mean, half = workloads.interval([1, 2, 3])
        self.assertEqual(mean, 2)
        self.assertAlmostEqual(half, 4.30 * (1 / 3) ** 0.5)

    def test_options_of_plans(self):
        self.assertEqual(
            workloads.plan_options("r=2 degree=4 hierarchical"),
            ["--r", "2", "--degree", "4", "--exchange", "hierarchical",
             "--schedule", "equal"])
        self.assertEqual(workloads.plan_options("r=1 groups"),
                         ["--r", "1", "--schedule", "groups"])
        self.assertEqual(workloads.plan_options("r=0"), ["--r", "0"])


class Model(unittest.TestCase):
    def test_errors(self):
        errors = model.Errors()
        errors.add(report([8], [8], [8.5], plan="r=1 degree=1"))
        result = errors.result()
        self.assertEqual(result["points"], 3)
        self.assertAlmostEqual(result["mape"], 0.1 / 3)
        # It takes the shadow for best, which is 8.5 instead of 8.
        self.assertAlmostEqual(result["top1_regret"], 8.5 / 8 - 1)
        self.assertAlmostEqual(result["sessions"]["mape"], 0.1)

    def test_calibrations(self):
        known, truth = machines.HALF.known(), machines.HALF.truth()
        self.assertLessEqual(len(known["forward"]["rows"]), 20)
        for curve in (known["forward"], truth["forward"]):
            self.assertEqual(curve["rows"], sorted(set(curve["rows"])))
            self.assertEqual(curve["seconds"], sorted(curve["seconds"]))
        with tempfile.TemporaryDirectory() as folder:
            for path in machines.write_both(machines.SINGLE, folder):
                with open(path) as file:
                    self.assertEqual(json.load(file)["version"], 1)


class Schema(unittest.TestCase):
    def test_result(self):
        with open(RESULT) as file:
            (row,) = json.load(file)["workloads"]
        for key in ("adaptive_s", "best_fixed_s", "speedup", "regret"):
            self.assertIsInstance(row[key], float, key)
        self.assertEqual(row["name"], "sizes")
        self.assertTrue(row["best_fixed"].startswith("r="))
        self.assertAlmostEqual(row["speedup"],
                               row["best_fixed_s"] / row["adaptive_s"])
        (run,) = row["runs"]
        self.assertEqual(run["steps"], 60)
        # Sessions took what was computed for the plan, but for what is beside.
        self.assertLess(abs(row["check"]["error"]), 0.1)


unittest.main()
