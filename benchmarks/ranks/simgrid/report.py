# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table and the plot of docs/exchange.md."""

import math

BEGIN, END = "<!-- table: run.py writes it -->", "<!-- end -->"
COLOURS = {"linear": "#c0392b", "hierarchical": "#2471a3"}


def size(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.0f} TiB"


def microseconds(seconds):
    value = seconds * 1e6
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def series(rows, ranks, algorithm):
    return sorted((row["bytes_per_peer"], row["seconds"]) for row in rows
                  if row["ranks"] == ranks and row["algorithm"] == algorithm)


def numbers_of_ranks(rows):
    return sorted({row["ranks"] for row in rows})


def crossover(rows, ranks):
    """The size where both take the same time, between two measured sizes on
    straight lines in logarithms; None where one of them always wins."""
    both = list(zip(series(rows, ranks, "linear"),
                    series(rows, ranks, "hierarchical")))
    gaps = [(bytes_, math.log(linear / other))
            for (bytes_, linear), (_, other) in both]
    for (low, before), (high, after) in zip(gaps, gaps[1:]):
        if before > 0 >= after:
            share = before / (before - after)
            return math.exp(math.log(low) + share * math.log(high / low))
    return None


def table(rows):
    lines = ["| ranks | bytes per pair | bytes per rank | linear, us | "
             "hierarchical, us | linear / hierarchical |",
             "| ---: | ---: | ---: | ---: | ---: | ---: |"]
    for ranks in numbers_of_ranks(rows):
        for (count, linear), (_, other) in zip(
                series(rows, ranks, "linear"),
                series(rows, ranks, "hierarchical")):
            lines.append(f"| {ranks} | {size(count)} | {size(count * ranks)} | "
                         f"{microseconds(linear)} | {microseconds(other)} | "
                         f"{linear / other:.2f} |")
    lines.append("")
    for ranks in numbers_of_ranks(rows):
        if len(series(rows, ranks, "linear")) < 2:
            continue
        at = crossover(rows, ranks)
        lines.append(f"Both take the same time at {size(at)} per pair with "
                     f"{ranks} ranks." if at else
                     f"With {ranks} ranks they do not cross at these sizes.")
    return "\n".join(lines)


def fill(path, rows):
    """Replaces what stands between the two marks of a page."""
    text = path.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    path.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}")


class Panel:
    """Axes with logarithmic scales."""
    WIDTH, HEIGHT = 320, 240

    def __init__(self, left, top, sizes, times):
        self.left, self.top = left, top
        self.x = math.log(min(sizes)), math.log(max(sizes))
        self.y = (math.floor(math.log10(min(times))),
                  math.ceil(math.log10(max(times))))

    def place(self, count, seconds):
        (x0, x1), (y0, y1) = self.x, self.y
        return (self.left + self.WIDTH * (math.log(count) - x0) / (x1 - x0),
                self.top + self.HEIGHT
                * (1 - (math.log10(seconds) - y0) / (y1 - y0)))

    def axes(self, title, sizes):
        bottom = self.top + self.HEIGHT
        yield (f'<rect x="{self.left}" y="{self.top}" width="{self.WIDTH}" '
               f'height="{self.HEIGHT}" fill="none" stroke="#888"/>')
        yield text(self.left + self.WIDTH / 2, self.top - 10, title, "middle")
        for power in range(self.y[0], self.y[1] + 1):
            _, y = self.place(sizes[0], 10.0 ** power)
            yield line(self.left, y, self.left + self.WIDTH, y, "#ddd")
            yield text(self.left - 6, y + 4, f"{10 ** (power + 6):g} us", "end")
        for count in sizes:
            x, _ = self.place(count, 10.0 ** self.y[0])
            yield line(x, bottom, x, bottom + 4, "#888")
            yield (f'<text x="{x:.1f}" y="{bottom + 10}" text-anchor="end" '
                   f'transform="rotate(-45 {x:.1f} {bottom + 10})">'
                   f'{size(count)}</text>')

    def curve(self, points, colour):
        places = [self.place(*point) for point in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield (f'<polyline points="{path}" fill="none" stroke="{colour}" '
               'stroke-width="2"/>')
        for x, y in places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def text(x, y, words, anchor):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def line(x0, y0, x1, y1, colour):
    return (f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" '
            f'stroke="{colour}"/>')


def plot(rows):
    """An SVG: time over size, one panel per number of ranks that has several
    sizes."""
    panels = [ranks for ranks in numbers_of_ranks(rows)
              if len(series(rows, ranks, "linear")) > 1]
    times = [row["seconds"] for row in rows if row["ranks"] in panels]
    width = 80 + (Panel.WIDTH + 90) * len(panels)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
             'height="370" font-family="sans-serif" font-size="12" '
             f'viewBox="0 0 {width} 370">',
             f'<rect width="{width}" height="370" fill="#fff"/>']
    for index, ranks in enumerate(panels):
        sizes = [count for count, _ in series(rows, ranks, "linear")]
        panel = Panel(80 + index * (Panel.WIDTH + 90), 50, sizes, times)
        parts += panel.axes(f"{ranks} ranks, bytes per pair", sizes)
        for algorithm, colour in COLOURS.items():
            parts += panel.curve(series(rows, ranks, algorithm), colour)
    for index, (algorithm, colour) in enumerate(COLOURS.items()):
        x = 80 + 120 * index
        parts += [line(x, 16, x + 24, 16, colour),
                  text(x + 30, 20, algorithm, "start")]
    return "\n".join(parts + ["</svg>"]) + "\n"
