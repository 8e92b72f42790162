# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks and plans that follow the loads."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

import moira
from moira import MoiraError, Ranks, Session, Status
from support import BUILD, TOP, buffer

#: Row t of each rank goes to expert t % 4: y[t] = x[t] * scale[t % 4]. For two
#: ranks, which have a spare slot each.
BUNDLE = BUILD / "unittests" / "Runtime" / "ranks.moira"
#: The same beside a program for one rank.
GRIDS = BUILD / "unittests" / "Runtime" / "grids.moira"
SCALE = [[10 * e + k for k in range(4)] for e in range(4)]


def rows(rank, count):
    return [i * 5 % 13 - 6 + rank for i in range(4 * count)]


def scales():
    return {"experts.{}.scale": buffer([v for row in SCALE for v in row],
                                       (4, 4))}


class Base(unittest.TestCase):
    def each(self, body, ranks=None, **options):
        """Runs body(ranks handle) on a thread for each rank; what they
        return."""
        group = ranks or Ranks.threads(2, timeout=20, **options)
        with ThreadPoolExecutor(len(group)) as pool:
            return list(pool.map(body, group))

    def step(self, session, rank, count):
        x = rows(rank, count)
        y = session(buffer(x, (count, 4))).tolist()
        self.assertEqual(y, [[x[4 * t + k] * SCALE[t % 4][k]
                              for k in range(4)] for t in range(count)])

    @contextlib.contextmanager
    def session(self, ranks, bind=True):
        bundle = moira.Bundle(BUNDLE)
        with Session(bundle, threads=1, ranks=ranks) as session:
            bundle.close()
            if bind:
                session.bind(scales())
            yield session

    def assert_code(self, code, call, *arguments, **options):
        with self.assertRaises(MoiraError) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.code, code)
        return caught.exception.message


