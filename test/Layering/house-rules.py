# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s
"""The house rules of CONTRIBUTING.md that a script can see."""

import re

import sources

LICENCE = ("Part of the Moira project, under the Apache License",
           "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception")
# Lines; files of many small cases of one thing (ops, tests) may be longer.
LIMITS = {".h": 300, ".cpp": 800, ".c": 800, ".td": 1000}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# A string literal that opens a diagnostic, and the one that ends it.
DIAGNOSTIC = re.compile(
    r"\b(?:emitOpError|emitError|emitWarning|emitRemark|notifyMatchFailure)\("
    r"(?:[a-zA-Z_>.()*-]*,\s*)?((?:\s*\"(?:[^\"\\]|\\.)*\")+)")

faults, seen = [], 0
for path, text in sources.files(sources.CODE + ("test", "cmake", "scripts",
                                                 "python"),
                                ".cpp", ".h", ".c", ".td", ".py", ".sh"):
    if "fixtures" in path.parts:
        continue
    seen += 1
    lines = text.splitlines()
    head = " ".join(line.lstrip("/# *") for line in lines[:8])
    for sentence in LICENCE:
        if sentence not in head:
            faults.append(f"{path}:1: expected the licence header")
            break
    limit = LIMITS.get(path.suffix)
    if limit and len(lines) > limit:
        faults.append(f"{path}: expected at most {limit} lines, got "
                      f"{len(lines)}")
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line) and path.name != "house-rules.py":
            faults.append(f"{path}:{number}: expected an issue instead of a "
                          "note in the code")
        if path.suffix == ".h" and re.match(r"\s*using namespace\b", line):
            faults.append(f"{path}:{number}: expected no using namespace in a "
                          "header")
        if path.parts[0] in ("lib", "include") and re.search(
                r"\b(?:llvm::)?cl::(?:opt|list|bits)\s*<", line):
            faults.append(f"{path}:{number}: expected flags in tools only")
        if path.suffix in (".h", ".cpp", ".c") and len(line) > 80 \
                and "http" not in line and LICENCE[0] not in line \
                and not line.startswith("#include"):
            faults.append(f"{path}:{number}: expected at most 80 columns, got "
                          f"{len(line)}")
        if path.suffix in (".h", ".cpp") and path.parts[0] == "lib" \
                and "mlir/Conversion/Passes.h" in line:
            faults.append(f"{path}:{number}: expected one header per conversion")
    if path.suffix in (".cpp", ".h") and path.parts[0] in ("lib", "tools"):
        for match in DIAGNOSTIC.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            literal = "".join(re.findall(r"\"((?:[^\"\\]|\\.)*)\"", match[1]))
            first = literal.lstrip("' ")[:2]
            # Two capitals open a name or an acronym.
            if first[:1].isupper() and not first[1:2].isupper():
                faults.append(f"{path}:{number}: expected a diagnostic in lower "
                              f"case, got \"{literal}\"")
            if literal.endswith((".", "!")):
                faults.append(f"{path}:{number}: expected a diagnostic without "
                              f"final stop, got \"{literal}\"")
sources.finish(faults, seen)
