"""Compiled inner loops of the metrics. Patients are sorted by time; all weights are float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dcsurv._compile import compiled
from dcsurv.target import BoolArray, FloatArray, IntArray

# Sums may be reordered so that they run in vector registers; NaN and infinity keep their meaning.
_REORDER = {"reassoc"}

# The digits of a radix sort of 64 bits: eleven at a time, whose counts fit in the nearest cache.
_DIGIT_BITS, _DIGITS = 11, 6
_RADIX = 1 << _DIGIT_BITS
_SIGN, _ALL_BUT_SIGN = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)


@compiled(fastmath=_REORDER)
def concordant_weight(
    survival: FloatArray,
    first: int,
    event_row: IntArray,
    tie_start: IntArray,
    tie_end: IntArray,
    event: BoolArray,
    weight: FloatArray,
    adjusted: bool,
    out: FloatArray,
) -> None:
    """Sum, for each event i of a block, the weight of the patients j that are ranked rightly against i.

    Parameters
    ----------
    survival
        S(z_i | x_j), one row per event of the block, one column per patient from ``first`` on.
    event_row
        Position of each event among the sorted patients.
    tie_start, tie_end
        The patients tie_start <= j < tie_end have the same time as the event.
    adjusted
        Ties count as pycox's ``adj_antolini`` does; otherwise as ``antolini``.
    """
    tied_share = 0.5 if adjusted else 0.0
    for k in range(len(event_row)):
        row = survival[k]
        own = row[event_row[k] - first]
        # Slices that start at 0: only then does the compiler know that no index is negative, and vectorises.
        later = row[tie_end[k] - first :]
        later_weight = weight[tie_end[k] :]
        higher = 0.0
        equal = 0.0
        for j in range(len(later)):
            higher += later_weight[j] if later[j] > own else 0.0
            equal += later_weight[j] if later[j] == own else 0.0
        total = higher + tied_share * equal
        for j in range(tie_start[k], tie_end[k]):
            if j != event_row[k]:
                total += weight[j] * _tie_credit(row[j - first], own, event[j], adjusted)
        out[k] = total


@compiled()
def concordance_rows(
    survival: FloatArray,
    first: int,
    event_row: IntArray,
    tie_start: IntArray,
    tie_end: IntArray,
    event: BoolArray,
    adjusted: bool,
    out: npt.NDArray[np.float32],
) -> None:
    """Write what each pair of a block's events i and all patients j counts, to be weighted by resampling."""
    half = np.float32(0.5) if adjusted else np.float32(0.0)
    for k in range(len(event_row)):
        row = survival[k]
        own = row[event_row[k] - first]
        target = out[k]
        later = row[tie_end[k] - first :]
        later_target = target[tie_end[k] - first :]
        for j in range(len(later)):
            later_target[j] = np.float32(later[j] > own) + half * np.float32(later[j] == own)
        target[: tie_start[k] - first] = 0
        for j in range(tie_start[k], tie_end[k]):
            if j == event_row[k]:
                target[j - first] = 0
            else:
                target[j - first] = _tie_credit(row[j - first], own, event[j], adjusted)


@compiled()
def _tie_credit(other: float, own: float, other_event: bool, adjusted: bool) -> float:
    """Return what a patient with the same time counts against an event.

    Adjusted: pairs are ordered, so that an event and a censored patient meet twice (hence the 2), and two events
    meet once from either side.
    """
    if adjusted:
        if other_event:
            return 1.0 if other == own else 0.5
        return 2.0 * (np.float64(other > own) + 0.5 * np.float64(other == own))
    return 0.0 if other_event else np.float64(other > own)


@compiled()
def ranked_weight(
    low: IntArray,
    high: IntArray,
    slot: IntArray,
    time: FloatArray,
    event: BoolArray,
    weight: FloatArray,
    event_weight: FloatArray,
) -> tuple[float, float, float]:
    """Sum concordant, tied and comparable weight for one static risk score, in O(n log n).

    Patients enter a Fenwick tree from the latest time on; an event then asks how much weight lies at lower
    scores. ``slot`` is each patient's place in the order of scores, [low, high) the places that count as tied.
    """
    n = len(time)
    tree = np.zeros(n + 1)
    entered = 0.0
    concordant = 0.0
    tied = 0.0
    comparable = 0.0
    end = n
    while end > 0:
        start = end - 1
        while start > 0 and time[start - 1] == time[end - 1]:
            start -= 1
        for i in range(start, end):  # censored at a tied time: known to outlive the events of that time
            if not event[i]:
                _enter(tree, slot[i], weight[i])
                entered += weight[i]
        for i in range(start, end):
            if event[i]:
                below = _prefix(tree, low[i])
                concordant += event_weight[i] * below
                tied += event_weight[i] * (_prefix(tree, high[i]) - below)
                comparable += event_weight[i] * entered
        for i in range(start, end):
            if event[i]:
                _enter(tree, slot[i], weight[i])
                entered += weight[i]
        end = start
    return concordant, tied, comparable


@compiled()
def _enter(tree: FloatArray, place: int, weight: float) -> None:
    place += 1
    while place < len(tree):
        tree[place] += weight
        place += place & -place


@compiled()
def _prefix(tree: FloatArray, place: int) -> float:
    total = 0.0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@compiled()
