"""Documentation that can be trusted: links lead somewhere, code runs, commands and keys exist."""

import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import hacrl
from hacrl.analysis.compare.plan import make_plan
from hacrl.analysis.compare.suite import load_suite
from hacrl.cli.app import app
from hacrl.recipe import load_recipe, parse_recipe
from hacrl.recipe.keys import all_keys
from hacrl.recipe.reading import parse_yaml
from hacrl.tasks.toy_models import models as toy_models
from hacrl.tasks.toy_models.pretraining import EVENLY, Stage
from helpers_docs import (
    GENERATED,
    ROOT,
    Block,
    anchors,
    blocks,
    commands,
    inline_code,
    links,
    pages,
)

RUN_ELSEWHERE = {"own.md": "tests/e2e/test_examples.py"}
CHEAP = ("doctor", "report", "trajectories", "verify")
"""Commands of hacrl that are run, if what they work on is there; of the others only the words are checked."""
RUNS = ("runs/first", "runs/mine", "runs/alone", "runs/demo/together")
"""Where the pages suppose a finished run."""
REQUIRED = {
    "agents": [{"name": "a", "model": "toy:state-a"}, {"name": "b", "model": "toy:state-b"}],
    "task": "digits",
}
"""For recipes that show some keys only."""


def name(page):
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """What the pages suppose: recipes, a recipe of one's own, a file of answers, finished runs.

    The toy models are tiny and hardly trained: they are made at once.
    """
    folder = tmp_path_factory.mktemp("stage")
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    (folder / "recipe.yaml").write_text(json.dumps(REQUIRED))
    rows = [{"answer": "1/2", "response": f"It is \\boxed{{{given}}}"} for given in ("0.5", "2")]
    for file in ("answers.jsonl", "responses.jsonl"):
        (folder / file).write_text("\n".join(map(json.dumps, rows)))
    hasty = (Stage(3, 3e-3, EVENLY),)
    tiny = {
        key: replace(agent, body=replace(agent.body, width=16, layers=1, heads=2), stages=hasty)
        for key, agent in toy_models.AGENTS.items()
    }
    short = ["steps=1", "prompts_per_step=4", "evaluation.prompts=4", "optimiser.warmup_steps=0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(toy_models, "AGENTS", tiny)
        hacrl.train(ROOT / "recipes/quickstart.yaml", folder / RUNS[0], overrides=short)
        for run in RUNS[1:]:
            shutil.copytree(folder / RUNS[0], folder / run)
        yield folder


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_block_does_what_it_says(page, stage, tmp_path):
    """The blocks of a page in order, in one directory."""
    if page.name in RUN_ELSEWHERE:
        assert page.name in (ROOT / RUN_ELSEWHERE[page.name]).read_text()
        return
    shown = list(blocks(page))
    if not shown:
        return
    shutil.copytree(stage, tmp_path / "here")
    printed = ""
    with chdir(tmp_path / "here"):
        for block in shown:
            assert block.language in DO, f"{block}: expected a language of {', '.join(DO)}"
            if block.title:
                Path(block.title).write_text(block.code)
            if block.language == "text" and printed:
                assert block.code.strip() in printed, f"{block}: the commands above print\n{printed}"
            printed = DO[block.language](block) or ""


def run_python(block: Block) -> None:
    """Errors point to the line of the page."""
    source = "\n" * (block.line - 1) + block.code
    exec(compile(source, name(block.page), "exec"), {"__name__": "__main__"})


def read_yaml(block: Block) -> None:
    """A plan, or a recipe, which is the `recipe.yaml` of the commands after it."""
    values = parse_yaml(block.code)
    if "settings" in values:
        plan = Path("recipes/experiments/shown.yaml")  # beside the recipes that it names
        plan.write_text(block.code)
        load_suite(plan)
    else:
        parse_recipe({**REQUIRED, **values}, where=str(block))
        Path("recipe.yaml").write_text(json.dumps({**REQUIRED, **values}))


def read_json(block: Block) -> None:
    for line in block.code.splitlines():
        json.loads(line)


def check_commands(block: Block) -> str:
    """What those print that are run."""
    printed = []
    for program, *words in commands(block):
        assert program in CHECKS, f"{block}: expected one of {', '.join(CHECKS)}, got {program}"
        try:
            printed.append(CHECKS[program](words) or "")
        except Exception as error:
            raise AssertionError(f"{block}: {program} {' '.join(words)}: {error}") from error
    return "".join(printed)


def check_hacrl(words: list[str]) -> str | None:
    """The words are parsed as the command line does it; recipes are read with their changes."""
    if words == ["--help"]:
        return None
    command, *rest = words
    given = typer.main.get_command(app).commands[command].make_context(command, list(rest)).params
    recipe, overrides = given.get("recipe"), given.get("overrides") or ()
    if recipe is not None:
        load_recipe(recipe, overrides)
    if command == "compare":
        make_plan(recipe, overrides, given["methods"].split(","), given["own"] or (), (0,), Path("unused"))
    if command not in CHEAP or not Path(rest[0]).exists():
        return None
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.output


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(words) <= set(targets), f"there are {targets}"


def check_pip(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.fullmatch(r"install hacrl\[(.+)\]", " ".join(words))
    assert asked, "expected an extra of hacrl"
    assert set(asked[1].split(",")) <= set(extras), f"there are {list(extras)}"


def check_python(words: list[str]) -> None:
    """A module exists, and a benchmark's options are parsed as its command line does it."""
    if words[0] != "-m":
        compile((ROOT / words[0]).read_text(), words[0], "exec")
        return
    _, module, *options = words
    if module.startswith("vllm."):  # not here: its own tests start it with the same options
        tested = (ROOT / "tests/vllm_engine/test_vllm_server.py").read_text()
        assert all(f'"{word}"' in tested for word in (module, *options) if word.startswith(("vllm.", "--")))
        return
    spec = importlib.util.find_spec(module)
    assert spec, "no such module"
    if module.startswith("benchmarks."):
        package = spec.submodule_search_locations is not None
        program = importlib.import_module(f"{module}.__main__" if package else module).app
        typer.main.get_command(program).make_context(module, options)


def check_pytest(words: list[str]) -> None:
    assert all((ROOT / word).exists() for word in words)


DO = {
    "python": run_python,
    "yaml": read_yaml,
    "json": read_json,
    "sh": check_commands,
    "text": lambda block: None,
}
CHECKS = {
    "hacrl": check_hacrl,
    "make": check_make,
    "pip": check_pip,
    "python": check_python,
    "pytest": check_pytest,
    **dict.fromkeys(("cd", "grep", "source"), lambda words: None),
}


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "import hacrl\nhacrl.trian"),
        ("yaml", "method: hacqo"),
        ("yaml", "optimiser: {learning_rates: 1e-6}"),
        ("json", "{'answer': 1}"),
        ("sh", "hacrl trian recipe.yaml"),
        ("sh", "hacrl train recipe.yaml --output runs/first"),
        ("sh", "hacrl doctor recipe.yaml stepz=3"),
        ("sh", "hacrl doctor another.yaml"),
        ("sh", "hacrl compare recipe.yaml --methods gspo,hacqo"),
        ("sh", "make coffee"),
        ("sh", 'pip install "hacrl[gpu]"'),
        ("sh", "python -m hacrl.recipe.refrence"),
        ("sh", "python -m benchmarks.verl"),
        ("sh", "python -m benchmarks.trl --peer verl"),
        ("sh", "python -m benchmarks.waiting --repeats few"),
        ("sh", "curl example.org"),
    ],
)
def test_mistakes_are_found(stage, monkeypatch, language, code):
    monkeypatch.chdir(stage)
    with pytest.raises((AssertionError, AttributeError, ValueError)):
        DO[language](Block(ROOT / "README.md", 1, language, code, None))


