"""Everything a report shows, as plain JSON values. The page draws it; nothing else reaches the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hacrl.analysis.report.baseline import baseline_data, find_baseline
from hacrl.analysis.report.files import RunFiles, read_files
from hacrl.analysis.report.findings import findings, losses
from hacrl.analysis.report.ratios import ratio_data
from hacrl.analysis.report.responses import response_data
from hacrl.analysis.report.series import columns
from hacrl.analysis.report.summary import outcomes


def report_data(runs: Sequence[Path], baseline: Path | None = None) -> dict[str, Any]:
    """The data of a page on one or several runs; without `baseline`, one beside each run is looked for."""
    names = _names(runs)
    return {"runs": [_run(path, name, baseline) for path, name in zip(runs, names, strict=True)]}


def _run(path: Path, name: str, baseline: Path | None) -> dict[str, Any]:
    run = read_files(path)
    alone = baseline or find_baseline(run)
    curves = columns(run.metrics)
    results = outcomes(run.summary)
    ratios = ratio_data(path)
    windowed = bool(ratios and ratios["window"])
    return {
        "name": name,
        "recipe": run.recipe,
        "versions": run.versions,
        "agents": run.agents,
        "step": run.metrics[-1]["step"] if run.metrics else 0,
        "finished": run.summary is not None,
        "updated": _updated(run),
        "lines": len(run.metrics),
        **curves,
        "outcomes": results,
        "seconds": run.summary["seconds"] if run.summary else None,
        "baseline": baseline_data(alone, run) if alone else None,
        "ratios": ratios,
        "responses": response_data(run),
        "warnings": run.warnings,
        "findings": [*losses(results), *findings(run.agents, curves["series"], windowed=windowed)],
    }


def _names(runs: Sequence[Path]) -> list[str]:
    """The last parts of the paths that tell the runs apart: `hacpo/seed_0` beside `gspo/seed_0`."""
    resolved = [path.resolve() for path in runs]
    depth = 1
    while len({path.parts[-depth:] for path in resolved}) < len(set(resolved)):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in resolved]


def _updated(run: RunFiles) -> float:
    """When the last step was written, in seconds since 1970."""
    file = run.path / ("metrics.jsonl" if run.metrics else "config.json")
    return file.stat().st_mtime
