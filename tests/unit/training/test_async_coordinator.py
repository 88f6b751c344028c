"""Who waits for whom, decided without a clock."""

from threading import Thread

from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.training.async_coordinator import AsyncCoordinator
from hacrl.training.step import StepRecord


def publish(board: AsyncCoordinator, agent: str, step: int) -> None:
    board.publish(agent, StepRecord(step))


def test_the_slowest_peer_that_is_still_here_decides():
    board = AsyncCoordinator(("a", "b", "c"), 5, 9)
    publish(board, "b", 5)
    publish(board, "b", 6)
    publish(board, "c", 5)
    assert board.behind(7, ("b",)) == 1
    assert board.behind(7, ("b", "c")) == 2
    board.leave("c")
    assert board.behind(7, ("b", "c")) == 1
    assert board.behind(7, ()) == 0


def test_one_waits_no_longer_than_told_but_at_a_meeting_for_everybody():
    board = AsyncCoordinator(("a", "b"), 1, 2)
    board.wait(1, ("b",), staleness=0, seconds=0)  # would never return otherwise
    order = []

    def meet() -> None:
        board.wait(2, ("b",), staleness=5, seconds=0)
        order.append("met")

    meeting = Thread(target=meet)
    meeting.start()
    publish(board, "b", 1)
    order.append("there")
    publish(board, "b", 2)
    meeting.join()
    assert order == ["there", "met"]


def test_what_was_heard_is_not_new_again():
    board = AsyncCoordinator(("a", "b", "c"), 1, 9)
    for agent, step in (("a", 1), ("b", 1), ("a", 2)):
        publish(board, agent, step)
    assert [(news.step, news.new) for news in board.news("a", 2, ("b", "c"))] == [(2, {"a"}), (1, {"a", "b"})]
    publish(board, "c", 1)
    publish(board, "b", 2)
    publish(board, "b", 3)
    second, first = board.news("a", 2, ("b", "c"))
    assert (second.new, first.new) == ({"b"}, {"c"})
    assert first.published.keys() == {"a", "b", "c"}
    assert [(news.taught, news.awaited) for news in (second, first)] == [({"a"}, {"c"}), ({"a", "b"}, set())]
    board.leave("c")
    assert board.news("a", 2, ("b", "c"))[0].awaited == set()


def test_when_it_is_stopping_all_meet_in_the_first_step_that_nobody_has_begun():
    signals: list[int] = []
    told: list[str] = []
    board = AsyncCoordinator(("a", "b"), 1, 9, stopping=lambda: bool(signals), say=told.append)
    assert [board.begin("a") for _ in range(3)] == [1, 2, 3]
    signals.append(1)
    assert [board.begin("b") for _ in range(5)] == [1, 2, 3, 4, None]
    assert [board.begin("a"), board.begin("a")] == [4, None]
    assert told[3] == "a in step 3, b in step 1"


@settings(max_examples=60, deadline=None)
@given(data=st.data(), agents=st.integers(1, 4), staleness=st.integers(0, 3))
def test_whoever_is_fast_everybody_hears_everything_once_and_never_too_late(data, agents, staleness):
    """Any order in which agents get their turns: each turn is to publish an answer or to learn if it may."""
    names, meeting = [str(number) for number in range(agents)], 6
    board = AsyncCoordinator(names, 1, meeting)
    steps = {name: board.begin(name) for name in names}
    published: set[str] = set()
    heard: dict[str, list[tuple[str, int]]] = {name: [] for name in names}

    def may_go(name: str) -> bool:
        step = steps[name]
        late = 0 if step == meeting else staleness
        return step is not None and (name not in published or board.behind(step, names) <= late)

    while ready := [name for name in names if may_go(name)]:
        name = data.draw(st.sampled_from(ready))
        step = steps[name]
        if name not in published:
            publish(board, name, step)
            published.add(name)
            continue
        for news in board.news(name, step, names):
            assert not news.new or step - news.step <= staleness
            heard[name] += [(source, news.step) for source in news.new]
        published.remove(name)
        steps[name] = board.begin(name)
    everything = [(source, step) for source in names for step in range(1, meeting + 1)]
    assert all(sorted(found) == everything for found in heard.values())
