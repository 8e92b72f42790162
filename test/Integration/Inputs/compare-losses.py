# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# usage: compare-losses.py EXPECTED TOLERANCE LOG...
#
# Compares the losses in logs of moira-train with those of a .csv file or of
# another log, step by step; the steps must be the same.

import csv
import json
import sys


def read(path):
    with open(path, newline="") as file:
        if path.endswith(".csv"):
            return [(int(row["step"]), float(row["loss"]))
                    for row in csv.DictReader(file)]
        return [(int(row["step"]), float(row["loss"]))
                for row in map(json.loads, file)]


expected = read(sys.argv[1])
tolerance = float(sys.argv[2])
if not expected:
    sys.exit(f"{sys.argv[1]}: no steps")
for path in sys.argv[3:]:
    got = read(path)
    if [step for step, _ in got] != [step for step, _ in expected]:
        sys.exit(f"{path}: expected {len(expected)} steps, got {len(got)}")
    step, most = max(((step, abs(one - other)) for (step, one), (_, other)
                      in zip(got, expected)), key=lambda pair: pair[1])
    if not most <= tolerance:
        sys.exit(f"{path}: step {step} differs by {most:g} > {tolerance:g}")
    print(f"{len(got)} losses agree, the largest difference is {most:.2g}")
