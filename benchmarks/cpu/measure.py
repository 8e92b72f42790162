# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures one case: every worker once per round, in a rotating order."""

import os
import tempfile

from stats import interval, median, ratios
from workers import WorkerError

# A worker's turn lasts about this long: short runs are repeated in it, and the
# median of the turn counts.
TURN_SECONDS = 0.03
MOST_REPEATS = 9
# Less than this would stay in a cache from one run to the next. In a model other
# layers come between.
EVICT_BELOW = 96e6
# Ways of one peer that take this much longer than its best in the trial are
# not measured further.
HOPELESS = 1.3
TRIALS = 3
# Largest error over the row's largest value that is not taken for a mistake.
BOUNDS = {"f32": 1e-4, "bf16": 3e-2}
PREPARE_TIMEOUT = 180
RUN_TIMEOUT = 60
LIMITS = ("fma", "read", "copy")


class CaseError(Exception):
    """Why a case has no result."""


def prioritise(pid, cores):
    """Lets a process that is about to run have its cores for itself; with no
    cores gives them back."""
    allowed = sorted(os.sched_getaffinity(0))
    policy = os.SCHED_FIFO if cores else os.SCHED_OTHER
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setaffinity(int(thread),
                                 allowed[-1:] if cores == 1 else allowed)
            os.sched_setscheduler(int(thread), policy,
                                  os.sched_param(50 if cores else 0))
        except ProcessLookupError:  # it ended meanwhile
            pass
        except PermissionError as error:
            raise CaseError("--realtime: expected leave to set priorities, got "
                            f"'{error}'") from None


class Contestant:
    """One way of one worker to run the case."""

    def __init__(self, worker, mode, name, evict, realtime=0):
        self.worker = worker
        self.realtime = realtime  # cores, 0: with everybody else
        self.evict = evict
        self.mode = mode
        self.name = name
        self.peer = worker.peer
        self.repeat = 1
        self.trial = 0.0
        self.times = []  # seconds, one per round
        self.works = []  # of limits
        self.facts = []

    def ask(self, **message):
        answer = self.worker.ask(RUN_TIMEOUT, mode=self.mode, **message)
        if "failed" in answer:
            raise WorkerError(answer["failed"])
        return answer

    def run(self):
        """Returns the seconds of one turn."""
        process = self.worker.process
        if self.realtime:
            prioritise(process.pid, self.realtime)
        try:
            answer = self.ask(do="run", repeat=self.repeat, evict=self.evict)
        finally:
            if self.realtime and process.poll() is None:
                prioritise(process.pid, 0)
        self.last = answer
        return median(answer["ns"]) * 1e-9

    def take_turn(self):
        self.times.append(self.run())
        self.works.append(self.last.get("work", 0))
        self.facts.append(self.last.get("facts", {}))


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 62


