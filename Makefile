# Everything is set up on first use: a virtual environment in .venv with pinned versions.
# `make demo` installs the package alone; the other targets add the tools of development.
PYTHON ?= python3
BIN := .venv/bin
# Bytecode is written when a module is first loaded: the environment is smaller and ready sooner.
unexport PYTHONDONTWRITEBYTECODE
# The networks are tiny: more threads of one process only wait for each other.
export OMP_NUM_THREADS ?= 1
INSTALL := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt

.PHONY: demo test pytest long nightly check docs faults load fuzz notebooks wheel clean

demo: .venv/demo-ready ## the main job on embedded data: writes demo/report.html
	$(BIN)/counterveil demo

test: .venv/ready ## everything that must hold, in minutes
	$(MAKE) --no-print-directory --jobs=3 check docs pytest

pytest: .venv/ready ## the tests alone
	$(BIN)/pytest -n 2 --dist worksteal -m "not long and not slow"

long: .venv/ready ## what takes seconds to minutes a test: processes, browsers, clusters, some planted faults
	$(BIN)/pytest -n 2 --dist worksteal -m "long and not slow"

nightly: .venv/ready ## what takes longer still: all planted faults, many neighbours, campaigns
	$(BIN)/pytest -n 2 --dist worksteal -m slow

check: .venv/ready ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/ready ## the documentation into site/
	$(BIN)/mkdocs build --strict  # --quiet would hide the warnings that --strict counts

faults: .venv/ready ## plants known faults in copies of the product; the audit must catch each (NAMES="…": some)
	$(BIN)/python tools/faults $(if $(NAMES),"$(NAMES)" --out results/quick) --overwrite

load: .venv/ready ## ten minutes of polite, greedy, slow and cancelling clients of the service
	$(BIN)/python tools/bench load --overwrite

fuzz: .venv/ready ## a million random requests to the service, which must answer or refuse each
	$(BIN)/python tools/bench fuzz --overwrite

notebooks: .venv/ready ## run examples/*.ipynb and store their new outputs
	$(BIN)/python tools/notebooks.py

wheel: ## the built wheel in an empty environment elsewhere, without a network
	tools/check_wheel.sh $(PYTHON)

.venv/demo-ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable .
	@touch $@

# dice-ml asks for the package xgboost, whose GPU libraries take 700 MB. The extra `dev` holds
# everything else that dice-ml needs, and xgboost-cpu, which is the same module without a GPU.
.venv/ready: .venv/demo-ready
	$(INSTALL) --editable '.[dev]'
	$(INSTALL) --no-deps dice-ml
	@touch $@

clean: ## back to a fresh clone
	rm -rf .venv site demo build .mypy_cache .ruff_cache .pytest_cache .hypothesis
