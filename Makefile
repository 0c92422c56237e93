# Mainspring. `make help` explains each target.

# Karpenter needs a newer Go than some machines have: let the go command fetch the one go.mod names.
export GOTOOLCHAIN := auto
# nri_no_wasm: the agent is a plugin of NRI and hosts none. grpcnotrace: without the pages of golang.org/x/net/trace, which
# no program serves, and whose templates may call any method by its name, so that the linker has to keep all there are.
# -dwarf=false: the programs are stripped, and a fifth of what compiling takes is for debuggers.
# Programs, linters, tests and tools (pkg/toolchain) have the same flags, so that a dependency is compiled once for all of them.
export GOFLAGS := -buildvcs=false -trimpath -gcflags=all=-dwarf=false -tags=nri_no_wasm,grpcnotrace
# No program links C. The race detector does: hack/test sets it for its own builds.
export CGO_ENABLED := 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.Version=$(VERSION) -X sigs.k8s.io/karpenter/pkg/operator.Version=$(VERSION) -X github.com/mainspring-rt/mainspring/pkg/cli.Version=$(VERSION)
TOOLS   := go run -v ./hack/tools
.DEFAULT_GOAL := help

##@ Use

.PHONY: demo
demo: build ## Run the main job on a local control plane and simulated nodes (KEEP=1 leaves it up)
	./bin/mainspring demo --controller ./bin/controller --hollow ./bin/hollow --report out/demo $(if $(filter-out 0 no false,$(KEEP)),--keep)

.PHONY: build
build: ## Build the controller, the node agent, the hollow agents and the command line with its programs into bin/
	go run -v ./hack/build -ldflags '$(LDFLAGS)'

##@ Test

# All of them write out/test-times.md, also when they fail. -v names packages while hack/test itself is compiled.
TESTS := go run -v ./hack/test

.PHONY: test
test: ## Pass all tests: unit tests, those against an API server, and every suite, by samples of kill points and histories
	$(TESTS)

.PHONY: test-exhaustive
test-exhaustive: ## Pass all tests at every kill point and with every random history (hours)
	$(TESTS) --exhaustive

.PHONY: unit
unit: ## Unit and control-plane tests of the packages, with the race detector where there is anything to race
	$(TESTS) unit

.PHONY: e2e
SUITE ?= all
FOCUS ?=
GINKGO_FLAGS ?=
export SUITE FOCUS GINKGO_FLAGS
e2e: ## End-to-end suites on a real control plane (SUITE=lifecycle runs one, FOCUS='a budget' those specs of it)
	$(TESTS) e2e --suite="$$SUITE" --focus="$$FOCUS" --ginkgo="$$GINKGO_FLAGS"

.PHONY: bench-lifecycle
bench-lifecycle: tools build ## Scheduling throughput against upstream, and 1,000 pods end to end
	go run ./test/bench/lifecycle --controller ./bin/controller --out out/bench/lifecycle.json

.PHONY: bench-admission
bench-admission: tools ## Placement decisions, cache memory, rebuild and webhook at 1,000 nodes x 64 cores with 20,000 containers
	go run ./test/bench/admission --out out/bench/admission.json

.PHONY: bench-ladder
bench-ladder: tools build ## A storm of real-time pressure, and one story told to Mainspring and to stock Karpenter with MC-Kube's rules
	go run ./test/bench/ladder --out out/bench/ladder.json

.PHONY: bench-migration
bench-migration: tools build ## What moving 200 pods on 100 simulated nodes costs, by strategy, beside a drain that evicts them, and 10 with their memory on real nodes (root)
	go run ./test/bench/migration

.PHONY: bench-agent
bench-agent: bench-task ## Overrun to raised budget on this machine's kernel, idle and loaded, and what the agent takes (root)
	go run ./test/bench/agent --out out/bench/agent.json

.PHONY: bench-criticality
bench-criticality: bench-task ## Deadline misses by criticality: CFS, fixed budgets, the agent in both modes (root, about 12 minutes)
	go run ./test/bench/criticality --out out/bench

.PHONY: bench-task
bench-task: build ## The periodic load of the benchmarks on a real kernel, into bin/
	CGO_ENABLED=0 go build -o bin/bench-task ./test/bench/task

##@ Develop

.PHONY: tools
tools: ## Build the control plane and the development tools into the cache, and print what it took
	$(TOOLS)

.PHONY: generate
generate: generate-bpf ## Regenerate deep copies, CRDs, the CRD chart and the BPF programs
	"$$($(TOOLS) --path controller-gen)" object crd:allowDangerousTypes=true paths=./pkg/apis/... output:crd:dir=pkg/apis/crds
	go run ./hack/crds

# Everything builds without a compiler for BPF, as its output is committed. In CI it must be there.
.PHONY: generate-bpf
generate-bpf: ## Compile the programs of bpf/ (needs Debian's clang-19, llvm-19 and libbpf-dev)
	@if command -v clang-19 >/dev/null && command -v llvm-strip-19 >/dev/null && [ -e /usr/include/bpf/bpf_helpers.h ]; then \
	  go generate ./pkg/agent/ebpf; \
	elif [ "$${CI:-}" = true ]; then \
	  echo "bpf/ cannot be compiled: install clang-19, llvm-19 and libbpf-dev" >&2; exit 1; \
	else \
	  echo "bpf/ is not compiled again: clang-19, llvm-19 or libbpf-dev is not installed"; \
	fi

.PHONY: verify
verify: generate lint ## Fail when generated files differ from what is committed, or on lint
	git diff --exit-code -- pkg/apis charts pkg/agent/ebpf

.PHONY: lint
lint: ## Run the linters
	"$$($(TOOLS) --path golangci-lint)" run ./...

.PHONY: clean
clean: ## Remove what the targets wrote into the checkout (the tool cache stays)
	rm -rf bin out

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make <target>\n"} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9_-]+:.*##/ {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
