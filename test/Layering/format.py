# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s
"""Sources are as clang-format of the pinned version writes them."""

import subprocess

import sources

paths = [str(path) for path, _ in
         sources.files(sources.CODE, ".cpp", ".h", ".c")]
version = subprocess.run(["clang-format", "--version"], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
faults = []
if " version 22." not in version:
    faults.append(f"expected clang-format 22, got {version.strip()}")
result = subprocess.run(["clang-format", "--dry-run", "--Werror", *paths],
                        cwd=sources.TOP, stderr=subprocess.PIPE, text=True)
if result.returncode:
    lines = [l for l in result.stderr.splitlines() if "error:" in l]
    faults += lines or [result.stderr]
sources.finish(faults, paths)
