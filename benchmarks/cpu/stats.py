# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Medians, and what they are worth."""

import math


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def interval(values, confidence=0.95):
    """A confidence interval of the median, free of any distribution.

    The number of values below the true median is binomial with p = 1/2, so the
    interval between the d-th smallest and the d-th largest value misses it with
    twice the probability of fewer than d successes. Takes the largest d that
    keeps `confidence`; with too few values for that (fewer than 6 for 95 %),
    the smallest and the largest.
    """
    ordered = sorted(values)
    count = len(ordered)
    rank, missed = 1, 2.0 ** -count
    for d in range(1, count // 2 + 1):
        # missed: probability of fewer than d successes.
        if 2 * missed > 1 - confidence:
            break
        rank = d
        missed += math.comb(count, d) * 2.0 ** -count
    return ordered[rank - 1], ordered[count - rank]


def ratios(theirs, ours):
    """Per round: how many times longer theirs took."""
    return [a / b for a, b in zip(theirs, ours)]
