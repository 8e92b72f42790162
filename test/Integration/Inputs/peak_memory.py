# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the largest resident set of a run with the bytes of its weights.

    peak_memory.py FOLDER MOST

Packs and runs a layer of 128 MB of weights from a checkpoint, and one of next to
nothing; what the first takes more must be at most MOST times its weights.
"""

import json
import os
import sys

PROGRAM = """
func.func @main(%x: tensor<?x{k}xf32>, %sizes: tensor<{e}xi32>,
    %w: tensor<{e}x{n}x{k}xf32> {{moe.param = #moe.param<"experts.{{}}.w">}})
    -> tensor<?x{n}xf32> {{
  %y = moe.grouped_matmul rows(%x : tensor<?x{k}xf32>)
      groups(%sizes : tensor<{e}xi32>)
      weights(%w : tensor<{e}x{n}x{k}xf32>) nk -> tensor<?x{n}xf32> {{
  ^bb0(%sum: f32):
    moe.yield %sum : f32
  }}
  return %y : tensor<?x{n}xf32>
}}
"""


def write_checkpoint(path, experts, n, k):
    entries, size = {}, 4 * n * k
    for e in range(experts):
        entries[f"experts.{e}.w"] = {
            "dtype": "F32", "shape": [n, k],
            "data_offsets": [e * size, (e + 1) * size]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        row = os.urandom(4096).replace(b"\x7f", b"\x3f").replace(b"\xff",
                                                                 b"\x3f")
        for _ in range(experts * size // len(row)):
            file.write(row)


def run(*command):
    """Returns the largest resident set in bytes."""
    process = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"{' '.join(command)}: status {status}")
    return usage.ru_maxrss * 1024


def measure(folder, name, experts, n, k):
    base = os.path.join(folder, name)
    with open(base + ".mlir", "w", encoding="utf-8") as file:
        file.write(PROGRAM.format(e=experts, n=n, k=k))
    write_checkpoint(base + ".safetensors", experts, n, k)
    run("moira-compile", base + ".mlir", "-o", base + ".moira")
    peak = run("moira-run", base + ".moira", "--weights",
               base + ".safetensors", "--tokens", "8", "--threads", "2")
    os.unlink(base + ".safetensors")
    return peak


def main():
    folder, most = sys.argv[1], float(sys.argv[2])
    shape = (32, 1024, 1024)
    more = measure(folder, "large", *shape) - measure(folder, "small", 32, 16, 16)
    weights = 4 * shape[0] * shape[1] * shape[2]
    print(f"peak over weights: {more / weights:.3f}, expected 1 to {most}")
    # Less than the weights themselves would be a measurement that is not one.
    return not 1 <= more / weights <= most


if __name__ == "__main__":
    sys.exit(main())
