import pytest

from counterveil.errors import RequestError
from counterveil.search.options import SURE_SURROGATE, SearchOptions


def options(guidance="model", can_believe=True, can_act=True, **choices):
    said = SearchOptions(**choices)
    return said.settled(guidance, can_believe=can_believe, can_act=can_act)


def test_mixed_tables_are_searched_by_actions_and_all_others_by_algorithm_2():
    assert (options().prefer, options().method) == ("believable", "actions")
    assert options(prefer="nearest").method == "actions"
    image = options(can_act=False)
    assert (image.prefer, image.method) == ("believable", "iterations")
    bits = options(can_believe=False, can_act=False)
    assert (bits.prefer, bits.method, bits.iterations) == ("nearest", "iterations", 300)
    for said in ({"iterations": 5}, {"keep": "last"}, {"polish": False}):  # of Algorithm 2 alone
        found = options(**said)
        assert (found.prefer, found.method) == ("nearest", "iterations")
        for other in ({"prefer": "believable"}, {"method": "actions"}):
            with pytest.raises(RequestError, match="is for Algorithm 2"):
                options(**said, **other)
    nearest = options("surrogate", prefer="nearest")  # it has to be sure
    assert (nearest.margin, nearest.soft_margin, nearest.polish) == (SURE_SURROGATE, True, False)
    assert options("surrogate").margin == 0
    asked = options("surrogate", prefer="nearest", margin=0.7)
    assert (asked.margin, asked.soft_margin) == (0.7, False)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"prefer": "best"}, "prefer must be"),
        ({"method": "descent"}, "method must be 'actions' or 'iterations'"),
        ({"keep": "first"}, "keep must be"),
        ({"margin": 1.0}, "margin must be"),
        ({"iterations": -1}, "iterations must be"),
        ({"prefer": "believable", "can_believe": False}, "needs a population"),
        ({"method": "actions", "can_act": False}, "is for mixed tables"),
    ],
)
def test_wrong_options_are_refused(said, words):
    with pytest.raises(RequestError, match=words):
        options(**said)
