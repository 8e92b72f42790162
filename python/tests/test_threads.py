# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several threads; memory over many steps."""

import os
import threading
import time
import unittest

import moira
from moira import MoiraError, Status
from support import (BUNDLE, EXPECTED, MIXTRAL, buffer, python, resident, rows,
                     weights)


def together(action, count=8):
    """Runs action(i) in `count` threads that start at the same time; raises
    what the first that failed raised."""
    start, failures = threading.Barrier(count), []

    def run(i):
        try:
            start.wait()
            action(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Threads(unittest.TestCase):
    def setUp(self):
        self.bundle = moira.Bundle(BUNDLE)

    def session(self):
        session = self.bundle.session(threads=2)
        session.bind(weights())
        return session

    def test_one_session_each(self):
        def action(i):
            with self.session() as session:
                for _ in range(50):
                    y = session(rows(), returns="moira")
                    self.assertEqual(y.tolist(), EXPECTED)
        together(action)

    def test_one_session_for_all(self):
        session = self.session()

        def action(i):
            for n in range(50):
                x = buffer([i] * 4 * (n % 5 + 1), (n % 5 + 1, 4))
                y = session(x, returns="moira").tolist()
                # Row 0 goes to expert 0: bias[n] + i * sum of weight[0][n].
                self.assertEqual(y[0], [100 * (j + 1) + i * (16 * j + 6)
                                        for j in range(4)])
        together(action)
        self.assertEqual(session.statistics()[-1].step, 8 * 50 - 1)

    def test_messages_are_the_threads_own(self):
        session = self.session()

        def action(i):
            for _ in range(50):
                with self.assertRaises(MoiraError) as caught:
                    session(buffer([0] * (5 + i), (1, 5 + i)))
                self.assertIn(f"got f32[1, {5 + i}]",
                              caught.exception.message)
        together(action)

    def test_close_meanwhile(self):
        for _ in range(20):
            session = self.session()

            def action(i):
                if i == 0:
                    return session.close()
                try:
                    while True:
                        y = session(rows(), returns="moira")
                        self.assertEqual(y.tolist(), EXPECTED)
                except MoiraError as error:
                    self.assertEqual(error.code, Status.INVALID_ARGUMENT)
                    self.assertIn("got a closed one", error.message)
            together(action, 4)
            self.assertIsNone(session._cell.pointer)

    def test_lock_is_free_during_calls(self):
        session = moira.compile(MIXTRAL).session(threads=1)
        session.bind_random()
        x = buffer([0.5] * (64 * 40000), (40000, 64))
        span, counted = [], 0

        def step():
            span.append(time.perf_counter())
            session(x, returns="moira")
            span.append(time.perf_counter())
        thread = threading.Thread(target=step)
        thread.start()
        while thread.is_alive():
            if len(span) == 1:
                counted += 1
        thread.join()
        seconds = session.statistics()[0].total
        # With the lock held, this thread would have counted for no longer than
        # one switch interval before the call.
        self.assertGreater(seconds, 0.01)
        self.assertGreater(counted, 100)


class Forks(unittest.TestCase):
    def test_fork(self):
        # In a process of its own: one that has no other threads of tests.
        status, output = python(f"""
import os, sys, moira
sys.path.insert(0, {os.path.dirname(__file__)!r})
from support import *
session = moira.Bundle(BUNDLE).session()
session.bind(weights())
kept = session(rows(), returns="moira")
child = os.fork()
if child == 0:
    try:
        session(rows())
    except moira.MoiraError as error:
        print(error.message, kept.tolist() == EXPECTED, flush=True)
    other = moira.Bundle(BUNDLE)
    print(other.entry.name, flush=True)
    del session, kept
    sys.exit(3)
print(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
print(session(rows(), returns="moira").tolist() == EXPECTED)
""")
        self.assertEqual(output, "session: expected the process that made it, "
                         "got a fork of it True\nmain\n3\nTrue\n")
        self.assertEqual(status, 0)


class FlatMemory(unittest.TestCase):
    def test_steps(self):
        # One thread: a second one's workspace appears when it first helps.
        session = moira.Bundle(BUNDLE).session(threads=1)
        session.bind(weights())
        x, kept = buffer(range(400), (100, 4)), []
        for i in range(1300):
            if i == 300:
                before, peak = resident(), session.memory.peak
            y = session(x, returns="moira")
            kept = [y, y.memory(), y.__dlpack__(), *kept[:3]]
            if i % 100 == 0:
                session.statistics()
        self.assertEqual(session.memory.peak, peak)
        self.assertLess(resident() - before, 1 << 20)
        del y, kept
        self.assertEqual(session.memory.results, 0)

    def test_sessions(self):
        bundle = moira.Bundle(BUNDLE)
        for i in range(250):
            if i == 50:
                before = resident()
            session = bundle.session()
            session.bind(weights())
            session(rows(), returns="moira")
            if i % 2:
                session.close()
        self.assertLess(resident() - before, 2 << 20)

    def test_failures(self):
        session = moira.Bundle(BUNDLE).session()
        session.bind(weights())
        wrong = buffer([0] * 5, (1, 5))
        for i in range(1300):
            if i == 300:
                before = resident()
            with self.assertRaises(MoiraError):
                session(wrong)
        self.assertLess(resident() - before, 1 << 20)
