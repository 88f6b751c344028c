"""Settings for all tests."""

import os
import resource
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # vLLM's environment has none, and its tests need none
    pass
else:  # no test depends on the clock
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")
# One thread per process: several test processes share the machine, and results stay reproducible.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Nothing may be downloaded: code that would is tested on local directories.
os.environ["HF_HUB_OFFLINE"] = "1"
# Under nohup a hang-up is ignored, by child processes too: tests that send one would wait for ever.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow over 4096 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """One last line about what this machine has no means for."""
    yield
    reasons = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        told = (f"{count} x {reason.removeprefix('Skipped: ')}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"not run here: {'; '.join(told)}", yellow=True)