class CaseRun:
    def __init__(self, case, running, rounds, realtime=False):
        self.case = case
        self.realtime = case.cores if realtime else 0
        self.rounds = rounds
        self.running = running
        if case.part in ("layer", "movement"):  # a matter of Moira's own
            self.running = [worker for worker in running
                            if worker.peer in ("limits", "moira")]
        self.reasons = {}  # name: why a peer does not run the case
        self.errors = {}  # name: error of the result
        self.prepared = {}  # worker: facts
        self.contestants = []

    def measure(self):
        """Returns the result; raises CaseError where there is none."""
        try:
            self.generate()
            self.prepare()
            self.remove_file()
            self.try_out()
            for number in range(self.rounds):
                self.round(number)
        except WorkerError as error:
            raise CaseError(str(error)) from None
        finally:
            self.clean_up()
        return self.result()

    # --- before the rounds ----------------------------------------------

    def generate(self):
        """Lets the limits' worker write the data that all share."""
        case = self.case
        # Everybody has packed copies, some two.
        needed = case.weight_bytes * (len(self.running) + 3)
        if needed > available_bytes():
            raise CaseError(
                f"expected {needed / 1e9:.0f} GB of free memory, got "
                f"{available_bytes() / 1e9:.0f} GB; run it with fewer --peers")
        if case.part in ("layer", "movement"):
            return
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        handle, case.file = tempfile.mkstemp(".safetensors", "moira-bench-",
                                             folder)
        os.close(handle)
        answer = self.limits().ask(PREPARE_TIMEOUT, do="generate",
                                   case=case.message())
        if "error" in answer:
            raise CaseError(answer["error"])

    def limits(self):
        return next(worker for worker in self.running
                    if worker.peer == "limits")

    def prepare(self):
        """Moira alone, so that its times to compile and pack are its own; the
        others all together."""
        message = {"do": "prepare", "case": self.case.message()}
        first = [worker for worker in self.running
                 if worker.peer in ("moira", "limits")]
        for worker in first:
            self.ready(worker, worker.ask(PREPARE_TIMEOUT, **message))
        others = [worker for worker in self.running if worker not in first]
        asked = []
        for worker in others:
            try:
                worker.send(**message)
                asked.append(worker)
            except WorkerError as error:
                self.reasons[worker.name] = str(error)
        for worker in asked:
            try:
                self.ready(worker, worker.receive(PREPARE_TIMEOUT))
            except WorkerError as error:
                self.reasons[worker.name] = str(error)

    def ready(self, worker, answer):
        self.prepared[worker.name] = answer.get("facts", {})
        for name, why in answer.get("not_run", {}).items():
            self.reasons[f"{worker.name} {name}"] = why
        if "error" in answer:
            self.reasons[worker.name] = answer["error"]
            if worker.peer in ("moira", "limits"):
                raise CaseError(f"{worker.name}: {answer['error']}")
            return
        for mode, name in enumerate(answer["modes"]):
            if worker.peer in ("moira", "limits"):
                label = name
            else:
                label = f"{worker.name} {name}" if name else worker.name
            self.contestants.append(Contestant(
                worker, mode, label, self.case.bytes < EVICT_BELOW,
                self.realtime))

    def try_out(self):
        """Checks results, finds how often to repeat, drops hopeless ways."""
        kept = []
        for contestant in self.contestants:
            try:
                error = contestant.ask(do="check")["error"]
                contestant.trial = min(contestant.run() for _ in range(TRIALS))
            except WorkerError as problem:
                self.reasons[contestant.name] = str(problem)
                continue
            self.errors[contestant.name] = error
            if error > BOUNDS[self.case.dtype]:
                self.reasons[contestant.name] = f"wrong result, error {error:.1e}"
                continue
            contestant.repeat = max(1, min(
                MOST_REPEATS, int(TURN_SECONDS / contestant.trial)))
            kept.append(contestant)
        self.contestants = []
        for contestant in kept:
            best = min(other.trial for other in kept
                       if other.peer == contestant.peer)
            if (contestant.peer == "limits" or
                    contestant.trial <= HOPELESS * best):
                self.contestants.append(contestant)
            else:
                self.reasons[contestant.name] = (
                    f"slower than the peer's best: {contestant.trial:.4g} s "
                    f"against {best:.4g} s in the trial")
        for name in ("moira", *LIMITS):
            if not any(one.name == name for one in self.contestants):
                raise CaseError(f"{name}: {self.reasons.get(name)}")

    # --- rounds ------------------------------------------------------------

    def round(self, number):
        count = len(self.contestants)
        for i in range(count):
            # One place further every round, every other round backwards.
            place = (number + (i if number % 2 == 0 else -i)) % count
            contestant = self.contestants[place]
            if contestant.name in self.reasons:
                continue
            try:
                contestant.take_turn()
            except WorkerError as error:
                if contestant.peer in ("moira", "limits"):
                    raise CaseError(f"{contestant.name}: {error}") from None
                self.reasons[contestant.name] = str(error)
        self.contestants = [one for one in self.contestants
                            if one.name not in self.reasons]

    def remove_file(self):
        """The workers have it open, and nobody else needs its name."""
        try:
            if self.case.file:
                os.unlink(self.case.file)
        except FileNotFoundError:
            pass
        self.case.file = ""

    def clean_up(self):
        self.remove_file()
        for worker in self.running:
            try:
                if worker.process.poll() is None:
                    worker.ask(30, do="release")
            except WorkerError:
                pass

    # --- afterwards -------------------------------------------------------

    def result(self):
        case = self.case
        ours = next(one for one in self.contestants if one.peer == "moira")
        limits = {one.name: one for one in self.contestants
                  if one.name in LIMITS and one.peer == "limits"}
        rates = {name: [work / time for work, time in zip(one.works, one.times)]
                 for name, one in limits.items()}
        compute = [case.flops / rate for rate in rates["fma"]]
        reading = [case.bytes / rate for rate in rates["read"]]
        bound = [max(pair) for pair in zip(compute, reading)]

        def share(least):
            return median(ratios(least, ours.times))

        result = {
            "name": case.name, "model": case.model, "part": case.part,
            "dtype": case.dtype, "cores": case.cores, "tokens": case.tokens,
            "load": case.load, "rows": case.rows,
            "experts": len(case.sizes), "active": len(case.active),
            "held_out": case.held_out,
            "flops": case.flops, "bytes": case.bytes,
            "seconds": median(ours.times),
            "seconds_interval": list(interval(ours.times)),
            "share_of_peak": share(compute),
            "share_of_bandwidth": share(reading),
            "share_of_bound": share(bound),
            "ratio_to_best_peer": None, "ratio_low": None, "ratio_high": None,
            "ratio_at_limit": None, "best_peer": None, "best_mode": None,
            "peers": self.peers(ours), "not_run": self.reasons,
            "errors": self.errors,
            "limits": {
                "fma_gflops": median(rates["fma"]) * 1e-9,
                "read_gb_per_s": median(rates["read"]) * 1e-9,
                "copy_gb_per_s": median(rates["copy"]) * 1e-9,
            },
            "compile_seconds": self.prepared["moira"].get("compile_s"),
            "bind_seconds": self.prepared["moira"].get("bind_s"),
            "times": {one.name: one.times for one in self.contestants},
        }
        if result["peers"]:
            best = min(result["peers"],
                       key=lambda name: result["peers"][name]["seconds"])
            found = result["peers"][best]
            result.update(best_peer=best, best_mode=found["mode"],
                          ratio_to_best_peer=found["ratio"],
                          ratio_low=found["ratio_low"],
                          ratio_high=found["ratio_high"],
                          ratio_at_limit=found["seconds"] / median(bound))
        if case.part in ("layer", "movement"):
            self.add_parts(result, ours, rates["copy"])
        return result

    def peers(self, ours):
        """Per peer the best of its ways."""
        found = {}
        for one in self.contestants:
            if one.peer in ("moira", "limits"):
                continue
            seconds = median(one.times)
            if one.peer in found and found[one.peer]["seconds"] <= seconds:
                continue
            rounds = ratios(one.times, ours.times)
            low, high = interval(rounds)
            found[one.peer] = {"mode": one.name, "seconds": seconds,
                               "ratio": median(rounds), "ratio_low": low,
                               "ratio_high": high}
        return found

    def add_parts(self, result, ours, copy_rates):
        """Where the time of a layer goes."""

        def part(name):
            return median([facts[f"{name}_s"] for facts in ours.facts])

        parts = {name: part(name) for name in
                 ("other", "gate", "dispatch", "expert", "combine", "total")}
        result["parts"] = parts
        if parts["expert"] > 0:
            result["layer_over_experts"] = median(
                [facts["total_s"] / facts["expert_s"] for facts in ours.facts])
        moving = [facts["dispatch_s"] + facts["combine_s"]
                  for facts in ours.facts]
        if self.case.part == "movement" and min(moving) > 0:
            result["share_of_copy"] = median([
                self.case.moved_bytes / rate / seconds
                for rate, seconds in zip(copy_rates, moving)])
