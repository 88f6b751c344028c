"""Results from runs whose outcomes are known."""

import json
from dataclasses import replace

import pytest

from hacrl.analysis.compare.comparison import choose_references, run_comparison
from hacrl.analysis.compare.report import report
from hacrl.analysis.compare.results import make_results
from hacrl.analysis.compare.statistics import measure, within_range
from hacrl.analysis.compare.workers import WorkerPool
from helpers_compare import finish, plan, read

RIGHT, WRONG = 1.0, 0.0


def results(planned, references=("gspo",)):
    return make_results(read(planned), references, {"hacrl": "1"}, ["abc"])


@pytest.fixture
def planned(tmp_path):
    """In both seeds hacpo solves one more of eight problems for ada and two more for bob."""
    planned = plan(tmp_path, ["hacpo", "gspo"])
    for seed in (0, 1):
        finish(planned, "gspo", seed, {"ada": [RIGHT] * 4 + [WRONG] * 4, "bob": [RIGHT] * 2 + [WRONG] * 6})
        finish(planned, "hacpo", seed, {"ada": [RIGHT] * 5 + [WRONG] * 3, "bob": [RIGHT] * 4 + [WRONG] * 4})
    return planned


def test_means_worst_agents_and_differences(planned):
    [greedy] = results(planned).accuracies
    assert {method: found.mean for method, found in greedy.mean.methods.items()} == {
        "hacpo": 9 / 16,
        "gspo": 6 / 16,
    }
    assert {method: found.mean for method, found in greedy.worst.methods.items()} == {
        "hacpo": 0.5,
        "gspo": 0.25,
    }
    assert greedy.agents["ada"]["hacpo"].mean == 5 / 8
    assert greedy.before["mean"].mean == 0
    [contrast] = greedy.mean.contrasts
    assert (contrast.method, contrast.reference) == ("hacpo", "gspo")
    assert contrast.difference.interval.mean == pytest.approx(3 / 16)


def test_the_worst_agent_is_found_seed_by_seed(tmp_path):
    planned = plan(tmp_path, ["hacpo", "gspo"])
    for method in planned.recipes:
        finish(planned, method, 0, {"ada": [RIGHT, RIGHT], "bob": [RIGHT, WRONG]})
        finish(planned, method, 1, {"ada": [WRONG, WRONG], "bob": [RIGHT, RIGHT]})
    [greedy] = results(planned).accuracies
    assert greedy.worst.methods["gspo"].mean == 0.25


def test_problems_that_a_run_could_not_score_are_left_out_for_all_methods(tmp_path):
    planned = plan(tmp_path, ["hacpo", "gspo"])
    for seed in (0, 1):
        finish(planned, "hacpo", seed, {"ada": [None, RIGHT, RIGHT], "bob": [RIGHT, RIGHT, WRONG]})
        finish(planned, "gspo", seed, {"ada": [RIGHT, RIGHT, WRONG], "bob": [RIGHT, WRONG, WRONG]})
    [greedy] = results(planned).accuracies
    assert (greedy.problems, greedy.left_out) == (2, 1)
    assert greedy.mean.methods["gspo"].mean == 0.25


def test_runs_on_different_problems_are_refused(planned):
    path = planned.run("gspo", 1).directory.summary
    path.write_text(path.read_text().replace('"p3"', '"p33"'))
    with pytest.raises(ValueError, match="different problems of digits"):
        results(planned)


def test_similarity_between_agents(planned):
    alike = results(planned).alike
    assert {method: (found["before"].mean, found["after"].mean) for method, found in alike.items()} == {
        "hacpo": (1.0, 0.5),  # the first four problems are solved by both
        "gspo": (1.0, 0.25),
    }


def solved(problems, of=8):
    return {agent: [RIGHT] * problems + [WRONG] * (of - problems) for agent in ("ada", "bob")}


