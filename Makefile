# Everything from a fresh machine: `make report` and `make test` create the virtual environment they need by themselves.
# It is set up again only when pyproject.toml or constraints.txt changed.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.napkin-installed

# The CPU build of torch is enough for everything but timing a GPU, and a tenth of the size. Where this index cannot be
# reached, or is set empty (`make TORCH_INDEX= test`), pip takes what its own index has for the same version.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
PINNED := $(shell grep '^torch==' constraints.txt)
TORCH_FLAGS := $(if $(TORCH_INDEX),--retries 1 --timeout 20 --extra-index-url $(TORCH_INDEX))

# Many tests start a process of their own: what each imports is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup report test quick test-torch test-all every test-thirdparty lint bench sweep stored clean

help:
	@echo "make report    derive and check GPT-2 124M, one AdamW step, into out/gpt2 (report.md, report.html, report.json)"
	@echo "make test      lint, types and the quick tests"
	@echo "make test-all  lint, types and every test"
	@echo "make test-torch TORCH=2.15.0  the quick tests that torch has a part in, under another version of it"
	@echo "make sweep     every architecture of transformers, derived and measured (an hour or more; goes on where it stopped)"
	@echo "make test-thirdparty  modules of other packages, derived and measured, in out/thirdparty-venv (goes on where it stopped)"
	@echo "make stored    the stored closed forms, derived anew where the code changed what it says (minutes for each)"
	@echo "make gallery   the reports under reports/gallery, made anew"
	@echo "make bench     timings, as ratios to torch's own FLOP counter"
	@echo "make clean     remove what these made, the environment included"

setup: $(STAMP)

# torch comes first and without its dependencies: the second line then finds the exact pin satisfied and downloads no other build.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Napkin needs Python 3.11 or later: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "installing $(PINNED) (about 200 MB) and the other pinned packages into $(VENV)" >&2
	$(BIN)/python -m pip install -qq --no-deps $(TORCH_FLAGS) $(PINNED)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[hf,test]'
	touch $@

report: $(STAMP)
	$(BIN)/napkin report gpt2 B=8 T=1024 --gpu h100-sxm -o out/gpt2

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy --strict -p calc -p reports

# mypy works on one core: it runs beside the tests.
test:
	@$(MAKE) --no-print-directory -j2 lint quick

quick: $(STAMP)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow and not gpu'

# make test-torch TORCH=2.15.0: under another torch, in an environment of its own. Only what torch has a part in is run.
TORCH_VENV = .venv-torch-$(TORCH)
TORCH_TESTS := tests/trace tests/rules tests/measure tests/derive tests/pipeline/test_check.py tests/test_zoo_exact.py tests/platform/test_torch_private.py
test-torch:
	@test -n "$(TORCH)" || { echo "name a version of torch: make test-torch TORCH=2.15.0" >&2; exit 2; }
	test -x $(TORCH_VENV)/bin/python || $(PYTHON) -m venv $(TORCH_VENV)
	grep -v '^torch==' constraints.txt > $(TORCH_VENV)/constraints.txt
	$(TORCH_VENV)/bin/python -m pip install -qq $(TORCH_FLAGS) -c $(TORCH_VENV)/constraints.txt 'torch==$(TORCH)' -e '.[hf,test]'
	$(TORCH_VENV)/bin/python -m pytest -q -n 2 --dist loadfile -m 'not slow and not gpu' $(TORCH_TESTS)

test-all:
	@$(MAKE) --no-print-directory -j2 lint every

every: $(STAMP)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

# Every architecture of the installed transformers; what was done is kept in out/sweep, so that it goes on where it stopped.
SEED ?= 0
sweep: $(STAMP)
	$(BIN)/python -m tests.sweep --seed $(SEED)

# Modules of other people's packages, in an environment that has these beside everything else; what was done is kept in out/thirdparty.
THIRDPARTY := out/thirdparty-venv

test-thirdparty: $(THIRDPARTY)/.installed
	$(THIRDPARTY)/bin/python -m tests.thirdparty

$(THIRDPARTY)/.installed: pyproject.toml constraints.txt tests/thirdparty/requirements.txt
	$(MAKE) setup VENV=$(THIRDPARTY)
	$(THIRDPARTY)/bin/python -m pip install -q --no-deps -r tests/thirdparty/requirements.txt
	touch $@

# Forms whose code changed in words alone are kept; a test fails until this was run.
stored: $(STAMP)
	$(BIN)/python -m calc.pipeline.precomputed.make

gallery: $(STAMP)
	$(BIN)/python -m tests.gallery

bench: $(STAMP)
	$(BIN)/python -m tests.bench

clean:
	rm -rf $(VENV) .venv-torch-* build dist out .napkin-cache .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