@pytest.mark.parametrize("page", [*pages(), ROOT / "CHANGELOG.md"], ids=name)
def test_every_relative_link_leads_somewhere(page):
    in_docs = page.is_relative_to(ROOT / "docs")
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() and name(target).startswith(GENERATED):
            continue
        assert target.exists(), f"{link}: no such file"
        assert target.is_relative_to(ROOT / "docs") or not in_docs, f"{link}: the web site holds docs/ alone"
        assert not anchor or anchor in anchors(target), f"{link}: {sorted(anchors(target))}"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_module_to_run_that_is_named_within_a_line_exists(page):
    for code in inline_code(page):
        if code.startswith("python -m "):
            check_python(shlex.split(code)[1:])


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_key_of_a_recipe_that_is_named_exists(page):
    keys = {key.path for key in all_keys()}
    sections = {key.split(".")[0] for key in keys} - {"task"}  # tasks have settings of their own
    for code in inline_code(page):
        key = re.match(r"([a-z_]+)\.[A-Za-z_.]+(?=$|=|: )", code)
        if key and key[1] in sections and not key[0].endswith(".json"):
            assert key[0] in keys, code


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("material", reason="needs pip install 'hacrl[docs]'")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    results = tmp_path / "docs" / "results.md"
    if not results.exists():  # `make results` takes hours and writes it
        results.write_text("# Results\n")
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=tmp_path, capture_output=True, text=True
    )
    assert build.returncode == 0, build.stderr
    page = (tmp_path / "site" / "start.html").read_text()
    assert "hacrl doctor mine.yaml" in re.sub(r"<[^>]+>", "", page)
    outside = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page)
    assert not outside, "pages load nothing from elsewhere"