def test_curves_at_equal_budgets(tmp_path):
    """Steps 0, 2, 4: hacpo solves 0, 2, 4 of eight; gspo 0, 1, 2; gspo_x2 as hacpo for twice the cost."""
    planned = plan(tmp_path, ["hacpo", "gspo", "gspo_x2"], evaluation={"every": 2})
    for seed in (0, 1):
        for method, last in {"hacpo": 4, "gspo": 2, "gspo_x2": 4}.items():
            rollouts = 200 if method == "gspo_x2" else 100
            during = {2: solved(last // 2)}
            finish(planned, method, seed, solved(last), rollouts=rollouts, during=during)
    [curves] = results(planned, ("gspo", "gspo_x2")).curves
    assert curves.accuracy["hacpo"] == {0: 0, 2: 0.25, 4: 0.5}
    assert curves.area.methods["hacpo"].mean == pytest.approx(0.25)
    assert curves.area.methods["gspo"].mean == pytest.approx(0.125)
    assert curves.equal_rollouts.per_agent == 100
    at_equal = {method: found.mean for method, found in curves.equal_rollouts.table.methods.items()}
    assert at_equal == pytest.approx({"hacpo": 0.5, "gspo": 0.25, "gspo_x2": 0.25})
    assert curves.rollouts_to_reach["gspo"] == pytest.approx({"hacpo": 50, "gspo": 100, "gspo_x2": 100})
    assert curves.rollouts_to_reach["gspo_x2"] == pytest.approx({"hacpo": 100, "gspo": None, "gspo_x2": 200})


def test_the_end_of_a_curve_has_the_interval_of_the_final_table(tmp_path):
    """Seeds and problems differ; all methods cost the same, so "equal rollouts" is the end of the run."""
    planned = plan(tmp_path, ["hacpo", "gspo"], seeds=3, evaluation={"every": 2})
    for seed, more in enumerate((1, 2, 1)):
        finish(planned, "gspo", seed, solved(3), during={2: solved(2)})
        finish(planned, "hacpo", seed, solved(3 + more), during={2: solved(2)})
    found = results(planned)
    [curves], [greedy] = found.curves, found.accuracies
    assert curves.equal_rollouts.table == greedy.mean
    assert curves.equal_cpu_seconds.table == greedy.mean
    assert curves.area.contrasts[0].difference.interval.mean == pytest.approx(4 / 24 / 4)


def test_accuracy_by_kind_of_prompt(planned):
    """The first four problems are easy, the others hard."""
    found = results(planned)
    assert found.by_kind["digits"]["hacpo"] == {
        "easy": {"ada": 1.0, "bob": 1.0},
        "hard": {"ada": 0.25, "bob": 0.0},
    }
    text = report(found)
    assert "| gspo | 0.750 (1.00, 0.50) | 0.000 (0.00, 0.00) |" in text
    assert "| before training | 0.000 (0.00, 0.00) | 0.000 (0.00, 0.00) |" in text


def test_every_pair_is_compared_once(tmp_path):
    planned = plan(tmp_path, ["hacpo", "gspo", "gspo_x2"])
    for run in planned.runs():
        finish(planned, run.method, run.seed, {"ada": [RIGHT, WRONG], "bob": [WRONG, RIGHT]})
    assert choose_references((), planned) == ("gspo", "gspo_x2")
    assert choose_references(("hacpo",), planned) == ("hacpo",)
    with pytest.raises(ValueError, match="expected one of hacpo, gspo, gspo_x2"):
        choose_references(("grpo",), planned)
    [greedy] = results(planned, ("gspo", "gspo_x2")).accuracies
    assert [(c.method, c.reference) for c in greedy.mean.contrasts] == [
        ("hacpo", "gspo"),
        ("gspo_x2", "gspo"),
        ("hacpo", "gspo_x2"),
    ]


def test_the_report_says_what_the_numbers_say(planned):
    text = report(results(planned))
    assert "| hacpo | 4 | 100 | 1,000 | 2,000 | 8 | 3.0 |" in text
    assert "4 runs with the seeds 0, 1 of hacpo, gspo" in text
    assert "commit abc" in text
    [contrast] = results(planned).accuracies[0].mean.contrasts
    interval = contrast.difference.interval
    row = (
        f"| hacpo | gspo | +0.188 [{interval.low:+.3f}, {interval.high:+.3f}] {contrast.difference.verdict} |"
    )
    assert row in text


def test_a_finished_comparison_only_writes_its_results(planned):
    found = run_comparison(planned, (), WorkerPool(jobs=2))
    kept = json.loads((planned.out / "results.json").read_text())
    assert kept["seeds"] == [0, 1]
    assert kept["accuracies"][0]["mean"]["methods"]["hacpo"]["mean"] == 9 / 16
    verdict = kept["accuracies"][0]["mean"]["contrasts"][0]["difference"]["verdict"]
    assert verdict == found.accuracies[0].mean.contrasts[0].difference.verdict
    assert (planned.out / "results.md").read_text() == report(found)
    assert not any((planned.out / "logs").iterdir())


def test_seeds_from_one_base_are_one_result(tmp_path):
    """Two bases with two seeds each: intervals are those of the two means by base."""
    four = replace(plan(tmp_path, ["hacpo", "gspo"], seeds=4), bases=(3, 5))
    assert [four.run("gspo", seed).recipe.agents[0].model for seed in range(2)] == ["models/ada"] * 2
    for seed, more in enumerate((0, 4, 2, 2)):
        finish(four, "gspo", seed, solved(2))
        finish(four, "hacpo", seed, solved(2 + more))
    assert read(four).units == [[0, 2], [1, 3]]
    [greedy] = results(four).accuracies
    values = read(four).scored("digits", "greedy")["hacpo"].mean(axis=0)
    assert values.shape == (2, 8)
    assert greedy.mean.methods["hacpo"] == within_range(measure(values).interval())
    one_base = replace(four, bases=(3,))
    assert read(one_base).units == [[0], [1], [2], [3]]


def test_every_base_has_toy_models_of_its_own(tmp_path):
    agents = [{"name": name, "model": "toy:state-a"} for name in ("ada", "bob")]
    three = replace(plan(tmp_path, ["hacpo", "gspo"], seeds=3, agents=agents), bases=(0, 2))
    models = [three.run("gspo", seed).recipe.agents[0].model for seed in range(3)]
    assert models == ["toy:state-a", "toy:state-a@2", "toy:state-a"]
