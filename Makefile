# Everything runs in .venv with the versions of constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Tests are spread over this many processes; files that start ranks or servers stay together.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --no-loadscope-reorder

.PHONY: help install lint check test soak demo bench docs clean
help:
	@echo "make demo   a guarded Lightning run on bundled data, and an attack; under a minute"
	@echo "make check  lint, types, architecture and the quick tests; under two minutes"
	@echo "make test   lint, types and every test"
	@echo "make soak   the long proofs at full size: random calls, kills, many processes; an hour or more"
	@echo "make bench  ratios against what you would use instead: a table, JSON, docs/benchmarks.md and the README's table; 15 minutes"
	@echo "make docs   the documentation, as pages in site/"
	@echo "make lint   ruff and mypy only"
	@echo "make clean  removes .venv, caches, demo/ and site/"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV): some minutes the first time, nothing after that."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Left out here: what trains, draws many samples, starts processes or builds the site. What asks a
# PostgreSQL server is marked as integration by tests/conftest.py.
LONG := training tuning prediction hugging_face demo experiments docs fuzz statistical audit bounds/test_published_tables.py \
	holdout/test_door_hypothesis.py holdout/test_multiplicative_weights.py mechanisms/test_private_patience.py test_cli.py test_cli_close.py test_cli_misuse.py test_examples.py \
	test_benchmarks.py test_configs.py test_hydra.py test_packaging.py test_readme.py report/test_browser.py report/test_command.py \
	ledger/test_boards.py ledger/test_cuts.py ledger/test_run_replay.py ledger/test_same_data.py holdout/test_sealed_leaks.py \
	accounting/test_sampled_gaussian.py service/test_board.py service/client service/test_page_browser.py service/test_api_schema.py \
	service/test_upload_fuzzing.py
check: lint
	$(PYTEST) tests $(addprefix --ignore=tests/,$(LONG)) -m "not slow and not integration and not statistical"

test: lint
	$(PYTEST)

# The same tests as in `make test`, at the sizes the changelog quotes (tests/support/machines/soak.py).
soak: install
	TORCH_HOLDOUT_SOAK=1 $(BIN)/python -m pytest -q -m soak --timeout 7200 -s tests

demo: install
	$(BIN)/torch-holdout demo

bench: install
	$(BIN)/python benchmarks/run.py --page docs/benchmarks.md --readme README.md

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site
	@echo "open site/index.html"

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis demo site
