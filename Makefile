# Everything a machine with only Python >= 3.11 and make needs: each target sets up .venv if it is missing.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export PIP_CONSTRAINT := constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all shapes check lint format types docs audit bench bench-check clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

.venv/run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "greatcircle needs Python 3.11 or newer; try make PYTHON=python3.11")'
	@echo "Setting up .venv (once, about a minute) ..." >&2
	@$(PYTHON) -m venv .venv
	@$(PIP) --editable '.[app,export]'
	@touch $@

.venv/dev: .venv/run
	@$(PIP) --editable '.[dev]'
	@touch $@

.venv/docs: .venv/run
	@$(PIP) --editable '.[docs]'
	@touch $@

# torch is asked for by its version here and not in pyproject.toml: which build of it a machine wants
# is for its owner to say.
.venv/peers: .venv/run
	@$(PIP) --editable '.[peers]' torch==2.13.0
	@touch $@

install: .venv/dev  ## set up .venv with everything for development

demo: .venv/run  ## train the paper's network by both methods, figures to runs/demo
	$(BIN)/greatcircle demo

test: .venv/dev  ## the tests, under ten minutes
	$(BIN)/python -m pytest

test-all: .venv/dev  ## the tests, slow ones too
	$(BIN)/python -m pytest -m ''

shapes: .venv/dev  ## the tests of the core with array shapes and types checked at run time
	GREATCIRCLE_CHECK_SHAPES=1 $(BIN)/python -m pytest tests/geometry tests/network tests/objective tests/optimise

audit: .venv/dev  ## attack bounds, certificates, files, data, names and signals at random, ten minutes
	$(BIN)/python tests/audit.py $(AUDIT)

check: lint types test  ## all checks before a commit

lint: .venv/dev  ## style, and which package may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

format: .venv/dev  ## fix the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv/dev  ## static types
	$(BIN)/pyright

docs: .venv/docs  ## the documentation as HTML in docs/_build
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build

# For everybody alike: memory that is kept from step to step (docs/scale.md).
bench: export GLIBC_TUNABLES = glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=8589934592:glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1
bench: .venv/peers  ## all benchmarks beside other optimisers, about half an hour; page in docs
	$(BIN)/python benchmarks/iteration.py --write
	$(BIN)/python benchmarks/peers.py run $(if $(DATA),--data $(DATA)) $(BENCH)
	$(BIN)/python benchmarks/peers.py page $(filter --quick,$(BENCH))

bench-check: .venv/dev  ## one iteration against one gradient: fail when a limit is passed or a program grew by a fifth
	$(BIN)/python benchmarks/iteration.py --check

clean:  ## remove the environment and everything generated
	rm -rf .venv runs docs/_build .pytest_cache .ruff_cache .hypothesis
