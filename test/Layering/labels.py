# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s
"""Every constraint label stands in all three places, and nowhere alone.

A label (`gate_c1`) is defined in a .td file as `* gate_c1: ...`, named in a
comment of the code that enforces it, and is the beginning of a function's, op's
or symbol's name in at least one test that expects a diagnostic.
"""

import re

import sources

LABEL = r"([a-z][a-z_]*_c[0-9]+)"

defined, enforced, tested, faults = {}, {}, {}, []
for path, text in sources.files(["include"], ".td"):
    for label in re.findall(r"^\s*\* " + LABEL + r"\b", text, re.M):
        if label in defined:
            faults.append(f"{path}: {label} is defined in {defined[label]} too")
        defined[label] = path
for path, text in sources.files(["lib"], ".cpp", ".h"):
    for comment in re.findall(r"//.*", text):
        for label in re.findall(r"\b" + LABEL + r"\b", comment):
            enforced.setdefault(label, path)
for path, text in sources.files(["test"], ".mlir"):
    if "-verify-diagnostics" in text:
        for label in re.findall(r'[@".]' + LABEL + r"(?![0-9])", text):
            tested.setdefault(label, path)

for label, path in sorted(defined.items()):
    if label not in enforced:
        faults.append(f"{path}: {label} is in no comment of lib/")
    if label not in tested:
        faults.append(f"{path}: {label} has no negative test")
for where in (enforced, tested):
    for label, path in sorted(where.items()):
        if label not in defined:
            faults.append(f"{path}: {label} is not defined in any .td file")
sources.finish(faults, defined)
