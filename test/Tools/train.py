# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s %S/Inputs/train.mlir %t
"""moira-train: the same curve with any ranks and plans, and no run is lost.

A run is killed at many moments while it saves; each time it goes on from the
last checkpoint, and ends with the very losses of a run that was left alone.
"""

import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
TEXT = FOLDER / "text"
TEXT.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 40)
KILLS = 12
LIMIT = 120  # seconds, on a machine that is busy with other tests


def command(name, *options):
    return ["moira-train", PROGRAM, f"--text={TEXT}",
            *([] if any(o.startswith("--batch") for o in options)
              else ["--batch=6"]),
            *([] if any(o.startswith("--lr") for o in options)
              else ["--lr=0.02"]), f"--log={FOLDER / name}.jsonl", f"--cache-dir={FOLDER / 'cache'}",
            *options]


def train(name, *options):
    done = subprocess.run(command(name, *options), capture_output=True,
                          text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(name):
    text = (FOLDER / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def losses(name):
    return [line["loss"] for line in lines(name)]


def near(found, wanted, bound):
    assert len(found) == len(wanted), (len(found), len(wanted))
    worst = max(abs(a - b) for a, b in zip(found, wanted))
    assert worst <= bound, f"expected losses within {bound}, got {worst}"


# A curve that falls, with evaluations, a norm, loads of every step.
out = train("one", "--steps=40", "--threads=1", "--eval-every=10", "--clip=1",
            f"--curve={FOLDER / 'curve.svg'}", f"--loads={FOLDER / 'loads.svg'}")
assert "trained 40 steps" in out, out
steps = lines("one")
assert len(steps) == 40 and [s["step"] for s in steps] == list(range(40))
assert steps[-1]["loss"] < 0.6 * steps[0]["loss"], (steps[0], steps[-1])
assert len(steps[0]["results"]) == 2 and steps[0]["norm"] > 0
assert [s["step"] for s in steps if "eval" in s] == [9, 19, 29, 39]
assert steps[-1]["eval"] < steps[9]["eval"]
for step in steps:
    assert len(step["loads"]) == 1 and len(step["loads"][0]) == 4
    assert sum(step["loads"][0]) == 6 * 8 * 2, step["loads"]
for name in ("curve", "loads"):
    text = (FOLDER / f"{name}.svg").read_text()
    assert text.startswith("<svg") and text.rstrip().endswith("</svg>")
    assert "nan" not in text and "inf" not in text
# Every expert of every step has its place in one of the shades.
parts = re.findall(r"M([\d.]+) [\d.]+H([\d.]+)",
                   (FOLDER / "loads.svg").read_text())
drawn = sum(float(end) - float(begin) for begin, end in parts)
assert len(parts) > 4 and abs(drawn - 4 * (720 - 64 - 16)) < 1, (parts, drawn)

# The same bits with more threads; about the same with more ranks, whatever the
# plan of a step. 6 sequences on 4 ranks: two have one, two have two.
train("plain", "--steps=20", "--threads=1")
train("threads", "--steps=20", "--threads=3")
assert losses("threads") == losses("plain")
train("switched", "--steps=20", "--threads=1", "--switch-plans")
near(losses("switched"), losses("plain"), 1e-5)
train("parts", "--steps=20", "--threads=1", "--batch=3", "--accumulate=2")
near(losses("parts"), losses("plain"), 1e-4)
for ranks, options in ((2, []), (4, ["--switch-plans"]),
                       (2, ["--r=0", "--slot-table=permuted:3"]),
                       (4, ["--spare-slots=1", "--plan-random=3"]),
                       (2, ["--variants=r=auto rows=decode", "--adapt=measured",
                            f"--statistics={FOLDER / 'adapt.jsonl'}"])):
    train("ranks", "--steps=20", f"--ranks={ranks}", *options)
    near(losses("ranks"), losses("plain"), 2e-4)
    for a, b in zip(lines("ranks"), lines("plain")):
        assert abs(a["norm"] - b["norm"]) < 1e-3 * b["norm"], (a, b)

# Any plan in each step, and those that the loads decide: they change.
rows = [json.loads(line)
        for line in (FOLDER / "adapt.jsonl").read_text().splitlines()]
plans = {row["variant"] for row in rows if row["entry"] == "main"}
assert len(rows) == 2 * 2 * 20 and len(plans) > 1, (len(rows), plans)

# Killed while it saves, again and again.
random.seed(7)
save = [f"--save={FOLDER / 'saved'}", "--save-every=1", "--resume",
        "--threads=1"]
train("straight", "--steps=30", "--threads=1")
for attempt in range(KILLS):
    run = subprocess.Popen(command("killed", "--steps=30", *save),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        run.wait(timeout=random.uniform(0.05, 0.5))
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert run.returncode in (0, -signal.SIGKILL), run.stderr.read()
    run.stdout.close()
    run.stderr.close()
train("killed", "--steps=30", *save)
assert losses("killed") == losses("straight")
left = sorted(p.name for p in (FOLDER / "saved").iterdir())
assert left == ["model.safetensors.index.json",
                "step-30-rank-0.safetensors"], left

out = train("killed", "--steps=30", *save)
assert out == "nothing to train: the checkpoint has 30 steps\n", out

# What grows without bound is an error, not a curve.
done = subprocess.run(command("wild", "--steps=500", "--optimizer=sgd",
                              "--lr=1000000", "--threads=1"),
                      capture_output=True, text=True, timeout=LIMIT)
assert done.returncode == 1
assert ": expected a finite loss, got " in done.stderr, done.stderr
assert done.stderr.count("\n") == 1, done.stderr

# Saved by one rank, gone on with by four, and back.
train("moved", "--steps=10", f"--save={FOLDER / 'moved'}", "--threads=1")
train("moved", "--steps=20", f"--save={FOLDER / 'moved'}", "--resume",
      "--ranks=4", "--save-sharded")
assert len(list((FOLDER / "moved").iterdir())) > 2
train("moved", "--steps=30", f"--save={FOLDER / 'moved'}", "--resume",
      "--ranks=2", "--r=0")
near(losses("moved"), losses("straight"), 5e-4)
