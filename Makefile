# `make` alone lists the targets. Go and make are all it needs, and for `make check` Node with npm; recipes are plain sh.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GOLANGCI_LINT_VERSION := v2.15.0
# The version is part of the name, so another version is another file and gets built.
GOLANGCI_LINT := .tools/golangci-lint-$(GOLANGCI_LINT_VERSION)

# Compiles what `j17 spec types` prints, in a test; the program itself needs neither Node nor npm.
TYPESCRIPT_VERSION := 5.9.3
TYPESCRIPT := .tools/typescript-$(TYPESCRIPT_VERSION)

# An S3 server that tests of backups run against. The program itself has nothing of it.
VERSITYGW_VERSION := v1.8.0
VERSITYGW := .tools/versitygw-$(VERSITYGW_VERSION)

# Generators of clients and a linter for OpenAPI documents, which tests run. The versions of those from npm, with all that they need, are in the
# lock file.
OAPI_CODEGEN_VERSION := v2.8.2
OAPI_CODEGEN := .tools/oapi-codegen-$(OAPI_CODEGEN_VERSION)
CLIENTS := cmd/j17/testdata/clients
CLIENT_TOOLS := .tools/clients-openapi-typescript-7.13.0-openapi-fetch-0.17.0-redocly-2.77.0

# Settings of one call, as in `make bench BENCH=Append` or `make test TESTFLAGS=-count=1`.
SPEC      ?= examples/orders/spec.json
# Each spec has a data folder of its own, so that trying one does not change another's.
DATA      ?= j17-data$(if $(filter examples/orders/spec.json,$(SPEC)),,-$(subst /,-,$(basename $(patsubst /%,%,$(SPEC)))))
ARGS      ?=
BENCH     ?=
FUZZTIME  ?= 10s
TESTFLAGS ?=
# How long all tests of one package may take. The longest takes a good third of it on two busy processors.
TIMEOUT   ?= 20m
# The acceptance suites that must pass whole.
SUITES    ?= tick data_plane implications control identity repairs workflows projections custody decisions gaps generations dashboard

# Those that pass on PostgreSQL too. The language of handlers and the dashboard meet no store of their own.
POSTGRES_SUITES ?= $(filter-out tick dashboard,$(SUITES))

# One way to compile what runs, is checked, or is tested without the race detector, so that targets share what they have compiled. Tests
# under the race detector cannot share it. Flags of one's own are kept.
COMPILED := CGO_ENABLED=0 GOFLAGS="$$(go env GOFLAGS) -trimpath"

# A release is built with the version of Go that go.mod names, whichever one is installed.
GO_OF_MODULE := go$$(awk '/^go / {print $$2}' go.mod)

# A folder with data too large for the repository: data/ (official test suites) and acceptance/ (black-box suites).
# Tests that want it say so where it is absent.
J17_SHARED ?= $(wildcard ../shared)
ifneq ($(J17_SHARED),)
override J17_SHARED := $(abspath $(J17_SHARED))
export J17_SHARED
endif

# Succeeds where `go test -race` works: cgo on, a C compiler with its headers, a supported platform.
race_works := go build -race runtime/cgo >/dev/null 2>&1

# By default each test program sleeps for a second at its end, in case a race is about to be reported.
RACE_OPTIONS := atexit_sleep_ms=50

# Test programs without what only debuggers read: linking them takes half the time. What a panic prints is the same. They are not
# vetted on the way, which 'make vet' does for all of them, and more thoroughly.
TEST_BUILD := -ldflags=-w -vet=off

# Test programs leave more garbage before they look for it: their heaps are small, and looking takes a tenth of their time otherwise.
TEST_GOGC := 400

.PHONY: help
help: ## list the targets
	@echo 'usage: make TARGET [NAME=value ...]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# --- Run and build

.PHONY: dev
dev: build ## run a development server on an example spec (SPEC=file, DATA=folder, ARGS='more flags')
	@trap 'stopped=yes' INT; \
	bin/j17 dev $(SPEC) --data '$(DATA)' $(ARGS) || { code=$$?; [ -n "$$stopped" ] || exit $$code; }

