# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares the steps of three reports. Usage: check-steps.py ONE TWO OTHER

import json
import sys

one, two, other = (json.load(open(path))["steps"] for path in sys.argv[1:])
assert all(sum(s["counts"][0]) == 2 * s["tokens"] for s in one + two)
assert all(max(s["counts"][0]) <= s["tokens"] for s in one + two)
print(f"{len(one)} steps of {one[0]['tokens']} tokens")
print("same seed, same plan:", all(a["plan"] == two[0]["plan"] for a in two))
print("other seed, same rows:",
      [s["counts"] for s in two] == [s["counts"] for s in other])
print("plan of two ranks:", two[0]["plan"])
