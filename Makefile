# Two commands do: `make up` and `make test`. `make help` lists the rest.

CARGO   ?= cargo
PYTHON  ?= python3
# dev is built quickly, release runs quickly: `make up PROFILE=release`.
PROFILE ?= dev
# What `make bench` and `make chaos` build: `make bench BENCH_PROFILE=release` measures what is shipped.
BENCH_PROFILE ?= optimized
# More for `holdfast up`: `make up ARGS="--split --runners 3"`.
ARGS    ?=
# CI says --locked.
FLAGS   ?=

TARGET   = $(or $(CARGO_TARGET_DIR),target)
HOLDFAST = $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/holdfast
BACKENDS = $(PYTHON) deploy/dev/backends.py

.DEFAULT_GOAL := help
.PHONY: help up down build console web-dev embedder test test-clients test-web test-down chaos soak fuzz bench bench-memory lint deny models helm-check helm-run helm-upgrade proto-check pin-images images sbom fmt fmt-check doc docs

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /  make \1#/p' $(MAKEFILE_LIST) | column -t -s '#'

build: ## build the `holdfast` binary
	$(CARGO) build $(FLAGS) --profile $(PROFILE) -p holdfast

# Console and documentation first: the binary takes in what is built. Without the model everything works,
# and is found by its words only.
up: ## run everything on this machine, and say what to try
	@$(MAKE) --no-print-directory console || echo "make: going on without the web console"
	@$(MAKE) --no-print-directory docs || echo "make: going on without the documentation"
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory embedder || echo "make: going on without the local embedding model"
	@$(HOLDFAST) up --detach $(ARGS)

down: build ## stop it again
	@$(HOLDFAST) down

console: ## build the web console, if its sources have changed; the next build of the binary takes it in
	@$(PYTHON) deploy/dev/console.py --dir .holdfast

# The gateway's HTTP address: of `make up`, or another one.
GATEWAY ?= http://127.0.0.1:18789
web-dev: ## serve the web console from its sources, for the gateway that runs: GATEWAY=http://127.0.0.1:18789
	@$(PYTHON) deploy/dev/console.py --dir .holdfast dev $(GATEWAY)

embedder: ## fetch the local embedding model, once
	@$(PYTHON) deploy/dev/embedder.py --dir .holdfast

test-packages: ## install the public packages that tests run, once
	@$(PYTHON) tests/packages.py --dir .holdfast/test-packages

# Backends of your own are used where all four variables name them; see docs/configuration.md.
OWN = $(and $(HOLDFAST_DATABASE__URL),$(HOLDFAST_DATABASE__ADMIN_URL),$(HOLDFAST_NATS__URL),$(HOLDFAST_REDIS__URL))

# Not by another make: a line that names one is run even by `make -n`.
TEST_DOWN = if [ -d .holdfast/test ]; then $(BACKENDS) down --dir .holdfast/test; fi

# The binary first: tests of the whole mesh start it. Tests whose tool is missing on this machine are
# named and not run; with CI=true a missing tool is an error, and the backends stop at the end.
test: ## run every test, on real backends
	$(if $(OWN),,@$(BACKENDS) up --fast --dir .holdfast/test)
	@$(MAKE) --no-print-directory embedder || echo "make: the local embedding model is not tested"
	@$(MAKE) --no-print-directory test-packages || echo "make: packages of others are not tested"
	$(CARGO) build $(FLAGS) --workspace --bins
	@if [ -d .holdfast/embedder ]; then export HOLDFAST_TEST_EMBEDDER="$$PWD/.holdfast/embedder"; fi; \
	status=0; \
	left_out=$$($(PYTHON) tests/tools.py) || status=$$?; \
	$(PYTHON) tests/mutants/mutate.py --check . || status=$$?; \
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
	  filter=all\(\); for group in $$left_out; do filter="$$filter and not test(/$$group::/)"; done; \
	  $(CARGO) nextest run $(FLAGS) --workspace -E "$$filter" || status=$$?; \
	  $(PYTHON) tests/coverage/check.py target/nextest/default/junit.xml $$left_out || status=$$?; \
	else \
	  skip=; for group in $$left_out; do skip="$$skip --skip $$group::"; done; \
	  $(CARGO) test $(FLAGS) --workspace --no-fail-fast -- $$skip || status=$$?; \
	  $(PYTHON) tests/coverage/check.py || status=$$?; \
	fi; \
	if [ "$$CI" = true ]; then $(TEST_DOWN); fi; \
	exit $$status

test-clients: build ## run programs of integrators and platforms of channels, with their packages installed: ARGS="python slack"
	@$(PYTHON) tests/clients/run.py --holdfast $(HOLDFAST) $(ARGS)

# Without a browser it is not run, and says so; with CI=true that is an error. ARGS are Playwright's.
test-web: ## test the console in a browser, with a mesh of its own: ARGS="signin --project phone"
	@missing=$$($(PYTHON) tests/tools.py needs_packages needs_chromium) || exit 1; \
	if [ -n "$$missing" ]; then echo "make: the console is not tested"; exit 0; fi; \
	$(MAKE) --no-print-directory console && \
	$(CARGO) build $(FLAGS) --profile $(PROFILE) --workspace --bins && \
	HOLDFAST_PROGRAMS=$(abspath $(dir $(HOLDFAST))) $(PYTHON) deploy/dev/console.py --dir .holdfast test $(ARGS)

test-down: ## stop the backends that tests use
	@$(TEST_DOWN)

