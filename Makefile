# Everyday commands of a developer. `make` lists them. CONTRIBUTING.md explains them.
# Variables are given on the command line: make one TEST=tests/ring SEED=7 ...

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TEST ?= tests/core
SCENARIO ?= append_age
SEED ?= 1
FLAME ?= build/flame
QUICK := tests/core/test_scenarios.py tests/core/test_roles.py tests/record tests/ring tests/link
# What a sanitized build runs: its modules are loaded by an interpreter that is not sanitized.
SANITIZED ?= tests/ring tests/record

.DEFAULT_GOAL := help
.PHONY: help build rebuild generate quick test long one scenario rewrite seed sanitizers sanitized debug flame \
	bench lint format docs packages

help: ## list these commands
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 12

build: ## make .venv, compile, and install what the tests need
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[dev]'

rebuild: ## compile what changed since the last build
	$(BIN)/python setup.py -q build_ext --inplace

generate: ## write what is generated from other sources (a test sees that it is up to date)
	$(BIN)/python -m tools.generate

quick: ## run the tests that need no processes, in under a minute
	$(BIN)/python -m pytest -q -m 'not slow and not long and not processes and not spark' $(QUICK)

test: ## run the tests: about half an hour
	$(BIN)/python -m pytest

long: ## run the tests that `make test` leaves out: more seeds, more moments, further searches
	$(BIN)/python -m pytest -m long

one: ## run one test: make one TEST=tests/log/test_log.py::test_name
	$(BIN)/python -m pytest -x -vv -m '' $(TEST)

scenario: ## run one scenario of tests/core/scenarios: make scenario SCENARIO=vote_grant
	$(BIN)/python -m pytest -q tests/core/test_scenarios.py -k '$(SCENARIO)'

rewrite: ## write what the scenario prints now into its file, and show the difference
	KRAFTFAST_REWRITE=1 $(BIN)/python -m pytest -q tests/core/test_scenarios.py -k '$(SCENARIO)'
	git --no-pager diff -- tests/core/scenarios

seed: ## run one seed of the simulator: make seed SEED=7
	$(BIN)/python -m kraftfast.sim --seed $(SEED)

sanitizers: ## run the C kernels plain and under the address, undefined and thread sanitizers
	$(BIN)/python -m pytest -q tests/cext -k 'not mutant'

sanitized: ## compile the modules with AddressSanitizer into build/sanitized, and run $(SANITIZED)
	rm -rf build/sanitized && mkdir -p build/sanitized
	git ls-files -z -- kraftfast cext tests pyproject.toml setup.py README.md LICENSE \
		| xargs -0 cp --parents -t build/sanitized
	cd build/sanitized && KRAFTFAST_SANITIZE=address,undefined \
		$(abspath $(BIN))/python setup.py -q build_ext --inplace
	cd build/sanitized && ASAN_OPTIONS=detect_leaks=0 \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		$(abspath $(BIN))/python -m pytest -q -p no:cacheprovider $(SANITIZED)

debug: ## compile with debug information, and run TEST in gdb
	KRAFTFAST_DEBUG=1 $(BIN)/python setup.py -q build_ext --inplace
	gdb -q -ex run --args $(BIN)/python -m pytest -x -p no:cacheprovider $(TEST)

flame: ## draw a flame graph of each process under load: make flame FLAME=build/flame
	$(BIN)/kraftfast profile cpu throughput --dir build -o $(FLAME)

bench: ## measure commits a second and their latency on the disk of this folder
	$(BIN)/kraftfast bench throughput --dir build --json
	$(BIN)/kraftfast bench latency --dir build --json

lint: ## check style, layout and types
	$(BIN)/python -m pytest -q tests/style/test_checkers.py tests/style/test_stubs.py

format: ## lay out all Python and C, as `make lint` wants it
	$(BIN)/python -m ruff format .
	$(BIN)/clang-format -i cext/*.[ch]

docs: ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

packages: ## make the sdist, and compare it with the repository
	.ci/packages $(BIN)/python
