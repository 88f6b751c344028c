"""The report in a real browser: drawn, usable, silent, and safe from what models write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from hacrl.analysis.report import write_report
from hacrl.analysis.report.server import LiveRuns, make_server
from helpers_browser import CHROMIUM, Browser, chromium
from helpers_report import lines, make_runs
from helpers_train import make_agent, recipe
from helpers_train import run as train

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.slow,
]

HOSTILE = "<script>document.title='owned'</script></script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a hostile response and warning, and one response of known log-probs."""
    directory = make_runs(tmp_path_factory.mktemp("browser"))
    path = directory / "trajectories" / "step_000001.jsonl"
    rows = lines(path)
    rows[0]["text"] = HOSTILE
    rows[1]["token_logps"] = [-0.7 * place for place in range(len(rows[1]["token_logps"]))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "warnings.jsonl").write_text(json.dumps({"step": 2, "message": HOSTILE}) + "\n")
    return directory


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def page(run: Path, browser: Browser) -> Iterator[Browser]:
    browser.size(1280, 900)
    browser.dark(False)
    browser.errors.clear()
    browser.requests.clear()
    browser.open(write_report(run).as_uri())
    yield browser
    assert browser.errors == []
    assert len(browser.requests) == 1  # the page itself, and nothing else


def count(page: Browser, selector: str) -> int:
    found: int = page.run(f"document.querySelectorAll({json.dumps(selector)}).length")
    return found


def choose(page: Browser, name: str, value: str) -> None:
    control = json.dumps(f"[data-key='browse/0/{name}']")
    event = "input" if name == "text" else "change"
    page.run(
        f"(() => {{ const node = document.querySelector({control}); node.value = {json.dumps(value)}; "
        f"node.dispatchEvent(new Event('{event}', {{bubbles: true}})); }})()"
    )


def matching(page: Browser) -> int:
    return int(page.run("parseInt(document.querySelector('.count').textContent.replaceAll(',', ''))"))


def test_every_plot_is_drawn(page: Browser) -> None:
    assert page.run("document.title") == "together · hacrl"
    plots = {
        "results": 3,
        "learning": 12,
        "capability": 4,
        "ratios": 6,
        "lengths": 4,
        "speed": 2,
        "timeline": 2,
        "metrics": 1,
    }
    for section, least in plots.items():
        assert count(page, f"#{section} figure svg[role=img]") >= least, section
    empty = "[...document.querySelectorAll('svg path.line, svg path.area')].filter(p => !p.getAttribute('d'))"
    assert page.run(f"{empty}.length") == 0
    assert count(page, "#ratios rect.bar") > 20
    assert count(page, "#ratios rect.window") == 2 * 2
    assert count(page, "#timeline rect.phase") == 2 * 3 + 2  # three agents sample and update, the loop works
    assert count(page, ".matrix td.heat") == 6
    attributes = "[...document.querySelectorAll('svg *')].flatMap(node => [...node.attributes])"
    assert page.run(f"{attributes}.some(attribute => attribute.value.includes('NaN'))") is False


def test_steps_are_whole_numbers_in_short_runs_too(run: Path, browser: Browser, tmp_path: Path) -> None:
    short = tmp_path / "short"
    shutil.copytree(run, short)
    first = lines(short / "metrics.jsonl")[:3]
    (short / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in first))
    browser.size(1280, 900)
    browser.open(write_report(short).as_uri())
    ticks = "document.querySelectorAll('#learning svg text.tick[text-anchor=middle]')"
    shown = set(browser.run(f"[...{ticks}].map(tick => tick.textContent)"))
    assert {"1", "2"} <= shown <= {"0", "1", "2", "3"}


def test_filters_show_what_they_say(page: Browser, run: Path) -> None:
    rows = [line for path in (run / "trajectories").glob("*.jsonl") for line in lines(path)]
    assert matching(page) == len(rows)
    choose(page, "result", "right")
    right = [row for row in rows if row["reward"] and row["reward"] > 0]
    assert matching(page) == len(right)
    choose(page, "agent", "bob")
    assert matching(page) == sum(row["source"] == "bob" for row in right)
    choose(page, "prompt", right[0]["prompt_id"])
    expected = [r for r in right if r["source"] == "bob" and r["prompt_id"] == right[0]["prompt_id"]]
    assert matching(page) == len(expected)
    for name in ("result", "agent", "prompt"):
        choose(page, name, "")
    choose(page, "learner", "cy")
    choose(page, "fate", "above the window")
    above = sum(
        place == "above"
        for path in (run / "updates").glob("*.jsonl")
        for update in lines(path)[1:]
        if update["learner"] == "cy"
        for place, advantage in zip(update["place"], update["advantage"], strict=True)
        if advantage != 0
    )
    assert matching(page) == above > 0
    fates = page.run(
        "[...document.querySelectorAll('.response tbody tr')].filter(row => row.innerText.startsWith('cy'))"
        ".map(row => row.querySelector('.fate').textContent)"
    )
    assert fates
    assert set(fates) == {"above the window"}


