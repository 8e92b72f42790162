#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what it is worth to adapt. docs/adaptive.md explains."""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile

from model import measure_model, measure_real
from workloads import ROOT, TUNED_ON, Runner, measure, workloads


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Compare sessions that adapt with every plan that stays, "
                    "on the virtual clock.")
    parser.add_argument("--quick", action="store_true",
                        help="fewer steps and seeds, under 50 s")
    parser.add_argument("--tiny", action="store_true",
                        help="one small run, for the test of the schema")
    parser.add_argument("--only", default="",
                        choices=["training", "recorded-training", "sizes",
                                 "model", "real", "selection"],
                        help="one workload, or model, real or selection")
    parser.add_argument("--seeds", type=int, metavar="N", choices=range(1, 4),
                        help="seeds of each workload (default: 3, quick: 1)")
    parser.add_argument("--json", metavar="FILE", help="also write a file")
    parser.add_argument("--build", metavar="FOLDER",
                        default=os.environ.get("MOIRA_BUILD",
                                               os.path.join(ROOT, "build")))
    options = parser.parse_args()
    if not os.path.exists(os.path.join(options.build, "bin", "moira-run")):
        sys.exit(f"bench.py: expected moira-run in {options.build}: "
                 "scripts/build")
    return options


def print_workload(row):
    half = row["speedup_half_interval"]
    regret_half = row["regret_half_interval"]
    print(f"{row['name']:18} adaptive {row['adaptive_s']:8.3f} s  best fixed "
          f"{row['best_fixed_s']:8.3f} s ({row['best_fixed']})\n"
          f"{'':18} speedup {row['speedup']:.2f}"
          + (f" +- {half:.2f}" if half is not None else "")
          + f"  regret {100 * row['regret']:.2f} %"
          + (f" +- {100 * regret_half:.2f} %" if regret_half is not None
             else "")
          + f"  sessions off by {100 * row['check']['error']:+.2f} %")
    if row["balanced"]:
        print(f"{'':18} loads spread evenly: {row['balanced']['speedup']:.2f}")


def measure_selection(options):
    """Microseconds of decisions, 64 ranks and 256 experts."""
    path = os.path.join(options.build, "bin", "moira-selection-times")
    if not os.path.exists(path):
        return None
    done = subprocess.run([path, "--json"], capture_output=True, text=True,
                          check=True)
    grids = {g["grid"]: g for g in json.loads(done.stdout)["selection"]}
    large = grids["64x256"]
    return {"hit": large["hit_us"], "full": large["full_us"],
            "grids": list(grids.values())}


def main():
    options = parse_arguments()
    result = {"date": datetime.date.today().isoformat(),
              "tuned_on": TUNED_ON, "workloads": []}
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options.build, folder)
        for workload in workloads(options.quick, options.tiny):
            workload.seeds = workload.seeds[:options.seeds]
            if options.only in ("", workload.name):
                row = measure(runner, workload)
                result["workloads"].append(row)
                print_workload(row)
        if options.only in ("", "model"):
            result["model"] = model = measure_model(
                runner, options.quick or options.tiny)
            print(f"{'cost model':18} mean error {100 * model['mape']:.2f} %  "
                  f"95 % below {100 * model['p95']:.2f} %  top-1 regret "
                  f"{100 * model['top1_regret']:.2f} %  of {model['points']} "
                  "points")
        if options.only == "real" or (options.only == ""
                                      and not options.quick):
            result["real"] = real = measure_real(runner, folder)
            print(f"{'cost model, real':18} mean error "
                  f"{100 * real['mape']:.1f} % of {real['points']} settings, "
                  "2 ranks on this machine")
    if options.only in ("", "selection"):
        result["selection_us"] = times = measure_selection(options)
        print(f"{'selection':18} "
              + (f"settled {times['hit']:.1f} us  full {times['full']:.0f} us"
                 if times else
                 "not measured: expected moira-selection-times in the build "
                 "(moira-benchmarks), got none"))
    if not any(result[key] for key in set(result) - {"date", "tuned_on"}):
        sys.exit("bench.py: --only: expected something that can be measured "
                 f"here, got '{options.only}' (docs/adaptive.md says what it "
                 "needs)")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
