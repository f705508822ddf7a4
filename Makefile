# `make help` says what there is. Everything is installed into .venv the first time it is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP_INSTALL = PYTHON=$(BIN)/python scripts/pip-install -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install opengl train test check format clean

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## ?/\t/' | expand -t 12

install: $(INSTALLED)  ## install the package and its tools into .venv

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else "ogspr needs Python 3.11 to 3.13, $(PYTHON) is %d.%d; try: make PYTHON=python3.12 ..." % v)'
	@echo "installing into $(VENV): once, and it takes a few minutes"
	@echo "1 of 3  an environment for Python"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "2 of 3  PyTorch, the largest part"
	@$(PIP_INSTALL) torch
	@echo "3 of 3  everything else"
	@$(PIP_INSTALL) -e '.[all,dev]'
	@$(BIN)/python -c 'import dm_control' 2>/dev/null || $(PIP_INSTALL) --no-deps dm_control
	@touch $@

opengl: $(INSTALLED)  ## make sure that OpenGL works: installs Mesa as root on Debian/Ubuntu
	@PYTHON=$(BIN)/python scripts/ensure-opengl

train: opengl  ## train the embedded default; ends with a curve and a video
	@$(BIN)/ogspr quickstart

test: opengl  ## run the tests
	@$(BIN)/python -m pytest -n auto --dist worksteal

check: $(INSTALLED)  ## lint, format, types, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/test_architecture.py

format: $(INSTALLED)  ## rewrite the code in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:  ## remove what was installed and built; runs stay
	rm -rf $(VENV) report build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
