# make check     what a commit needs: formatting, words, the rules of the house, and the types of changed files
# make demo      install, show what overt is for, write overt-demo.html and overt-demo.png here
# make test      install with the tools, run the everyday tests
# make test-most  these, and all slow tests but those of large products that no three parameters need: what .ci/run runs; 1.2 GB more
# make test-all  all tests;  make lint, make types  the checks;  make clean  remove what these made
# make test-oldest  the everyday tests with the oldest versions that pyproject.toml declares, in an environment of their own
# make test-torch TORCH=2.7  the everyday tests with another version of torch, in build/torch-2.7 (up to 7 GB: CUDA comes along);
#                TESTS="tests/attention/kernels tests/lens" runs only those
# make wheel     a wheel for this system, into dist/;  make wheel OVERT_PURE=1  one for every system, without the native core
# make docs      the documentation site, into build/site; every code block on it runs while it is made
# make notebooks the chapters as notebooks, into notebooks/, and run them
# make test-gpu  the tests of the kernels for GPUs on an NVIDIA GPU, where torch is built for CUDA
# make mutants MODULE=attention/masks/base  change the module in every way, one at a time, and say which changes no test notices; SAMPLE=40 tries some, of SEED=1 others
# make wasm      the core of live pages, src/overt/play/core.wasm, from native/ by clang and lld, which have no part in installing overt
# make sanitize  the native core's own tests, with every address and every undefined operation watched
#
# Another interpreter: make PYTHON=/path/to/python test

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
# What the demonstration and the README's commands need: neither data frames nor notebooks. A variable, since a comma ends an argument of $(call).
DEMO := text,train,plot
OLDEST := build/oldest
WITH_TORCH = build/torch-$(TORCH)
SHAPED := tests/attention/test_attend.py tests/attention/test_trace.py tests/attention/test_summary.py tests/attention/promises/test_laws.py \
  tests/attention/promises/test_meaning.py tests/attention/pieces/test_normalizers.py tests/attention/pieces/test_biases.py
# What the native core is compiled from; when any of it changes, overt is installed anew.
NATIVE := CMakeLists.txt $(shell find native -type f)
# The kernels for GPUs, in Triton's interpreter: their own tests, and those that they share with the native ones.
TRITON_TESTS := tests/attention/kernels/gpu/test_triton.py tests/attention/kernels/gpu/test_gpu.py \
  tests/attention/kernels/test_native_attend.py tests/attention/kernels/test_native_masks.py
