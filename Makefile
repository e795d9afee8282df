# `make demo` and `make test` do their own set-up; see CONTRIBUTING.md.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
NEWEST ?= python3.13
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COVER := $(BIN)/python -m slipcover

# Tests start many processes, and none of them should compile the same sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test lint types unit lowest newest docs bench weights results paper clean

setup: $(READY)

$(READY): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "prefermab needs Python 3.11 or later: set PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/prefermab demo

# Types are checked by one process, while tests at times wait for others.
test: lint
	$(MAKE) --jobs 2 types unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/basedpyright

# Lines that no test reaches are listed, and at least so many per cent have to be reached.
FLOOR ?= 95

unit: $(READY)
	$(COVER) --source src/prefermab --json --out .coverage.json -m pytest --numprocesses 2 --dist worksteal $(WARNINGS)
	$(COVER) --merge .coverage.json --out .coverage.json --skip-covered --fail-under $(FLOOR)

# The same tests with the oldest versions that pyproject.toml promises, and on the newest Python,
# which counts lines of signatures as well: so fewer per cent are reached.
lowest:
	$(MAKE) unit VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt WARNINGS='-W default' FLOOR=90

newest:
	$(MAKE) unit VENV=.venv-newest PYTHON=$(NEWEST) FLOOR=90

# The site, from docs/ and the docstrings; nothing in it is loaded from elsewhere.
docs: $(READY)
	rm -rf site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs site
	@! grep -rnE --include='*.html' '<(script|link|img|iframe)[^>]+(src|href)="([a-z]+:)?//' site
	@! grep -rnE --include='*.css' '(url\(|@import)[^;]*//' site
	@echo "The site is in site/index.html."

# Retrains and measures the models that ship in src/prefermab/weights.
weights: $(READY)
	$(BIN)/python -m tools.weights

# How fast it is; on an otherwise idle machine.
bench: $(READY)
	$(BIN)/prefermab bench

# Measures again what docs/results says.
results: $(READY)
	$(BIN)/python -m studies

# Works out the paper's tables and figures again; long, and it can be interrupted.
paper: $(READY)
	$(BIN)/prefermab reproduce --out docs/paper

clean:
	rm -rf .venv* .pytest_cache .ruff_cache dist site
