# Each target first sets up what is missing (lib/setup.sh); if nothing is, that takes a few milliseconds.

PYTHON_HERE := .venv/bin/python
SUBMISSIONS ?=
GPU ?=
ROSTER ?=
TESTS ?=
BASE ?= HEAD
CHANGED =

# Paths reach programs by the environment: text put into a command would be read as one, quotes and all.
export SUBMISSIONS ROSTER

# Jupyter and matplotlib write to the home folder; if it is not writable, they get a separate one.
ifneq ($(shell [ -w "$$HOME" ] && echo yes),yes)
export HOME := $(CURDIR)/.venv/home
endif
export PYTHON
# Without the bytecode of the last time, each of a thousand processes compiles the project anew.
unexport PYTHONDONTWRITEBYTECODE
# Packages that the shell adds (a robot's, another clone's) would be imported before those of .venv.
unexport PYTHONPATH

# One more at a time than the cores of a small machine: many tests wait for a process, or for a limit by the clock.
PYTEST = OMP_NUM_THREADS=1 $(PYTHON_HERE) -m pytest -n 3 --durations=10
# A process can hold one TVM: a run without, one with Relay's where there is one, one with Relax's. All are made, then
# one that failed (or found no test) fails the target.
RELAY := $(if $(filter Linux_x86_64,$(shell uname -s)_$(shell uname -m)),relay)
ALL = failed=; for tvm in none $(RELAY) relax; do $(PYTEST) --tvm $$tvm $(CHANGED) \
	|| { [ $$? = 5 ] && [ -n "$(CHANGED)" ]; } || failed="$$failed $$tvm"; done; \
	if [ -n "$$failed" ]; then echo "Tests failed in these runs (--tvm):$$failed" >&2; exit 1; fi

.DEFAULT_GOAL := help
.PHONY: help setup lab update grade test test-changed test-full quick bench gpu book hub image notebooks prove

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing: virtual environment, pinned packages, Graphviz
	@sh lib/setup.sh
	@mkdir -p .venv/home

lab: setup ## open the course in JupyterLab
	@$(PYTHON_HERE) -m passlab.cli lab

# The set-up of the new version follows the update, so that a version that cannot be set up can still be updated.
update: ## get the newest version; what you wrote and saved is kept
	@[ -x $(PYTHON_HERE) ] || $(MAKE) --no-print-directory setup
	@$(PYTHON_HERE) -m passlab.cli update

grade: setup ## grade a sample class, or your own: make grade SUBMISSIONS=path
	@$(PYTHON_HERE) -m passlab.cli grade --release $(if $(SUBMISSIONS),"$$SUBMISSIONS")

test: setup ## run all tests, or a part: make test TESTS=tests/fx
	@$(if $(TESTS),$(PYTEST) $(TESTS),$(ALL))

test-changed: CHANGED = --changed $(BASE)
test-changed: setup ## what a change can reach: make test-changed BASE=origin/main
	@$(PYTHON_HERE) -m passlab.cli prove --stale
	@$(ALL)

test-full: export PASSLAB_TESTS := full
test-full: setup ## the same with ten times as many random graphs, more kills, a second seed
	@$(ALL)

quick: setup ## the shortest tests of every part, in a minute
	@OMP_NUM_THREADS=1 $(PYTHON_HERE) -m tests.support.quick

bench: setup ## run the benchmarks, each figure next to a baseline from the same run
	@$(PYTHON_HERE) -m autograder.bench

# Without setup: a machine with a GPU has its own torch, and perhaps no network.
gpu: ## check and measure on an NVIDIA GPU: make gpu PYTHON=/path/to/python
	@PYTHONPATH=.:lib $(or $(PYTHON),$(wildcard $(PYTHON_HERE)),python3) -m autograder.gpu $(GPU)

book: setup ## build the course as a web book, with the outputs of its lessons
	@$(PYTHON_HERE) -m autograder.book

hub: setup ## a JupyterHub for a class on this machine: sudo make hub ROSTER=roster.csv
	@$(PYTHON_HERE) -m autograder.hub $(if $(ROSTER),"$$ROSTER")

image: setup ## container images for learners and the instructor, with podman, buildah or docker
	@$(PYTHON_HERE) -m autograder.hub.image

notebooks: setup ## rebuild all notebooks and exercises from their authored sources
	@$(PYTHON_HERE) -m autograder.authoring.notebooks

prove: setup ## put right and wrong answers through all checks, run all notebooks, and write the ledger
	@$(PYTHON_HERE) -m passlab.cli prove --notebooks
