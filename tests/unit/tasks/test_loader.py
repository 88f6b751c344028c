"""Files and Hugging Face datasets, end to end through `tasks.load`."""

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl import tasks
from hacrl.tasks import TaskError
from hacrl.tasks.rows import hold_out, text_key
from hacrl.types import Prompt

ROWS = [{"prompt": f"What is {n} + {n}?", "answer": str(2 * n), "level": n % 3} for n in range(40)]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_json(path, rows):
    path.write_text(json.dumps(rows))
    return str(path)


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def write_parquet(path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


WRITERS = {"jsonl": write_jsonl, "json": write_json, "csv": write_csv, "parquet": write_parquet}


@pytest.mark.parametrize("ending", WRITERS)
def test_every_kind_of_file_gives_the_same_prompts(ending, tmp_path):
    task = tasks.load(WRITERS[ending](tmp_path / f"sums.{ending}", ROWS), test_share=0, verifier="numeric")
    assert [prompt.text for prompt in task.train] == [row["prompt"] for row in ROWS]
    assert [prompt.columns["answer"] for prompt in task.train] == [row["answer"] for row in ROWS]
    assert [int(prompt.columns["level"]) for prompt in task.train] == [row["level"] for row in ROWS]
    assert task.verifier == "numeric"
    assert len(task.test) == 0


def test_columns_can_be_named_and_the_others_are_passed_on(tmp_path):
    rows = [{"question": "1+1?", "solution": "2", "name": "first", "topic": "sums", "hint": [1, 2]}]
    columns = {"prompt": "question", "answer": "solution", "id": "name", "kind": "topic"}
    task = tasks.load(write_jsonl(tmp_path / "a.jsonl", rows), columns=columns, test_share=0)
    assert list(task.train) == [
        Prompt("first", "1+1?", "sums", {"solution": "2", "answer": "2", "hint": [1, 2]})
    ]


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
def test_chat_messages_are_kept_as_messages(ending, tmp_path):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    path = WRITERS[ending](tmp_path / f"chat.{ending}", [{"prompt": messages, "answer": "2"}])
    (prompt,) = tasks.load(path, test_share=0).train
    assert prompt.is_chat
    assert list(prompt.text) == messages


def test_bad_rows_are_listed_by_line_with_the_reason(tmp_path):
    path = tmp_path / "bad.jsonl"
    good = '{"prompt": "a", "answer": "1", "id": "x"}'
    lines = [
        good,
        "{not json",
        "[1]",
        '{"question": "b", "answer": "1"}',
        "",
        '{"prompt": "  ", "answer": "1"}',
        '{"prompt": 7, "answer": "1"}',
        '{"prompt": [{"role": "user"}], "answer": "1"}',
        '{"prompt": [{"role": "assistant", "content": "hi"}], "answer": "1"}',
        '{"prompt": "c", "answer": null}',
        good,
    ]
    path.write_text("\n".join(lines))
    with pytest.raises(TaskError) as caught:
        tasks.load(str(path))
    heading, *problems = str(caught.value).splitlines()
    assert heading == f"{path}: 9 bad row(s)"
    expected = {
        2: "not valid JSON",
        3: "a JSON object is expected, not list",
        4: "no column 'prompt'; there are: question, answer",
        6: "column 'prompt' is empty",
        7: "must be text or a list of chat messages, not 7",
        8: "a message needs a text `role` and `content`, not {'role': 'user'}",
        9: "the last message is the assistant's",
        10: "no answer: column 'answer' is missing or null",
        11: "id 'x' was already used in line 1",
    }
    for problem, (line, reason) in zip(problems, expected.items(), strict=True):
        assert problem.startswith(f"  {path}, line {line}: ")
        assert reason in problem


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_half_of_a_surrogate_pair_is_refused_by_row_and_column(ending, tmp_path):
    half = "2+2=\udc80"
    rows = [
        {"prompt": half, "answer": "1"},
        {"prompt": [{"role": "user", "content": half}], "answer": "1"},
        {"prompt": "a", "answer": half},
        {"prompt": "b", "answer": "1", "id": half},
        {"prompt": "c", "answer": "1", "kind": half},
        {"prompt": "d \U0001f600", "answer": "1"},
    ]
    path = tmp_path / f"rows.{ending}"
    path.write_text(json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows)))
    with pytest.raises(TaskError) as caught:
        tasks.load(str(path))
    heading, *problems = str(caught.value).splitlines()
    assert heading == f"{path}: 5 bad row(s)"
    where = "row" if ending == "json" else "line"
    for number, (problem, column) in enumerate(
        zip(problems, ("prompt", "prompt", "answer", "id", "kind"), strict=True), start=1
    ):
        reason = f"column {column!r} has half of a surrogate pair (\\udc80): remove it"
        assert problem == f"  {path}, {where} {number}: {reason}"