class RanksTest(Base):
    def test_describe(self):
        for rank, handle in enumerate(Ranks.threads(2)):
            self.assertEqual(repr(handle), f"moira.Ranks(rank {rank} of 2)")
            self.assertEqual(handle.transport, "inprocess")
            self.assertFalse(handle.virtual_clock)
        self.assertEqual(moira.Bundle(BUNDLE).entry.ranks, 2)

    def test_steps(self):
        def body(ranks):
            with self.session(ranks) as session:
                for count in (3, 1, 17):
                    self.step(session, ranks.rank, count)
                return session.statistics()[-1]

        first, second = self.each(body)
        self.assertEqual(first.layers[0].matrix, second.layers[0].matrix)
        self.assertEqual(first.layers[0].matrix, ((5, 4, 4, 4),) * 2)
        self.assertGreater(first.layers[0].bytes_sent, 0)
        again = json.loads(json.dumps(first.as_dict()))
        self.assertEqual(again["layers"][0]["counts"], [5, 4, 4, 4])
        self.assertEqual(again["error"], 0)
        self.assertEqual(again["layers"][0]["reason"], "")

    def test_grids(self):
        bundle = moira.Bundle(GRIDS)
        self.assertEqual(bundle.grids, (1, 2))
        self.assertEqual(moira.Bundle(BUNDLE).grids, (2,))
        self.assertEqual(bundle.entry.ranks, 1)
        self.assertEqual(bundle.for_ranks(2).entry.ranks, 2)
        self.assertEqual(list(bundle.for_ranks(2).parameters),
                         ["experts.{}.scale"])
        self.assertEqual(bundle.session().bundle.entry.ranks, 1)
        self.assertIn("1, 2 ranks", self.assert_code(
            Status.INVALID_ARGUMENT, bundle.for_ranks, 3))
        self.assertIn("1, 2 ranks", self.assert_code(
            Status.INVALID_ARGUMENT, Session, bundle,
            ranks=Ranks.threads(3)[0]))

        def body(ranks):
            with Session(bundle, threads=1, ranks=ranks) as session:
                session.bind(scales())
                self.step(session, ranks.rank, 6)

        self.each(body)

    def test_sessions_outlive_handles(self):
        group = Ranks.threads(2, timeout=20)
        with contextlib.ExitStack() as stack:
            sessions = [stack.enter_context(self.session(r)) for r in group]
            for ranks in group:
                ranks.close()
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda r: self.step(sessions[r], r, 6),
                              range(2)))
        self.assert_code(Status.INVALID_ARGUMENT, Session,
                         moira.Bundle(BUNDLE), ranks=group[0])

    def test_collectives(self):
        def body(ranks):
            ranks.barrier()
            summed = buffer([ranks.rank + 1, 10], (2,), "i32")
            self.assertIs(ranks.sum(summed), summed)
            told = buffer([ranks.rank] * 3, (3,))
            ranks.broadcast(told, root=1)
            return summed.tolist(), told.tolist()

        self.assertEqual(self.each(body), [([3, 20], [1, 1, 1])] * 2)

    def test_failures_name_the_rank(self):
        def body(ranks):
            with self.session(ranks) as session:
                wide = buffer(range(10), (2, 5))
                message = self.assert_code(
                    Status.INVALID_ARGUMENT, session,
                    wide if ranks.rank == 1 else buffer(range(8), (2, 4)))
                self.assertIn("rank 1", message)
                self.step(session, ranks.rank, 4)  # threads go on

        self.each(body)

    def test_interrupt(self):
        group = Ranks.threads(2, timeout=20)
        group[0].interrupt()
        self.assertIn("interrupt", self.assert_code(Status.FAILED,
                                                    group[0].barrier))

    def test_virtual_clock(self):
        slow = {"nodes": 2, "inter": {"bandwidth": 1000, "latency": 1}}

        def body(ranks):
            with self.session(ranks) as session:
                self.step(session, ranks.rank, 8)
                return session.statistics()[0].total

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "slow.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(slow, file)
            for topology in (slow, json.dumps(slow), path):
                times = self.each(body, virtual_clock=True, topology=topology)
                self.assertGreater(min(times), 2)

    def test_wrong_arguments(self):
        bad = Status.INVALID_ARGUMENT
        self.assert_code(bad, Ranks.threads, 0)
        self.assert_code(bad, Ranks.threads, 2, timeout=-1)
        self.assert_code(bad, Ranks.threads, 2, topology=5)
        self.assert_code(bad, Ranks.connect, 2, 2, 5000)
        self.assert_code(bad, Ranks.connect, 0, 2, 0)
        one, = Ranks.threads(1)
        one.barrier()
        self.assertEqual(one.transport, "none")
        self.assert_code(bad, one.broadcast, buffer([1], (1,)), root=1)
        self.assert_code(bad, one.sum, 5)

    def test_processes(self):
        code = ("import os, test_ranks as t; "
                "from moira import Ranks; "
                "ranks = Ranks.launched(timeout=20) if {launched} else "
                "Ranks.connect(int(os.environ['RANK']), 2, {port}, "
                "job='test', timeout=20); "
                "t.run_process(ranks); print('rank', ranks.rank, "
                "ranks.transport)")
        port = 30000 + os.getpid() % 20000
        for launched in (False, True):
            started = []
            for rank in range(2):
                environment = {
                    **os.environ, "PYTHONPATH": os.pathsep.join(
                        (str(TOP / "python"), str(TOP / "python" / "tests"))),
                    "TORCHELASTIC_RUN_ID": "test", "RANK": str(rank),
                    "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port + 2),
                    "MOIRA_MASTER_PORT": str(port + launched)}
                started.append(subprocess.Popen(
                    [sys.executable, "-c",
                     code.format(port=port, launched=launched)],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True, env=environment))
            for rank, process in enumerate(started):
                output, _ = process.communicate(timeout=60)
                self.assertEqual(output, f"rank {rank} tcp\n")


def run_process(ranks):
    """A step of a rank that is a process."""
    case = Base()
    with case.session(ranks) as session:
        case.step(session, ranks.rank, 9)
    ranks.barrier()


