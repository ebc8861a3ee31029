# Everything runs in .venv, which the first target that needs it makes. A stamp file
# inside it remembers what is installed, so only a changed pyproject.toml installs again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := .venv-clients
INSTALL := .ci/install.py
# Two at a time: many tests start processes of their own and wait for them.
PARALLEL := -n 2 --dist worksteal
# The tests start some hundred interpreters, and pytest rewrites five hundred files for each tier.
unexport PYTHONDONTWRITEBYTECODE

# Where the tests of make quick are: to collect all the others takes longer than these run.
QUICK := $(shell grep -rl "mark\.quick" tests --include="*.py") \
  $(addprefix src/ladderholdout/,errors.py feedback.py metrics mechanisms certificates ledger vault)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two installations must never write into one environment at a time.
.NOTPARALLEL:
.PHONY: help demo quick test test-processes test-long nightly test-deep test-clients \
  test-versions works-with lint types docs site-version check package clean

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed ## watch a holdout be overfitted, and guarded
	$(BIN)/python examples/demo.py

# The tiers. Each test is in exactly one of test, test-processes, test-long, nightly and
# test-deep, which tests/project/test_tiers.py checks against these lines; quick is a part of test.
quick: $(VENV)/.installed-test ## the edit loop: the parts that need neither process nor server
	$(BIN)/python -m pytest $(PARALLEL) $(QUICK) -m "quick and not long and not processes and not nightly and not deep"

# The selection is that of pyproject.toml, so that plain pytest runs the same tests.
test: $(VENV)/.installed-test ## the tests that run in one process and end soon, and the docstrings
	$(BIN)/python -m pytest $(PARALLEL)

test-processes: $(VENV)/.installed-test $(VENV)/.installed-docs ## the tests that start processes or servers
	$(BIN)/python -m pytest $(PARALLEL) -m "processes and not nightly and not deep"

test-long: $(VENV)/.installed-test ## the tests of one process that take long, one by one or together
	$(BIN)/python -m pytest $(PARALLEL) -m "long and not processes and not nightly and not deep"

# pytest ends with status 5 when nothing was collected, so an empty nightly suite fails here.
nightly: $(VENV)/.installed-test ## the statistical and fault runs that take minutes
	$(BIN)/python -m pytest $(PARALLEL) -m "nightly and not deep"

test-deep: $(VENV)/.installed-test $(VENV)/.installed-deep ## the integrations that need PyTorch
	$(BIN)/python -m pytest -m deep

# Other people's software, in an environment of its own. The page of what works is compared with the
# run; make works-with writes it.
test-clients: $(CLIENTS)/.installed ## searchers, trackers and prompt tools of others
	$(CLIENTS)/bin/python -m pytest -c tests/clients/pytest.ini \
	  -n 2 --dist loadfile tests/clients
	$(CLIENTS)/bin/python tests/clients/page.py --check

works-with: $(CLIENTS)/.installed ## write docs/background/works_with.md from the last make test-clients
	$(CLIENTS)/bin/python tests/clients/page.py

lint: $(VENV)/.installed-lint ## ruff: rules and format
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: $(VENV)/.installed-lint ## mypy, strict
	$(BIN)/python -m mypy

# What scripts of the gallery showed is kept in .cache/site until they or the package change.
docs: $(VENV)/.installed-docs ## the pages, the gallery and the tutorial, into site/
	$(BIN)/python -m mkdocs build --strict

# mike calls mkdocs by its name. It commits to the branch gh-pages; PUSH=--push sends that branch.
site-version: $(VENV)/.installed-docs ## the pages as VERSION, and under ALIAS, into the branch gh-pages
	PATH="$(abspath $(BIN)):$$PATH" mike deploy --config-file mkdocs.versions.yml $(PUSH) \
	  --update-aliases $(VERSION) $(ALIAS)
	$(if $(ALIAS),PATH="$(abspath $(BIN)):$$PATH" mike set-default --config-file mkdocs.versions.yml \
	  $(PUSH) $(ALIAS))

check: lint types docs test ## what has to pass before a change is pushed: lint types docs test

# Interpreters that are not on this machine are named and left out.
test-versions: $(BIN)/python ## the quick tests and the wheel with each other Python that is here
	$(BIN)/python .ci/versions.py

package: $(VENV)/.installed-package ## build wheel and sdist, check them, use the wheel in an empty environment
	$(BIN)/python .ci/package.py $(SBOM)

clean: ## remove what was built and cached; .venv and .venv-clients stay
	rm -rf .cache build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -path './$(VENV)*' -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=$$($(PYTHON) --version 2>/dev/null || echo missing); \
	  echo "ladderholdout needs Python 3.11 or newer; $(PYTHON) is $$found." >&2; \
	  echo "Name another one: make PYTHON=python3.11" >&2; \
	  exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(BIN)/python
	@echo "Installing ladderholdout into $(VENV) ..."
	@$(BIN)/python $(INSTALL) --editable .
	@touch $@

# The build for CPUs that the deep tier runs with: the newest one is some gigabytes.
ALSO_deep := torch==2.13.0

# On top of the plain install, so that it does not matter which target came first.
$(VENV)/.installed-%: $(VENV)/.installed
	@echo "Installing the $* tools into $(VENV) ..."
	@$(BIN)/python $(INSTALL) --editable '.[$*]' $(ALSO_$*)
	@touch $@

$(CLIENTS)/.installed: pyproject.toml tests/clients/requirements.txt
	@echo "Installing other people's searches into $(CLIENTS) ..."
	@test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python $(INSTALL) --editable . --requirement tests/clients/requirements.txt
	@touch $@
