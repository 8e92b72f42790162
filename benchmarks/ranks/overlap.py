# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much of the communication chunks hide, on the virtual clock."""

from programs import step_seconds

# A link on which nothing takes time.
FREE = (1e18, 0.0)


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


def hidden_bound(communication, compute, chunks):
    """The largest share of the communication that so many equal chunks hide."""
    half = communication / 2
    total = timeline([half / chunks] * chunks, [compute / chunks] * chunks,
                     [half / chunks] * chunks)
    return 1 - (total - compute) / communication


def measure_overlap(programs, case, repeat):
    path = programs.layer(*case.sizes)
    nodes = case.ranks // case.per_node
    # One node is no description of groups: each rank is one then.
    neighbours = ["--ranks-per-node", str(case.per_node)] if nodes > 1 else []

    def run(link, degree=1, schedule="equal"):
        topology = programs.topology(nodes, case.per_node, link, link)
        return programs.run(path, [
            "--ranks", str(case.ranks), *neighbours, "--tokens",
            str(case.tokens), "--degree", str(degree), "--schedule", schedule,
            "--clock", "virtual", "--topology", topology, "--repeat",
            str(repeat)])

    compute = step_seconds(run(FREE))
    # A link on which communication takes the wanted share of compute: its time
    # is proportional to the inverse of the bandwidth.
    trial = (1e9, 0.0)
    wanted = case.share * compute
    link = (trial[0] * (step_seconds(run(trial)) - compute) / wanted, 0.0)
    communication = step_seconds(run(link)) - compute
    rows = []
    for schedule, degrees in (("equal", (1, 2, 4, 8)), ("groups", (1,))):
        for degree in degrees:
            step = step_seconds(run(link, degree, schedule))
            chunks = degree if schedule == "equal" else \
                (nodes if nodes > 1 else case.ranks)
            bound = hidden_bound(communication, compute, chunks)
            hidden = 1 - (step - compute) / communication
            rows.append({
                "name": f"{case.name}/{schedule}", "schedule": schedule,
                "chunks": chunks, "ranks": case.ranks, "step_s": step,
                "compute_s": compute, "communication_s": communication,
                "hidden": hidden, "bound": bound,
                "share_of_bound": hidden / bound if bound > 0.01 else None})
    return rows