.PHONY: build
build: ## build bin/j17, a static program
	$(COMPILED) go build -o bin/j17 ./cmd/j17

# What is built is committed, so that Go alone builds the program. The lockfile decides what is installed, and nothing of it runs on the way.
DASHBOARD_TOOLS = cd dashboard && { command -v npm >/dev/null || { echo 'npm is not installed. Install Node 20 or later with npm: the dashboard is built with it.' >&2; exit 1; }; } \
	&& npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

.PHONY: dashboard
dashboard: ## build the dashboard into dashboard/dist, which the program has in it
	@$(DASHBOARD_TOOLS) && npm run --silent build

.PHONY: dashboard-dev
dashboard-dev: build ## serve the dashboard with hot reload at http://localhost:5173/ui/, against a development server (SPEC=file, DATA=folder, ARGS='more flags')
	@$(DASHBOARD_TOOLS)
	@trap 'kill $$server 2>/dev/null' EXIT INT TERM; \
	bin/j17 dev $(SPEC) --data '$(DATA)' $(ARGS) & server=$$!; \
	cd dashboard && npm run --silent dev

.PHONY: dashboard-types
dashboard-types: build ## write the types of the API's answers for the dashboard, from its OpenAPI document
	bin/j17 openapi | node dashboard/types.mjs > dashboard/src/api/schema.ts.new && mv dashboard/src/api/schema.ts.new dashboard/src/api/schema.ts

.PHONY: dashboard-check
dashboard-check: ## check the types of the dashboard, run its tests, and see that dist is what its sources build to
	@$(DASHBOARD_TOOLS) && npm run --silent check && npm run --silent test && npm run --silent build -- --outDir ../bin/dashboard --emptyOutDir --logLevel warn
	@diff -rq dashboard/dist bin/dashboard || { echo 'dashboard/dist is not what its sources build to. Run "make dashboard" and commit it.' >&2; exit 1; }

.PHONY: screenshots
screenshots: build ## take pictures of the dashboard with the examples, light and dark (OUT=docs/images); needs chromium
	@go run ./tools/screenshots -bin bin/j17 -out '$(or $(OUT),docs/images)'

.PHONY: dist
dist: ## build a release into dist/: archives for Linux and macOS, checksums, a bill of materials (PLATFORMS='linux/amd64')
	@GOTOOLCHAIN=$(GO_OF_MODULE) go run ./tools/dist $(PLATFORMS)

.PHONY: reproducible
reproducible: ## build a release from two clones of the last commit and compare the bytes; takes minutes (PLATFORMS='linux/amd64')
	@packaging/reproducible.sh $(PLATFORMS)

.PHONY: frozen-data
frozen-data: ## write the data folder of a version that is about to be released, which later versions have to open (VERSION=0.2.0)
	@[ -n '$(VERSION)' ] || { echo 'Name the version: make frozen-data VERSION=0.2.0' >&2; exit 2; }
	$(COMPILED) go test -count=1 -run '^TestFrozenData$$' ./internal/server -freeze '$(VERSION)'

.PHONY: docs
docs: ## write llms.txt from the pages in docs/
	$(COMPILED) go run ./cmd/j17 docs --llms > llms.txt.new && mv llms.txt.new llms.txt

.PHONY: changelog
changelog: ## make the section of a release in CHANGELOG.md of the files in changelog/unreleased (VERSION=0.2.0)
	$(COMPILED) go run ./tools/changelog '$(VERSION)' "$$(date -u +%F)"

.PHONY: container-tools
container-tools: ## install what the tests of custom code in containers run (Debian, as root)
	apt-get install -y --no-install-recommends bubblewrap runc python3 nodejs

.PHONY: clean
clean: ## remove what these targets have built
	rm -rf bin dist .tools

# --- Test

