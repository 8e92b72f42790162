# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much of the communication chunks hide, on the virtual clock."""

import json

from programs import least_seconds

# A link on which nothing takes time.
FREE = 1e18
# Links within a node over links between nodes.
INTRA = 10
# How often each plan has its turn.
ROUNDS = 3


class OverlapCase:
    def __init__(self, name, ranks, per_node, sizes, tokens, share):
        self.name = name
        self.ranks, self.per_node = ranks, per_node
        self.sizes = sizes  # features, hidden, experts, top_k
        self.tokens = tokens  # of all ranks
        self.share = share  # wanted: communication over compute, at most 1


def overlap_cases(quick):
    small = OverlapCase("w4-d512-h1024-e8-t1024", 4, 4, (512, 1024, 8, 2), 1024,
                        0.9)
    if quick:
        return [small]
    return [small,
            OverlapCase("w4-d512-h1024-e8-t1024-half", 4, 4, (512, 1024, 8, 2),
                        1024, 0.5),
            OverlapCase("w8-2x4-d512-h768-e16-t2048", 8, 4, (512, 768, 16, 2),
                        2048, 0.9),
            OverlapCase("w2-d1024-h1024-e8-t512", 2, 2, (1024, 1024, 8, 2), 512,
                        0.9)]


def timeline(send, compute, back):
    """When the last chunk is back: the recurrences of FasterMoE's schedule.

    Lists of seconds by chunk. Transfers of rows there come first in the queue.
    """
    sent = computed = 0.0
    ends = []
    for s, c in zip(send, compute):
        sent += s
        computed = max(computed, sent) + c
        ends.append(computed)
    returned = sent
    for end, r in zip(ends, back):
        returned = max(returned, end) + r
    return returned


def chunk_shares(case, schedule, degree):
    """The shares of a transfer's time that its chunks take."""
    if schedule == "equal":
        return [1 / degree] * degree
    # Groups are nodes where there are several, else ranks. The first chunk stays
    # in the group, where a rank has itself and neighbours on faster links.
    size = case.per_node if case.per_node < case.ranks else 1
    outside = case.ranks - size
    others = case.ranks // size - 1
    return [(size - 1) / outside / INTRA] + [1 / others] * others


def hidden_bound(communication, compute, chunked, shares):
    """The largest share of the communication that such chunks hide.

    `compute` is the step without communication in one piece, `chunked` the same
    step in chunks: products of few rows take longer, and nothing hides that.
    """
    transfer = [communication / 2 * share for share in shares]
    total = timeline(transfer, [chunked / len(shares)] * len(shares), transfer)
    return 1 - (total - compute) / communication


def write_round_numbers(path):
    """A calibration by which products take 10 us a row, and nothing else takes
    time: what chunks hide is then the schedule's alone, and the same each time.
    """
    rows = {"call": 0, "rows": [1, 4096], "seconds": [1e-5, 4.096e-2]}
    part = {"fixed": 0, "per_row": 0}
    link = {"latency": 0, "overhead": 0, "seconds_per_byte": 1e-9}
    parts = {"forward": rows, "backward": rows, "gate": part, "dispatch": part,
             "combine": part, "intra": link, "inter": link}
    with open(path, "w") as file:
        json.dump({"format": "moira-calibration", "version": 1,
                   "machine": "10 us a row", **parts,
                   "errors": {name: {"mean": 0, "max": 0} for name in parts}},
                  file)


def measure_overlap(programs, case, repeat, calibrated=False):
    path = programs.layer(*case.sizes)
    nodes = case.ranks // case.per_node
    clock = ["--clock", "virtual"]
    if calibrated:
        clock += ["--clock-calibration", programs.folder + "/calibration.json"]
        write_round_numbers(clock[-1])

    def run(bandwidth, degree=1, schedule="equal"):
        links = (bandwidth * (INTRA if nodes > 1 else 1), 0), (bandwidth, 0)
        topology = programs.topology(nodes, case.per_node, *links)
        return least_seconds(programs.run(path, [
            "--ranks", str(case.ranks), "--ranks-per-node", str(case.per_node),
            "--tokens", str(case.tokens), "--degree", str(degree), "--schedule",
            schedule, *clock, "--topology", topology, "--repeat",
            str(1 if calibrated else repeat)]))

    # A link on which communication takes the wanted share of compute: its time
    # is proportional to the inverse of the bandwidth.
    compute = run(FREE)
    trial = 5e7
    link = trial * (run(trial) - compute) / (case.share * compute)
    plans = [("equal", 1), ("equal", 2), ("equal", 4), ("equal", 8),
             ("groups", 1)]
    steps, free = {}, {}
    # In turns, so that a disturbance does not meet one plan alone.
    for _ in range(1 if calibrated else ROUNDS):
        for plan in plans:
            for times, bandwidth in ((free, FREE), (steps, link)):
                times[plan] = min(times.get(plan, 1e9),
                                  run(bandwidth, plan[1], plan[0]))
    return describe_all(case, plans, steps, free)


def describe_all(case, plans, steps, free):
    compute = free["equal", 1]
    communication = steps["equal", 1] - compute
    return [describe(case, plan, steps[plan], compute, free[plan],
                     communication) for plan in plans]


def describe(case, plan, step, compute, chunked, communication):
    shares = chunk_shares(case, *plan)
    bound = hidden_bound(communication, compute, chunked, shares)
    hidden = 1 - (step - compute) / communication
    return {"name": f"{case.name}/{plan[0]}", "schedule": plan[0],
            "chunks": len(shares), "ranks": case.ranks, "step_s": step,
            "compute_s": compute, "compute_in_chunks_s": chunked,
            "communication_s": communication, "hidden": hidden,
            "even_bound": hidden_bound(communication, compute, compute, shares),
            "bound": bound,
            "share_of_bound": hidden / bound if bound > 0.01 else None}
