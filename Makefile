# SPDX-License-Identifier: Apache-2.0

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

PREFIX  ?= /usr/local
DESTDIR ?=
BENCH   ?=
BENCH_JSON ?= bin/bench.json
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
LABCTL  := vagrant/lab/lab

export CGO_ENABLED ?= 0

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/clusterm bin/clusterctl ## build bin/clusterm and bin/clusterctl

.PHONY: bin/clusterm bin/clusterctl
bin/clusterm bin/clusterctl:
	go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o $@ ./cmd/$(notdir $@)

.PHONY: demo
demo: lab-deps build ## the main job on real hosts of a lab (LAB=demo), from nothing; leaves the lab running
	vagrant/demo

.PHONY: demo-down
demo-down: ## remove the demo's hosts
	$(LABCTL) down

.PHONY: test
test: deps lint unit race lab-test system ## every test of the project

.PHONY: unit
unit: ## the tests that need neither root, Ansible nor the lab
	go test ./...

.PHONY: race
race: ## the same under the race detector
	CGO_ENABLED=1 go test -race ./...

.PHONY: lab-test
lab-test: lab-deps ## the lab's own test
	vagrant/lab/test

.PHONY: system
system: deps lab-deps build bin/nfpm ## the tests with the real Ansible, and on real hosts of the lab
	CLUSTERM_LAB=1 go test -count=1 ./ansible ./configuration/ansible ./management/metrics
	CLUSTERM_LAB=1 go test -count=1 -run 'TestLive|TestExisting' ./monitor/serf ./management/daemon
	CLUSTERM_LAB=1 go test -count=1 -timeout 60m -v ./vagrant/systemtest/

.PHONY: chaos
chaos: deps lab-deps build ## processes killed at random while operators work; no two runs are alike, so not part of test
	CLUSTERM_LAB=1 CLUSTERM_CHAOS=1 go test -count=1 -timeout 60m -v -run TestChaos ./vagrant/systemtest/

.PHONY: bench
bench: ## what it costs, against what it is built on; BENCH=list,cli for single rows, BENCH_JSON=FILE (job: root, and the lab)
	if [[ -z "$(BENCH)" || "$(BENCH)" == *job* || "$(BENCH)" == all ]]; then $(LABCTL) install; fi
	mkdir -p bin
	go run ./vagrant/bench -rows "$(BENCH)" -json "$(BENCH_JSON)"

.PHONY: lint
lint: ## formatting, vet, staticcheck, shellcheck
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); [ -z "$$unformatted" ] || { echo "not gofmt'd: $$unformatted"; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	if command -v shellcheck >/dev/null; then shellcheck vagrant/{demo,flow,provision} vagrant/deps vagrant/lab/lab vagrant/lab/recipe vagrant/lab/test .ci/run cmd/clusterm/package/{build,man} cmd/clusterm/package/*/*.sh monitor/serf/handler/*.sh; fi

.PHONY: deps
deps: ## install what the tests use of the machine (apt)
	vagrant/deps

.PHONY: lab-deps
lab-deps:
	$(LABCTL) install

.PHONY: docs
docs: ## write the generated references and tables in docs/ anew
	go test -count=1 ./inventory ./management/metrics ./management/openapi ./clusterctl -run Document -update

.PHONY: man
man: bin/clusterctl ## write clusterctl's manual pages to bin/man/
	bin/clusterctl man bin/man

.PHONY: deb
deb: build bin/nfpm ## make the Debian package in dist/
	cmd/clusterm/package/build deb

.PHONY: rpm
rpm: build bin/nfpm ## make the RPM package in dist/
	cmd/clusterm/package/build rpm

bin/nfpm: cmd/clusterm/package/go.mod
	go -C cmd/clusterm/package build -trimpath -o $(CURDIR)/$@ github.com/goreleaser/nfpm/v2/cmd/nfpm

.PHONY: install
install: build ## install binaries, systemd units and example configurations (PREFIX, DESTDIR)
	install -D -m 0755 bin/clusterm   $(DESTDIR)$(PREFIX)/bin/clusterm
	install -D -m 0755 bin/clusterctl $(DESTDIR)$(PREFIX)/bin/clusterctl
	install -d -m 0755 $(DESTDIR)/etc/systemd/system
	for unit in clusterm clusterm-monitor; do \
	  sed 's#/usr/local/bin#$(PREFIX)/bin#' cmd/clusterm/$$unit.service > $(DESTDIR)/etc/systemd/system/$$unit.service; done
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/doc/clusterm management/daemon/clusterm.yaml monitor/report/monitor.yaml
	install -m 0755 monitor/serf/handler/serf-handler.sh $(DESTDIR)$(PREFIX)/share/doc/clusterm/serf-handler.sh

.PHONY: uninstall
uninstall: ## remove what install installed; /etc/clusterm and /var/lib/clusterm stay
	rm -f $(DESTDIR)$(PREFIX)/bin/clusterm $(DESTDIR)$(PREFIX)/bin/clusterctl $(DESTDIR)/etc/systemd/system/clusterm.service $(DESTDIR)/etc/systemd/system/clusterm-monitor.service
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/clusterm

.PHONY: clean
clean: ## remove what build, deb and rpm built
	rm -rf bin dist
