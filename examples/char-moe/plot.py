#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM
# Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws loss curves over one another, as SVG.

    python3 plot.py OUT.svg NAME=CURVE...

A curve is a .csv file with columns `step` and `loss`, or a log of moira-train.
The last one is drawn last, thin, so that it is seen where it covers another.
"""

import csv
import json
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 320, 48, 16, 16, 40
COLORS = "#2563ab", "#e07b39", "#3f9142", "#7a4fa3"


def read(path):
    with open(path, newline="") as file:
        rows = csv.DictReader(file) if path.endswith(".csv") else map(
            json.loads, file)
        return [(int(row["step"]), float(row["loss"])) for row in rows]


def main():
    out, *arguments = sys.argv[1:]
    curves = [(name, read(path)) for name, path in
              (argument.split("=", 1) for argument in arguments)]
    last = max(step for _, curve in curves for step, _ in curve)
    top = max(loss for _, curve in curves for _, loss in curve)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(step):
        return LEFT + (right - LEFT) * step / max(1, last)

    def y(loss):
        return bottom - (bottom - TOP) * loss / top

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
             f'height="{HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for loss in range(int(top) + 1):
        parts.append(f'<path d="M{LEFT} {y(loss):.1f}H{right}" '
                     'stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(loss) + 4:.1f}" '
                     f'text-anchor="end">{loss}</text>')
    for step in range(0, last + 1, 100):
        parts.append(f'<text x="{x(step):.1f}" y="{bottom + 16}" '
                     f'text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" '
                 'text-anchor="middle">step</text>')
    for number, (name, curve) in enumerate(curves):
        color = COLORS[number % len(COLORS)]
        width = 4 if number < len(curves) - 1 else 1
        points = " ".join(f"{x(s):.1f},{y(l):.1f}" for s, l in curve)
        parts.append(f'<polyline points="{points}" fill="none" '
                     f'stroke="{color}" stroke-width="{width}"/>')
        place = TOP + 16 * number
        parts.append(f'<path d="M{right - 150} {place + 8}h24" '
                     f'stroke="{color}" stroke-width="{width}"/>')
        parts.append(f'<text x="{right - 120}" y="{place + 12}">{name}</text>')
    parts.append("</svg>")
    with open(out, "w") as file:
        file.write("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
