# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s %S/Inputs/settings.mlir %t
"""What changes from step to step without compiling again: the capacity factor
(the settings 4, 0 and -4 of Tutel), k, tokens, r, degree, schedule, shadows. The
groups are padded: plans are decided by the capacity that travels."""

import json
import pathlib
import shutil
import subprocess
import sys

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
BUNDLE = str(FOLDER / "settings.moira")
LIMIT = 120  # seconds, on a machine that is busy with other tests


def execute(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True,
                          timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout


execute("moira-compile", PROGRAM, "-o", BUNDLE, "--grid=4", "--spare-slots=1",
        "--variants=r=auto schedule=equal,groups rows=decode,prefill")

# Any plan under any setting, also where one rank has no token.
plans, drops = set(), {}
for seed, (factor, k, tokens) in enumerate([
        (4, 1, "96"), (0, 2, "7,0,5,40"), (-4, 1, "7,0,5,40"), (-4, 2, "96")]):
    text = execute(
        "moira-run", BUNDLE, f"--source={PROGRAM}", f"--tokens={tokens}",
        f"--input=f={factor}", f"--input=k={k}", f"--plan-random={seed + 1}",
        "--repeat=12", "--verify", f"--statistics={FOLDER}/s.jsonl")
    assert "verify      passed" in text, text
    for row in map(json.loads, (FOLDER / "s.jsonl").read_text().splitlines()):
        layer = row["layers"][0]
        assert layer["routed"] == k * row["rows"], row
        plans.add((row["variant"], layer["plan"]["degree"],
                   len(layer["plan"]["shadows"])))
        drops[factor] = drops.get(factor, 0) + layer["dropped"]
# A factor of 0 has room for all.
assert drops[0] == 0, drops
assert {name.split("-")[0] for name, _, _ in plans} == {"r0", "r1"}, plans
assert {degree for _, degree, _ in plans} > {1, 2}, plans
assert {shadows for _, _, shadows in plans} == {0, 1}, plans


# Four times the room for the same rows travels, and is expected to.
def predicted(factor):
    report = json.loads(execute(
        "moira-run", BUNDLE, "--tokens=40000", f"--input=f={factor}",
        "--input=k=1", "--threads=1", "--adapt=model", "--explain",
        "--repeat=2", "--r=1", "--json"))
    rows = {row["plan"]: row
            for row in report["explain"]["layers"][0]["candidates"]}
    return rows["r=1 groups"]["predicted"]


assert predicted(4) > 1.5 * predicted(0), (predicted(4), predicted(0))