class AdaptTest(Base):
    def test_plans_follow_the_loads(self):
        def body(ranks):
            with self.session(ranks) as session:
                session.adapt()
                for i in range(12):
                    self.step(session, ranks.rank, 8 + i)
                layer = session.statistics()[-1].layers[0]
                self.assertNotIn(layer.reason, ("", "first"))
                self.assertGreater(layer.predicted, 0)
                learned = session.save_learned()
                session.adapt("main", mode="model", degrees=(1, 2),
                              max_shadows=0, trial_loss=0.01, numerics="")
                self.assertEqual(session.candidates(), [
                    "r=1 degree=1", "r=1 degree=2", "r=1 groups"])
                explained = session.explain()
                session.stop_adapting()
                self.step(session, ranks.rank, 8)
                return learned, explained

        first, second = self.each(body)
        self.assertEqual(first, second)

    def test_learned(self):
        def learn(ranks):
            with self.session(ranks) as session:
                session.adapt()
                for i in range(4):
                    self.step(session, ranks.rank, 8)
                return session.save_learned()

        text = self.each(learn)[0]

        def use(ranks):
            with self.session(ranks) as session:
                session.adapt()
                session.load_learned(text)
                session.load_learned(json.loads(text))
                self.step(session, ranks.rank, 8)
                self.assert_code(Status.DATA_LOSS, session.load_learned, "{}")

        self.each(use)

    def test_force_and_forbid(self):
        def body(ranks):
            with self.session(ranks) as session:
                session.adapt(mode="model")
                session.force("r=1 degree=4")
                self.step(session, ranks.rank, 9)
                self.assertEqual(session.statistics()[-1].layers[0].degree, 4)
                session.force(None)
                if ranks.rank == 0:
                    session.forbid("equal")
                for _ in range(3):
                    self.step(session, ranks.rank, 9)
                self.assertEqual(session.statistics()[-1].variant, "groups")
                session.forbid("equal", False)
                self.assert_code(Status.NOT_FOUND, session.forbid, "none")
                self.assert_code(Status.NOT_FOUND, session.force, "r=9")

        self.each(body)

    def test_plans(self):
        def body(ranks):
            with self.session(ranks) as session:
                session.set_plan(degree=2, shadows=[3], layer=0)
                self.step(session, ranks.rank, 9)
                layer = session.statistics()[-1].layers[0]
                self.assertEqual((layer.degree, layer.shadows), (2, (3,)))
                session.set_plan(slot_table=[[3, 2, -1], [1, 0, -1]])
                self.assert_code(Status.INVALID_ARGUMENT, session,
                                 buffer(range(4), (1, 4)))
                session.bind(scales())
                self.step(session, ranks.rank, 9)
                self.assert_code(Status.NOT_FOUND, session.set_plan, layer=7)

        self.each(body)

    def test_weights_move(self):
        def body(ranks):
            with self.session(ranks) as session:
                self.assertEqual(session.slot_table(0), [0, 1, -1, 2, 3, -1])
                session.move_weights(0, [3, 2, -1, 1, 0, -1])
                self.assertEqual(session.slot_table(0), [3, 2, -1, 1, 0, -1])
                session.count_loads(threshold=1.01)
                for _ in range(3):
                    self.step(session, ranks.rank, 5)
                self.assertIn(session.rebalance(), (0, 1))
                self.step(session, ranks.rank, 9)
                session.adapt()
                session.announce_tokens(18)
                self.step(session, ranks.rank, 9)

        self.each(body)

    def test_wrong_arguments(self):
        ranks, _ = Ranks.threads(2)
        bad = Status.INVALID_ARGUMENT
        with self.session(ranks) as session:
            self.assert_code(bad, session.explain)
            self.assert_code(bad, session.adapt, mode="guess")
            self.assert_code(bad, session.adapt, degrees=())
            self.assert_code(bad, session.adapt, topology=[])
            self.assertIn("got 'speed'", self.assert_code(
                bad, session.adapt, speed=3))
            self.assert_code(Status.NOT_FOUND, session.adapt, "other")
