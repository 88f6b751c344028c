"""Every reference of a data set as a model would write it, for `hacrl verify`; with a seed, shuffled.

python benchmarks/answers.py FILE.jsonl [SEED] > answers.jsonl
"""

import json
import random
import sys
from pathlib import Path

from hacrl.rewards.extract import gold_answer

lines = Path(sys.argv[1]).read_text(encoding="utf-8").strip().split("\n")
golds = [json.loads(line)["answer"] for line in lines]
answers = [gold_answer(gold) for gold in golds]
if len(sys.argv) > 2:
    random.Random(int(sys.argv[2])).shuffle(answers)
for gold, answer in zip(golds, answers, strict=True):
    response = f"The answer is \\boxed{{{answer}}}."
    print(json.dumps({"answer": gold, "response": response, "same": gold_answer(gold) == answer}))