def test_what_models_write_stays_text(page: Browser) -> None:
    choose(page, "text", "owned")
    assert matching(page) == 1
    assert page.run("document.querySelector('.response .text').textContent") == HOSTILE
    assert HOSTILE in page.run(
        "[...document.querySelectorAll('#warnings li p')].map(node => node.textContent)"
    )
    assert page.run("document.title") == "together · hacrl"
    assert count(page, "main script, main img") == 0


def test_tokens_are_shaded_by_their_probability(page: Browser, run: Path) -> None:
    known = lines(run / "trajectories" / "step_000001.jsonl")[1]
    for name, value in (("step", "1"), ("prompt", known["prompt_id"]), ("agent", known["source"])):
        choose(page, name, value)
    shown = page.run(
        "[...document.querySelectorAll('.response')][1].querySelectorAll('.token').values()"
        ".map(token => token.style.getPropertyValue('--s')).toArray()"
    )
    assert shown == [f"{round(85 * min(1.0, -logp / 4))}%" for logp in known["token_logps"]]
    assert len(set(shown)) > 1


def test_charts_are_read_with_the_keyboard(page: Browser) -> None:
    page.run("document.querySelector('#learning svg[tabindex]').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    tip = page.run("document.querySelector('#learning .tip:not([hidden])').innerText")
    assert tip.startswith("step ")
    assert "with peers (hacpo)" in tip


def test_everything_can_be_reached_with_tab(page: Browser) -> None:
    reached = set()
    for _ in range(120):
        page.press("Tab")
        reached.add(page.run("document.activeElement.closest('header, nav, main > section')?.id"))
    everything = page.run("[...document.querySelectorAll('main > section')].map(section => section.id)")
    assert {"top", "nav", *everything} - reached <= {"warnings"}  # there is nothing to do in that one


def test_light_and_dark_differ_and_the_button_overrules(page: Browser) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.run(colour)
    page.dark(True)
    dark = page.run(colour)
    assert light != dark
    page.run("document.getElementById('theme').click()")
    assert page.run(colour) == light


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_width_scrolls_sideways(page: Browser, width: int) -> None:
    page.size(width, 800, phone=width < 500)
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.run("document.documentElement.scrollWidth") <= width


def test_nothing_of_hacpo_is_shown_with_another_method(tmp_path: Path, browser: Browser) -> None:
    agents = {name: make_agent(tmp_path / name, seed) for seed, name in enumerate(("ann", "bob"))}
    train(recipe(agents, method="commons", prompts_per_step=12), tmp_path / "run")
    browser.errors.clear()
    browser.open(write_report(tmp_path / "run").as_uri())
    text = browser.run(
        "[...document.querySelectorAll('nav, main > section:not(#metrics)')]"
        ".map(section => section.innerText.toLowerCase()).join(' ')"
    )
    assert "who learned from whom" in text
    assert "effective sample size" in text
    for word in ("omega", "window", "delta"):
        assert word not in text
    labels = browser.run(
        "[...document.querySelectorAll('#capability svg[aria-label]')].map(image => image.ariaLabel)"
    )
    for learner, peer in (("ann", "bob"), ("bob", "ann")):
        assert any(label.startswith(f"Predictions of {learner}. predicted ") for label in labels)
        assert any(label.startswith(f"Lead of {peer} over {learner}: ahead at ") for label in labels)
    points = "document.querySelectorAll('#capability svg[aria-label^=\"Lead of bob\"] circle').length"
    assert browser.run(points) == 24  # the prompts of both agents in the last step
    assert browser.errors == []


def test_watching_shows_new_steps_without_reloading(run: Path, browser: Browser) -> None:
    browser.errors.clear()
    server = make_server(LiveRuns([run, run.parent / "alone"]))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        browser.open(f"http://127.0.0.1:{server.server_port}/")
        assert browser.run("document.querySelectorAll('#learning .column').length") == 2
        browser.run("window.stillHere = true")
        browser.run("document.querySelector('[data-key=\"matrix/0/omega\"]').click()")
        browser.run("document.querySelector('[data-key=\"matrix/0/omega\"]').focus()")
        newest = lines(run / "metrics.jsonl")[-1]
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({**newest, "step": 7}) + "\n")
        browser.wait("document.querySelector('.facts').innerText.includes('step 7 of')")
        assert browser.run("window.stillHere") is True
        assert browser.run("document.querySelector('.matrix caption').textContent").startswith("omega")
        browser.wait("document.activeElement.dataset.key === 'matrix/0/omega'")
        assert browser.errors == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        browser.open("about:blank")