.PHONY: test
test: ## run all tests, with the race detector where there is a C compiler (TESTFLAGS=..., TIMEOUT=20m)
	@if $(race_works); then \
		echo 'go test $(TEST_BUILD) -race -timeout=$(TIMEOUT) $(TESTFLAGS) ./...'; \
		GOGC=$(TEST_GOGC) GORACE="$(RACE_OPTIONS) $$GORACE" go run ./tools/testrun $(TEST_BUILD) -race -timeout=$(TIMEOUT) $(TESTFLAGS) ./... && echo 'All tests passed, with the race detector.'; \
	else \
		hint='the race detector is off: it needs a C compiler (gcc or clang, with the C headers) and CGO_ENABLED=1.'; \
		echo "hint: $$hint"; \
		echo 'go test $(TEST_BUILD) -timeout=$(TIMEOUT) $(TESTFLAGS) ./...'; \
		go run ./tools/testrun $(TEST_BUILD) -timeout=$(TIMEOUT) $(TESTFLAGS) ./... && echo "All tests passed; $$hint"; \
	fi

# Packages with tests that open stores by testopen.
POSTGRES_PACKAGES ?= $(shell go list -f '{{range .TestImports}}{{.}} {{end}}{{range .XTestImports}}{{.}} {{end}}{{"\t"}}{{.ImportPath}}' ./internal/... \
	| awk -F '\t' '$$1 ~ /storage\/testopen|engine\/enginetest/ {print $$2}')

# How long all tests of one package may take there, where reads and writes are round trips. The longest takes a third of it on two busy
# processors.
POSTGRES_TIMEOUT ?= 90m

.PHONY: test-postgres
test-postgres: ## run the tests that open stores with stores on PostgreSQL (POSTGRES_PACKAGES='./internal/plane/...', POSTGRES_TIMEOUT=90m, TESTFLAGS=...)
	@echo 'J17_TEST_STORE=postgres go test $(TEST_BUILD) -timeout=$(POSTGRES_TIMEOUT) $(TESTFLAGS) $(POSTGRES_PACKAGES)'
	@J17_TEST_STORE=postgres GOGC=$(TEST_GOGC) $(COMPILED) go run ./tools/testrun $(TEST_BUILD) -timeout=$(POSTGRES_TIMEOUT) $(TESTFLAGS) $(POSTGRES_PACKAGES) \
		&& echo 'All tests passed on PostgreSQL.'

.PHONY: soak
soak: ## run all tests with the rounds of crashes and random operations that are too long for `make test`
	@echo 'J17_SOAK=1 go test $(TEST_BUILD) -timeout=4h -count=1 $(TESTFLAGS) ./...'
	@J17_SOAK=1 go run ./tools/testrun $(TEST_BUILD) -timeout=4h -count=1 $(TESTFLAGS) ./... && echo 'All rounds passed.'

.PHONY: bench
bench: ## measure single parts against their bars (BENCHTIME=1s), or run the benchmarks that match BENCH=regexp
	@if [ -n '$(BENCH)' ]; then go test -run '^$$' -bench '$(BENCH)' -benchmem ./...; else bench/parts.sh; fi

.PHONY: bench-hostile
bench-hostile: build ## what a light client notices while eight connections send the worst there is (ATTACK=20s)
	@go run ./bench/hostile -bin bin/j17 -time '$(or $(ATTACK),20s)'

.PHONY: bench-views
bench-views: build ## lists, upkeep of their indexes, live views and places beside their bars (ROWS=1000000 EACH=10s)
	@go run ./bench/views -bin bin/j17 -rows $(or $(ROWS),1000000) -time $(or $(EACH),10s)

.PHONY: bench-dashboard
bench-dashboard: build ## the dashboard in Chromium beside its bars (EACH=10s EVENTS=360000); needs chromium
	@go run ./bench/dashboard -bin bin/j17 -time $(or $(EACH),10s) -events $(or $(EVENTS),360000)

.PHONY: bench-http
bench-http: ## compare the server with an empty HTTP handler and with Redis (SECONDS_EACH=5 ROUNDS=3)
	@bench/http.sh

