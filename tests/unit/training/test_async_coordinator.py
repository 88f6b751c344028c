"""Who waits for whom, decided without a clock."""

from threading import Thread

from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.training.async_coordinator import AsyncCoordinator
from hacrl.training.step_record import StepRecord


def publish(coordinator: AsyncCoordinator, agent: str, step: int) -> None:
    coordinator.publish(agent, StepRecord(step))


def test_the_slowest_peer_that_is_still_here_decides():
    coordinator = AsyncCoordinator(("a", "b", "c"), 5, 9)
    publish(coordinator, "b", 5)
    publish(coordinator, "b", 6)
    publish(coordinator, "c", 5)
    assert coordinator.behind(7, ("b",)) == 1
    assert coordinator.behind(7, ("b", "c")) == 2
    coordinator.leave("c")
    assert coordinator.behind(7, ("b", "c")) == 1
    assert coordinator.behind(7, ()) == 0


def test_one_waits_no_longer_than_asked_but_at_a_barrier_for_everybody():
    coordinator = AsyncCoordinator(("a", "b"), 1, 2)
    coordinator.wait(1, ("b",), staleness=0, seconds=0)  # would never return otherwise
    order = []

    def arrive() -> None:
        coordinator.wait(2, ("b",), staleness=5, seconds=0)
        order.append("passed")

    waiting = Thread(target=arrive)
    waiting.start()
    publish(coordinator, "b", 1)
    order.append("there")
    publish(coordinator, "b", 2)
    waiting.join()
    assert order == ["there", "passed"]


def test_what_was_received_is_not_new_again():
    coordinator = AsyncCoordinator(("a", "b", "c"), 1, 9)
    for agent, step in (("a", 1), ("b", 1), ("a", 2)):
        publish(coordinator, agent, step)
    assert [(snapshot.step, snapshot.new) for snapshot in coordinator.snapshots("a", 2, ("b", "c"))] == [
        (2, {"a"}),
        (1, {"a", "b"}),
    ]
    publish(coordinator, "c", 1)
    publish(coordinator, "b", 2)
    publish(coordinator, "b", 3)
    second, first = coordinator.snapshots("a", 2, ("b", "c"))
    assert (second.new, first.new) == ({"b"}, {"c"})
    assert first.published.keys() == {"a", "b", "c"}
    assert [(snapshot.trained_on, snapshot.awaited) for snapshot in (second, first)] == [
        ({"a"}, {"c"}),
        ({"a", "b"}, set()),
    ]
    coordinator.leave("c")
    assert coordinator.snapshots("a", 2, ("b", "c"))[0].awaited == set()


def test_when_it_is_stopping_the_barrier_is_the_first_step_that_nobody_has_begun():
    signals: list[int] = []
    shown: list[str] = []
    coordinator = AsyncCoordinator(("a", "b"), 1, 9, stopping=lambda: bool(signals), say=shown.append)
    assert [coordinator.begin("a") for _ in range(3)] == [1, 2, 3]
    signals.append(1)
    assert [coordinator.begin("b") for _ in range(5)] == [1, 2, 3, 4, None]
    assert [coordinator.begin("a"), coordinator.begin("a")] == [4, None]
    assert shown[3] == "a in step 3, b in step 1"


@settings(max_examples=60)
@given(data=st.data(), agents=st.integers(1, 4), staleness=st.integers(0, 3))
def test_in_any_order_every_agent_receives_everything_once_and_never_too_late(data, agents, staleness):
    """Any order of scheduling: every time, an agent publishes or, if it may, learns."""
    names, barrier = [str(number) for number in range(agents)], 6
    coordinator = AsyncCoordinator(names, 1, barrier)
    steps = {name: coordinator.begin(name) for name in names}
    published: set[str] = set()
    received: dict[str, list[tuple[str, int]]] = {name: [] for name in names}

    def may_go(name: str) -> bool:
        step = steps[name]
        late = 0 if step == barrier else staleness
        return step is not None and (name not in published or coordinator.behind(step, names) <= late)

    while ready := [name for name in names if may_go(name)]:
        name = data.draw(st.sampled_from(ready))
        step = steps[name]
        if name not in published:
            publish(coordinator, name, step)
            published.add(name)
            continue
        for snapshot in coordinator.snapshots(name, step, names):
            assert not snapshot.new or step - snapshot.step <= staleness
            received[name] += [(source, snapshot.step) for source in snapshot.new]
        published.remove(name)
        steps[name] = coordinator.begin(name)
    everything = [(source, step) for source in names for step in range(1, barrier + 1)]
    assert all(sorted(found) == everything for found in received.values())
