# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the losses of two logs of moira-train: same-losses.py LOG LOG."""

import json
import sys


def losses(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["loss"] for line in file]


first, second = losses(sys.argv[1]), losses(sys.argv[2])
assert first and first == second, (first, second)
print(len(first), "losses, the same")
