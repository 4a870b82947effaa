# One command sets up, one checks; continuous integration runs the same ones.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
CONSTRAINTS := constraints.txt
SITE := .venv-site
# a file's tests share what they build, so they stay in one process; conftest.py has the order
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
# what is compiled once is not compiled again by every process that a test starts
export PYTHONDONTWRITEBYTECODE :=
DATA := $(if $(SUFFICE_DATA),,@echo "SUFFICE_DATA is unset: tests over third-party files are skipped")

.PHONY: help setup demo test test-slow faults check format docs site bench browser postgres test-integrations clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-18s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(PIP) install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(CONSTRAINTS) tools/requirements-dev.txt | $(BIN)/python
	$(PIP) install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[all]' -r tools/requirements-dev.txt
	@touch $@ $(VENV)/.demo

setup: $(VENV)/.dev ## build .venv with every extra and the development tools

demo: $(VENV)/.demo ## record, calibrate, replay and report with the embedded model
	$(BIN)/suffice demo --out demo

test: $(VENV)/.dev ## the tests
	$(DATA)
	$(BIN)/python -m pytest $(PARALLEL) -m 'not slow'

test-slow: $(VENV)/.dev ## guarantees, all examples of every property, other long tests
	$(DATA)
	$(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile thorough -m 'slow or hypothesis'

faults: $(VENV)/.dev ## kills, full disks, broken servers, damaged files: docs/reliability.md
	$(BIN)/python -m pytest -n auto --dist worksteal tests/faults

check: $(VENV)/.dev $(SITE)/.ready ## format, lint, types, generated docs, prose, the site, pinned packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/hadolint Dockerfile
	$(BIN)/mypy
	$(BIN)/python tools/make_docs.py --check
	$(BIN)/python tools/python_page.py --check
	$(BIN)/python tools/supply.py --check
	$(BIN)/python tools/sizes.py
	$(BIN)/python tools/prose.py
	$(SITE)/bin/zensical build --strict

format: $(VENV)/.dev ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev ## write the generated pages
	$(BIN)/python tools/make_docs.py
	$(BIN)/python tools/python_page.py
	$(BIN)/python tools/supply.py

$(SITE)/.ready: tools/requirements-site.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

site: $(SITE)/.ready ## the documentation site, in site/
	$(SITE)/bin/zensical build --strict

bench: $(VENV)/.dev ## the benchmarks behind docs/benchmarks.md
	$(BIN)/python -m benchmarks.run

INTEGRATIONS := $(patsubst tests/integrations/requirements-%.txt,%,$(wildcard tests/integrations/requirements-*.txt))

test-integrations: $(addprefix test-integration-,$(INTEGRATIONS)) ## loops and retrievers of other frameworks, each in its own environment

test-integration-%:
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -e . -r tests/integrations/requirements-$*.txt
	.venv-$*/bin/python -m pytest -p no:cacheprovider -W default tests/integrations/test_$*.py

browser: ## Debian's Chromium for the report's browser tests
	@command -v chromium >/dev/null || [ -n "$(CHROMIUM)" ] || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } || echo "Chromium was not installed: the browser tests will be skipped"

postgres: ## Debian's PostgreSQL for the tests of a store on a server
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql; } || echo "PostgreSQL was not installed: the tests of a store on a server will be skipped"

clean:
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .cache site demo
