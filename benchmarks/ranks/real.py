# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two ranks over a real link: the virtual clock's error, exchange throughput."""

import json
import os

import links
from programs import step_seconds


def clock_settings(quick):
    """(Mbit/s, features, hidden, experts, top_k, tokens, degree)"""
    settings = [
        (100, 256, 512, 8, 2, 1024, 1), (100, 256, 512, 8, 2, 1024, 4),
        (100, 512, 1024, 8, 2, 512, 2), (150, 256, 512, 8, 2, 2048, 1),
        (150, 512, 512, 16, 4, 512, 4), (150, 256, 1024, 4, 1, 1024, 8),
        (200, 512, 2048, 8, 2, 1024, 1), (200, 512, 2048, 8, 2, 1024, 4),
        (200, 256, 512, 8, 2, 4096, 2), (200, 1024, 1024, 8, 2, 512, 8)]
    return settings[:2] if quick else settings


def measure_clock(programs, settings, repeat):
    rows = []
    for rate in sorted({setting[0] for setting in settings}):
        with links.Link(rate) as link:
            bandwidth, latency = link.measure()
            topology = programs.topology(2, 1, None, (bandwidth, latency))
            for setting in settings:
                if setting[0] == rate:
                    rows.append(measure_setting(programs, link, setting, repeat,
                                                bandwidth, topology))
    return rows


def measure_setting(programs, link, setting, repeat, bandwidth, topology):
    rate, *sizes, tokens, degree = setting
    path = programs.layer(*sizes)
    options = ["--tokens", str(tokens), "--degree", str(degree), "--repeat",
               str(repeat)]
    text = link.run_ranks(
        programs.command(path, options + ["--communicator", "tcp"]))
    real = step_seconds(json.loads(text))
    virtual = step_seconds(programs.run(
        path, options + ["--ranks", "2", "--clock", "virtual", "--topology",
                         topology]))
    return {"name": f"{rate}mbit-d{sizes[0]}-h{sizes[1]}-e{sizes[2]}-"
                    f"k{sizes[3]}-t{tokens}-degree{degree}",
            "rate_mbit": rate, "link_bytes_per_s": bandwidth, "real_s": real,
            "virtual_s": virtual, "error": virtual / real - 1}


def measure_throughput(programs, quick):
    """Of moira-rank-times: all with all, by bytes per pair."""
    program = os.path.join(programs.bin, "moira-rank-times")
    if not os.path.exists(program):
        print("exchange throughput not measured: expected moira-rank-times: "
              "scripts/build moira-benchmarks")
        return []
    rows = []
    for rate in (100,) if quick else (100, 200):
        with links.Link(rate) as link:
            bandwidth, _ = link.measure()
            text = link.run_ranks([program], {"MOIRA_TRANSPORT": "tcp"}, 300)
            for line in text.splitlines():
                words = line.split()
                size = int(words[3])
                speed = size / (float(words[7]) * 1e-6)
                # Shorter messages pass in the burst that the link allows.
                if size >= 1 << 16:
                    rows.append({"rate_mbit": rate, "bytes_per_pair": size,
                                 "bytes_per_s": speed,
                                 "link_bytes_per_s": bandwidth,
                                 "share": speed / bandwidth})
    return rows
