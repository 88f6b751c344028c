"""Outcomes in small files: nothing is lost, and pages need nothing else."""

import gzip
import shutil
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.analysis.compare import runner
from hacrl.analysis.compare.claims import claims_section, judge
from hacrl.analysis.compare.data import complete_part, data_file
from hacrl.analysis.compare.packing import pack_column, unpack_column
from hacrl.analysis.compare.results import make_results
from hacrl.analysis.compare.suite_runs import complete_experiments, in_order, page_from_data, run_suite
from hacrl.analysis.compare.workers import WorkerPool
from hacrl.runs.files import StorageError
from helpers_compare import read
from helpers_suite import PLAN, finish_all, suite

SOLVED = {"hacpo": (30, 31, 30), "gspo": (10, 11, 10), "gspo_x2": (10, 18, 2)}
NO_WORKERS = WorkerPool()


def finished(folder, **changes):
    """The plan's runs are all in their directories, and its page is written."""
    found = suite(folder, **changes)
    for setting in found.file.settings:
        finish_all(found.plan(setting, folder / "out"), SOLVED)
    run_suite(found, folder / "out", folder / "page.md", NO_WORKERS)
    return found


def written(page):
    folder = page.with_suffix("")
    return {path.name: path.read_text() for path in (page, *folder.glob("*.*"))}


@given(st.lists(st.none() | st.integers(0, 8)), st.integers(8, 80))
def test_a_column_of_counts_comes_back_exactly(counts, most):
    values = [None if count is None else count / most for count in counts]
    assert unpack_column(pack_column(values, most), most) == values


@given(st.lists(st.none() | st.floats(0, 1)))
def test_a_column_of_any_rewards_comes_back_exactly(values):
    packed = pack_column(values, 4)
    assert unpack_column(packed, 4) == pytest.approx(values, abs=1e-9)


def test_one_problem_is_one_character():
    assert pack_column([0.0, 1.0, None, 0.25], 4) == "04-1"
    assert pack_column([0.0, 0.3], 4) == [0.0, 0.3]


def test_results_from_a_file_are_those_of_the_directories(tmp_path):
    found = finished(tmp_path)
    plan = found.plan("short", tmp_path / "out")
    made = [
        asdict(make_results(outcomes, ("gspo",), {}, []))
        for outcomes in (read(plan), data_file(tmp_path / "page" / "data", "short").outcomes(plan))
    ]
    assert made[0] == made[1]


def test_the_page_is_made_again_from_the_files_alone(tmp_path):
    found = finished(tmp_path)
    shutil.rmtree(tmp_path / "out")
    page_from_data(found, tmp_path / "page" / "data", tmp_path / "again" / "page.md")
    assert written(tmp_path / "again" / "page.md") == written(tmp_path / "page.md")


def test_a_plan_goes_on_from_the_files_alone(tmp_path, monkeypatch):
    """Nothing but one lost run is begun on a machine without any run directory."""
    found = finished(tmp_path)
    shutil.rmtree(tmp_path / "out")
    file = data_file(tmp_path / "page" / "data", "pair")
    lost = file.runs.pop(("hacpo", 1))
    file.write()
    begun = []

    def run_all(runs, pool, keep):
        begun.extend(run.name for run in runs)
        file.runs["hacpo", 1] = lost
        file.write()

    monkeypatch.setattr("hacrl.analysis.compare.suite_runs.run_all", run_all)
    run_suite(found, tmp_path / "out", tmp_path / "page.md", NO_WORKERS)
    assert begun == ["pair/hacpo/seed_1"]


def test_an_outcome_is_kept_when_its_run_ends(tmp_path, monkeypatch):
    """The comparison is killed after the first run: its outcome is there already."""
    found = suite(tmp_path)
    plan = found.plan("pair", tmp_path / "out")

    class Killed(Exception):
        pass

    class OneRun:
        run, idle = None, True

        def begin(self, run):
            self.run = run
            if run.name != plan.runs()[0].name:
                raise Killed
            finish_all(plan.part([run.method], [run.seed]), SOLVED)

        def ended(self):
            self.run = None
            return "with code 0"

        def close(self):
            pass

    monkeypatch.setattr("hacrl.analysis.compare.workers.LocalWorker", OneRun)
    monkeypatch.setattr(runner, "POLL_SECONDS", 0)
    with pytest.raises(Killed):
        run_suite(found, tmp_path / "out", tmp_path / "page.md", WorkerPool(jobs=1))
    assert list(data_file(tmp_path / "page" / "data", "pair").runs) == [("gspo", 0)]


def test_a_method_is_run_again_with_other_settings_only_on_request(tmp_path, monkeypatch):
    finished(tmp_path)
    methods = PLAN["methods"] | {"hacpo": {"method": {"name": "hacpo", "delta": 0.3}}}
    other = suite(tmp_path, methods=methods)
    with pytest.raises(ValueError, match=r"hacpo: method.delta: 0.2 before, 0.3 now"):
        run_suite(other, tmp_path / "out", tmp_path / "page.md", NO_WORKERS)
    begun = []

    def run_all(runs, pool, keep):
        begun.extend(run.name for run in runs)
        for setting in other.file.settings:
            finish_all(other.plan(setting, tmp_path / "out").part(["hacpo"], (0, 1, 2)), {"hacpo": 35})
        for run in runs:
            keep(run)

    monkeypatch.setattr("hacrl.analysis.compare.suite_runs.run_all", run_all)
    run_suite(other, tmp_path / "out", tmp_path / "page.md", NO_WORKERS, ["hacpo"])
    assert sorted(begun) == sorted(f"{s}/hacpo/seed_{seed}" for s in ("pair", "short") for seed in (0, 1, 2))
    assert "| hacpo | +0.617 better = |" in (tmp_path / "page.md").read_text()


