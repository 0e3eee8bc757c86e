# Everything a checkout needs, from nothing but Python 3.11+, make and (for what is missing, as root) apt.
# Bare `make` lists the targets. The work behind them is in tools/prepare.py.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The first Python that is new enough; `make PYTHON=… target` chooses another. A name on the path may be a
# launcher for a version that is not there, so each is tried, not looked up.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done)

BIN := .venv/bin
READY := .venv/.ready
SERVER_READY := .venv-serve/.ready
DOCS_READY := .venv-docs/.ready
# The plain runs see src through the editable install, the compiled runs see .build/compiled before it.
PLAIN := env -u PYTHONPATH $(BIN)/python
COMPILED := PYTHONPATH=$(CURDIR)/.build/compiled $(BIN)/python
# By another name, since make would run a recipe with its own name in it even when asked only to print it (make -n).
AGAIN := $(MAKE)
# The tests start some hundred interpreters, and each would compile the package again where nothing may be kept.
unexport PYTHONDONTWRITEBYTECODE
SPARK := tests/pipeline
# Those around Spark, and those that mostly wait for processes of their own. The three runs of `make test` take about
# as much processor time each, the plain one with the check and the compiled one with its build.
OUTSIDE := $(SPARK) tests/unit/pipeline tests/unit/cli tests/crash tests/docs
# The two runs of `make quick`, about as long each. No test here starts a process. The stores of the contract are not
# closed and opened before each verb, which is most of its time, and those that only tests have are left out.
QUICK := -q -m "not soak and not processes" \
	-k "not Reopened and not AnotherSqlEngine and not Dictionary and not LateSqlite and not LateJsonFile"
QUICK_ONE := tests/contract tests/cancellation $(addprefix tests/unit/,bus client config integrations testing)
QUICK_TWO := tests/property $(addprefix tests/unit/,core codecs stores endpoints)
# Over stores that answer late, as over a network: a sample here, and all tests of the bus in `make soak`.
LATE := $(patsubst %,tests/unit/bus/test_%.py,dead_letters groups outbox queues received renewals sessions sync_bus \
	transactions)
