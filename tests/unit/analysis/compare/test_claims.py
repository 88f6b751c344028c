"""Claims are judged by intervals alone."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.analysis.compare.claims import claims_section, judge
from hacrl.analysis.compare.suite import Claim
from helpers_compare import experiment, finish
from helpers_suite import finish_all, suite


def outcomes(folder, solved, names=("pair",)):
    found = suite(folder)
    plans = {name: found.plan(name, folder / "out") for name in names}
    for plan in plans.values():
        finish_all(plan, solved)
    return {name: experiment(plan) for name, plan in plans.items()}


def solved(count):
    return [1.0] * count + [0.0] * (40 - count)


def claim(better, worse, **changes):
    return Claim(text="t", better=better, worse=worse, measure="greedy", **changes)


def test_what_is_clear_holds_its_opposite_does_not_and_chance_decides_nothing(tmp_path):
    found = outcomes(tmp_path, {"hacpo": (30, 31, 30), "gspo": (10, 11, 10), "gspo_x2": (10, 18, 2)})
    assert judge(claim("hacpo", "gspo"), found)["pair"].holding == "holds"
    assert judge(claim("gspo", "hacpo"), found)["pair"].holding == "does not hold"
    assert judge(claim("gspo", "gspo_x2"), found)["pair"].holding == "not decided"


def test_a_margin_allows_a_small_loss_and_the_difference_is_shown_without_it(tmp_path):
    found = outcomes(tmp_path, {"hacpo": 20, "gspo": 20})
    assert judge(claim("hacpo", "gspo"), found)["pair"].holding == "not decided"
    near = judge(claim("hacpo", "gspo", margin=0.01), found)["pair"]
    assert near.holding == "holds"
    assert abs(near.difference.mean) < 1e-12


def test_said_of_each_agent_the_one_that_lost_decides(tmp_path):
    planned = suite(tmp_path).plan("pair", tmp_path / "out")
    for run in planned.runs():
        of_bob = 5 if run.method == "hacpo" else 20
        ended = {"ada": solved(40), "bob": solved(of_bob)}
        finish(planned, run.method, run.seed, ended, during={2: ended})
    found = {"pair": experiment(planned)}
    assert judge(claim("hacpo", "gspo"), found)["pair"].difference.mean == -15 / 80
    each = judge(claim("hacpo", "gspo", agents="each", margin=0.01), found)["pair"]
    assert (each.holding, each.whose) == ("does not hold", "bob")
    assert abs(each.difference.mean + 15 / 40) < 1e-12
    other_way = judge(claim("gspo", "hacpo", agents="each", margin=0.01), found)["pair"]
    assert other_way.holding == "holds"
    assert abs(other_way.difference.mean) < 1e-12, "ada gained nothing"


def test_settings_without_one_of_the_methods_say_nothing(tmp_path):
    found = outcomes(tmp_path, {"wide": 30}, ("pair", "short"))
    assert list(judge(claim("wide", "gspo"), found)) == ["short"]
    assert list(judge(claim("hacpo", "gspo", settings=("pair",)), found)) == ["pair"]
    assert judge(Claim(text="t", better="hacpo", worse="gspo", measure="pass_at_k"), found) == {}, (
        "nothing was sampled"
    )


def test_of_several_rivals_the_best_decides(tmp_path):
    found = outcomes(tmp_path, {"hacpo": (30, 31, 30), "gspo": (10, 11, 10), "gspo_x2": (25, 25, 24)})
    one = judge(claim("hacpo", ["gspo", "gspo_x2"]), found)["pair"]
    assert (one.holding, one.whose) == ("holds", "gspo_x2")
    assert one == replace(judge(claim("hacpo", "gspo_x2"), found)["pair"], whose="gspo_x2"), (
        "better than all of them needs no correction for their number"
    )
    other = judge(claim("gspo", ["gspo_x2", "hacpo"]), found)["pair"]
    assert (other.holding, other.whose) == ("does not hold", "hacpo")
    alone = judge(claim("gspo", "hacpo"), found)["pair"].difference
    assert other.difference.high > alone.high, "that any of them is better needs one"


def test_rivals_with_other_budgets_do_not_count_if_the_claim_says_so(tmp_path):
    planned = suite(tmp_path).plan("pair", tmp_path / "out")
    costs = {"gspo": 5, "gspo_x2": 21, "hacpo": 20}
    for run in planned.runs():
        ended = dict.fromkeys(("ada", "bob"), solved({"gspo": 40, "gspo_x2": 4, "hacpo": 24}[run.method]))
        finish(planned, run.method, run.seed, ended, updates=costs[run.method], during={2: ended})
    found = {"pair": experiment(planned)}
    rivals = ["gspo", "gspo_x2"]
    assert judge(claim("hacpo", rivals), found)["pair"].holding == "does not hold"
    assert judge(claim("hacpo", rivals, equal=["rollouts"]), found)["pair"].whose == "gspo"
    equal = judge(claim("hacpo", rivals, equal=["rollouts", "updates"]), found)["pair"]
    assert (equal.holding, equal.difference.mean) == ("holds", 0.5)
    assert judge(claim("hacpo", ["gspo"], equal=["updates"]), found) == {}
    text = "\n".join(claims_section([claim("hacpo", rivals, equal=["updates"])], found))
    assert "t (greedy accuracy: hacpo - best of 2 others with equal updates)" in text
    assert "- t: holds in pair. Others with as many updates, within 10%: pair: gspo_x2." in text
    text = "\n".join(claims_section([claim("hacpo", ["gspo"], equal=["updates"])], found))
    assert "- t: was not tested. Others with as many updates, within 10%: pair: none." in text


@settings(max_examples=15)
@given(
    solved=st.tuples(*[st.integers(0, 40)] * 3),
    others=st.tuples(*[st.integers(0, 40)] * 3),
    margin=st.floats(0, 0.2),
)
def test_the_verdict_is_where_the_interval_lies(tmp_path_factory, solved, others, margin):
    found = outcomes(tmp_path_factory.mktemp("claims"), {"hacpo": solved, "gspo": others})
    finding = judge(claim("hacpo", "gspo", margin=margin), found)["pair"]
    if finding.holding == "holds":
        assert finding.difference.low > -margin - 1e-9
    elif finding.holding == "does not hold":
        assert finding.difference.high < -margin + 1e-9
    else:
        assert finding.difference.low - 1e-9 <= -margin <= finding.difference.high + 1e-9
