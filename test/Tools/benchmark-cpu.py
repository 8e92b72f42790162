# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s %moira_src/benchmarks/cpu
# RUN: %python %moira_src/benchmarks/cpu/bench.py --list --filter 'mixtral.*t256' > %t.list
# RUN: not %python %moira_src/benchmarks/cpu/bench.py --peers nothing > %t.err 2>&1
# RUN: %python %s --contains %t.list forward/mixtral-1of8-rows*0.28/t256/one-hot/f32/1c
# RUN: %python %s --contains %t.err "got 'nothing'"
"""Tests the CPU benchmark's arithmetic without building or running a worker."""

import io
import json
import os
import sys
import tempfile
import types
import unittest

if sys.argv[1] == "--contains":
    with open(sys.argv[2], encoding="utf-8") as file:
        sys.exit(sys.argv[3] not in file.read())
sys.path.insert(0, sys.argv.pop(1))

import cases  # noqa: E402
import measure  # noqa: E402
import report  # noqa: E402
import stats  # noqa: E402
import workers  # noqa: E402


class Stats(unittest.TestCase):
    def test_median(self):
        self.assertEqual(stats.median([3, 1, 2]), 2)
        self.assertEqual(stats.median([4, 1, 2, 3]), 2.5)

    def test_interval_ranks(self):
        # The tables of the sign test: for 9 values ranks 2 and 8 (96.1 %), for
        # 20 values ranks 6 and 15 (95.9 %), for 6 values the extremes (96.9 %).
        self.assertEqual(stats.interval(range(1, 10)), (2, 8))
        self.assertEqual(stats.interval(range(1, 21)), (6, 15))
        self.assertEqual(stats.interval(range(1, 7)), (1, 6))

    def test_few_values(self):
        self.assertEqual(stats.interval([5]), (5, 5))
        self.assertEqual(stats.interval([2, 1, 3]), (1, 3))

    def test_ratios(self):
        self.assertEqual(stats.ratios([2, 9], [1, 3]), [2, 3])


class Cases(unittest.TestCase):
    def setUp(self):
        self.all = cases.all_cases()

    def test_covers(self):
        for part in ("forward", "dx", "dw"):
            chosen = [case for case in self.all if case.part == part]
            self.assertEqual({case.model for case in chosen},
                             set(cases.SHAPES))
            self.assertEqual({case.load for case in chosen}, set(cases.LOADS))
            self.assertEqual({case.dtype for case in chosen}, {"f32", "bf16"})
            self.assertEqual({case.cores for case in chosen}, {1, 2})
        forward = [case for case in self.all if case.part == "forward"]
        self.assertEqual({case.tokens for case in forward}, set(cases.TOKENS))
        for dtype in ("f32", "bf16"):
            rows = [case.rows for case in forward if case.dtype == dtype]
            for low, high in ((1, 6), (7, 31), (32, 127), (128, 1 << 20)):
                self.assertTrue(any(low <= r <= high for r in rows))

    def test_a_third_is_held_out(self):
        held = sum(case.held_out for case in self.all)
        self.assertLessEqual(abs(3 * held - len(self.all)), 3)
        for part in ("forward", "dx", "dw"):
            self.assertTrue(any(case.held_out for case in self.all
                                if case.part == part))

    def test_covering_cases_leave_nothing_out(self):
        some = cases.covering_cases()
        self.assertLess(len(some), 0.7 * len(self.all))
        names = [case.name for case in self.all]
        places = [names.index(case.name) for case in some]
        self.assertEqual(places, sorted(set(places)))
        for case in self.all:
            for aspect in cases.aspects(case):
                self.assertTrue(any(aspect in set(cases.aspects(other))
                                    for other in some), aspect)
        # What is held out there is held out here.
        held = {case.name: case.held_out for case in self.all}
        for case in some:
            self.assertEqual(case.held_out, held[case.name])
        self.assertEqual(len([case for case in some
                              if case.part in ("layer", "movement")]), 6)

    def test_names_are_unique(self):
        names = [case.name for case in self.all]
        self.assertEqual(len(set(names)), len(names))

    def test_same_list_every_time(self):
        self.assertEqual([case.message() for case in self.all],
                         [case.message() for case in cases.all_cases()])

    def test_fits(self):
        for case in self.all:
            if case.part in ("layer", "movement"):
                continue
            self.assertLessEqual(case.weight_bytes, cases.WEIGHT_BYTES,
                                 case.name)
            speed = cases.FLOPS_PER_SECOND * case.cores * (
                2 if case.dtype == "bf16" else 1)
            # A row more than the limit where one expert is too much.
            self.assertLessEqual(case.flops / speed, 1.1 * cases.SECONDS,
                                 case.name)
            self.assertGreater(sum(case.sizes), 0)

    def test_loads_keep_every_pair(self):
        for load in cases.LOADS:
            for tokens in cases.TOKENS:
                for shape in cases.SHAPES.values():
                    sizes = cases.make_load(load, shape.experts, shape.top_k,
                                            tokens)
                    self.assertEqual(sum(sizes), tokens * shape.top_k)
                    self.assertEqual(len(sizes), shape.experts)
                    self.assertLessEqual(max(sizes), tokens)
                    self.assertGreaterEqual(min(sizes), 0)

    def test_loads_differ_in_skew(self):
        def largest(load):
            return max(cases.make_load(load, 64, 2, 4096))

        self.assertEqual(largest("uniform"), 128)
        self.assertEqual(largest("one-hot"), 4096)
        self.assertLess(largest("trace-start"), 3 * 128)
        self.assertGreater(largest("trace-late"), 5 * 128)

    def test_work_of_a_case(self):
        case = cases.make("switch-base-8", "forward", 1024, "uniform", "f32", 1)
        self.assertEqual(case.sizes, [128] * 8)
        self.assertEqual(case.rows, 128)
        self.assertEqual(case.flops, 2 * 1024 * 768 * 3072 * 2)
        self.assertEqual(case.bytes, 8 * 2 * 768 * 3072 * 4)

    def test_scaling_pairs_have_the_same_work(self):
        single, double = (cases.make("olmoe", "forward", 4096, "uniform", "f32",
                                     cores, 1) for cores in (1, 2))
        self.assertEqual(single.sizes, double.sizes)
        self.assertEqual(single.name[:-2], double.name[:-2])


