"""Workers on a Ray that only plays a cluster: what happens when there is no room, or one is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hacrl.analysis.compare.workers import RayWorker

ALIVE: Any = SimpleNamespace(lost=False, check=lambda: None, check_if_due=lambda: None)


class RayError(Exception): ...


class FakeRay:
    """Replies are ready once they are in `replies`; an error among them is raised by `get`."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.replies: dict[str, Any] = {}
        """By method; what is not here has not come yet."""
        self.killed = 0

    def remote(self, cls: type) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=self._actor))

    def _actor(self, folder: str) -> Any:
        self.asked.append("start")
        names = ("__ray_ready__", "begin", "ended", "ask_to_stop")
        return SimpleNamespace(**{name: self._method(name) for name in names})

    def _method(self, name: str) -> Any:
        def ask(*arguments: Any) -> str:
            self.asked.append(name)
            return name

        return SimpleNamespace(remote=ask)

    def wait(self, replies: list[str], timeout: float) -> tuple[list[str], list[str]]:
        return [reply for reply in replies if reply in self.replies], []

    def get(self, reply: str) -> Any:
        found = self.replies[reply]
        if isinstance(found, Exception):
            raise found
        return found

    def kill(self, actor: Any) -> None:
        self.killed += 1


def begun(ray: FakeRay) -> RayWorker:
    worker = RayWorker(ray, ALIVE)
    ray.replies["__ray_ready__"] = True
    run: Any = SimpleNamespace(name="gspo/seed_0")
    worker.begin(run)
    return worker


def test_a_run_is_given_only_to_a_worker_for_which_there_is_room():
    ray = FakeRay()
    worker = RayWorker(ray, ALIVE)
    assert not worker.idle
    ray.replies["__ray_ready__"] = True
    assert worker.idle


def test_a_worker_is_polled_until_its_run_has_ended():
    ray = FakeRay()
    worker = begun(ray)
    assert not worker.idle
    assert worker.ended() is None
    ray.replies["ended"] = None  # it goes on
    assert worker.ended() is None
    assert ray.asked == ["start", "__ray_ready__", "begin", "ended", "ended"]
    ray.replies["ended"] = "with code 0"
    assert worker.ended() == "with code 0"
    assert worker.idle
    assert worker.ended() is None


def test_when_a_worker_is_lost_its_run_fails_and_it_is_restarted():
    ray = FakeRay()
    worker = begun(ray)
    ray.replies = {"ended": RayError("its node has died")}
    assert worker.ended() == "with its worker on the cluster: its node has died"
    assert (worker.run, ray.killed, ray.asked.count("start")) == (None, 1, 2)
    assert not worker.idle
