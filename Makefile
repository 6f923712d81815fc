# make run    install into .venv, train and certify the embedded default, say where the figures are
# make test   the same environment with the test tools: lint, types, tests
# make test-core  the tests of the core alone (agt/README.md)
# make sweep  the tests that make test leaves out for their length, each with a faster sibling in make test;
#             make pytest-all  these and those of make test, in one session, which imports and trains once what both use
# make audit  the auditor against violations planted on purpose, then small audits of a small run
# make mutants  mistakes planted on purpose, each of which the tests named in tests/mutants.yaml must notice (ONLY=NAME JOBS=2);
#             make mutants-check  only that each can still be planted, and that its tests exist
# make smoke  short train + certify runs on the two embedded datasets, from the source tree
# make reproduce-blobs (-octmnist, -imdb, -amex, -all)   the papers' figures and tables; data: DATA=FOLDER
# make reproduce-smoke   all of them, small, without any data
# make paper DATA=FOLDER   the papers on their own data, from the official files in FOLDER, into OUT=outputs/paper; goes on
#             where it stopped
# make adversary   attack the certificates by retraining neighbours: TRIALS=1000 configurations from SEED=0
# make faults   predict, unlearn and ledger stopped at each write, sync and rename (Linux, gcc; hours): ONLY=labels for one
# make golden   the files that many command lines write, by this tree and by BASE=REV: ONLY='box ledger' for some chains
#             make golden-guard   the same command lines with sentences that raise where our own code reads one
# make messages every sentence that agt says, with its place and an example
# make size     statements, files, imports and functions of each folder; fails nothing
# make triton the GPU kernel's tests under Triton's interpreter, without a GPU
# make gpu    on a machine with a GPU: checks, benchmarks, the papers' sizes, in ten minutes; the table is gpu.md
# make docs   the site of documentation, build/site/index.html; a broken link is an error
# make wheel  build the wheel and use it from outside the source tree
#
# Needs Python >= 3.11 and nothing else. pip takes the torch build that the package index offers (on Linux with CUDA);
# for another, name the index that has it:  make run TORCH_INDEX=URL
# Other settings for the run:  make run SETTINGS="dataset=digits model=linear"