class FakeWorker:
    """Takes given times for its ways, and makes given errors."""

    def __init__(self, peer, modes, errors=None, refuses=None, name=None):
        self.peer = peer
        self.name = name or peer
        self.modes = modes  # name: seconds
        self.errors = errors or {}
        self.refuses = refuses
        self.process = types.SimpleNamespace(poll=lambda: None)

    def send(self, **message):
        self.message = message

    def receive(self, _):
        return self.answer(self.message)

    def ask(self, _, **message):
        return self.answer(message)

    def answer(self, message):
        order = message["do"]
        if order == "prepare":
            if self.refuses:
                return {"modes": [], "error": self.refuses}
            return {"modes": list(self.modes),
                    "facts": {"compile_s": 0.5, "bind_s": 0.1}}
        if order in ("generate", "release"):
            return {}
        name = list(self.modes)[message["mode"]]
        if order == "check":
            return {"error": self.errors.get(name, 0.0)}
        assert order == "run", order
        if self.modes[name] is None:
            raise workers.WorkerError("ended with code 1")
        answer = {"ns": [1e9 * self.modes[name]] * message["repeat"]}
        if self.peer == "limits":
            answer["work"] = 1e9
        return answer


def limits():
    return FakeWorker("limits", {"fma": 0.01, "read": 0.02, "copy": 0.05})


