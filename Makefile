# SPDX-License-Identifier: Apache-2.0

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

PREFIX  ?= /usr/local
DESTDIR ?=
BENCH   ?=
FUZZTIME ?= 10s
CHAOS_FOR ?= 10m
CHAOS_SEED ?=
BROKEN ?=
CHAOS_LEASE ?=
BENCH_JSON ?= bin/bench.json
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
LABCTL  := vagrant/lab/lab

# Shell scripts whose name does not end in .sh.
SCRIPTS := .ci/fuzz .ci/reproducible .ci/room .ci/run .ci/stages .ci/vulncheck cmd/clusterm/package/build cmd/clusterm/package/man \
  vagrant/demo vagrant/deps vagrant/flow vagrant/provision vagrant/lab/lab vagrant/lab/recipe vagrant/lab/test

export CGO_ENABLED ?= 0
# The same flags everywhere, so that all targets share what is built.
export GOFLAGS ?= -trimpath

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/clusterm bin/clusterctl ## build bin/clusterm and bin/clusterctl

.PHONY: bin/clusterm bin/clusterctl
bin/clusterm bin/clusterctl: facts
bin/clusterm bin/clusterctl:
	go build -buildvcs=false -ldflags "$(LDFLAGS)" -o $@ ./cmd/$(notdir $@)