def test_at_most_ten_bad_rows_are_listed(tmp_path):
    path = write_jsonl(tmp_path / "bad.jsonl", [{"answer": "1"}] * 25)
    with pytest.raises(TaskError, match="25 bad row") as caught:
        tasks.load(path)
    assert len(str(caught.value).splitlines()) == 1 + 10 + 1
    assert str(caught.value).endswith("and 15 more")


def test_csv_errors_give_the_line_number_of_the_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('prompt,answer\n"two\nlines",1\nx,1,surplus\n')
    with pytest.raises(TaskError, match="line 4: 3 fields, but the header has 2"):
        tasks.load(str(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "a.jsonl: the data set is empty"),
        ("a.json", b"[]", "a.json: the data set is empty"),
        ("a.csv", b"prompt,answer\n", "a.csv: the data set is empty"),
        ("a.json", b"{}", "a JSON list of objects is expected, not dict"),
        ("a.json", b"[1,\n", "a.json, line 2: not valid JSON"),
        ("a.jsonl", b"\xff\xfe", r"a.jsonl: not UTF-8 text \(byte 0\)"),
        ("a.csv", b'prompt,answer\n"a', "a.csv, line 2: not valid CSV"),
        (
            "a.jsonl",
            b'{"prompt": ' + b"[" * 100_000,
            "line 1: not valid JSON: maximum recursion depth",
        ),
        ("a.json", b"[" * 100_000, "a.json: not valid JSON: maximum recursion depth"),
        (
            "a.jsonl",
            b'{"prompt": ' + b"9" * 5_000 + b"}",
            "line 1: not valid JSON: Exceeds the limit",
        ),
        ("a.parquet", b"no parquet at all", "a.parquet: not a parquet file"),
    ],
)
def test_unusable_files_are_named_with_the_reason(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TaskError, match=message):
        tasks.load(str(tmp_path / name))


def test_answers_may_be_missing_for_custom_reward_functions(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"prompt": "Write a poem."}])
    with pytest.raises(TaskError, match="line 1: no answer"):
        tasks.load(path)
    (prompt,) = tasks.load(path, answers=False, test_share=0).train
    assert prompt.columns == {}


def test_a_test_file_is_used_and_its_questions_are_removed_from_training(tmp_path):
    train = write_jsonl(tmp_path / "train.jsonl", ROWS)
    test = write_jsonl(tmp_path / "test.jsonl", [ROWS[3], {"prompt": "new", "answer": "1"}])
    with pytest.warns(UserWarning, match="1 of 40 training prompts are also test prompts"):
        task = tasks.load(train, test=test)
    assert [prompt.id for prompt in task.test] == ["test-1", "test-2"]
    assert len(task.train) == 39
    assert not {text_key(prompt) for prompt in task.train} & {text_key(prompt) for prompt in task.test}


