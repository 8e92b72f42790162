# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s %S/Inputs %t %moira_lib
"""Ranks as processes: the same results, one report, and nothing hangs.

Processes are started as torchrun would, with rank and meeting point in the
environment, and, where there is one, by mpirun.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

INPUTS, FOLDER, LIBRARIES = map(pathlib.Path, sys.argv[1:])
PROGRAM = str(INPUTS / "layer.mlir")
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
LIMIT = 60  # seconds, on a machine that is busy with other tests


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(ranks, *arguments, **environment):
    """Processes that are ranks, with more variables in their environment."""
    port = free_port()
    started = []
    for rank in range(ranks):
        place = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks),
                     LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                     MASTER_ADDR="127.0.0.1", MASTER_PORT="29500",
                     MOIRA_MASTER_PORT=str(port), **environment)
        started.append(subprocess.Popen(
            ["moira-run", PROGRAM, "--threads", "1", *arguments], env=place,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return started


def finish(processes, seconds=LIMIT):
    """Their (exit code, stdout, stderr), in order of ranks."""
    end = time.monotonic() + seconds
    outcomes = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=end - time.monotonic())
            outcomes.append((process.returncode, out, err))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return outcomes


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def same(one, other):
    assert (FOLDER / one).read_bytes() == (FOLDER / other).read_bytes(), other


def test_results_are_those_of_threads():
    run("moira-run", PROGRAM, "--tokens=5,0,7,3", "--ranks", "4", "--output",
        str(FOLDER / "threads.npy"))
    outcomes = finish(start(4, "--tokens=5,0,7,3", "--verify", "--output",
                            str(FOLDER / "processes.npy")))
    assert [code for code, _, _ in outcomes] == [0] * 4, outcomes
    assert "ranks       4 (tcp)" in outcomes[0][1], outcomes[0]
    assert "verify      passed: 15 of 15 rows" in outcomes[0][1], outcomes[0]
    assert all(not out and not err for _, out, err in outcomes[1:]), outcomes
    same("threads.npy", "processes.npy")


def test_mpirun():
    if not shutil.which("mpirun") or not any(LIBRARIES.glob("libmoira_mpi.*")):
        print("no MPI: skipped")
        return
    command = ["mpirun", "--oversubscribe", "-n", "2", "moira-run", PROGRAM,
               "--tokens=9,4", "--threads", "1"]
    if os.geteuid() == 0:
        command.insert(1, "--allow-run-as-root")
    run("moira-run", PROGRAM, "--tokens=9,4", "--ranks", "2", "--output",
        str(FOLDER / "two.npy"))
    run(*command, "--output", str(FOLDER / "mpi.npy"))
    same("two.npy", "mpi.npy")


def test_nccl():
    """With the library that stands in for NCCL, where it was built."""
    library = LIBRARIES / "libmoira_nccl_standin.so"
    if not library.exists():
        print("no NCCL header at configuring: skipped")
        return
    run("moira-run", PROGRAM, "--tokens=5,0,7,3", "--ranks", "4", "--output",
        str(FOLDER / "four.npy"))
    outcomes = finish(start(4, "--tokens=5,0,7,3", "--degree", "2",
                            "--communicator", "nccl", "--output",
                            str(FOLDER / "nccl.npy"),
                            MOIRA_NCCL_LIB=str(library)))
    assert [code for code, _, _ in outcomes] == [0] * 4, outcomes
    assert "ranks       4 (nccl)" in outcomes[0][1], outcomes[0]
    same("four.npy", "nccl.npy")


def test_another_number_of_ranks_is_refused():
    for code, out, err in finish(start(2, "--ranks", "4")):
        assert code == 1 and not out, (code, out)
        assert err == ("moira-run: error: --ranks: expected the 2 processes "
                       "that torchrun started, got 4\n"), err


def wait_for_steps(process):
    """Until a process has been computing for a moment."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
        user = int(fields.rsplit(")", 1)[1].split()[11])
        if user > 1.5 * os.sysconf("SC_CLK_TCK"):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("no step within the time")


LONG = ["--tokens", "4000", "--repeat", "1000000", "--timeout", "5"]


def test_a_killed_rank_ends_the_others():
    processes = start(4, *LONG)
    wait_for_steps(processes[1])
    processes[1].kill()
    began = time.monotonic()
    outcomes = finish(processes)
    assert time.monotonic() - began < 20, "expected an end within the timeout"
    for rank in 0, 2, 3:
        code, out, err = outcomes[rank]
        assert code == 1 and not out, outcomes
        assert err.count("\n") <= 1, err
    told = "".join(err for _, _, err in outcomes)
    assert "moira-run: error: " in told and "rank 1" in told, told


def test_a_signal_ends_all_ranks():
    for number in signal.SIGINT, signal.SIGTERM:
        process = subprocess.Popen(
            ["moira-run", PROGRAM, "--ranks", "4", *LONG], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for_steps(process)
        process.send_signal(number)
        (code, out, err), = finish([process], 20)
        assert code == 1 and not out, (code, out, err)
        assert err.count("\n") == 1 and "interrupted" in err, err


for name, test in list(globals().items()):
    if name.startswith("test_"):
        print(name, flush=True)
        test()
