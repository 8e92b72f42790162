# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machines that the benchmark runs on: what products take, and what a
calibration of at most 20 points knows of that. docs/adaptive.md, "The machine".

usage: machines.py FOLDER    writes truth.json and known.json of SINGLE
"""

import json
import math
import os
import sys

KINDS = ("forward", "backward", "gate", "dispatch", "combine", "intra", "inter")
# Rows of the points that a calibration measures; the truth has many more.
KNOWN = (4, 16, 48, 128, 512, 2048, 8192)


class Machine:
    """Kernels in tiles of rows, bound by their weights where rows are few."""

    def __init__(self, name, per_row, weights, call, tile, row_copy):
        self.name = name
        self.per_row = per_row  # seconds of a row, of many
        self.weights = weights  # seconds to read a group's weights
        self.call, self.tile = call, tile
        self.row_copy = row_copy  # seconds to copy a row

    def group(self, rows):
        tiles = math.ceil(rows / self.tile) * self.tile
        efficiency = 1 - 0.25 / (1 + rows / 64)
        return 5e-7 + math.hypot(self.weights, tiles * self.per_row / efficiency)

    def calibration(self, rows):
        """A calibration with these rows measured."""
        seconds = []
        for n in rows:
            seconds.append(max(self.group(n), seconds[-1] if seconds else 0))
        linear = {"fixed": 1e-5, "per_row": self.row_copy}
        link = {"latency": 0, "overhead": 0, "seconds_per_byte": 0}
        return {"format": "moira-calibration", "version": 1,
                "machine": self.name,
                "forward": {"call": self.call, "rows": list(rows),
                            "seconds": seconds},
                "backward": {"call": 2 * self.call, "rows": list(rows),
                             "seconds": [2 * s for s in seconds]},
                "gate": linear, "dispatch": linear, "combine": linear,
                "intra": link, "inter": link,
                "errors": {kind: {"mean": 0, "max": 0} for kind in KINDS}}

    def truth(self):
        """What the clock charges: the ends of each tile up to 1,024 rows, then
        every eighth of a power of two."""
        rows = set()
        for end in range(self.tile, 1025, self.tile):
            rows |= {end, end + 1}
        rows |= {int(1024 * 2 ** (i / 8)) for i in range(1, 40)}
        return self.calibration(sorted(rows | {1}))

    def known(self):
        return self.calibration(KNOWN)


def write(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
    return path


# A row of 1,024 features through a hidden layer of 4,096, 4 * 1024 * 4096 flops,
# on a V100: at 12 Tflop/s in f32, at 50 Tflop/s in f16. Weights are read at
# 0.9 TB/s; since the layers here have an eighth of the rows, so do they take an
# eighth.
SINGLE = Machine("one GPU, f32", 1.4e-6, 4.6e-6, 2e-5, 8, 1e-8)
HALF = Machine("one GPU, f16", 0.34e-6, 2.3e-6, 2e-5, 8, 0.5e-8)


def write_both(machine, folder):
    """What the clock charges, and what the model is told."""
    return (write(os.path.join(folder, "truth.json"), machine.truth()),
            write(os.path.join(folder, "known.json"), machine.known()))


if __name__ == "__main__":
    write_both(SINGLE, sys.argv[1])
