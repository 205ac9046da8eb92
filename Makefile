# Set up and run. Every target installs what it needs into .venv first; `make` alone lists the targets.

SUPPORTED := 3.10 3.11 3.12 3.13
VENV      := .venv
BIN       := $(VENV)/bin
STAMP     := $(VENV)/.installed
ARGS      ?=
AGENT     := amped_plus
DEMO       = runs/pretrain/tree_maze/$(AGENT)/demo/seed_1/snapshots

# The interpreter that .venv is made from: the first one that runs and suits (a shim may exist and not run).
# 3.13, which needs a step more than the others, is taken where there is nothing else.
QUERY   = import sys; print("%d.%d" % sys.version_info[:2])
PYTHON ?= $(shell for s in "$(filter-out 3.13,$(SUPPORTED))" 3.13; do \
	  for p in python3 python3.12 python3.11 python3.10 python3.13 python; do \
	    v=$$($$p -c '$(QUERY)' 2>/dev/null); \
	    case " $$s " in (*" $${v:-none} "*) echo $$p; exit;; esac; \
	  done; \
	done; echo python3)

# $(call version,PYTHON,MODULE): its "3.x", or nothing if it does not run or cannot import MODULE.
version = $(shell $(1) -c 'import $(2); $(QUERY)' 2>/dev/null)

comma  := ,
ADVICE  = use Python 3.10-3.13, e.g. make PYTHON=python3.11 $(MAKECMDGOALS)
refuse = $(if $(filter $(SUPPORTED),$(1)),,$(error $(strip \
	$(if $(1),\
	  $(if $(filter 2.% 3.0 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9,$(1)),\
	    $(PYTHON) is Python $(1)$(comma) too old; $(ADVICE),\
	    $(PYTHON) is Python $(1)$(comma) which has not been tried; $(ADVICE)),\
	  $(PYTHON) does not run; $(ADVICE)))))
refuse_bare = $(if $(call version,$(PYTHON),ensurepip),,$(error \
	$(PYTHON) cannot make a .venv: install python3-venv$(comma) or choose another with make PYTHON=...))
new_venv = $(call refuse,$(call version,$(PYTHON),sys))$(refuse_bare)$(PYTHON) -m venv --clear $(VENV)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo pretrain finetune report bench gpu-check test coverage lint types clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP)  ## make .venv with requirements.txt and this checkout (again only when they change)

demo: $(STAMP)  ## six skills in a maze on a CPU: measures on the screen, runs/demo.png; AGENT=amped is the paper's
	$(BIN)/python pretrain.py agent=$(AGENT) domain=tree_maze preset=cpu skill_dim=6 variant=demo num_train_frames=750000 snapshots=[]
	$(BIN)/python -m analysis.maze measure $(DEMO)/snapshot_750000.pt --out runs/demo.csv --mine-steps 4000
	$(BIN)/python -m analysis.maze draw $(DEMO)/snapshot_750000.pt --out runs/demo.png

pretrain: $(STAMP)  ## pretrain.py; ARGS="agent=amped domain=walker preset=cpu seed=3"
	$(BIN)/python pretrain.py $(ARGS)

finetune: $(STAMP)  ## finetune.py; ARGS="agent=amped task=walker_run preset=cpu seed=3"
	$(BIN)/python finetune.py $(ARGS)

report: $(STAMP)  ## every table and figure that the runs at hand allow, on one page: report/index.html
	$(BIN)/python -m analysis.report $(ARGS)

bench: $(STAMP)  ## time of updates, simulators, replay and loop beside plain references: results/bench.json
	$(BIN)/python -m benchmarks $(ARGS)

gpu-check: $(STAMP)  ## does this GPU compute what the plain code computes: gpu_check.json, for a bug report; ARGS="--quick"
	$(BIN)/python -m benchmarks.gpu_check $(ARGS)

test: $(STAMP)  ## the test suite on all cores; ARGS="-k surgery", ARGS="-m slow" or ARGS="-n 0" (one process) for pytest
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal $(ARGS)

coverage: $(STAMP)  ## lines that the tests run, by file: the table at the end, htmlcov/index.html
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal --cov --cov-report=term --cov-report=html $(ARGS)

lint: $(STAMP)  ## ruff: format and rules
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m ruff check $(ARGS)

types: $(STAMP)  ## mypy: the annotations agree with each other
	$(BIN)/python -m mypy $(ARGS)

clean:  ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .coverage htmlcov build amped.egg-info
	find . \( -path ./.git -o -path ./runs \) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# A .venv that runs is updated in place; otherwise it is made anew, after the interpreter has been checked.
# The checkout itself is installed in place, so that notebooks and the amped-* commands find it from anywhere.
PIP = $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check
$(STAMP): requirements.txt pyproject.toml
	@$(if $(filter $(SUPPORTED),$(call version,$(BIN)/python,pip)),:,$(new_venv))
	@echo "Installing requirements.txt into $(VENV); the first time takes a few minutes."
	@$(PIP) -r requirements.txt
	@case "$$($(BIN)/python -c '$(QUERY)')" in 3.13) $(PIP) --no-deps "dm_control>=1.0.50";; esac
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
