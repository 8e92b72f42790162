# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests of this folder share: the sources, and how faults are told."""

import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
CODE = ("include", "lib", "runtime", "tools", "unittests", "benchmarks",
        "examples")


def files(folders, *suffixes):
    """Yields (path relative to the top, text) of the sources in `folders`."""
    for folder in folders:
        for path in sorted((TOP / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path.relative_to(TOP), path.read_text(encoding="utf-8")


def finish(faults, seen):
    """Prints the faults and exits; nothing seen is a fault of the test."""
    for fault in faults:
        print(fault)
    if not seen:
        sys.exit("expected sources to look at, found none")
    sys.exit(1 if faults else 0)
