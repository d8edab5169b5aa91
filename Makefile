# Every target sets up what it needs and says what it does. Needs Python 3.11+ and gcc; installs the rest.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test check bench bench-receipts soak clean services

help:
	@echo "make demo   the whole story on this machine, nothing configured"
	@echo "make test   sets up and runs all tests"
	@echo "make check  formatting, types, import rules, architecture"
	@echo "make bench  CPU per request, paired with nginx in the same run"
	@echo "make bench-receipts   a million receipts on SQLite and PostgreSQL: cost, weight, search, inclusion (N=COUNT)"
	@echo "make soak   100,000 calls of two tenants through the upstream pool, with random cancels"

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml
	@echo "== virtual environment in $(VENV), packages locked by hash"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --require-hashes -r requirements/runtime.txt
	@$(BIN)/python -m pip install -q hatchling editables
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	@echo "== test tools"
	@$(BIN)/python -m pip install -q --require-hashes -r requirements/dev.txt
	@touch $@

demo: $(VENV)/.runtime
	@$(BIN)/assay demo $(DEMO)

test: $(VENV)/.dev
	@echo "== tests"
	@$(BIN)/python -m pytest -q tests

check: $(VENV)/.dev
	@echo "== ruff, mypy, import rules, architecture"
	@$(BIN)/ruff format --check -q gateway migrations tests
	@$(BIN)/ruff check -q gateway migrations tests
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q tests/architecture

bench: $(VENV)/.dev
	@$(BIN)/python tests/bench/hot_path.py

bench-receipts: $(VENV)/.dev
	@$(BIN)/python tests/bench/receipts.py $(N)
	@ASSAY_TEST_REPLICA_RECEIPTS=50000 $(BIN)/python -m pytest -q tests/integration/test_receipts_store.py -k two_replicas

soak: $(VENV)/.dev
	@SOAK_CALLS=100000 $(BIN)/python -m pytest -q -s tests/faults/test_pool_soak.py

clean:
	rm -rf $(VENV) build dist
