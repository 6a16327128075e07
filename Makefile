# Everything runs in .venv with the versions of constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help install lint test demo bench docs clean
help:
	@echo "make demo   a guarded Lightning run on bundled data, and an attack; under a minute"
	@echo "make test   lint, types and every test"
	@echo "make bench  ratios against what you would use instead: a table, JSON and docs/benchmarks.md"
	@echo "make docs   the README's code, run and checked"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -q

demo: install
	$(BIN)/torch-holdout demo

bench: install
	$(BIN)/python benchmarks/run.py --page docs/benchmarks.md

docs: install
	$(BIN)/python -m pytest -q tests/test_readme.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis demo