def test_one_id_in_both_files_is_refused(tmp_path):
    train = write_jsonl(tmp_path / "train.jsonl", [{"prompt": "a", "answer": "1", "id": 7}])
    test = write_jsonl(tmp_path / "test.jsonl", [{"prompt": "b", "answer": "1", "id": 7}])
    with pytest.raises(TaskError, match=r"train\.jsonl and .*test\.jsonl have ids in common, such as '7'"):
        tasks.load(train, test=test)


@given(
    st.lists(st.text(max_size=3), min_size=1, max_size=60), st.sampled_from([0.1, 0.25, 0.5]), st.randoms()
)
def test_holding_out_is_disjoint_complete_and_independent_of_order(texts, share, shuffler):
    prompts = [Prompt(str(number), text) for number, text in enumerate(texts)]
    train, test = hold_out(prompts, share)
    assert sorted(prompt.id for prompt in train + test) == sorted(prompt.id for prompt in prompts)
    assert not {prompt.text for prompt in train} & {prompt.text for prompt in test}
    shuffler.shuffle(prompts)
    assert {prompt.id for prompt in hold_out(prompts, share)[1]} == {prompt.id for prompt in test}


def test_held_out_share_of_distinct_prompts(tmp_path):
    task = tasks.load(write_jsonl(tmp_path / "a.jsonl", ROWS), test_share=0.25)
    assert (len(task.train), len(task.test)) == (30, 10)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("sort", {"sede": 1}, "task 'sort': wrong settings: sede: Unexpected keyword argument"),
        ("digits", {"train": "many"}, "train: Input should be a valid integer"),
        ("a.jsonl", {"columns": {"promt": "q"}}, "columns.promt: Unexpected keyword argument"),
        ("a.jsonl", {"test_share": 2}, "test_share: Input should be less than or equal to 1"),
        ("missing.jsonl", {}, "missing.jsonl: no such file"),
        ("sortt", {}, "no task 'sortt'; there are: sort, count, add3, .*, gsm8k"),
    ],
)
def test_errors_name_the_task_and_the_setting(name, settings, message):
    with pytest.raises(TaskError, match=message):
        tasks.load(name, **settings)


def test_settings_may_come_from_a_recipe_as_plain_json():
    assert len(tasks.load("sort", train=30, lengths=[4, 4]).train[0].columns["answer"]) == 4


def test_saved_datasets_with_splits(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"question": row["prompt"], "answer": row["answer"]} for row in ROWS]
    splits = {"train": datasets.Dataset.from_list(rows[:30]), "dev": datasets.Dataset.from_list(rows[30:])}
    datasets.disable_progress_bars()
    try:
        datasets.DatasetDict(splits).save_to_disk(tmp_path / "sums")
        splits["dev"].save_to_disk(tmp_path / "one")
    finally:
        datasets.enable_progress_bars()
    columns = {"prompt": "question"}
    task = tasks.load(str(tmp_path / "sums"), test_split="dev", columns=columns)
    assert [prompt.text for prompt in task.train] == [row["question"] for row in rows[:30]]
    assert [prompt.text for prompt in task.test] == [row["question"] for row in rows[30:]]
    assert len(tasks.load(str(tmp_path / "one"), columns=columns, test_share=0).train) == 10
    with pytest.raises(TaskError, match="no split 'validation'; there are: train, dev"):
        tasks.load(str(tmp_path / "sums"), test_split="validation", columns=columns)
    with pytest.raises(TaskError, match=r"sums \(train\), row 1: no column 'prompt'"):
        tasks.load(str(tmp_path / "sums"))


def test_a_hub_dataset_is_loaded_by_id_subset_and_split(monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = []

    def load_dataset(source, subset, *, split):
        asked.append((source, subset, split))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert len(tasks.load("owner/sums", subset="easy", split="all", test_share=0).train) == 40
    assert asked == [("owner/sums", "easy", "all")]


def test_a_hub_dataset_that_cannot_be_loaded_is_a_task_error(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def load_dataset(*arguments, **settings):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(TaskError, match="owner/sums: cannot load split 'train': no network"):
        tasks.load("owner/sums")
