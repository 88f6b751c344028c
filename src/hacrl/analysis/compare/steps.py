"""How far a run is, seen from outside."""

from __future__ import annotations

from hacrl.analysis.compare.plan import PlannedRun


class StepCounter:
    """Counts the lines of a run's metrics; each call reads only what is new."""

    def __init__(self, run: PlannedRun) -> None:
        self._run = run
        self._offset = self._lines = 0

    def steps(self) -> int:
        """Finished steps."""
        path = self._run.directory.metrics
        if not path.exists():
            return 0
        with path.open("rb") as file:
            if path.stat().st_size < self._offset:  # a resume has cut off what it does again
                self._offset = self._lines = 0
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        self._lines += new.count(b"\n")
        return max(0, self._lines - self._run.recipe.evaluation.before)