.PHONY: bench-peers
bench-peers: ## compare the server with PostgreSQL, Redis and PocketBase behind HTTP (SECONDS_EACH=4 ROUNDS=5)
	@bench/peers/run.sh

.PHONY: bench-bulk
bench-bulk: ## writes before and after an import, and what memory comes to (EVENTS=1000000 SECONDS_EACH=4 ROUNDS=3)
	@bench/bulk.sh

.PHONY: bench-postgres
bench-postgres: ## PostgreSQL beside its bars: ways of writing, and requests (ROUNDS=3 EACH=3s ROWS=1000000); needs PostgreSQL
	@J17_BENCH=1 ROUNDS='$(ROUNDS)' go test -count=1 -run '^TestSpeed$$' -v ./internal/storage/postgres
	@J17_BENCH=1 ROUNDS='$(ROUNDS)' EACH='$(EACH)' ROWS='$(ROWS)' go test -count=1 -timeout 1h -v ./bench/stores

.PHONY: bench-compare
bench-compare: ## compare this tree with another commit, path by path (BASE=commit ROUNDS=10 EACH=2s)
	@[ -n '$(BASE)' ] || { echo 'Name the commit to compare with: make bench-compare BASE=main' >&2; exit 2; }
	@go run ./bench/compare -rounds $(or $(ROUNDS),10) -each $(or $(EACH),2s) '$(BASE)'

.PHONY: size
size: ## count lines of the program and of its tests by floor, beside those of a commit (BASE=commit)
	@BASE='$(BASE)' tools/size.sh

.PHONY: fuzz
fuzz: ## run every fuzz target for a short while (FUZZTIME=10s)
	@list=$$(go test -list '^Fuzz' ./...) || { printf '%s\n' "$$list"; exit 1; }; \
	targets=$$(printf '%s\n' "$$list" | awk ' \
		/^Fuzz/ {name[++n] = $$1} \
		/^ok/   {for (i = 1; i <= n; i++) print $$2, name[i]; n = 0}'); \
	[ -n "$$targets" ] || { echo 'There is no fuzz target.'; exit 1; }; \
	printf '%s\n' "$$targets" | while read -r pkg name; do \
		echo "== $$pkg $$name"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime '$(FUZZTIME)' "$$pkg" </dev/null || exit 1; \
	done

.PHONY: acceptance
acceptance: build ## run the black-box suites against bin/j17 (SUITES='tick data_plane')
	@if [ -z '$(J17_SHARED)' ] || [ ! -x '$(J17_SHARED)/acceptance/run' ]; then \
		echo '**********************************************************************'; \
		echo '** SKIPPED: the acceptance suites are not on this machine.          **'; \
		echo '** Set J17_SHARED to the folder that holds acceptance/run.          **'; \
		echo '**********************************************************************'; \
	elif ! command -v python3 >/dev/null; then \
		echo 'The acceptance suites need python3, which is not installed. Install it and try again.' >&2; exit 1; \
	else \
		J17_AXE='$(wildcard $(CURDIR)/dashboard/node_modules/axe-core/axe.min.js)' J17_BIN='$(CURDIR)/bin/j17' .ci/acceptance '$(J17_SHARED)/acceptance' $(SUITES); \
	fi

.PHONY: acceptance-postgres
acceptance-postgres: ## run the black-box suites on PostgreSQL (POSTGRES_SUITES='data_plane custody')
	@.ci/on-postgres $(MAKE) --no-print-directory acceptance SUITES='$(POSTGRES_SUITES)'

# --- Check

.PHONY: check
check: export J17_ALL_TOOLS := 1
check: ## do all that CI does, in its order; a test whose tool is missing fails
	@set -e; begin=$$(date +%s); \
	for step in tools fmt-check vet lint dashboard-check build test acceptance; do \
		printf '\n=== %s\n' "$$step"; \
		start=$$(date +%s); \
		$(MAKE) --no-print-directory "$$step" || { printf '\n=== FAILED: make %s\n' "$$step" >&2; exit 1; }; \
		printf -- '--- %s: %s s\n' "$$step" "$$(($$(date +%s) - start))"; \
	done; \
	printf '\n=== check passed in %s s\n' "$$(($$(date +%s) - begin))"

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## format the code (gofumpt, goimports)
	$(GOLANGCI_LINT) fmt

