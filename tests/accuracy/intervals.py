# SPDX-License-Identifier: Apache-2.0
"""Half-open intervals of nanoseconds: (start, end) tuples."""


def length(interval):
    return max(0, interval[1] - interval[0])


def intersection(a, b):
    return max(a[0], b[0]), min(a[1], b[1])


def overlaps(a, b):
    return length(intersection(a, b)) > 0


def union(intervals):
    """The same points, as sorted, disjoint intervals."""
    joined = []
    for start, end in sorted(interval for interval in intervals if length(interval)):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def covered(interval, intervals):
    """How much of the interval the others cover together."""
    return sum(length(intersection(interval, other)) for other in union(intervals))


def uncovered(interval, intervals):
    return length(interval) - covered(interval, intervals)


def without(interval, intervals):
    """The pieces of the interval that the others leave."""
    pieces, at = [], interval[0]
    for start, end in union(intersection(interval, other) for other in intervals):
        pieces.append((at, start))
        at = end
    return [piece for piece in (*pieces, (at, interval[1])) if length(piece)]
