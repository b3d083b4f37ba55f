# The project's chores. Everything is installed into a virtual environment of its own.
VENV ?= .venv
PYTHON ?= python3
BIN = $(abspath $(VENV))/bin
READY = $(VENV)/.ready
CPP := $(shell find csrc -name '*.cc' -o -name '*.h')
NATIVE := CMakeLists.txt $(shell find csrc -name CMakeLists.txt) $(CPP)
# CMake and Ninja come with the environment.
export PATH := $(BIN):$(PATH)

.PHONY: test test-python test-cpp slow exhaustive train lint format sanitize clean

test: test-cpp test-python

$(READY): pyproject.toml $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

# JAX keeps what tests compile, for the other processes of the tests and for the next run.
test-python slow exhaustive: export JAX_COMPILATION_CACHE_DIR := $(abspath build/programs)
test-python slow exhaustive: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
test-python slow exhaustive: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES := -1

# The slow tests run what XLA makes for users, but for LLVM's part; the fast ones see tests/conftest.py.
slow exhaustive: export XLA_FLAGS := --xla_backend_optimization_level=0

test-python: $(READY)
	$(BIN)/python -m pytest -q -n auto --dist worksteal

slow: $(READY)
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m slow

# The whole cross product of programs, transformations and executors: over an hour.
exhaustive: $(READY)
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m exhaustive

test-cpp: $(READY)
	cmake -S . -B build/cpp -G Ninja -DJAXREC_PYTHON=OFF
	cmake --build build/cpp
	ctest --test-dir build/cpp -j 2 --output-on-failure

# make train [DATA=directory of a treebank] [ARGS="--epochs 3 ..."]
train: $(READY)
	$(BIN)/python -m jaxrec.train $(if $(DATA),--data "$(DATA)") $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

# The C++ tests under the address and undefined-behaviour sanitizers, then under the thread sanitizer.
sanitize: $(READY)
	for kind in address thread; do \
	  cmake -S . -B build/$$kind -G Ninja -DJAXREC_PYTHON=OFF -DJAXREC_SANITIZE=$$kind && \
	  cmake --build build/$$kind && \
	  ctest --test-dir build/$$kind -j 2 --output-on-failure || exit 1; \
	done

clean:
	rm -rf build $(VENV)