def ascending(values: FloatArray, bits: IntArray, order: IntArray, spare: IntArray) -> None:
    """Find the order that sorts numbers ascending, ties as they come: a radix sort, faster than argsort.

    The upper half of the bits nearly sorts them; neighbours then change places, or, where many numbers agree in the
    upper half, the lower half is sorted first.

    Parameters
    ----------
    values, bits
        The numbers, float64 without NaN, and the same looked at as integers, (n,).
    order
        Receives the order, (n,).
    spare
        Room for the sort, (n,).
    """
    n = len(values)
    for first in (_DIGITS // 2, 0):
        for k in range(n):
            order[k] = k
        for digit in range(first, _DIGITS):
            _sort_digit(bits, _DIGIT_BITS * digit, order, spare)
            order[:] = spare
        moves = 0
        for k in range(1, n):
            who = order[k]
            place = k
            while place > 0 and values[order[place - 1]] > values[who] and moves <= 4 * n:
                order[place] = order[place - 1]
                place -= 1
                moves += 1
            order[place] = who
        if moves <= 4 * n:
            return


@compiled()
def _sort_digit(bits: IntArray, shift: int, order: IntArray, out: IntArray) -> None:
    """Sort an order by eleven of the bits, and leave it otherwise as it was."""
    count = np.zeros(_RADIX + 1, np.int64)
    for k in range(len(order)):
        count[_digit(bits[order[k]], shift) + 1] += 1
    for value in range(_RADIX):
        count[value + 1] += count[value]
    for k in range(len(order)):
        digit = _digit(bits[order[k]], shift)
        out[count[digit]] = order[k]
        count[digit] += 1


@compiled(inline="always")
def _digit(bits: np.int64, shift: int) -> np.int64:
    """Return a digit of a number; as integers, negative numbers run backwards, and must come first."""
    key = bits ^ ((bits >> 63) & _ALL_BUT_SIGN) ^ _SIGN
    return (key >> shift) & ((1 << min(_DIGIT_BITS, 64 - shift)) - 1)


@compiled()
def ranked_column(
    survival: FloatArray,
    order: IntArray,
    tied_tol: float,
    until: int,
    event: BoolArray,
    patient: IntArray,
    chain: IntArray,
    kind: npt.NDArray[np.int8],
) -> int:
    """List the cases and controls of one time from the highest to the lowest risk; return how many there are.

    Parameters
    ----------
    survival, order
        S(t) of the patients and the order that sorts it ascending, (n,).
    tied_tol
        Neighbours in that order closer than this are tied, and ties chain, also through patients who are neither.
    until
        The first patients, up to this one, have a time at or before t: cases if they had the event.
    patient, chain, kind
        Receive the patient, the number of its chain and 1 for a case, 0 for a control, (n,).
    """
    count = 0
    link = 0
    last = survival[order[0]]
    for k in range(len(order)):
        who = order[k]
        value = survival[who]
        link += value - last > tied_tol
        last = value
        # Written always and kept by moving on: a branch here would be guessed wrongly half of the time.
        patient[count] = who
        chain[count] = link
        kind[count] = who < until
        count += (who >= until) | event[who]
    return count


@compiled()
def roc_area(
    order: IntArray,
    chain: IntArray,
    kind: npt.NDArray[np.int8],
    weight: FloatArray,
    case_weight: FloatArray,
    out: FloatArray,
) -> None:
    """Integrate the ROC curve at one time for several weightings.

    Parameters
    ----------
    order
        Patients from the highest to the lowest risk, cases and controls only, (m,).
    chain
        Number of the chain of tied scores that each belongs to, ascending along ``order``, (m,).
    kind
        1 for a case, 0 for a control, along ``order``.
    weight, case_weight
        Weight of each patient as a control and as a case, (resamples, n).
    out
        The area; NaN where a resample has no case or no control, (resamples,).
    """
    for b in range(len(weight)):
        controls = weight[b]
        cases = case_weight[b]
        true_pos = 0.0
        false_pos = 0.0
        last_true = 0.0
        last_false = 0.0
        area = 0.0
        for k in range(len(order)):
            if k > 0 and chain[k] != chain[k - 1]:
                area += (false_pos - last_false) * (true_pos + last_true)
                last_true = true_pos
                last_false = false_pos
            if kind[k] == 1:
                true_pos += cases[order[k]]
            else:
                false_pos += controls[order[k]]
        area += (false_pos - last_false) * (true_pos + last_true)
        out[b] = 0.5 * area / (true_pos * false_pos) if true_pos > 0.0 and false_pos > 0.0 else np.nan


@compiled()
def product_limit(weight: FloatArray, start: IntArray, lost: BoolArray, lost_last: bool, out: FloatArray) -> None:
    """Write Kaplan-Meier estimates at the distinct times for several weightings of the sorted patients.

    Parameters
    ----------
    weight
        (resamples, n).
    start
        First patient of each distinct time, and n at the end, (K + 1,).
    lost
        Whose leaving lowers the curve, (n,).
    lost_last
        At a tied time the others leave first, so that they are not at risk.
    out
        (resamples, K).
    """
    for b in range(len(weight)):
        row = weight[b]
        at_risk = 0.0
        for i in range(len(row)):
            at_risk += row[i]
        value = 1.0
        for k in range(len(start) - 1):
            going = 0.0
            other = 0.0
            for i in range(start[k], start[k + 1]):
                if lost[i]:
                    going += row[i]
                else:
                    other += row[i]
            if going > 0.0:
                base = at_risk - other if lost_last else at_risk
                value *= max(1.0 - going / base, 0.0) if base > going else 0.0
            out[b, k] = value
            at_risk -= going + other
