# Every target first makes the environment in .venv what it needs to be; nothing is rebuilt when nothing changed.
PYTHON ?= python3
WORKSHOP = $(PYTHON) workshop/prepare.py

.DEFAULT_GOAL := help
.PHONY: help demo test check lint bench docs wheel wire engines clean constraints

help:
	@sed -n 's/^\([a-z]*\): *## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo:   ## set everything up, then run the main job
	@$(WORKSHOP) run && PYTHONDONTWRITEBYTECODE= .venv/bin/penstock demo

test:   ## set everything up, then pass all tests
	@$(WORKSHOP) test && .venv/bin/python workshop/suite.py --numprocesses auto --maxprocesses 6 --dist loadfile --no-loadscope-reorder

check:  ## rules and quick tests, while writing
	@$(WORKSHOP) test && .venv/bin/python workshop/check.py

lint:   ## only the rules about the code itself
	@$(WORKSHOP) test && .venv/bin/python -m pytest -m gate

bench:  ## measure every claim, as ratios
	@$(WORKSHOP) test && .venv/bin/python -m benchmarks

docs:   ## build the documentation into site/
	@$(WORKSHOP) test && .venv/bin/mkdocs build --strict --quiet && echo "open site/index.html"

wheel:  ## one abi3 wheel in dist/, tried in a clean environment
	@$(WORKSHOP) test && .venv/bin/python workshop/wheel.py

wire:   ## what pages know of the server's answers, from their declarations
	@$(WORKSHOP) test && .venv/bin/python workshop/wire.py

engines: ## pass the tests that need a real Kubernetes (builds one, once)
	@$(WORKSHOP) engines && PENSTOCK_ENGINES=1 .venv/bin/python -m pytest tests/engines -q

clean:  ## remove what was built (keeps .venv)
	rm -rf target dist site build python/penstock/view/web/static python/penstock/_rust*.so python/penstock/process/bin .venv/stamps

# pin what is installed now
constraints:
	@.venv/bin/python workshop/pin.py