# The core of live pages: the kernels that it has, and what a model needs beside them. The same clang makes the same bytes (14.0.6, Debian 12).
WASM := native/attention/masks/mask.cpp native/attention/dot/dot.cpp native/attention/summary/summary.cpp \
  native/attention/programs/program.cpp native/attention/programs/machine.cpp $(sort $(wildcard native/wasm/*.cpp))
CORE := src/overt/play/core.wasm
CLANG := clang++
WASM_FLAGS := --target=wasm32 -msimd128 -mbulk-memory -std=c++17 -O3 -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti \
  -nostdlib -nostdinc++ -isystem native/wasm/include -Inative -DOVERT_LEVEL=wasm -DOVERT_BYTES=16 -DOVERT_SMALL=1 -fvisibility=hidden \
  -Wall -Wextra -Wno-unknown-pragmas -Wno-bitwise-conditional-parentheses -Wno-unused-variable \
  -Wl,--no-entry,--gc-sections,--strip-all,--stack-first,-z,stack-size=262144
NATIVE_TESTS := tests/attention/kernels/native/test_native_numpy.py tests/attention/kernels/native/test_native_module.py \
  tests/attention/kernels/test_native_summary.py tests/attention/kernels/derivatives/test_own_scores.py
# Nothing here asks a hub for a model: what a test or the demonstration reads comes with a package.
export HF_HUB_OFFLINE = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Tests run beside each other, a process a processor; their threads sleep while they wait, and leave it to the others.
# Each begins with a half of its own, so that what a file's tests share is made once. What took longest, and what was left out and why,
# stand at the end.
PYTEST := $(BIN)/python -m pytest -n logical --dist worksteal --durations=10 --durations-min=5 -rs
export OMP_WAIT_POLICY = passive
# Every process that imports overt or a test reads what the first one compiled, also where the environment says to compile anew.
unexport PYTHONDONTWRITEBYTECODE
# Where the tests leave pictures of the page, for people to look at.
export OVERT_PICTURES = $(CURDIR)/build/pictures

# Python compiles the few modules that are imported; pip would compile all, one after the other.
UNCOMPILED := --no-compile --constraint constraints.txt

# A command whose output goes to a log, with one line that moves on a terminal. If it fails, the end of the log is shown, and the
# cure of a full disk, which may have cut the log short, or of a missing network.
FULL_DISK := The disk is full. Free 4 GB, or install on another one: cp -r . /other/disk/overt && make -C /other/disk/overt
NO_NETWORK := pip could not reach its package index. Connect to a network, or name a mirror (PIP_INDEX_URL=https://… make) or a folder of \
  wheels (PIP_NO_INDEX=1 PIP_FIND_LINKS=/path make)
FREE = $$(df -Pk . | awk 'END { print $$4 }')
define quietly
@$(1) > $(VENV)/install.log 2>&1 & job=$$!; trap 'kill $$job; exit 130' INT TERM; \
  seconds=0; while kill -0 $$job 2>/dev/null; do \
    if [ -t 1 ]; then printf '\r  %d:%02d  %-60.60s' $$((seconds / 60)) $$((seconds % 60)) "$$(tail -n 1 $(VENV)/install.log)"; fi; \
    sleep 1; seconds=$$((seconds + 1)); done; \
  if [ -t 1 ]; then printf '\r%70s\r' ''; fi; \
  wait $$job || { tail -n 20 $(VENV)/install.log >&2; echo "The installation failed; its whole output: $(VENV)/install.log" >&2; \
    if grep -qE "No space left|Disk quota" $(VENV)/install.log || [ "$(FREE)" -lt 20000 ]; then \
      echo "$(FULL_DISK) $(MAKECMDGOALS)" >&2; \
    elif grep -qE "NewConnectionError|NameResolutionError|Temporary failure in name resolution|Network is unreachable|timed out" $(VENV)/install.log; then \
      echo "$(NO_NETWORK)" >&2; \
    fi; exit 1; }
endef

.PHONY: check demo wheel test test-most test-slow test-all test-oldest test-torch test-gpu mutants wasm sanitize lint types typed docs notebooks clean
.DELETE_ON_ERROR:

demo: $(VENV)/.has-demo
	@$(BIN)/overt demo

wheel: | $(BIN)/python
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

# The first run checks the shapes in signatures against real calls, see tests/conftest.py. test-most runs the everyday and the slow tests
# in one run, so that what a file's tests share is made once. 5 is pytest's word for "no tests".
define shapes
	OVERT_CHECK_SHAPES=1 $(PYTEST) -m "not slow" \
	  -k "not compile and not inductor and not refused and not says_so" $(SHAPED)
endef
INTERPRETED = TRITON_INTERPRET=1 OMP_NUM_THREADS=1 $(PYTEST) $(TRITON_TESTS)

test: $(VENV)/.has-dev
	$(shapes)
	$(PYTEST) -m "not slow"

test-most: $(VENV)/.has-slow
	$(shapes)
	$(INTERPRETED) -m "not exhaustive"
	$(PYTEST) -m "not exhaustive"

test-slow: $(VENV)/.has-slow
	$(PYTEST) -m "slow and not exhaustive" || [ $$? -eq 5 ]
	$(INTERPRETED) -m "not exhaustive"

# One thread a process, since each mutant has a process of its own; tests/house/mutants.py says which tests a module has.
mutants: $(VENV)/.has-mutants
	OMP_NUM_THREADS=1 $(BIN)/python tests/house/mutants.py $(MODULE) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

test-all: $(VENV)/.has-slow
	$(PYTEST)

# Old packages among newer ones warn of each other, and an older NumPy of the file that a full disk cut short: not ours to mend.
test-oldest: | $(BIN)/python
	$(BIN)/python -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install uv
	$(OLDEST)/bin/uv pip install --python $(OLDEST)/bin/python --resolution lowest-direct --only-binary :all: --no-binary overt \
	  --editable ".[dev]"
	$(OLDEST)/bin/python -m pytest -n logical -m "not slow" -W ignore::DeprecationWarning \
	  -W ignore::pytest.PytestUnraisableExceptionWarning

# Torch and what it requires are installed here. All other packages, and the native core, which links no torch, are those of $(VENV).
test-torch: $(VENV)/.has-dev
	$(if $(TORCH),,$(error Name a version of torch: make test-torch TORCH=2.7))
	$(BIN)/python -m venv --clear $(WITH_TORCH)
	$(WITH_TORCH)/bin/python -m pip install --quiet "torch==$(TORCH).*"
	$(BIN)/python -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
	  > $$($(WITH_TORCH)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/others.pth
	$(WITH_TORCH)/bin/python -m pytest -n logical --dist worksteal -m "not slow" -rs $(TESTS)

test-gpu: $(VENV)/.has-slow
	$(BIN)/python -c "import torch; assert torch.cuda.is_available(), 'torch sees no GPU here'"
	$(BIN)/python -m pytest tests/attention/kernels/gpu/test_gpu.py

# The sanitizers come before all else that Python loads, and C++'s own library with them, whose exceptions they watch. What Python
# keeps until it ends is no leak. Nothing is captured, so that a report is seen. The threads
# are the system's, as on macOS and Windows.
sanitize: $(VENV)/.has-slow
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B build/sanitize -G Ninja -DOVERT_SANITIZE=ON -DOVERT_CHECK=ON \
	  -DOVERT_TWO_LEVELS=ON -DOVERT_OPENMP=OFF \
	  -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" -Dnanobind_ROOT="$$($(BIN)/python -m nanobind --cmake_dir)"
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build build/sanitize
	build/sanitize/check
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
	  OVERT_NATIVE=build/sanitize $(BIN)/python -m pytest --capture=no $(NATIVE_TESTS)

wasm:
	$(CLANG) $(WASM_FLAGS) $(WASM) -o $(CORE)

# The rules of the house without its doctests. Of src, pyright reads the files that differ from the last commit.
CHANGED = $(shell git diff --name-only --diff-filter=d HEAD -- 'src/*.py')
check: $(VENV)/.has-slow
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if [ -x $(BIN)/codespell ]; then $(BIN)/codespell; fi
	@if [ -n "$(CHANGED)" ]; then $(BIN)/pyright $(CHANGED); fi
	$(BIN)/python -m pytest -q -n 0 tests/house/test_house.py tests/house/test_ways.py tests/house/test_release.py \
	  -k "not examples and not benchmark_finds and not extra_brings"

lint: $(VENV)/.has-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.has-slow
	$(BIN)/pyright

# As a user's type checker sees the package: how many public names have a type.
typed: $(VENV)/.has-slow
	$(BIN)/python tests/house/completeness.py

# Words that are right and look wrong stand in docs/making/words.txt; those of the tests are wrong on purpose.
docs: $(VENV)/.has-docs
	$(BIN)/codespell
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs build --strict --clean

notebooks: $(VENV)/.has-slow
	$(BIN)/python docs/making/notebooks.py
	$(PYTEST) tests/house/docs/test_notebooks.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis overt-demo.html overt-demo.png
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@[ -w . ] || { echo "overt is installed into .venv in this folder, which cannot be written to. Copy it: cp -r . /tmp/overt && make -C /tmp/overt demo" >&2; exit 2; }
	@for python in $(PYTHON) python3.11 python3; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Making $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv $(VENV) && exit 0; \
	    free=$(FREE); rm -rf $(VENV); \
	    if [ "$$free" -lt 20000 ]; then echo "$(FULL_DISK) $(MAKECMDGOALS)" >&2; exit 2; fi; \
	    echo "$$python cannot make a virtual environment, for the reason above. If venv or ensurepip is missing, on Debian: apt install python3-venv" >&2; exit 2; \
	  fi; \
	done; \
	echo "overt needs Python 3.11 or newer, and found none as python3.11 or python3. Name one: make PYTHON=/path/to/python" >&2; \
	exit 2

# The stamps are older than pyproject.toml, constraints.txt or the native core after these change, and only then is anything
# installed again. Without a compiler overt is installed without its native core; the demonstration runs so, the tests do not.
$(VENV)/.has-demo: pyproject.toml constraints.txt $(NATIVE) | $(BIN)/python
	@echo "Installing overt with torch, text, training and plots into $(VENV): 5 to 9 minutes, 410 MB to download, 1.4 GB on disk"
	@echo "(more if pip's configured sources offer torch for CUDA only)"
	$(call quietly,$(BIN)/python -m pip install $(UNCOMPILED) --editable ".[$(DEMO)]")
	@touch $@

$(VENV)/.has-dev: pyproject.toml constraints.txt $(NATIVE) | $(BIN)/python
	@echo "Installing overt and the tools for tests into $(VENV): 5 to 9 minutes, 510 MB to download, 1.7 GB on disk"
	@echo "(more if pip's configured sources offer torch for CUDA only; less after make demo)"
	$(call quietly,$(BIN)/python -m pip install $(UNCOMPILED) --editable ".[dev]")
	@$(BIN)/python -c "import sys; from overt import native; sys.exit(native.why_not())"
	@touch $@ $(VENV)/.has-demo

$(VENV)/.has-mutants: $(VENV)/.has-slow
	$(BIN)/python -m pip install $(UNCOMPILED) --editable ".[mutants]"
	@touch $@

# What an extra adds, without compiling the native core a second time.
define adds
$(BIN)/python -c "from importlib.metadata import requires; from packaging.requirements import Requirement as R; \
  needs = [need for need in map(R, requires('overt')) if need.name != 'overt' and need.marker]; \
  print(*('%s[%s]%s' % (need.name, ','.join(need.extras), need.specifier) for need in needs \
    if need.marker.evaluate({'extra': '$(1)'}) and not need.marker.evaluate({'extra': ''})), sep='\n')" > $(VENV)/$(1).txt
$(BIN)/python -m pip install $(UNCOMPILED) --requirement $(VENV)/$(1).txt
endef

$(VENV)/.has-slow: $(VENV)/.has-dev
	$(call adds,slow)
	@touch $@

$(VENV)/.has-docs: $(VENV)/.has-slow
	$(call adds,docs)
	@touch $@