class Measuring(unittest.TestCase):
    def measure(self, *peers, ours=0.002):
        case = cases.make("switch-base-8", "forward", 1, "uniform", "f32", 1)
        running = [limits(), FakeWorker("moira", {"moira": ours}), *peers]
        result = measure.CaseRun(case, running, 9).measure()
        self.assertEqual(case.file, "")
        return result

    def test_best_way_of_the_best_peer_counts(self):
        result = self.measure(
            FakeWorker("a", {"slow": 0.01, "fast": 0.003}),
            FakeWorker("b", {"": 0.004}, name="b-1"),
            FakeWorker("b", {"": 0.0045}, name="b-2"))
        self.assertEqual(result["best_peer"], "a")
        self.assertEqual(result["best_mode"], "a fast")
        self.assertAlmostEqual(result["ratio_to_best_peer"], 1.5)
        self.assertAlmostEqual(result["ratio_low"], 1.5)
        self.assertAlmostEqual(result["peers"]["b"]["ratio"], 2.0)
        self.assertEqual(result["peers"]["b"]["mode"], "b-1")
        # Not measured further after the trial, and the report says so.
        self.assertIn("a slow", result["not_run"])
        self.assertNotIn("a slow", result["times"])
        self.assertEqual(len(result["times"]["a fast"]), 9)

    def test_wrong_results_do_not_count(self):
        result = self.measure(FakeWorker("a", {"": 0.001}, {"": 0.1}),
                              FakeWorker("b", {"": 0.004}))
        self.assertEqual(result["best_peer"], "b")
        self.assertTrue(result["not_run"]["a"].startswith("wrong result"))

    def test_a_wrong_result_of_our_own_ends_the_run(self):
        case = cases.make("switch-base-8", "forward", 1, "uniform", "f32", 1)
        ours = FakeWorker("moira", {"moira": 0.002}, {"moira": 0.1})
        with self.assertRaisesRegex(measure.CaseError, "wrong result"):
            measure.CaseRun(case, [limits(), ours], 9).measure()

    def test_reasons_are_kept(self):
        result = self.measure(FakeWorker("a", {}, refuses="cannot"),
                              FakeWorker("b", {"": None}))
        self.assertEqual(result["not_run"], {"a": "cannot",
                                             "b": "ended with code 1"})
        self.assertIsNone(result["best_peer"])

    def test_shares(self):
        # 1e9 operations in 10 ms and 1e9 bytes in 20 ms.
        result = self.measure(ours=0.001)
        case = cases.make("switch-base-8", "forward", 1, "uniform", "f32", 1)
        self.assertAlmostEqual(result["share_of_peak"],
                               case.flops / 1e11 / 0.001)
        self.assertAlmostEqual(result["share_of_bandwidth"],
                               case.bytes / 5e10 / 0.001)
        self.assertIsNone(result["ratio_at_limit"])
        # What the machine allows: the peer's time over the nearer limit's.
        peer = self.measure(FakeWorker("a", {"": 0.003}))
        bound = max(case.flops / 1e11, case.bytes / 5e10)
        self.assertAlmostEqual(peer["ratio_at_limit"], 0.003 / bound)

    def test_no_field_is_missing(self):
        result = self.measure(FakeWorker("a", {"": 0.003}))
        whole = report.Results([result], {}, {}, {}, 9, 1.0, 0.0)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            whole.write_json(path)
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        self.assertIn("limits", found["machine"])
        for name in ("name", "dtype", "rows", "cores", "share_of_peak",
                     "share_of_bandwidth", "ratio_to_best_peer", "ratio_low",
                     "best_peer", "part", "held_out", "ratio_at_limit"):
            self.assertIsNotNone(found["shapes"][0][name], name)
        stream = io.StringIO()
        report.Table(stream).add(result)
        whole.print_summary(stream)
        line = next(line for line in stream.getvalue().split("\n")
                    if line.startswith("  forward, other, "))
        most = report.number(result["ratio_at_limit"])
        self.assertTrue(line.endswith(f"1.50 of {most} (1 cases)"), line)


class Reporting(unittest.TestCase):
    def result(self, **changes):
        found = {"name": "n/1c", "part": "forward", "dtype": "f32", "rows": 200,
                 "cores": 1, "share_of_peak": 0.95, "share_of_bandwidth": 0.1,
                 "share_of_bound": 0.95, "ratio_low": 1.0, "seconds": 1.0,
                 "compile_seconds": 0.5}
        found.update(changes)
        return found

    def test_goals(self):
        self.assertEqual(report.misses(self.result()), [])
        self.assertEqual(len(report.misses(self.result(share_of_peak=0.9))), 1)
        self.assertEqual(len(report.misses(self.result(ratio_low=0.9))), 1)
        few = self.result(rows=3, share_of_peak=0.2, share_of_bandwidth=0.96)
        self.assertEqual(report.misses(few), [])
        # Where memory allows less than the goal, its bound counts.
        some = self.result(rows=8, share_of_peak=0.5, share_of_bound=0.93)
        self.assertEqual(report.misses(some), [])
        some["share_of_bound"] = 0.9
        self.assertEqual(len(report.misses(some)), 1)

    def test_scaling(self):
        pair = [self.result(), self.result(name="n/2c", cores=2, seconds=0.5)]
        self.assertEqual(report.scaling(pair), [("n", 2.0)])


if __name__ == "__main__":
    unittest.main()