def test_seeds_come_in_turn_and_what_the_readme_shows_comes_first(tmp_path):
    readme = {"settings": ["short"], "rows": {"alone": "gspo", "together": ["hacpo", "wide"]}}
    found = suite(tmp_path, readme=readme)
    plans = {setting: found.plan(setting, tmp_path) for setting in found.file.settings}
    names = [run.name for run in in_order(found, plans)]
    assert names[:4] == ["short/gspo/seed_0", "short/hacpo/seed_0", "short/wide/seed_0", "short/gspo/seed_1"]
    assert names[9:12] == ["pair/gspo/seed_0", "pair/gspo_x2/seed_0", "pair/hacpo/seed_0"]
    assert len(names) == len(set(names)) == sum(len(plan.runs()) for plan in plans.values())
    assert all("seed_2" in name for name in names[-4:])


@pytest.mark.parametrize(
    ("seeds", "shown"),
    [
        ({"gspo": 3, "gspo_x2": 3, "hacpo": 3}, (["gspo", "gspo_x2", "hacpo"], (0, 1, 2))),
        ({"gspo": 3, "gspo_x2": 2, "hacpo": 2}, (["gspo", "gspo_x2", "hacpo"], (0, 1))),
        ({"gspo": 3, "gspo_x2": 0, "hacpo": 3}, (["gspo", "hacpo"], (0, 1, 2))),
        ({"gspo": 3, "gspo_x2": 3, "hacpo": 2}, (["gspo", "gspo_x2", "hacpo"], (0, 1))),
        ({"gspo": 1, "gspo_x2": 1, "hacpo": 0}, None),
    ],
)
def test_an_unfinished_plan_shows_its_largest_balanced_part(tmp_path, seeds, shown):
    plan = suite(tmp_path).plan("pair", tmp_path)
    part = complete_part(plan, {(method, seed) for method, count in seeds.items() for seed in range(count)})
    assert (part and (list(part.recipes), part.seeds)) == shown


def test_the_page_of_an_unfinished_plan_says_what_is_missing(tmp_path):
    found = finished(tmp_path)
    data = tmp_path / "page" / "data"
    pair, short = (data_file(data, setting) for setting in ("pair", "short"))
    del pair.runs["gspo", 2]
    short.runs = {key: run for key, run in short.runs.items() if key[1] == 0}
    pair.write()
    short.write()
    page_from_data(found, data, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "- pair: 8 of 9 runs are finished; shown are the seeds 0, 1 of every method" in text
    assert "- short: 5 of 15 runs are finished, too few to show" in text
    assert "- 6 runs, 0.0 hours one after another: 1 settings" in text


def test_a_claim_about_an_unfinished_plan_counts_every_seed_that_both_methods_have(tmp_path):
    claims = [{"text": rival, "better": "hacpo", "worse": rival} for rival in ("gspo", "gspo_x2")]
    found = finished(tmp_path, seeds=[0, 1, 2], claims=claims)
    pair = data_file(tmp_path / "page" / "data", "pair")
    del pair.runs["gspo_x2", 2]
    experiments, _ = complete_experiments(found, {"pair": pair})
    shown = experiments["pair"].outcomes.plan.seeds
    judged = [judge(claim, experiments)["pair"] for claim in found.file.claims]
    assert shown == (0, 1)
    assert [finding.units for finding in judged] == [3, 2]
    assert [finding.difference.mean for finding in judged] == pytest.approx([20 / 40, (20 + 13) / 80])
    table = "\n".join(claims_section(found.file.claims, experiments))
    assert table.count("(3 seeds) **holds**") == table.count("seeds) **") == 1, "said where it is not obvious"


def test_nothing_to_show_is_an_error_that_says_so(tmp_path):
    with pytest.raises(ValueError, match="no setting has two finished seeds"):
        page_from_data(suite(tmp_path), tmp_path, tmp_path / "page.md")
    with pytest.raises(ValueError, match=r"--from .*nothing: expected a directory of outcomes"):
        page_from_data(suite(tmp_path), tmp_path / "nothing", tmp_path / "page.md")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: b"not gzip", "pair.jsonl.gz"),
        (lambda text: gzip.compress(text)[:-20], "pair.jsonl.gz"),
        (lambda text: gzip.compress(text.replace(b'"gspo"', b"gspo")), "pair.jsonl.gz, line 1"),
        (lambda text: gzip.compress(text + b"[]\n"), "line 11: not an outcome"),
        (
            lambda text: gzip.compress(text.replace(b"1110", b"111")),
            "the outcome of gspo with seed 0 is damaged",
        ),
        (
            lambda text: gzip.compress(text.replace(b'"updates":8,', b"")),
            "line 2: .*updates",
        ),
    ],
)
def test_a_damaged_file_is_named(tmp_path, damage, message):
    found = finished(tmp_path)
    path = tmp_path / "page" / "data" / "pair.jsonl.gz"
    path.write_bytes(damage(gzip.decompress(path.read_bytes())))
    with pytest.raises(StorageError, match=message):
        page_from_data(found, path.parent, tmp_path / "page.md")


def test_the_same_outcomes_give_the_same_bytes(tmp_path):
    found = finished(tmp_path)
    path = tmp_path / "page" / "data" / "pair.jsonl.gz"
    before = path.read_bytes()
    run_suite(found, tmp_path / "out", tmp_path / "page.md", NO_WORKERS)
    file = data_file(path.parent, "pair")
    file.runs = dict(reversed(file.runs.items()))
    file.write()
    assert path.read_bytes() == before