VENV ?= .venv
TORCH_INDEX ?=
SETTINGS ?=
RECENT = import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3 python,\
    $(shell $(name) -c '$(RECENT)' 2>/dev/null && echo $(name))))
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet
AGT = $(VENV)/bin/agt
LATEST = $$(ls -dt outputs/train/*/ | head -n 1)

.DEFAULT_GOAL := run
unexport PYTHONDONTWRITEBYTECODE  # else each of the thousands of processes of the tests compiles everything anew
.PHONY: run test test-core pytest pytest-all lint types sweep mutants mutants-check audit smoke reproduce-all reproduce-smoke paper adversary faults golden golden-guard messages size triton gpu docs wheel clean

run: $(VENV)/.installed
	$(AGT) train $(SETTINGS)
	$(AGT) certify run=$(LATEST)

# The checks use what the tests leave of the cores: two things at a time.
test: $(VENV)/.tools
	$(MAKE) -j2 pytest lint types mutants-check

pytest: $(VENV)/.tools
	$(VENV)/bin/python -m pytest -n auto --dist loadfile -m 'not sweep'

pytest-all: $(VENV)/.tools
	$(VENV)/bin/python -m pytest -n auto --dist loadfile

# What tests the core and imports nothing of the rest.
CORE_TESTS = tests/contract/test_layer_rules.py tests/contract/test_losses.py tests/contract/test_products.py \
    tests/soundness/test_margin_votes.py tests/unit/test_accounting.py tests/unit/test_bounds.py \
    tests/unit/test_devices.py tests/unit/test_distributed.py tests/unit/test_gpu_kernel.py \
    tests/unit/test_kernels.py tests/unit/test_lattice.py tests/unit/test_linear_training.py \
    tests/unit/test_numeric.py tests/unit/test_removal_objective.py tests/unit/test_staging.py \
    tests/unit/test_threads.py

test-core: $(VENV)/.tools
	$(VENV)/bin/python -m pytest -n auto --dist loadfile -m 'not sweep' $(CORE_TESTS)

# Only files that have such tests: each worker imports whatever it is given.
sweep: $(VENV)/.tools
	$(VENV)/bin/python -m pytest -n auto --dist loadfile -m sweep \
	  $$(grep -rlE --include='test_*.py' 'mark\.(sweep|sampled)' tests)

JOBS ?= 2
ONLY ?=

mutants: $(VENV)/.tools
	$(VENV)/bin/python scripts/mutants.py --jobs $(JOBS) $(if $(ONLY),--only $(ONLY))

mutants-check: $(VENV)/.tools
	$(VENV)/bin/python scripts/mutants.py --check

lint: $(VENV)/.tools
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.tools
	$(VENV)/bin/mypy

# Whatever is planted must be noticed, and what agt claims of a small run must not be contradicted: some minutes.
AUDITS = outputs/audits
# Draws are the operating system's: at 95 % a sound mechanism would fail one call in twenty.
OF = run=latest confidence=0.999999 output_dir=$(AUDITS)

audit: $(VENV)/.installed
	rm -rf $(AUDITS)
	$(VENV)/bin/python -P scripts/lines.py \
	  'audit selftest output_dir=$(AUDITS)' \
	  'train dataset=digits model=linear kgrid.max=10 training.chosen_on=public output_dir=$(AUDITS)' \
	  'audit certificate $(OF) audit.units=40 audit.neighbours=8 audit.bounded=1 audit.queries=40 audit.lines=2' \
	  'audit replay $(OF) mechanism=randomized_response mechanism.eps=1' \
	  'audit prediction $(OF) mechanism=randomized_response mechanism.eps=1 audit.trials=1000 audit.targets=1' \
	  'audit membership $(OF) audit.shadows=0' \
	  'audit unlearning $(OF) audit.records=4 audit.trials=1 audit.queries=50'

smoke: $(VENV)/.installed
	$(AGT) -q train kgrid.max=5 && $(AGT) -q certify run=$(LATEST) map_resolution=40
	$(AGT) -q train experiment=digits kgrid.max=5 && $(AGT) -q certify run=$(LATEST)

EXPERIMENTS = $(basename $(notdir $(wildcard experiments/*.yaml)))
DATA ?= $(or $(AGT_DATA),data)

# Exit code 4: the data of an experiment is not there, which its message says; the others are made.
reproduce-all: $(VENV)/.installed $(VENV)/.baselines
	set -e; for name in $(EXPERIMENTS); do $(AGT) reproduce $$name data_dir=$(DATA) || test $$? -eq 4; done

# One thread: members of a small ensemble are trained sooner than processes for them have started.
reproduce-smoke: $(VENV)/.installed $(VENV)/.baselines
	$(VENV)/bin/python -P scripts/lines.py $(EXPERIMENTS:%='reproduce % profile=smoke compute.threads=1')

OUT ?= outputs/paper

paper: $(VENV)/.installed $(VENV)/.baselines
	$(VENV)/bin/python scripts/paper.py $(DATA) --out $(OUT)

reproduce-%: $(VENV)/.installed $(VENV)/.baselines
	$(AGT) reproduce $* data_dir=$(DATA)

TRIALS ?= 1000
SEED ?= 0

adversary: $(VENV)/.tools
	$(VENV)/bin/python scripts/adversary.py --trials $(TRIALS) --seed $(SEED)

faults: $(VENV)/.tools
	$(VENV)/bin/python scripts/faults.py $(if $(ONLY),--only "$(ONLY)")

BASE ?=

golden: $(VENV)/.installed
	$(VENV)/bin/python scripts/golden.py $(if $(BASE),--base $(BASE)) --jobs $(JOBS) $(if $(ONLY),--only $(ONLY))

golden-guard: $(VENV)/.tools
	$(VENV)/bin/python scripts/golden.py --guard --jobs $(JOBS) $(if $(ONLY),--only $(ONLY))

messages: $(VENV)/.installed
	$(VENV)/bin/python scripts/messages.py

size:
	$(VENV)/bin/python scripts/size.py

# Triton comes with a CUDA build of torch. Beside another build, its wheel goes into a folder of its own; they are for Linux.
triton: $(VENV)/.tools
	set -e; export TRITON_INTERPRET=1 PYTHONPATH=.triton; case "$$(uname -sm)" in \
	  "Linux x86_64" | "Linux aarch64") \
	    $(VENV)/bin/python -c 'import triton' 2> /dev/null || $(PIP) --no-deps --target .triton triton; \
	    $(VENV)/bin/python -m pytest -n 0 tests/unit/test_gpu_kernel.py ;; \
	  *) echo "make triton: skipped, there is no wheel of Triton for $$(uname -sm)" ;; \
	esac

gpu: $(VENV)/.tools
	$(VENV)/bin/python scripts/gpu.py --out gpu.md

docs: $(VENV)/.tools
	$(VENV)/bin/python scripts/site.py

# The wheel goes into a folder of its own, in front of the source tree's installation, whose dependencies it uses.
wheel: $(VENV)/.tools
	rm -rf dist .wheel-check && mkdir -p .wheel-check/work
	$(VENV)/bin/python -m build --wheel --outdir dist . > .wheel-check/build.log
	$(PIP) --no-deps --target .wheel-check/lib dist/*.whl
	cd .wheel-check/work && export PYTHONPATH=$(CURDIR)/.wheel-check/lib PYTHONSAFEPATH=1 && \
	  python=$(abspath $(VENV))/bin/python && \
	  $$python -c 'import agt, agt_cli, agt_audit as a; assert all(".wheel-check" in p.__file__ for p in (agt, agt_cli, a))' && \
	  $$python -m agt_cli -q train experiment=digits kgrid.max=5 && \
	  $$python $(CURDIR)/scripts/lines.py \
	    'certify run=latest' 'train kgrid.max=5' 'certify run=latest map_resolution=40' \
	    'audit certificate run=latest audit.units=2 audit.neighbours=2 audit.bounded=0 audit.queries=4 audit.lines=1 audit.again=false' \
	    'reproduce blobs profile=smoke only=[001_fig2]'

# torch first, so that TORCH_INDEX decides its build and nothing later replaces it. medmnist declares torchvision, of which
# nothing here is used and whose wheels break on a CPU torch: hence --no-deps.
$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --constraint constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(PIP) --constraint constraints.txt --editable .
	$(PIP) --no-deps medmnist
	touch $@

# The papers' baseline, DP-SGD, needs Opacus.
$(VENV)/.baselines: $(VENV)/.installed
	$(PIP) --constraint constraints.txt --editable '.[dpsgd]'
	touch $@

# dev includes dpsgd, so that the baselines need no installation of their own afterwards.
$(VENV)/.tools: $(VENV)/.installed
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/.baselines

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: none of python3.11, python3.12, python3.13," \
	  "python3, python is; name one with make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) dist build .wheel-check .triton .mypy_cache .pytest_cache .ruff_cache .hypothesis
