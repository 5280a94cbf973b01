PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN    := .venv/bin
READY  := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test lint format docs bench clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /: /'

# The environment is made anew whenever what it should hold has changed.
$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,lint]'
	@touch $@

demo: $(READY) ## run the demonstration
	$(BIN)/python examples/demo.py

test: $(READY) ## run every test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(READY) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## mend style where a tool can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## build the documentation into out/site, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open out/site/index.html"

bench: $(READY) ## run the benchmarks
	@for file in benchmarks/*.py; do echo "$$file"; $(BIN)/python "$$file" || exit 1; done

clean: ## remove the environment and what tools have written
	rm -rf .venv build dist out demo .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