.PHONY: facts
facts: ## build the programs that clusterm has inside, for every architecture: for inspection and the boot environment
	mkdir -p bin
	for arch in amd64 arm64; do for program in inventory/facts/program:facts configuration/image/program:boot; do \
	  name=clusterm-$${program#*:}; built=$${program%:*}/built; \
	  GOARCH=$$arch go build -buildvcs=false -ldflags "-s -w" -o bin/$$name-$$arch ./cmd/$$name; \
	  gzip -9nc bin/$$name-$$arch > $$built/$$name-$$arch.gz; done; done

.PHONY: check
check: lint unit ## the linters and the unit tests: what to run before a commit

.PHONY: test
test: ## every test of a change, and where the time went
	.ci/stages room deps lint race part-seeds lab-test system

.PHONY: nightly
nightly: ## test, and what a change seldom breaks: all seeds, a second build, the SBOM, the board, fuzzing
	.ci/stages test seeds reproducible sbom board fuzz

.PHONY: room
room:
	.ci/room

.PHONY: unit
unit: ## the tests that need neither root, Ansible nor the lab
	go test ./...

.PHONY: race
race: facts # which some tests need
race: ## the unit tests under the race detector
	CGO_ENABLED=1 go test -race ./...

.PHONY: seeds
seeds: ## plant known bugs one by one; a test has to find each by an assertion
	go run ./.ci/seeds

.PHONY: part-seeds
part-seeds: # every eighth seed; with the next seven commits, the others
	go run ./.ci/seeds -part "$$(git rev-list --count HEAD 2>/dev/null || echo 0)"

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (default 10s); make unit runs their corpora
	.ci/fuzz $(FUZZTIME)

.PHONY: lint
lint: bin/golangci-lint ## linters, shellcheck, and a build for arm64
	bin/golangci-lint run ./...
	git ls-files '*.sh' $(SCRIPTS) | xargs shellcheck
	GOARCH=arm64 go build -buildvcs=false ./cmd/...

bin/golangci-lint: .ci/lint/go.mod
	go -C .ci/lint build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: vuln
vuln: build bin/govulncheck ## known vulnerabilities of the programs; fails, with the reason, where it cannot check
	.ci/vulncheck

bin/govulncheck: .ci/vuln/go.mod
	go -C .ci/vuln build -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck

.PHONY: sbom
sbom: build bin/cyclonedx-gomod ## the modules in each program, as CycloneDX JSON in bin/
	for p in clusterm clusterctl clusterm-facts-amd64 clusterm-boot-amd64; do \
	  bin/cyclonedx-gomod bin -json -std -noserial -output-version 1.5 -version $(VERSION) -output bin/$$p.cdx.json bin/$$p; done

bin/cyclonedx-gomod: .ci/sbom/go.mod
	go -C .ci/sbom build -o $(CURDIR)/$@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

.PHONY: reproducible
reproducible: ## build the programs in two folders and compare their bytes
	.ci/reproducible "$(LDFLAGS)"

.PHONY: lab-test
lab-test: lab-deps ## the lab's own test
	vagrant/lab/test

.PHONY: system
system: deps lab-deps build bin/nfpm ## the tests with the real Ansible, and on real hosts of the lab
	CLUSTERM_LAB=1 go test -count=1 ./ansible ./configuration/ansible ./management/metrics
	CLUSTERM_LAB=1 go test -count=1 -run TestScripts/inventory ./cmd/clusterctl
	CLUSTERM_LAB=1 go test -count=1 -run 'TestLive|TestExisting' -skip TestLiveBoard ./monitor/serf ./management/daemon
	CLUSTERM_LAB=1 LAB=bench go test -count=1 -run TestRows ./vagrant/bench
	CLUSTERM_LAB=1 go test -count=1 -timeout 60m -v ./vagrant/systemtest/ | tee bin/systemtest.log

.PHONY: images
images: deps lab-deps build ## boot machines of qemu without acceleration: the environment, an image of Debian, and its installation
	vagrant/deps bin/linux-image.deb
	CLUSTERM_IMAGES=1 go test -count=1 -timeout 12m -parallel 1 -v -run TestQemu ./configuration/image/installer/
	CLUSTERM_IMAGES=1 go test -count=1 -timeout 90m -v -run TestQemu ./configuration/image/build/
	CLUSTERM_IMAGES=1 CLUSTERM_LAB=1 CLUSTERM_LABS=1 go test -count=1 -timeout 60m -v -run 'TestInstall$$' ./vagrant/systemtest/

.PHONY: board
board: deps ## the Grafana board and the alerts on a real Prometheus
	CLUSTERM_LAB=1 go test -count=1 -run TestLiveBoard ./management/daemon

.PHONY: chaos
chaos: deps lab-deps build ## faults at random for CHAOS_FOR (10m) to three instances under load; CHAOS_SEED=N repeats the choices, CHAOS_LEASE=5s shortens the lease
	overlay=; if [ -n "$(BROKEN)" ]; then overlay=$$(go run ./.ci/seeds -overlay bin/.broken "$(BROKEN)"); fi; \
	CLUSTERM_OVERLAY=$$overlay CLUSTERM_LAB=1 CLUSTERM_CHAOS=1 CHAOS_FOR=$(CHAOS_FOR) CHAOS_SEED=$(CHAOS_SEED) CHAOS_LEASE=$(CHAOS_LEASE) \
	  go test -count=1 -timeout 0 -v -run 'TestChaos$$' ./vagrant/systemtest/

.PHONY: scale
scale: deps lab-deps build ## commission 60 hosts of the lab with one instance, and with three
	CLUSTERM_LAB=1 CLUSTERM_LABS=1 CLUSTERM_SCALE=1 go test -count=1 -timeout 0 -v -run 'TestThreeAgainstOne$$' ./vagrant/systemtest/

.PHONY: demo
demo: lab-deps build ## the main job on fresh hosts of a lab (LAB=demo, LAB_SUITE=bookworm); leaves the lab running
	vagrant/demo

.PHONY: demo-down
demo-down: ## remove the demo's hosts
	$(LABCTL) down

.PHONY: bench
bench: facts ## measure clusterm against its building blocks; BENCH=list,cli: single rows; BENCH_JSON=FILE (job, verify, inspect: root and the lab)
	if [[ -z "$(BENCH)" || "$(BENCH)" =~ job|verify|inspect || "$(BENCH)" == all ]]; then vagrant/deps; $(LABCTL) install; fi
	mkdir -p bin
	go run ./vagrant/bench -rows "$(BENCH)" -json "$(BENCH_JSON)"

.PHONY: deps
deps: ## install the packages that the tests need on this machine (apt)
	vagrant/deps

.PHONY: lab-deps
lab-deps:
	$(LABCTL) install

.PHONY: docs
docs: ## regenerate the references and tables in docs/
	go test -count=1 ./inventory ./inventory/evidence ./management/server ./management/metrics ./management/openapi ./clusterctl \
		./management/fleet -run Document -update

.PHONY: man
man: bin/clusterctl ## generate clusterctl's manual pages in bin/man/
	bin/clusterctl man bin/man

.PHONY: collection
collection: ## build the Ansible collection in dist/
	ansible-galaxy collection build ansible/collection --output-path dist --force

.PHONY: deb
deb: build bin/nfpm ## build the Debian package in dist/
	cmd/clusterm/package/build deb

.PHONY: rpm
rpm: build bin/nfpm ## build the RPM package in dist/
	cmd/clusterm/package/build rpm

bin/nfpm: cmd/clusterm/package/go.mod
	go -C cmd/clusterm/package build -o $(CURDIR)/$@ github.com/goreleaser/nfpm/v2/cmd/nfpm

.PHONY: install
install: build ## install binaries, systemd units and example configurations (PREFIX, DESTDIR)
	install -D -m 0755 bin/clusterm   $(DESTDIR)$(PREFIX)/bin/clusterm
	install -D -m 0755 bin/clusterctl $(DESTDIR)$(PREFIX)/bin/clusterctl
	install -d -m 0755 $(DESTDIR)/etc/systemd/system
	for unit in clusterm clusterm-monitor; do \
	  sed 's#/usr/local/bin#$(PREFIX)/bin#' cmd/clusterm/$$unit.service > $(DESTDIR)/etc/systemd/system/$$unit.service; done
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/doc/clusterm management/setting/clusterm.yaml monitor/report/monitor.yaml
	install -m 0755 monitor/serf/handler/serf-handler.sh $(DESTDIR)$(PREFIX)/share/doc/clusterm/serf-handler.sh

.PHONY: uninstall
uninstall: ## remove the installed files; /etc/clusterm and /var/lib/clusterm stay
	rm -f $(DESTDIR)$(PREFIX)/bin/clusterm $(DESTDIR)$(PREFIX)/bin/clusterctl $(DESTDIR)/etc/systemd/system/clusterm.service $(DESTDIR)/etc/systemd/system/clusterm-monitor.service
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/clusterm

.PHONY: clean
clean: ## remove binaries and packages
	rm -rf bin dist