chaos: ## the long storm: processes are killed, nothing may be lost; HOLDFAST_CHAOS_MINUTES says how long
	$(CARGO) build $(FLAGS) --profile $(BENCH_PROFILE) --workspace --bins
	HOLDFAST_CHAOS=long $(CARGO) test $(FLAGS) --profile $(BENCH_PROFILE) --workspace --test chaos -- --nocapture --test-threads 1 --include-ignored --skip soak:: $(ARGS)

soak: ## an hour of steady load, after which nothing may have grown; HOLDFAST_CHAOS_MINUTES=5 is the short form
	$(CARGO) build $(FLAGS) --profile $(BENCH_PROFILE) --workspace --bins
	HOLDFAST_CHAOS_MINUTES=$${HOLDFAST_CHAOS_MINUTES:-60} $(CARGO) test $(FLAGS) --profile $(BENCH_PROFILE) --workspace --test chaos -- --nocapture --ignored soak::

fuzz: ## give hostile inputs to every parser of untrusted input, a minute each; ARGS="5 cron ics" for 5 s and two parsers
	@$(PYTHON) tests/fuzz.py $(ARGS)

bench: ## measure turns, memory and starts: ARGS="--help" lists the parts
	$(CARGO) build $(FLAGS) --profile $(BENCH_PROFILE) -p holdfast
	$(CARGO) build $(FLAGS) --profile $(BENCH_PROFILE) -p holdfast-tests --bin bench --bin fake_model
	@$(TARGET)/$(BENCH_PROFILE)/bench $(ARGS)

bench-memory: embedder ## measure what the memory finds: DATA=<directory with LoCoMo-format JSON>, or ARGS="locomo DIR" (API alone), ARGS=scale
	$(if $(OWN),,@$(BACKENDS) up --fast --dir .holdfast/test)
ifeq ($(ARGS),)
	$(CARGO) build $(FLAGS) --profile $(BENCH_PROFILE) -p holdfast -p holdfast-tests --bins
	@HOLDFAST_MEMORY__EMBEDDING__ENGINE=$${HOLDFAST_MEMORY__EMBEDDING__ENGINE:-local} \
	  HOLDFAST_MEMORY__EMBEDDING__DIR=$${HOLDFAST_MEMORY__EMBEDDING__DIR:-$$PWD/.holdfast/embedder} \
	  $(TARGET)/$(BENCH_PROFILE)/bench_memory "$(DATA)"
else
	$(CARGO) build $(FLAGS) --profile $(BENCH_PROFILE) -p memory --features local --example bench
	@HOLDFAST_MEMORY__EMBEDDING__ENGINE=$${HOLDFAST_MEMORY__EMBEDDING__ENGINE:-local} \
	  $(TARGET)/$(BENCH_PROFILE)/examples/bench $(ARGS)
endif

lint: ## clippy, warnings are errors
	$(CARGO) clippy $(FLAGS) --workspace --all-targets -- -D warnings

deny: ## licences, sources and known vulnerabilities of packages of others; ARGS=--fetch renews their list
	@$(PYTHON) deploy/dev/deny.py --dir .holdfast $(ARGS)

models: ## the catalogue of models; ARGS=write makes it anew, ARGS='extract FILE --version V' reads a newer public list
	@$(PYTHON) deploy/dev/models.py $(or $(ARGS),check)

helm-check: ## check the Helm chart; ARGS=--write writes its generated files anew
	@$(PYTHON) tests/helm/check.py --dir .holdfast $(ARGS)

helm-run: build ## run the pods of the rendered Helm chart as processes of this machine
	@$(BACKENDS) up --fast --dir .holdfast/test
	@$(PYTHON) tests/helm/run.py --dir .holdfast --holdfast $(HOLDFAST)

helm-upgrade: build ## update the pods of the chart's previous version, and back, while people talk
	@$(BACKENDS) up --fast --dir .holdfast/test
	@previous=$$($(PYTHON) tests/helm/previous.py --dir .holdfast/previous) && \
	  $(PYTHON) tests/helm/run.py --dir .holdfast --holdfast $(HOLDFAST) --previous $$previous

pin-images: ## write the digests of images beside their tags; ARGS=check names those without
	@deploy/pin_images.py $(or $(ARGS),write)

images: ## build and push both images; REPOSITORY=registry/holdfast TAG=0.1.0
	@deploy/images.sh "$(REPOSITORY)" "$(TAG)"

# A version that is known to work; its output is in the CycloneDX format.
CYCLONEDX = .holdfast/cyclonedx/bin/cargo-cyclonedx
sbom: ## write the list of packages that the binary is built from, to .holdfast/holdfast.cdx.json
	@[ -x $(CYCLONEDX) ] || $(CARGO) install --quiet --locked --root .holdfast/cyclonedx cargo-cyclonedx --version 0.5.9
	@$(CYCLONEDX) cyclonedx --manifest-path cli/Cargo.toml --format json --override-filename holdfast.cdx
	@mv cli/holdfast.cdx.json .holdfast/holdfast.cdx.json
	@# It writes one for each member of the workspace.
	@find cli crates proto services tests -name holdfast.cdx.json -delete
	@echo "wrote .holdfast/holdfast.cdx.json"

proto-check: ## lint the protos, and see that they break no client; ARGS=--write accepts additions
	@$(PYTHON) tests/proto/check.py --dir .holdfast $(ARGS)

fmt: ## format
	$(CARGO) fmt --all

fmt-check: ## is it formatted?
	$(CARGO) fmt --all -- --check

doc: ## the crates' documentation, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(FLAGS) --workspace --no-deps

docs: ## build the documentation as a book, if it has changed; the next build of the binary takes it in
	@$(PYTHON) book/build.py --dir .holdfast
