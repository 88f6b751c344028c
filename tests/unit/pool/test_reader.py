"""A reader takes each entry once, and counts why it refuses the others."""

from __future__ import annotations

import json

from hacrl.pool import Reader, sign
from hacrl.pool.entry import LARGEST
from hacrl.pool.reader import FURTHEST_AHEAD, LATEST_VERSION, SOURCES_AT_ONCE
from helpers_pool import KEY, OTHER_KEY, entry, lines


def make_reader(*, max_staleness: int = 2, quota: int = 100) -> Reader:
    return Reader(KEY, max_staleness=max_staleness, quota=quota)


def test_good_entries_are_taken_in_the_order_of_writers_and_sources():
    first, second, third = entry(1), entry(2, source="ada"), entry(3, writer="another")
    found, refused = make_reader().accept({"theirs": lines(first, second), "another": lines(third)})
    assert found == [third, second, first]
    assert not refused


def test_100_hostile_entries_are_refused_and_counted():
    good = lines(entry(1))
    reader = make_reader()
    reader.accept({"theirs": good})
    unsigned = [json.dumps(json.loads(good[0]) | {"reward": 0.5, "sample": n}).encode() for n in range(20)]
    other_schema = [json.dumps(json.loads(good[0]) | {"schema": n + 2}).encode() for n in range(10)]
    hostile = {
        "signature": unsigned,
        "schema": other_schema,
        "oversize": [sign(entry(2, response="x" * LARGEST), KEY)] * 10,
        "replayed": good * 20,
        "future": lines(*(entry(n, version=1 + FURTHEST_AHEAD + n) for n in range(1, 11))),
        "malformed": [
            *(b"", b"{", b"null", b"[" * 9000, b"\xff\xfe", b'{"schema":1}', b"1e999", good[0][:-9]),
            *(good[0].replace(b'"reward":1.0', b'"reward":1e999'), b'"' + b"x" * 99),
        ],
        "stale": [],
        "quota": [],
    }
    hostile["signature"] += lines(*(entry(n) for n in range(20)), key=OTHER_KEY)
    everything = [line for kind in hostile.values() for line in kind]
    assert len(everything) == 100
    found, refused = reader.accept({"theirs": everything})
    assert found == []
    assert refused == {cause: len(kind) for cause, kind in hostile.items() if kind}
    found, refused = reader.accept({"theirs": lines(entry(5))})
    assert found == [entry(5)], "nothing of this keeps honest entries out"
    assert not refused


def test_an_entry_counts_only_in_the_segment_it_was_signed_for():
    found, refused = make_reader().accept({"mallory": lines(entry(1))})
    assert not found
    assert refused == {"signature": 1}


def test_old_versions_are_stale_and_stay_out_when_replayed():
    reader = make_reader(max_staleness=2)
    old = lines(*(entry(n, version=n) for n in range(1, 6)))
    found, refused = reader.accept({"theirs": old})
    assert [each.version for each in found] == [3, 4, 5]
    assert refused == {"stale": 2}
    assert reader.accept({"theirs": old}) == ([], {"stale": 2, "replayed": 3})


def test_a_new_run_of_the_same_agent_begins_anew():
    reader = make_reader(max_staleness=0)
    reader.accept({"theirs": lines(entry(1, version=50))})
    found, _ = reader.accept({"again": lines(entry(1, version=1, writer="again"))})
    assert len(found) == 1


def test_a_source_cannot_begin_beyond_all_versions():
    _, refused = make_reader().accept({"theirs": lines(entry(1, version=LATEST_VERSION + 1))})
    assert refused == {"future": 1}


def test_of_too_many_entries_the_newest_are_taken():
    many = {"theirs": lines(*(entry(n) for n in range(10)), entry(1, source="ada"))}
    found, refused = make_reader(quota=3).accept(many)
    assert [(each.source, each.prompt) for each in found] == [
        ("ada", "sort 1="),
        *(("eve", f"sort {n}=") for n in (7, 8, 9)),
    ]
    assert refused == {"quota": 7}


def test_invented_sources_do_not_get_around_the_quota():
    many = lines(*(entry(n, source=f"s{n:03d}") for n in range(100)))
    found, refused = make_reader(quota=2).accept({"theirs": many})
    assert len(found) == 2 * SOURCES_AT_ONCE
    assert refused == {"quota": 100 - 2 * SOURCES_AT_ONCE}


def test_a_restored_reader_has_seen_what_was_seen():
    reader = make_reader()
    reader.accept({"theirs": lines(entry(1, version=3), entry(2, version=4))})
    again = make_reader()
    again.load_state_dict(json.loads(json.dumps(reader.state_dict())))
    late = lines(entry(2, version=4), entry(3, version=4), entry(9, version=1))
    assert again.accept({"theirs": late}) == reader.accept({"theirs": late})
    assert again.state_dict() == reader.state_dict()
