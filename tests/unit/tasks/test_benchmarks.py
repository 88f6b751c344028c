import json

import pytest

from hacrl import tasks
from hacrl.tasks import TaskError, benchmarks
from hacrl.tasks.benchmarks import BENCHMARKS, load_benchmark

MATH = {"problem": "What is $1+1$?", "level": "Level 1", "type": "Algebra", "solution": "It is $\\boxed{2}$."}
ROWS = {
    "math": [MATH],
    "math500": [
        {
            "problem": "P",
            "solution": "S",
            "answer": "\\frac{1}{2}",
            "subject": "Algebra",
            "unique_id": "test/7",
        }
    ],
    "gsm8k": [{"question": "How many?", "answer": "1,000 + 234 = <<1000+234=1234>>1,234\n#### 1,234"}],
    "aime2025": [{"problem": "P", "answer": "070", "id": "0"}],
    "amc23": [{"id": 3, "question": "P", "answer": 27.0, "url": "u"}],
    "minerva": [{"question": "P", "answer": "1.2e-3"}],
    "olympiadbench": [{"id": 1, "question": "P", "final_answer": ["2", "$-1$"], "subfield": "Algebra"}],
}
GOLD = {
    "math": "2",
    "math500": "\\frac{1}{2}",
    "gsm8k": "1234",
    "aime2025": "070",
    "amc23": 27.0,
    "minerva": "1.2e-3",
    "olympiadbench": "2, $-1$",
}


def write(directory, stem, rows):
    (directory / f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_gold_answer_and_template_of_each_benchmark(name, tmp_path):
    write(tmp_path, f"{name}_test", ROWS[name])
    task = tasks.load(name, directory=str(tmp_path))
    (prompt,) = task.test
    question = ROWS[name][0].get("problem") or ROWS[name][0]["question"]
    assert prompt.text == question + " Let's think step by step and output the final answer within \\boxed{}."
    assert prompt.columns["answer"] == GOLD[name]
    assert task.verifier == "math"


def test_only_aime_is_evaluated_by_the_best_of_several_responses(tmp_path):
    protocols = {}
    for name in BENCHMARKS:
        write(tmp_path, f"{name}_test", ROWS[name])
        protocols[name] = tasks.load(name, directory=str(tmp_path)).protocol
    assert protocols.pop("aime2025") == "best@16"
    assert set(protocols.values()) == {"avg@1"}


def test_training_and_test_files_and_a_custom_template(tmp_path):
    write(tmp_path, "math_train", [MATH, {**MATH, "problem": "Another"}])
    write(tmp_path, "math_test", [MATH])
    with pytest.warns(UserWarning, match="1 of 2 training prompts are also test prompts"):
        task = load_benchmark("math", directory=str(tmp_path), template="Q: {prompt}\nA:")
    assert [prompt.text for prompt in task.train] == ["Q: Another\nA:"]
    assert [(prompt.id, prompt.kind) for prompt in task.test] == [("math-test-1", "Algebra")]


def test_a_benchmark_without_training_data_may_omit_the_split_in_the_file_name(tmp_path):
    write(tmp_path, "math500", ROWS["math500"])
    task = tasks.load("math500", directory=str(tmp_path))
    assert [prompt.id for prompt in task.test] == ["test/7"]
    assert len(task.train) == 0


def test_the_hub_is_used_when_no_directory_is_given(monkeypatch):
    asked = []

    def read_split(source, split, subset):
        asked.append((source, split, subset))
        yield "row 1", {**ROWS["gsm8k"][0], "question": split}

    monkeypatch.setattr(benchmarks, "read_split", read_split)
    task = tasks.load("gsm8k")
    assert asked == [("openai/gsm8k", "train", "main"), ("openai/gsm8k", "test", "main")]
    assert [prompt.id for prompt in (*task.train, *task.test)] == ["gsm8k-train-1", "gsm8k-test-1"]


def test_rows_without_question_or_gold_are_reported_by_line(tmp_path):
    write(tmp_path, "math_test", [MATH, {"problem": "P", "solution": "no box"}, {"text": "P", "answer": "1"}])
    with pytest.raises(TaskError) as caught:
        tasks.load("math", directory=str(tmp_path))
    assert "math_test.jsonl, line 2: no answer" in str(caught.value)
    assert "math_test.jsonl, line 3: no column 'problem' or 'question'; there are: text" in str(caught.value)


def test_missing_files_and_bad_templates_are_reported(tmp_path):
    with pytest.raises(
        TaskError, match=r"has no gsm8k_train\{\.jsonl,.*\} or gsm8k_test\{.*leave `directory` out"
    ):
        tasks.load("gsm8k", directory=str(tmp_path))
    with pytest.raises(TaskError, match="the template must contain"):
        tasks.load("gsm8k", directory=str(tmp_path), template="no place for it")
