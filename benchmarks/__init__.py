"""How fast hacrl is: one command per question, run from the root of a clone.

    python -m benchmarks.trl        one training step beside the same step of TRL
    python -m benchmarks.vllm       generation with a real model beside vLLM
    python -m benchmarks.engines    whether `hacrl simulate` predicts how long vLLM takes
    python -m benchmarks.real       training steps of real models together
    python -m benchmarks.earlier    a step of a real model now and at an earlier commit
    python -m benchmarks.loading    from the start of a process to a real model's first token
    python -m benchmarks.scaling    how the cost of a step grows
    python -m benchmarks.long_responses  peak memory of ranks that learn from long responses
    python -m benchmarks.two_cores  what a second core adds when two agents are independent
    python -m benchmarks.steps      where the time of a training step goes, and what saving costs
    python -m benchmarks.runtimes   all agents in one process against one process per agent on Ray
    python -m benchmarks.waiting    agents on Ray that wait for each other against agents that do not
    python -m benchmarks.verifiers  responses checked per second
    python -m benchmarks.pool       what sharing through a pool costs

    python -m benchmarks.exactness    whether an agent computes what plain transformers computes
    python -m benchmarks.toy_models   accuracy of the toy models before training
    python -m benchmarks.abilities    what real models can do before training, on many small tasks
    python -m benchmarks.pool_learning  what two trainers learn through a pool, beside two agents in one run
    python -m benchmarks.calibration  how often a comparison's verdict is wrong, by simulation

`python -m benchmarks.gold_responses` makes a file to try a verifier on. `--help` shows a command's options.
"""
