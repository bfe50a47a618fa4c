# Every target sets up what it needs; root is needed for libvirt nodes (private namespaces) and apt packages.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
# Packages of Debian and of npm come at the same time; several goals are made one after the other.
ifeq ($(word 2,$(MAKECMDGOALS)),)
MAKEFLAGS += --jobs=2
endif

NODE_ARCH := $(patsubst aarch64,arm64,$(patsubst x86_64,x64,$(shell uname -m)))
NODE_DIR := $(CURDIR)/node_modules/node-linux-$(NODE_ARCH)
export PATH := $(NODE_DIR)/bin:$(CURDIR)/node_modules/.bin:$(PATH)

# The lab's variables are a contract: LAB_DIR, PORT, NODES, GUEST (debian or tiny).
LAB_DIR ?= $(CURDIR)/.lab
PORT ?= 8443
NODES ?= 1
# The demo's guest boots in seconds and needs no image, unless another is asked for.
DEMO_GUEST := $(or $(GUEST),tiny)
GUEST ?= debian
export LAB_DIR PORT NODES GUEST

DESTDIR ?=

.PHONY: help setup packages modules test-packages postgres guest web screenshots test soak unit check generate demo lab-up lab-down bench scale scale-day cluster-proof package install clean

help: ## Lists the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

# One after the other, since dpkg has one lock: packages, test-packages, postgres, guest.
packages:
	@test/lab/setup.sh packages

modules: packages
	@test/lab/setup.sh modules

test-packages: packages
	@test/lab/setup.sh test-packages

postgres: modules test-packages
	@test/lab/setup.sh postgres

guest: postgres
	@test/lab/setup.sh guest

setup: guest ## Installs packages, node modules and the test guests (only what is missing)

web: modules ## Builds the management pages, which the controller serves at /ui/ (only when something changed)
	@node packaging/web.ts

test: setup web ## Runs every test: unit, contract, integration, end to end with real guests
	@node test/run.ts

screenshots: setup web ## Makes pictures of every page of the management pages, into docs/screenshots
	@node test/e2e/web-screenshots.ts

soak: setup ## Runs the tests that need much: a Debian guest, running and off, in its directory domain, its agent stopped and killed
	@test/lab/setup.sh soak
	@VIRTKEEP_UNDO_HISTORIES=$${VIRTKEEP_UNDO_HISTORIES:-100} VIRTKEEP_HOSTILE_BACKUPS=$${VIRTKEEP_HOSTILE_BACKUPS:-10000} \
	VIRTKEEP_LENDING_OPERATIONS=$${VIRTKEEP_LENDING_OPERATIONS:-200} VIRTKEEP_LONG_INCREMENTS=$${VIRTKEEP_LONG_INCREMENTS:-30} \
	VIRTKEEP_RETENTION_CASES=$${VIRTKEEP_RETENTION_CASES:-100000} VIRTKEEP_RETENTION_SEED=$${VIRTKEEP_RETENTION_SEED:-$$(date +%s)} \
	VIRTKEEP_OVF_MUTATIONS=$${VIRTKEEP_OVF_MUTATIONS:-100000} VIRTKEEP_OVF_SEED=$${VIRTKEEP_OVF_SEED:-$$(date +%s)} \
	VIRTKEEP_APPLIANCE_TIMES=$${VIRTKEEP_APPLIANCE_TIMES:-20000} VIRTKEEP_VMA_TIMES=$${VIRTKEEP_VMA_TIMES:-100000} VIRTKEEP_VMA_SEED=$${VIRTKEEP_VMA_SEED:-$$(date +%s)} \
	VIRTKEEP_YEAR_TASKS=$${VIRTKEEP_YEAR_TASKS:-500} VIRTKEEP_YEAR_SEED=$${VIRTKEEP_YEAR_SEED:-$$(date +%s)} \
	VIRTKEEP_UNDO_SEED=$${VIRTKEEP_UNDO_SEED:-$$(date +%s)} VIRTKEEP_HOSTILE_SEED=$${VIRTKEEP_HOSTILE_SEED:-$$(date +%s)} node test/run.ts soak

unit: postgres web ## Runs the unit and contract tests only
	@node test/run.ts unit contract

check: modules ## Lint, types, import directions, generated files up to date
	@node test/lab/check.ts

generate: modules ## Regenerates the gRPC code and docs/errors.md
	@npm run --silent generate
	@node test/lab/errors-doc.ts docs/errors.md

lab-up: setup web ## Brings up a node, a controller and a guest; prints how to reach them
	@node test/lab/lab-up.ts

lab-down: ## Removes everything that lab-up made
	@if [ -x "$(NODE_DIR)/bin/node" ]; then node test/lab/lab-down.ts; else echo "lab-down: nothing to remove"; fi

demo: $(if $(filter debian,$(DEMO_GUEST)),setup,modules) ## Backs up a running guest, restores it elsewhere, compares; cleans up (GUEST=debian: with Debian)
	@test/lab/setup.sh tiny-guest
	@GUEST=$(DEMO_GUEST) node test/demo/demo.ts

bench: setup ## Prints medians against what disk and cores can do, and against cp, zstd, virtnbdbackup; fails when a target is missed
	@test/lab/setup.sh bench
	@node test/bench/bench.ts

scale: modules ## Measures one controller with simulated agents against its targets (NODES=100 VMS=100 TASKS=100000)
	@node packaging/bundle.ts
	@NODES=$(if $(filter file,$(origin NODES)),100,$(NODES)) VMS=$(or $(VMS),100) TASKS=$(or $(TASKS),100000) \
	VIRTKEEP_BUNDLE=$(CURDIR)/bundle node --no-warnings test/scale/scale.ts

scale-day: modules ## Whether a controller's memory stays as it is over the work of a day (NODES=100 VMS=100 HOURS=24)
	@node packaging/bundle.ts
	@NODES=$(if $(filter file,$(origin NODES)),100,$(NODES)) VMS=$(or $(VMS),100) HOURS=$(or $(HOURS),24) \
	VIRTKEEP_BUNDLE=$(CURDIR)/bundle node --no-warnings test/scale/day.ts

cluster-proof: setup ## Lets things happen to three controllers and their database for half an hour (MINUTES=30 NODES=50 SEED=…)
	@test/lab/setup.sh cluster-proof
	@node packaging/bundle.ts
	@VIRTKEEP_BUNDLE=$(CURDIR)/bundle node --no-warnings test/cluster/proof.ts $(or $(MINUTES),30) \
	$(if $(filter file,$(origin NODES)),50,$(NODES)) $(SEED)

package: modules ## Builds dist/virtkeep_<version>_<arch>.deb
	@node packaging/build-deb.ts

install: modules ## Installs files below DESTDIR (default /) as the package would
	@node packaging/install.ts "$(or $(DESTDIR),/)"

clean: lab-down ## Removes caches and built files
	rm -rf .cache dist bundle controller/web/dist controller/web/node_modules controller/web/src/api/schema.d.ts
