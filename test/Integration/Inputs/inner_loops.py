# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts the instructions of the inner loops of tile kernels in x86 assembly.

    inner_loops.py FILE.s --fma REGEX --vectors V --register zmm

For every number of rows R from --least to 6 there must be one loop of four steps
with exactly 4 * R * V instructions that match, 4 * V vector loads, 4 * R
broadcasts, and none that keeps a vector on the stack. Time is never looked at.
"""

import argparse
import re
import sys

STEPS = 4


def blocks(lines):
    """The straight runs of instructions between labels and jumps."""
    block = []
    for line in lines:
        text = line.split("#")[0].strip()
        if re.match(r"[.\w$]+:", text):
            yield block
            block = []
        elif text and not text.startswith("."):
            block.append(text)
            if re.match(r"j\w+\s", text):
                yield block
                block = []
    yield block


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--fma", required=True)
    parser.add_argument("--vectors", type=int, required=True)
    parser.add_argument("--register", required=True)
    # The load of a vector of the panel: it widens where the panel is narrow.
    parser.add_argument("--load", default=r"v?movu\w+\s+\S*\(%r")
    parser.add_argument("--least", type=int, default=1,
                        help="rows of the smallest tile that there is")
    parser.add_argument("--rest", action="store_true",
                        help="loops of one step besides those of four")
    options = parser.parse_args()
    with open(options.file) as file:
        text = file.read()
    faults = []
    kernels = re.findall(r"^(moira_tiles_\w+):\n(.*?)\.size", text,
                         re.M | re.S)
    if not kernels:
        faults.append("expected a tile kernel, got none")
    for name, body in kernels:
        found = {}
        for block in blocks(body.split("\n")):
            count = sum(bool(re.match(options.fma, i)) for i in block)
            if not count:
                continue
            spills = [i for i in block if "%" + options.register in i and
                      re.search(r"\(%rsp[,)]", i)]
            if spills:
                faults.append(f"{name}: {count} products and a vector on the "
                              f"stack: {spills[0]}")
            loads = sum(bool(re.match(options.load, i)) for i in block)
            # Loads may be part of the instruction that uses them, too.
            loads += sum(bool(re.match(options.fma, i)) and "(%" in i and
                         "{1to" not in i for i in block)
            broadcasts = sum("broadcast" in i for i in block)
            embedded = sum("{1to" in i for i in block)
            found[count] = (loads, broadcasts + embedded)
        steps = [STEPS, 1] if options.rest else [STEPS]
        expected = {s * r * options.vectors: (s * options.vectors, s * r)
                    for s in steps for r in range(options.least, 7)}
        for count, (loads, broadcasts) in sorted(expected.items()):
            if count not in found:
                faults.append(f"{name}: expected a loop of {count} products, "
                              f"got {sorted(found)}")
            elif found[count] != (loads, broadcasts):
                faults.append(
                    f"{name}: expected {loads} loads and {broadcasts} "
                    f"broadcasts for {count} products, got {found[count]}")
        for count in found.keys() - expected.keys():
            faults.append(f"{name}: {count} products in one block")
    print("\n".join(faults) or f"{len(kernels)} kernels")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
