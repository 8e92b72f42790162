#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what many ranks cost and hide. docs/benchmarks-ranks.md explains."""

import argparse
import json
import os
import re
import sys
import tempfile

import links
from overlap import overlap_cases, measure_overlap
from programs import Programs
from real import clock_settings, measure_clock, measure_throughput

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Measure exchanges, their overlap and the virtual clock.")
    parser.add_argument("--quick", action="store_true",
                        help="one case of each kind, under 50 s")
    parser.add_argument("--only", metavar="KIND", default="",
                        choices=["", "overlap", "clock", "throughput"],
                        help="overlap, clock or throughput")
    parser.add_argument("--calibrated", action="store_true",
                        help="overlap by a clock on which products take 10 us "
                             "a row")
    parser.add_argument("--repeat", type=int, metavar="N",
                        help="steps per measurement (default: 9, quick: 3)")
    parser.add_argument("--json", metavar="FILE", help="also write a file")
    parser.add_argument("--build", metavar="FOLDER",
                        default=os.environ.get("MOIRA_BUILD",
                                               os.path.join(ROOT, "build")))
    options = parser.parse_args()
    if options.repeat is None:
        options.repeat = 3 if options.quick else 9
    if not os.path.exists(os.path.join(options.build, "bin", "moira-run")):
        sys.exit(f"bench.py: expected moira-run in {options.build}: "
                 "scripts/build")
    return options


def machine():
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    return {"cpu": model[1] if model else "unknown",
            "cores": len(os.sched_getaffinity(0))}


def print_overlap(rows):
    print("\ncommunication hidden (virtual clock), by chunks")
    print(f"{'case':34} {'chunks':>6} {'step':>9} {'compute':>9} "
          f"{'chunked':>9} {'comm':>9} {'hidden':>7} {'even':>5} {'bound':>6} "
          f"{'share':>6}")
    for row in rows:
        share = "" if row["share_of_bound"] is None else \
            f"{100 * row['share_of_bound']:5.0f}%"
        print(f"{row['name']:34} {row['chunks']:6} "
              f"{1e3 * row['step_s']:7.2f}ms {1e3 * row['compute_s']:7.2f}ms "
              f"{1e3 * row['compute_in_chunks_s']:7.2f}ms "
              f"{1e3 * row['communication_s']:7.2f}ms "
              f"{100 * row['hidden']:6.0f}% {100 * row['even_bound']:4.0f}% "
              f"{100 * row['bound']:5.0f}% {share:>6}")


def print_clock(rows, error):
    print("\nvirtual clock against real links, 2 ranks")
    print(f"{'setting':38} {'link':>11} {'real':>10} {'virtual':>10} {'error':>7}")
    for row in rows:
        print(f"{row['name']:38} {row['link_bytes_per_s'] / 1e6:7.2f}MB/s "
              f"{1e3 * row['real_s']:8.2f}ms {1e3 * row['virtual_s']:8.2f}ms "
              f"{100 * row['error']:+6.1f}%")
    print(f"mean absolute error {100 * error:.1f} %")


def print_throughput(rows):
    print("\nexchange over the raw link, 2 ranks")
    for row in rows:
        print(f"{row['rate_mbit']:4} Mbit/s {row['bytes_per_pair']:9} B per pair"
              f" {row['bytes_per_s'] / 1e6:8.2f} MB/s of "
              f"{row['link_bytes_per_s'] / 1e6:.2f}: {100 * row['share']:.0f} %")


def main():
    options = parse_arguments()
    results = {"machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(options.build, folder)
        if options.only in ("", "overlap"):
            rows = []
            for case in overlap_cases(options.quick):
                rows += measure_overlap(programs, case, options.repeat,
                                        options.calibrated)
            results["overlap"] = rows
            print_overlap(rows)
        why = links.missing()
        if why:
            print(f"\nreal links not measured: {why}")
            results["not_run"] = {"links": why}
        elif options.only in ("", "clock", "throughput"):
            if options.only != "throughput":
                rows = measure_clock(programs, clock_settings(options.quick),
                                     options.repeat)
                error = sum(abs(r["error"]) for r in rows) / len(rows)
                results["clock"] = {"settings": rows,
                                    "mean_absolute_error": error}
                print_clock(rows, error)
            if options.only != "clock":
                rows = measure_throughput(programs, options.quick)
                results["throughput"] = rows
                print_throughput(rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
