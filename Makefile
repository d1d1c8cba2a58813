# Every target sets up what it needs: a bare checkout with Python 3.11, python3-venv and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_DIR ?= build/demo
STEPS ?= 100000
SEED ?= 0

# Bytecode is compiled once at installation: imports are two to four times faster.
# Telemetry of the libraries is off: nothing leaves the machine.
export UV_COMPILE_BYTECODE := 1
export UV_PYTHON_DOWNLOADS := never
export DAGSTER_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all soak lint dev docs sbom bench lock setup clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Forewarn needs Python 3.11 or later; $(PYTHON) is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8,<1'
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $(STAMP)

demo: $(STAMP)  ## the whole flow on data_samples/, ending with the ranked nodes, the drain plan and a report
	$(BIN)/forewarn demo --out $(DEMO_DIR)

test: $(STAMP)  ## the fast tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: $(STAMP)  ## every test
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)  ## format, style, types, the arrows between the rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: $(STAMP)  ## a hostile world against the hook: STEPS steps from SEED on, the shortest failure if any
	$(BIN)/python -m tests.remediation.machine_soak $(STEPS) $(SEED)

dev: demo  ## The board, Dagster and MLflow pages of the demo, on loopback
	FOREWARN_SETTINGS=$(DEMO_DIR)/forewarn.yaml $(BIN)/forewarn dev

docs: $(STAMP)  ## the pages of docs/ as a site in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site

bench: $(STAMP)  ## speed as ratios against named peers
	$(BIN)/python -m benchmarks.run

sbom: $(STAMP)  ## what the container holds, as CycloneDX, in build/sbom.json
	$(BIN)/python deploy/sbom.py build/sbom.json

LOCK := $(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --custom-compile-command 'make lock'
CONTAINER := --python-platform x86_64-manylinux_2_28

lock: $(STAMP)  ## resolve the lock files anew: this checkout's, and the container's
	$(LOCK) --universal --extra dev pyproject.toml --output-file requirements.lock --upgrade
	$(LOCK) $(CONTAINER) --extra postgres --extra kubernetes --extra dask --extra s3 \
	  --constraints requirements.lock pyproject.toml --output-file deploy/docker/requirements.lock
	$(LOCK) $(CONTAINER) deploy/docker/build.in --output-file deploy/docker/build.lock

clean:
	rm -rf $(VENV) build
