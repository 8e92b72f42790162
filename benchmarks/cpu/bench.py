#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures Moira's expert part on the CPU against other libraries and against
the machine's limits. docs/benchmarks.md explains the method and the output."""

import argparse
import os
import re
import signal
import sys
import time

import cases as case_list
import report
import workers
from measure import CaseError, CaseRun
from workers import Worker, WorkerError

ROOT = os.path.dirname(os.path.dirname(workers.HERE))


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        description="Measure Moira's CPU code against peers and limits.")
    parser.add_argument("--quick", action="store_true",
                        help="a few small cases, no Python peers, 50 s")
    parser.add_argument("--covering", action="store_true",
                        help="fewer cases, which still have every model, load, "
                        "number of tokens and class of rows")
    parser.add_argument("--filter", metavar="REGEX", default="",
                        help="only cases whose name has a match")
    parser.add_argument("--peers", metavar="LIST",
                        help="comma-separated peers to run beside Moira; "
                        "'none' for none (default: all)")
    parser.add_argument("--product", metavar="PART/ROWS/TYPE/EXPERTS",
                        action="append", default=[],
                        help="instead of the list: dw/128/f32/12, ...; may be "
                        "given several times")
    parser.add_argument("--realtime", action="store_true",
                        help="run at real-time priority, on the last core "
                        "where one is enough: of a machine that others use")
    parser.add_argument("--rounds", type=int, metavar="N",
                        help="rounds per case (default: 9, quick: 5)")
    parser.add_argument("--json", metavar="FILE", help="also write a file")
    parser.add_argument("--list", action="store_true",
                        help="print the cases and stop")
    parser.add_argument("--build", metavar="FOLDER",
                        default=os.environ.get("MOIRA_BUILD",
                                               os.path.join(ROOT, "build")),
                        help="build folder with the workers")
    return parser.parse_args(arguments)


def choose_cases(options):
    if options.product:
        try:
            return [case_list.product_case(text) for text in options.product]
        except ValueError as error:
            sys.exit(f"bench.py: --product: {error}")
    found = (case_list.quick_cases() if options.quick else
             case_list.covering_cases() if options.covering else
             case_list.all_cases())
    cores = len(os.sched_getaffinity(0))
    return [case for case in found
            if case.cores <= cores and re.search(options.filter, case.name)]


def choose_implementations(options):
    """Those that can start, and why the others of the chosen cannot."""
    known = workers.implementations(os.path.join(options.build, "bin"))
    names = {entry.peer for entry in known} - {"limits", "moira"}
    if options.peers is not None:
        wanted = {name for name in options.peers.split(",") if name}
        wanted.discard("none")
        unknown = wanted - names
        if unknown:
            sys.exit(f"bench.py: --peers: expected some of "
                     f"{', '.join(sorted(names))}, got "
                     f"'{sorted(unknown)[0]}'")
    else:
        wanted = names
        if options.quick:
            wanted = wanted - set(workers.PYTHON_PEERS)
    chosen, missing = [], {}
    for entry in known:
        if entry.peer not in wanted | {"limits", "moira"}:
            continue
        why = entry.missing()
        if not why:
            chosen.append(entry)
        elif entry.peer in ("limits", "moira"):
            sys.exit(f"bench.py: {why}: scripts/build moira-benchmarks")
        else:
            missing[entry.name] = why
    return chosen, missing


class Fleet:
    """The running workers, all for one number of cores."""

    def __init__(self, chosen):
        self.chosen = chosen
        self.cores = None
        self.running = {}
        self.versions = {}
        self.failed = {}  # name: why it does not even start

    def get(self, cores):
        """The workers for so many cores; those that died are started anew."""
        if cores != self.cores:
            self.stop()
            self.cores = cores
        for entry in self.chosen:
            if entry.name in self.failed:
                continue
            worker = self.running.get(entry.name)
            if worker and worker.process.poll() is None:
                continue
            if worker:
                worker.quit()
            self.start(entry, cores)
        return [self.running[entry.name] for entry in self.chosen
                if entry.name in self.running]

    def start(self, entry, cores):
        worker = Worker(entry, cores)
        try:
            self.versions[entry.name] = worker.ask(120, do="version")["version"]
            self.running[entry.name] = worker
        except WorkerError as error:
            worker.quit()
            self.running.pop(entry.name, None)
            self.failed[entry.name] = str(error)

    def stop(self):
        for worker in self.running.values():
            worker.quit()
        self.running = {}


def main():
    options = parse_arguments()
    chosen_cases = choose_cases(options)
    if options.list:
        for case in chosen_cases:
            print(case.name + (" (held out)" if case.held_out else ""))
        return 0
    if not chosen_cases:
        sys.exit("bench.py: --filter: expected a match, got none")
    rounds = options.rounds or (5 if options.quick else 9)
    chosen, missing = choose_implementations(options)
    fleet = Fleet(chosen)
    load = os.getloadavg()[0]
    started = time.monotonic()
    results = []
    table = report.Table(sys.stdout)
    # An end from outside takes the data files along, and what was measured is
    # printed and written; in the background too, where Ctrl-C is ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # One number of cores after the other: the workers stay.
    chosen_cases.sort(key=lambda case: case.cores)
    failed = {}
    try:
        for case in chosen_cases:
            run = CaseRun(case, fleet.get(case.cores), rounds,
                          options.realtime)
            try:
                results.append(run.measure())
                table.add(results[-1])
            except CaseError as error:
                failed[case.name] = str(error)
                table.add_failure(case.name, error)
    except KeyboardInterrupt:
        failed["the rest"] = "interrupted"
    finally:
        fleet.stop()
    missing.update(fleet.failed)
    whole = report.Results(results, fleet.versions, missing, failed, rounds,
                           time.monotonic() - started, load)
    whole.print_summary(sys.stdout)
    if options.json:
        whole.write_json(options.json)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