.PHONY: fmt-check
fmt-check: $(GOLANGCI_LINT) ## show what `make fmt` would change, and fail if it is anything
	@$(GOLANGCI_LINT) fmt --diff || { echo 'The files above are not formatted. Run "make fmt".' >&2; exit 1; }

.PHONY: vet
vet: ## run go vet, and see that go.mod lists what is imported
	$(COMPILED) go vet ./...
	go mod tidy -diff

.PHONY: lint
lint: $(GOLANGCI_LINT) ## run the linters (.golangci.yml): import rules, bans, style, security
	$(COMPILED) $(GOLANGCI_LINT) run ./...

.PHONY: tools
tools: $(GOLANGCI_LINT) $(TYPESCRIPT) $(VERSITYGW) $(OAPI_CODEGEN) $(CLIENT_TOOLS) ## put the pinned linter, TypeScript, an S3 server and client generators into .tools (some minutes, once)

$(GOLANGCI_LINT):
	@echo 'Building golangci-lint $(GOLANGCI_LINT_VERSION) into .tools; this takes some minutes the first time.'
	@rm -f .tools/golangci-lint* && mkdir -p .tools
	@CGO_ENABLED=0 GOBIN='$(CURDIR)/.tools' \
		go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv .tools/golangci-lint '$@'

$(TYPESCRIPT):
	@command -v npm >/dev/null || { echo 'npm is not installed. Install Node 20 or later with npm: "make check" compiles TypeScript.' >&2; exit 1; }
	@echo 'Installing TypeScript $(TYPESCRIPT_VERSION) into .tools.'
	@rm -rf .tools/typescript* && mkdir -p '$@.new'
	@npm install --prefix '$@.new' --ignore-scripts --no-audit --no-fund --no-save --loglevel=error typescript@$(TYPESCRIPT_VERSION)
	@mv '$@.new' '$@'

# Symbols are left out, which only make it larger.
$(VERSITYGW):
	@echo 'Building versitygw $(VERSITYGW_VERSION) into .tools; this takes some minutes the first time.'
	@rm -f .tools/versitygw* && mkdir -p .tools
	@CGO_ENABLED=0 GOBIN='$(CURDIR)/.tools' \
		go install -ldflags='-s -w' github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)
	@mv .tools/versitygw '$@'

# With the module that Go clients import, so that they compile without a network.
$(OAPI_CODEGEN): $(CLIENTS)/go.mod.txt
	@echo 'Building oapi-codegen $(OAPI_CODEGEN_VERSION) into .tools.'
	@rm -rf .tools/oapi-codegen* && mkdir -p '$@.new'
	@CGO_ENABLED=0 GOBIN='$(CURDIR)/$@.new' \
		go install -ldflags='-s -w' github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@$(OAPI_CODEGEN_VERSION)
	@cp $(CLIENTS)/go.mod.txt '$@.new/go.mod' && cp $(CLIENTS)/go.sum.txt '$@.new/go.sum'
	@printf 'package clients\n\nimport _ "github.com/oapi-codegen/runtime"\n' > '$@.new/clients.go'
	@cd '$@.new' && go mod vendor
	@mv '$@.new' '$@'

$(CLIENT_TOOLS): $(CLIENTS)/package-lock.json
	@command -v npm >/dev/null || { echo 'npm is not installed. Install Node 20 or later with npm: "make check" makes clients of OpenAPI documents.' >&2; exit 1; }
	@echo 'Installing openapi-typescript, openapi-fetch and Redocly CLI into .tools.'
	@rm -rf .tools/clients-* && mkdir -p '$@.new'
	@cp $(CLIENTS)/package.json $(CLIENTS)/package-lock.json '$@.new'
	@cd '$@.new' && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@mv '$@.new' '$@'
