# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the steps of a file of statistics ran with: plans-of.py FILE."""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
plans = [layer["plan"] for row in rows for layer in row["layers"]]
ranks = {row["rank"] for row in rows}
print(f"steps {len(rows)}, of {len(ranks)} ranks")
print("variants", *sorted({row["variant"] for row in rows}))
print("degrees", *sorted({plan["degree"] for plan in plans}))
print("shadows", "yes" if any(plan["shadows"] for plan in plans) else "no")
# A step is forward or backward: the first two of a rank see all sizes.
later = [row for row in rows if row["step"] > 3]
print("allocations after the first two steps",
      sum(row["device_allocations"] for row in later))
