"""Tests of the second opinion: what goes to the other auditor, and what is said without it."""

import os

import pytest
from campaigns import second_opinion
from campaigns.second_opinion import EXACT, HALVED, PYTHON, HalfNoise

from counterveil.privacy import Budget


def test_who_is_there_stands_out_of_little_noise():
    inside, outside = second_opinion.canaries(100, Budget(40.0), EXACT)
    assert len(inside) + len(outside) == 100
    assert abs(inside.mean() - 1) < 0.2
    assert abs(outside.mean()) < 0.2


def test_half_of_the_noise_is_half():
    spread = [
        second_opinion.canaries(1000, Budget(1.0), noise)[1].std() for noise in (EXACT, HalfNoise())
    ]
    assert 1.5 < spread[0] / spread[1] < 2.7


def test_without_the_other_auditor_it_says_what_is_missing(monkeypatch):
    monkeypatch.delenv(PYTHON, raising=False)
    assert PYTHON in second_opinion.why_not({})


@pytest.mark.long
@pytest.mark.skipif(PYTHON not in os.environ, reason=f"{PYTHON} names no Python with jax-privacy")
def test_the_other_auditor_finds_half_of_the_noise():
    (row,) = second_opinion.measure_case("many runs", 1.0, 0.0, HALVED, quick=True)
    assert row["refuted"]
