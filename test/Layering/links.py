# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s
"""Links of the documentation lead to files of the project, or to headings."""

import re

import sources

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(text):
    """The anchors of a page's headings, as Markdown viewers make them."""
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^a-z0-9 _-]", "", t.lower()).replace(" ", "-")
            for t in titles}


faults, seen = [], 0
pages = [p for p in sources.TOP.glob("*.md")]
for folder in ("docs", "examples", "test", "unittests"):
    pages += (sources.TOP / folder).rglob("*.md")
for page in sorted(pages):
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for link in LINK.findall(prose):
        seen += 1
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        name = page.relative_to(sources.TOP)
        if not target.exists():
            faults.append(f"{name}: expected a file at {link}")
        elif anchor and target.suffix == ".md" and anchor not in anchors(
                target.read_text(encoding="utf-8")):
            faults.append(f"{name}: expected a heading at {link}")
sources.finish(faults, seen)
