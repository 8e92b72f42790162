# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s %moira_src/docs/tutorial.md %t
"""Runs the commands of a Markdown page and compares what they print.

usage: tutorial.py PAGE.md FOLDER

FOLDER is made anew; the commands run in it, in the page's order. A code block
whose info string names a file (```mlir file=layer.mlir) is written there. In a
`console` block a line that begins with `$ ` is a command (continued by a
backslash), and the lines below it are what it prints, stdout and stderr together:
`...` stands for any text within a line, a line of `...` for any lines. A command
without lines below it may print anything. A command fails when its exit status
is not 0, unless the output expected of it has a line with `error:`.
"""

import pathlib
import re
import shutil
import subprocess
import sys

BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)


def matches(expected, got):
    """Whether the lines `got` are as `expected` says."""
    parts = []
    for line in expected:
        if line.strip() == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            text = ".*?".join(re.escape(p) for p in line.split("..."))
            # Columns may be wider or narrower than on the page.
            parts.append(re.sub(r"(?:\\ )+", r"[ ]+", text) + r"[ ]*\n")
    return re.fullmatch("".join(parts), "".join(g.rstrip() + "\n" for g in got))


def commands(block):
    """Yields (command, expected lines) of a console block."""
    command, expected = None, []
    for line in block.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, expected
            command, expected = line[2:], []
        elif command and command.endswith("\\") and not expected:
            command = command[:-1].rstrip() + " " + line.strip()
        elif command:
            expected.append(line)
    if command:
        yield command, expected


def run(command, expected, folder):
    result = subprocess.run(command, shell=True, cwd=folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL, timeout=300)
    fails = any("error:" in line for line in expected)
    if fails == (result.returncode == 0):
        return f"got exit status {result.returncode}\n{result.stdout}"
    if expected and not matches(expected, result.stdout.splitlines()):
        return ("expected\n  " + "\n  ".join(expected) + "\ngot\n  "
                + "\n  ".join(result.stdout.splitlines()))
    return None


def main(page, folder):
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count, faults = 0, 0
    for info, block in BLOCK.findall(pathlib.Path(page).read_text("utf-8")):
        file = re.search(r"\bfile=(\S+)", info)
        if file:
            (folder / file[1]).write_text(block, encoding="utf-8")
        if info.split()[:1] != ["console"]:
            continue
        for command, expected in commands(block):
            count += 1
            fault = run(command, expected, folder)
            if fault:
                faults += 1
                print(f"{page}: $ {command}\n{fault}\n")
    if count == 0:
        sys.exit(f"{page}: expected commands, found none")
    sys.exit(1 if faults else 0)


main(*sys.argv[1:])