EXCEPTIONS := tests/soak/test_exceptions.py
# Other clients with the same requests as tests/integration/azure_admin, which the compiled package does get.
CLIENTS := tests/integration/openapi tests/integration/test_javascript.py tests/integration/test_python_clients.py
# Of the endpoints only the path of a message is compiled.
ENDPOINTS := $(filter-out %/http,$(wildcard tests/unit/endpoints/*)) \
	$(filter-out %/messages,$(wildcard tests/unit/endpoints/http/*))
# What compiling cannot change: the command line, the transport and the page of a server, the client, the benchmarks and
# anything around Spark are not compiled.
# Crashes of the compiled package are a matter of minutes: `make soak`.
NOT_COMPILED := $(addprefix --ignore=,tests/tidy tests/unit/tools $(OUTSIDE) tests/unit/benchmarks tests/unit/capture \
	tests/unit/client tests/unit/config $(ENDPOINTS) tests/integration/server tests/integration/test_page.py \
	tests/deploy $(CLIENTS))

.PHONY: help
help: ## List the targets
	@echo "unibus: one message bus for Python. Targets:"
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z]+):.*## (.*)/\1|\2/' \
		| while IFS='|' read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

.PHONY: serve
serve: $(SERVER_READY) ## Start the server on unibus.db, in an environment of its own (ARGS=… for its options)
	@echo 'in another shell, to have the command: export PATH="$(CURDIR)/.venv-serve/bin:$$PATH"'
	@env -u PYTHONPATH .venv-serve/bin/unibus serve $(ARGS)

.PHONY: demo
demo: $(SERVER_READY) ## A minute in the terminal: throughput, kill -9, a trace, redrive, SQL (ARGS=… for its options)
	@env -u PYTHONPATH .venv-serve/bin/unibus demo $(ARGS)

.PHONY: quick
quick: $(READY) ## The tests of the inner loop, in about a minute: plain Python, without Spark and without processes
	@mkdir -p .build
	@$(PLAIN) -m pytest $(QUICK) $(QUICK_TWO) > .build/quick.log 2>&1 & second=$$!; \
	trap 'kill $$second 2> /dev/null || true' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
	started=$$(date +%s); failed=0; $(PLAIN) -m pytest $(QUICK) $(QUICK_ONE) || failed=1; \
	wait $$second || failed=1; cat .build/quick.log; \
	if [ $$failed -eq 0 ]; then verdict=passed; else verdict=FAILED; fi; \
	echo "=== quick: $$verdict in $$(($$(date +%s) - started)) s ==="; test $$failed -eq 0

.PHONY: test
test: $(READY) ## Everything: check, the whole suite on plain Python, the suite again on the compiled package
	@$(PLAIN) tools/prepare.py servers
	@$(PLAIN) tools/prepare.py clients
	@$(PLAIN) tools/prepare.py expect plain
	@mkdir -p .build
	@# Side by side, since none keeps all processors busy; the others are told when the first is over.
	@$(AGAIN) compiled > .build/compiled.log 2>&1 & third=$$!; \
	$(PLAIN) -m pytest $(OUTSIDE) > .build/outside.log 2>&1 & second=$$!; \
	trap 'kill $$second $$third 2> /dev/null || true' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
	$(AGAIN) check; \
	echo; echo "=== tests, run 1 of 3: plain Python; tidy has just run ==="; \
	failed=0; $(PLAIN) -m pytest $(addprefix --ignore=,tests/tidy $(OUTSIDE)) || failed=1; \
	TEST_STORE=late:1 $(PLAIN) -m pytest -q $(LATE) || failed=1; \
	echo; echo "=== tests, run 2 of 3: plain Python with processes beside it: Spark, commands, crashes, documents ==="; \
	wait $$second || failed=1; cat .build/outside.log; \
	echo; echo "=== tests, run 3 of 3: compiled by mypyc, without what compiling cannot change ==="; \
	wait $$third || failed=1; cat .build/compiled.log; \
	test $$failed -eq 0
	@echo; echo "=== all three runs passed ==="

.PHONY: spark
spark: $(READY) ## The tests that need Spark alone
	@$(PLAIN) tools/prepare.py servers
	$(PLAIN) -m pytest $(SPARK)

.PHONY: compiled
compiled: $(READY) ## The suite on the compiled package alone
	@$(PLAIN) tools/prepare.py compiled
	@$(COMPILED) tools/prepare.py expect compiled
	$(COMPILED) -m pytest $(NOT_COMPILED)

.PHONY: check
check: $(READY) ## The one gate before a commit: ruff, mypy --strict for each supported Python, and tidy
	@echo "=== check: ruff, mypy, tidy ==="
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(PLAIN) -m tools.pythons types
	$(PLAIN) -m pytest -q tests/tidy

.PHONY: bench
bench: $(READY) ## All benchmarks, on the compiled package, with the peers beside us
	@$(PLAIN) tools/prepare.py servers
	@$(PLAIN) tools/prepare.py compiled
	@$(COMPILED) tools/prepare.py expect compiled
	$(COMPILED) -m benchmarks all

.PHONY: soak
soak: $(READY) ## Minutes of load on the compiled package: memory stays flat, nothing is lost (SECONDS=600 for more)
	@$(PLAIN) tools/prepare.py servers
	@$(PLAIN) tools/prepare.py compiled
	@$(COMPILED) tools/prepare.py expect compiled
	env SECONDS=$(or $(SECONDS),60) $(COMPILED) -m pytest -m soak tests/soak --ignore=$(EXCEPTIONS)
	@# The bus over stores that answer late.
	TEST_STORE=late:2 $(PLAIN) -m pytest -q tests/unit/bus
	@# Exceptions at every call: plain Python is traced, compiled code needs points at which a test can raise.
	@$(PLAIN) tools/prepare.py faults
	env SECONDS=$(or $(SECONDS),60) $(PLAIN) -m pytest -m soak -s $(EXCEPTIONS)
	env SECONDS=$(or $(SECONDS),60) PYTHONPATH=$(CURDIR)/.build/faults/compiled $(BIN)/python -m pytest -m soak -s $(EXCEPTIONS)
	@$(AGAIN) pythons

.PHONY: fuzz
fuzz: $(READY) ## Damaged requests against the server, for SECONDS=60 or more
	env SECONDS=$$((4 * $(or $(SECONDS),60))) $(PLAIN) -m pytest -m soak tests/soak/test_malformed.py

.PHONY: pythons
pythons: $(READY) ## The compiled package on every Python of this machine: build it there and run a short program
	@$(PLAIN) -m tools.pythons compile

.PHONY: docs
docs: $(DOCS_READY) ## The documents and the API reference as a site in .build/site (ARGS=--serve shows it)
	@env -u PYTHONPATH .venv-docs/bin/python -m tools.site $(ARGS)

.PHONY: pictures
pictures: $(READY) ## Take the pictures of docs/images again: the demo, the page of a server (needs Chromium)
	@$(PLAIN) tools/prepare.py servers
	@$(PLAIN) tools/prepare.py compiled
	$(COMPILED) -m tools.terminal_picture
	$(PLAIN) -m tools.screenshots

.PHONY: fmt
fmt: $(READY) ## Format the code and repair what ruff can repair
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

.PHONY: clean
clean: ## Remove everything that was built, but keep .venv, .venv-serve and .venv-docs
	rm -rf .build .cache .venv-bench build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks tools -name __pycache__ -prune -exec rm -rf {} +
	find src \( -name '*.so' -o -name '*.pyd' \) -delete

define NEEDS_PYTHON
	@if [ -z "$(PYTHON)" ]; then \
		echo "error: no Python 3.11 or newer was found" >&2; \
		echo "hint: on Debian and Ubuntu: apt-get install python3 python3-venv; or: make PYTHON=path/to/python3" >&2; \
		exit 1; fi
endef

# Made once, and again when the dependencies change. An interrupted run leaves no stamp and starts over.
$(READY): pyproject.toml
	$(NEEDS_PYTHON)
	@$(PYTHON) tools/prepare.py venv
	@touch $@

# Without the development tools: seconds in place of minutes.
$(SERVER_READY): pyproject.toml
	$(NEEDS_PYTHON)
	@$(PYTHON) tools/prepare.py serve
	@touch $@

$(DOCS_READY): pyproject.toml
	$(NEEDS_PYTHON)
	@$(PYTHON) tools/prepare.py docs
	@touch $@
