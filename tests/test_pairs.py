"""The comparable pairs, against counting them one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcsurv import make_outcome
from dcsurv.metrics.pairs import PairCounts, pair_counts


def count_one_by_one(time, event):
    n = len(time)
    pairs = [(i, j) for i in range(n) for j in range(n) if event[i] and time[i] < time[j]]
    return PairCounts(sum(bool(event[j]) for _, j in pairs), len(pairs))


# Few different times make many ties.
patients = st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=30)


@given(patients)
def test_equals_counting_one_by_one(rows):
    time, event = zip(*rows, strict=True)
    assert pair_counts(make_outcome(time, event)) == count_one_by_one(time, event)


@given(patients, st.randoms(use_true_random=False))
def test_order_of_patients_and_unit_of_time_do_not_matter(rows, random):
    shuffled = [(time * 0.37, event) for time, event in random.sample(rows, len(rows))]
    assert pair_counts(make_outcome(*zip(*shuffled, strict=True))) == pair_counts(
        make_outcome(*zip(*rows, strict=True))
    )


def test_without_censoring_and_ties_both_are_all_pairs():
    n = 1000
    counts = pair_counts(make_outcome(np.random.default_rng(0).permutation(n), np.ones(n)))
    assert counts == (n * (n - 1) // 2, n * (n - 1) // 2)
    assert counts.factor == 1


def test_counts_are_plain_integers_and_large_ones_do_not_overflow():
    n = 300_000  # 4.5e10 pairs, beyond 32 bits; n x n entries would need 90 GB
    counts = pair_counts(make_outcome(np.arange(n), np.ones(n)))
    assert type(counts.event_event) is int
    assert counts.event_any == n * (n - 1) // 2


def test_no_pairs():
    counts = pair_counts(make_outcome([5, 5, 9], [1, 1, 0]))
    assert counts == PairCounts(event_event=0, event_any=2)
    with pytest.raises(ValueError, match="no two events at different times"):
        _ = counts.factor
    assert pair_counts(make_outcome([1.0, 2.0], [0, 0])) == (0, 0)


def test_bad_outcome_is_refused():
    with pytest.raises(ValueError, match="time must not be negative"):
        pair_counts((np.array([-1.0, 2.0]), np.array([1, 0])))
