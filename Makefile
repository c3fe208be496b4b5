# Everything is set up on first use: a virtual environment in .venv with pinned versions.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check docs clean

demo: .venv/ready ## the main job on embedded data: writes demo/report.html
	$(BIN)/counterveil demo

test: .venv/ready check docs ## everything that must hold
	$(BIN)/pytest -n 2 --dist worksteal

check: .venv/ready ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/ready ## the documentation into site/
	$(BIN)/mkdocs build --strict --quiet

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean: ## back to a fresh clone
	rm -rf .venv site demo build .mypy_cache .ruff_cache .pytest_cache .hypothesis
