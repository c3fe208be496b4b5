"""The counter-examples to the published proof are what docs/soundness.md says they are."""

import pytest

from counterveil_lab import holes


def test_equal_coefficients_train_different_weights():
    assert not holes.basis_holds_data().holds


def test_both_readings_of_the_sensitivity():
    found = holes.sensitivity_readings()
    moved = {(each.hole.split(" in ")[1], each.measured.split(" by ")[1]) for each in found}
    expected = {"[0, 1]": ("2,352", "401,408"), "[-1, 1]": ("3,136", "802,816")}
    assert moved == {(where, far) for where, both in expected.items() for far in both}
    # Only K as the number of inputs, for coefficients of the reconstruction, is enough.
    assert [each.holds for each in found] == [False, True, False] * 2


@pytest.mark.slow
def test_one_answer_of_a_model_that_memorises_tells_the_record():
    finding = holes.model_tells(runs=2)
    assert not finding.holds
    assert "4 of 4" in finding.measured


def test_learnt_scaling_shows_the_largest_value():
    assert not holes.scaling_tells().holds
