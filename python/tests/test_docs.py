# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples of the documentation run, and print what stands below them."""

import contextlib
import importlib.util
import io
import os
import re
import tempfile
import unittest

from support import TOP

BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```\n(?:```text\n(.*?)^```$)?",
                   re.M | re.S)


def matches(expected, got):
    """`...` stands for any text within a line."""
    lines = [".*".join(re.escape(part) for part in line.split("..."))
             for line in expected.splitlines()]
    return re.fullmatch("".join(line + "\n" for line in lines),
                        got) is not None


class Pages(unittest.TestCase):
    def run_page(self, page, at_least):
        text = (TOP / page).read_text(encoding="utf-8")
        names, count, before = {"__name__": page}, 0, os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(TOP / "examples", os.path.join(folder, "examples"))
            os.chdir(folder)
            try:
                for info, code, expected in BLOCK.findall(text):
                    count += 1
                    line = text.count("\n", 0, text.index(code)) + 1
                    with self.subTest(f"{page}:{line}"):
                        self.run_block(info, code, expected, names)
            finally:
                os.chdir(before)
        self.assertGreaterEqual(count, at_least)

    def run_block(self, info, code, expected, names):
        needs = re.search(r"\bneeds=(\S+)", info)
        missing = [m for m in (needs[1].split(",") if needs else [])
                   if importlib.util.find_spec(m) is None]
        if missing:
            self.skipTest(f"no {', '.join(missing)}")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, "example", "exec"), names)
        self.assertTrue(matches(expected, output.getvalue()),
                        f"expected\n{expected}got\n{output.getvalue()}")

    def test_python(self):
        self.run_page("docs/python.md", 8)

    def test_readme(self):
        self.run_page("README.md", 1)
