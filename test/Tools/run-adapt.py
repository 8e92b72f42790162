# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s %S/Inputs/layer.mlir %t %moira_lib
"""Runs whose plans follow their loads: right results, the same plans on all
ranks, decisions that can be made again, and clear errors."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

PROGRAM = sys.argv[1]
FOLDER, LIBRARIES = map(pathlib.Path, sys.argv[2:])
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
BUNDLE = str(FOLDER / "layer.moira")
LIMIT = 120  # seconds, on a machine that is busy with other tests


def execute(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True,
                          timeout=LIMIT)


def run(*options):
    done = execute("moira-run", BUNDLE, "--tokens=96", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refuse(message, *options):
    done = execute("moira-run", BUNDLE, *options)
    assert done.returncode == 1 and not done.stdout, done.stdout
    assert done.stderr == f"moira-run: error: {message}\n", done.stderr


def steps(name):
    """Of a file of statistics: by step and rank."""
    rows = map(json.loads, (FOLDER / name).read_text().splitlines())
    return {(row["step"], row["rank"]): row for row in rows}


def plans(name):
    """What the layers of each step ran with, which all ranks say alike."""
    rows, found = steps(name), {}
    for (step, _), row in sorted(rows.items()):
        plan = (row["variant"].rsplit("-", 1)[0],
                [layer["plan"] for layer in row["layers"]])
        assert found.setdefault(step, plan) == plan, (step, plan)
    return found


done = execute("moira-compile", PROGRAM, "-o", BUNDLE, "--grid=4",
               "--spare-slots=1",
               "--variants=r=auto schedule=equal,groups rows=decode,prefill")
assert done.returncode == 0, done.stderr

# Right, whatever is chosen; and there is something to choose.
text = run("--adapt=measured", "--repeat=40", "--explain", "--verify",
           f"--source={PROGRAM}", f"--statistics={FOLDER}/s.jsonl")
assert "verify      passed" in text and "layer 0, step 40: r=" in text, text
for candidate in ("r=0 ", "r=1 degree=8 ", "r=1 groups ", "shadow=1 "):
    assert candidate in text, candidate
chosen = plans("s.jsonl")
assert len(chosen) == 41 and len(set(map(str, chosen.values()))) > 2
row = steps("s.jsonl")[40, 3]["layers"][0]
assert row["predicted"] > 0 and row["matrix"][3] == row["counts"]

report = json.loads(run("--adapt=model", "--repeat=2", "--explain", "--json"))
layer = report["explain"]["layers"][0]
assert layer["step"] == 2 and len(layer["candidates"]) > 8, layer
assert report["layers"][0]["plan"]["predicted"] > 0

# Any legal plan is right, also where one rank has no token.
for seed in (1, 2):
    text = run(f"--plan-random={seed}", "--repeat=20", "--tokens=9,0,5,40",
               "--verify", f"--source={PROGRAM}",
               f"--statistics={FOLDER}/r{seed}.jsonl")
    assert "verify      passed" in text, text
    assert len(set(map(str, plans(f"r{seed}.jsonl").values()))) > 8

# A replay follows the log, step by step.
run("--adapt=measured", "--repeat=20", f"--flight-log={FOLDER}/log",
    f"--statistics={FOLDER}/a.jsonl")
run(f"--replay={FOLDER}/log", "--repeat=20", f"--statistics={FOLDER}/b.jsonl")
assert plans("a.jsonl") == plans("b.jsonl")
done = execute("moira-run", BUNDLE, f"--replay={FOLDER}/log", "--repeat=21")
assert done.returncode == 1
assert "replay: expected at most the 21 steps of the flight log" in done.stderr

# What was learned is there in the next run.
for _ in range(2):
    run("--adapt=measured", "--repeat=20", f"--learned={FOLDER}/learned.json")
learned = json.loads((FOLDER / "learned.json").read_text())
assert learned["layers"][0]["table"]["buckets"]
(FOLDER / "learned.json").write_text("{}")
refuse(f"--adapt: {FOLDER}/learned.json: learned table.format: expected a "
       "value, got none", "--adapt=measured", f"--learned={FOLDER}/learned.json")

# A measured machine.
text = execute("moira-run", BUNDLE, "--tokens=256",
               f"--calibrate={FOLDER}/c.json").stdout
assert "forward" in text and "intra" in text, text
calibration = json.loads((FOLDER / "c.json").read_text())
assert calibration["format"] == "moira-calibration"
assert calibration["forward"]["seconds"] and calibration["intra"]["latency"] > 0
# Rows of the products are those that rank 0 has, wherever experts stand.
for table in range(1, 4):
    table = f"--slot-table=permuted:{table}"
    text = execute("moira-run", BUNDLE, "--tokens=256", "--r=1", table,
                   f"--calibrate={FOLDER}/moved.json").stdout
    _, groups, rows, *_ = text[text.index("forward"):].split()
    report = json.loads(execute("moira-run", BUNDLE, "--tokens=256", "--r=1",
                                table, "--json").stdout)
    expected = report["ranks"]["by_rank"][0]["rows_received"]
    assert round(int(groups) * float(rows)) == expected, (text, expected)
text = run("--adapt=model", "--repeat=3", "--explain", "--r=1", "--degree=2",
           f"--calibration={FOLDER}/c.json")
assert "least predicted time" in text or "as before" in text, text

# What is fixed stays; degrees of its own are candidates.
text = run("--adapt=fixed", "--repeat=3", "--explain", "--r=1", "--degree=3")
assert "step 3: r=1 degree=3 (fixed)" in text, text
text = run("--adapt=measured", "--lag=0", "--repeat=30", "--r=1", "--verify",
           f"--source={PROGRAM}", f"--statistics={FOLDER}/l.jsonl")
assert "verify      passed" in text, text
assert plans("l.jsonl")[0][0] == "r1-equal", plans("l.jsonl")[0]
# Shadows of the step's own counts, where rows take so long that they pay.
for part in ("forward", "backward"):
    calibration[part]["seconds"] = [1e-3 * n for n in calibration[part]["rows"]]
(FOLDER / "slow-rows.json").write_text(json.dumps(calibration))
done = execute("moira-run", PROGRAM, "--ranks=4", "--spare-slots=2",
               "--tokens=96", "--variants=r=1 schedule=equal", "--adapt=model",
               "--lag=0", f"--calibration={FOLDER}/slow-rows.json",
               f"--statistics={FOLDER}/w.jsonl", "--loads=rotating-hot",
               "--steps=12")
assert done.returncode == 0, done.stderr
rows = [row["layers"][0] for row in steps("w.jsonl").values()]
hot = [max(range(4), key=lambda e: sum(rank[e] for rank in row["matrix"]))
       for row in rows]
# It is another one in each step.
assert len(rows) == 48 and len(set(hot)) == 4, hot
for expert, row in zip(hot, rows):
    assert expert in row["plan"]["shadows"], (expert, row)
run("--adapt=measured", "--deterministic", "--repeat=3")

# Processes: what one rank decides, all decide.
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
processes = [subprocess.Popen(
    ["moira-run", BUNDLE, "--tokens=96", "--threads=1", "--adapt=measured",
     "--repeat=30", f"--statistics={FOLDER}/p.jsonl"],
    env=dict(os.environ, RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank),
             LOCAL_WORLD_SIZE="4", MASTER_ADDR="127.0.0.1",
             MASTER_PORT="29500", MOIRA_MASTER_PORT=str(port)),
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for rank in range(4)]
for process in processes:
    output = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0, output
if shutil.which("mpirun") and any(LIBRARIES.glob("libmoira_mpi.*")):
    command = ["mpirun", "--oversubscribe", "-n", "4", "moira-run", BUNDLE,
               "--tokens=96", "--threads=1", "--adapt=measured", "--repeat=30",
               f"--statistics={FOLDER}/m.jsonl"]
    if os.geteuid() == 0:
        command.insert(1, "--allow-run-as-root")
    done = execute(*command)
    assert done.returncode == 0, done.stderr
    (FOLDER / "m.jsonl").write_text("".join(
        (FOLDER / f"m.{rank}.jsonl").read_text() for rank in range(4)))
    assert len(plans("m.jsonl")) == 31
else:
    print("no MPI: skipped")
(FOLDER / "p.jsonl").write_text("".join(
    (FOLDER / f"p.{rank}.jsonl").read_text() for rank in range(4)))
assert len(plans("p.jsonl")) == 31

# Errors.
refuse("--adapt: expected fixed, model or measured, got 'best'",
       "--adapt=best")
refuse("--lag: expected a number, 0 to 1, got '2'", "--adapt=model", "--lag=2")
for option in ("--lag=0", "--calibration=x", "--flight-log=x", "--learned=x",
               "--explain", "--deterministic"):
    name = option.split("=")[0]
    refuse(f"{name}: expected --adapt beside it, got none", option)
refuse("--replay: expected neither --adapt nor --plan-random beside it, since "
       "the log says what is chosen, got one", "--adapt=model", "--replay=x")
refuse("--plan-random: expected no --adapt beside it, got one",
       "--adapt=model", "--plan-random=1")
refuse("--plan-random: expected a number, 0 or more, got 'x'",
       "--plan-random=x")
refuse("--calibration: x: expected a file, got 'No such file or directory'",
       "--adapt=model", "--calibration=x")
refuse(f"--statistics: {FOLDER}/no/s: expected an existing folder, got "
       f"'{FOLDER}/no'", f"--statistics={FOLDER}/no/s")
refuse("--shadows: expected no --adapt beside it, got one",
       "--adapt=model", "--shadows=0")
refuse(f"--calibrate: {FOLDER}/no/c: expected an existing folder, got "
       f"'{FOLDER}/no'", f"--calibrate={FOLDER}/no/c")
refuse("--calibrate: expected no --adapt beside it, got one",
       "--calibrate=x", "--adapt=model")
refuse("--calibrate: expected no --steps beside it, got one",
       "--calibrate=x", "--steps=2")
refuse("--calibrate: expected --clock real beside it, got --clock virtual",
       "--calibrate=x", "--clock=virtual")
refuse("--qualify: expected no --adapt beside it, got one",
       "--qualify", "--adapt=model")
refuse("--qualify: expected no --plan-random beside it, got one",
       "--qualify", "--plan-random=1")
done = execute("moira-run", PROGRAM, "--adapt=model")
assert done.stderr == ("moira-run: error: --adapt: entry 'main': adapt: "
                       "expected an entry for several ranks, got one for 1\n")
