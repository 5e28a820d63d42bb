// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"bytes"
	"cmp"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/contiv/cluster"
	root   = "../.."
)

// mayImport lists, for each package, the packages of the project that it may import. A
// new package needs a row.
var mayImport = map[string][]string{
	"inventory":               {},
	"inventory/doctest":       {},
	"inventory/errtest":       {},
	"inventory/optiontest":    {"inventory"},
	"inventory/etcd":          {"inventory", "inventory/localfile"},
	"inventory/localfile":     {},
	"inventory/machine":       {},
	"inventory/evidence":      {},
	"inventory/bmc":           {"inventory", "inventory/facts", "inventory/machine"},
	"inventory/bmc/bmctest":   {"inventory/bmc", "inventory/machine"},
	"inventory/facts":         {},
	"inventory/facts/collect": {"inventory/facts"},
	"inventory/facts/program": {"inventory"},
	"inventory/yamlfile":      {"inventory"},
	"management/scan": {
		"inventory", "inventory/bmc", "inventory/machine", "management/access", "management/api", "management/control",
		"management/job", "management/record", "management/state",
	},
	"management/enroll": {
		"inventory",
		"inventory/evidence",
		"inventory/facts",
		"inventory/machine",
		"configuration",
		"management/access",
		"management/api",
		"management/control",
		"management/enroll/listing",
		"management/job",
		"management/node",
		"management/record",
		"management/state",
	},
	"management/enroll/listing": {
		"inventory",
		"inventory/evidence",
		"inventory/facts",
		"inventory/machine",
		"inventory/yamlfile",
		"configuration",
		"management/api",
	},
	"management/image": {
		"inventory", "configuration/image", "configuration/image/environment", "configuration/image/kernel",
		"management/access", "management/api", "management/cluster", "management/control", "management/record",
		"management/state",
	},
	"configuration/image/netboot":      {},
	"configuration/image/netboot/dhcp": {"configuration/image/netboot"},
	"configuration/image/netboot/tftp": {},
	"management/boot": {
		"inventory", "inventory/facts", "inventory/machine", "configuration", "configuration/image/environment",
		"configuration/image/installer", "configuration/image/installer/report", "configuration/image/netboot",
		"configuration/image/netboot/dhcp", "configuration/image/netboot/tftp", "management/access", "management/api",
		"management/control", "management/job", "management/record", "management/state",
	},
	"management/instance": {
		"inventory", "inventory/etcd", "management/access", "management/api", "management/cluster",
		"management/cluster/datadir", "management/control", "management/pki", "management/record", "management/state",
	},
	"management/instance/joining": {
		"inventory", "inventory/etcd", "inventory/localfile", "management/api", "management/client",
		"management/cluster/datadir", "management/instance", "management/pki",
	},
	"monitor":               {"inventory"},
	"monitor/serf":          {"inventory", "inventory/localfile", "inventory/yamlfile", "monitor"},
	"monitor/serf/serftest": {},
	"monitor/report": {
		"inventory",
		"inventory/localfile",
		"inventory/yamlfile",
		"management/api",
		"management/client",
		"monitor",
		"monitor/serf",
	},
	"configuration":         {"inventory"},
	"configuration/ansible": {"inventory", "inventory/localfile", "configuration"},
	"configuration/image": {
		"inventory", "inventory/localfile", "configuration/image/compression", "configuration/image/kernel",
	},
	"configuration/image/build":       {"inventory"},
	"configuration/image/compression": {},
	"configuration/image/kernel":      {"inventory", "configuration/image/compression"},
	// What runs in the boot environment. The manager knows it, and it does not know the manager.
	"configuration/image/environment": {
		"inventory", "configuration/image/installer", "configuration/image/kernel", "configuration/image/program",
	},
	"configuration/image/installer": {
		"inventory", "inventory/facts", "configuration/image/compression", "configuration/image/disk",
		"configuration/image/installer/report", "configuration/image/kernel",
	},
	"configuration/image/disk":              {"inventory", "inventory/facts", "configuration/image/compression"},
	"configuration/image/installer/report":  {"inventory/facts"},
	"configuration/image/kernel/kerneltest": {"inventory/errtest"},
	"configuration/image/program":           {"inventory"},
	"configuration/repository":              {"inventory", "inventory/localfile", "configuration"},
	"configuration/source":                  {"inventory", "configuration"},
	"management/api":                        {"inventory/facts", "inventory", "inventory/localfile"},
	"management/openapi":                    {},
	"management/contracttest":               {"management/api", "management/openapi", "management/server"},
	"management/client":                     {"inventory", "inventory/machine", "management/api"},
	"management/metrics":                    {},
	"management/metrics/present": {
		"inventory", "management/job", "management/record", "management/rollout", "management/state",
	},
	"management/health":   {"inventory", "inventory/etcd", "management/api", "management/record", "management/state"},
	"management/selector": {"inventory"},
	"management/cluster":  {},
	"management/backup":   {"inventory"},
	"management/control":  {"inventory", "management/record"},
	"management/pki":      {"inventory", "inventory/localfile"},
	"management/secret":   {},
	"management/secret/keyring": {
		"inventory",
		"inventory/localfile",
		"configuration",
		"configuration/repository",
		"configuration/source",
		"management/access",
		"management/api",
		"management/control",
		"management/etcd",
		"management/secret",
		"management/state",
	},
	"management/record":            {"inventory"},
	"management/record/recordtest": {"inventory", "management/record"},
	"management/job":               {"inventory", "configuration", "management/api", "management/record"},
	"management/job/jobtest":       {"inventory", "management/job", "management/record"},
	"management/plan": {
		"inventory", "configuration", "management/api", "management/job", "management/record",
	},
	"management/rollout": {
		"inventory", "configuration", "management/access", "management/control", "management/job", "management/plan",
		"management/record", "management/state",
	},
	"management/rollout/gate": {
		"configuration/repository", "configuration/source", "management/notify", "management/record",
		"management/rollout", "management/state",
	},
	"management/state": {
		"inventory",
		"inventory/evidence",
		"inventory/facts",
		"inventory/machine",
		"configuration",
		"management/cluster",
		"management/job",
		"management/record",
	},
	"management/state/statetest": {"configuration", "management/record", "management/state"},
	"management/audit":           {"inventory", "management/access", "management/control", "management/record"},
	"management/audit/audittest": {"inventory", "management/audit"},
	"management/access": {
		"inventory",
		"management/control",
		"management/job",
		"management/selector",
		"management/state",
		"management/record",
	},
	"management/access/oidc": {"inventory", "management/access"},
	"management/access/mtls": {"management/access", "management/pki"},
	"management/variable": {
		"inventory", "configuration", "management/access", "management/record", "management/state",
		"management/merge",
	},
	"management/merge": {"inventory", "configuration", "management/record", "management/state"},
	"management/desired": {
		"inventory",
		"configuration",
		"management/job",
		"management/state",
		"management/merge",
		"management/record",
	},
	"configuration/repository/galaxy": {"inventory", "configuration/source"},
	"configuration/repository/git": {
		"inventory", "inventory/localfile", "configuration", "configuration/source",
	},
	"management/node": {
		"inventory",
		"inventory/evidence",
		"monitor",
		"configuration",
		"management/access",
		"management/control",
		"management/job",
		"management/state",
		"management/record",
	},
	"management/cluster/datadir": {"inventory", "inventory/localfile"},
	"management/gossip": {
		"inventory",
		"inventory/localfile",
		"monitor",
		"monitor/serf",
		"configuration",
		"configuration/ansible",
		"management/cluster/datadir",
		"management/gossipkey",
		"management/node",
		"management/state",
		"management/record",
	},
	"management/rotation": {"inventory"},
	"management/gossipkey": {
		"inventory", "monitor", "configuration", "management/access", "management/control", "management/record",
		"management/rotation", "management/state",
	},
	"management/sshkey": {
		"inventory",
		"inventory/localfile",
		"configuration",
		"management/access",
		"management/control",
		"management/job",
		"management/rotation",
		"management/state",
		"management/record",
	},
	"management/explain": {
		"inventory",
		"inventory/evidence",
		"configuration",
		"management/api",
		"management/desired",
		"management/job",
		"management/state",
		"management/variable",
		"management/window",
		"management/rollout",
		"management/record",
	},
	"management/window": {
		"inventory", "management/access", "management/job", "management/selector", "management/state",
		"management/record",
	},
	"management/policy": {
		"inventory",
		"configuration",
		"management/access",
		"management/api",
		"management/control",
		"management/node",
		"management/job",
		"management/metrics",
		"management/rollout",
		"management/state",
		"management/window",
		"management/record",
	},
	"management/repository": {
		"inventory", "configuration", "management/access", "management/control", "management/state",
	},
	"management/notify": {
		"inventory",
		"management/access",
		"management/api",
		"management/control",
		"management/job",
		"management/record",
		"management/rollout",
		"management/state",
	},
	"management/engine": {
		"inventory",
		"configuration",
		"management/access",
		"management/api",
		"management/control",
		"management/cluster",
		"management/job",
		"management/node",
		"management/plan",
		"management/rollout",
		"management/state",
		"management/step",
		"management/merge", "management/variable",
		"management/window",
		"management/record",
		"management/metrics",
	},
	// What is common to all kinds of step, and a folder for each: nothing imports those but the daemon.
	"management/step": {"inventory", "configuration", "management/job", "management/state", "management/merge"},
	"management/step/appear": {
		"inventory", "management/job", "management/node", "management/state", "management/step",
	},
	"management/step/credentials": {
		"inventory", "inventory/bmc", "inventory/machine", "configuration", "management/state", "management/step",
		"management/step/power",
	},
	"management/hardware": {
		"inventory", "inventory/facts", "management/access", "management/job", "management/record",
		"management/selector", "management/state",
	},
	"management/step/install": {
		"inventory", "configuration", "management/api", "management/boot", "management/job", "management/record",
		"management/state", "management/step", "management/step/netboot",
	},
	"management/step/netboot": {
		"inventory", "inventory/bmc", "inventory/machine", "management/api", "management/boot", "management/record",
		"management/state", "management/step",
	},
	"management/step/inspect": {
		"management/step/netboot",
		"inventory",
		"inventory/bmc",
		"inventory/facts",
		"inventory/facts/program",
		"inventory/machine",
		"configuration",
		"management/api",
		"management/boot",
		"management/hardware",
		"management/record",
		"management/state",
		"management/step",
		"management/step/power",
	},
	"management/step/power": {
		"inventory",
		"inventory/bmc",
		"inventory/machine",
		"configuration",
		"management/access",
		"management/control",
		"management/job",
		"management/record",
		"management/state",
		"management/step",
	},
	"management/step/playbook": {
		"inventory",
		"configuration",
		"management/cluster",
		"management/job",
		"management/state",
		"management/step",
		"management/merge",
		"management/repository",
	},
	// The programs behind the executor of playbooks.
	"management/step/playbook/program": {
		"ansible",
		"inventory",
		"inventory/localfile",
		"configuration",
		"configuration/ansible",
		"configuration/repository",
		"configuration/repository/galaxy",
		"configuration/repository/git",
		"management/control",
		"management/job",
		"management/metrics",
		"management/record",
		"management/repository",
		"management/state",
		"management/step/playbook",
	},
	"management/step/probe": {"inventory", "configuration", "management/job", "management/state", "management/step"},
	"management/setting": {
		"inventory",
		"inventory/yamlfile",
		"monitor",
		"configuration",
		"management/access",
		"management/api",
		"management/boot",
		"management/engine",
		"management/explain",
		"management/gossipkey",
		"management/job",
		"management/node",
		"management/policy",
		"management/record",
		"management/rollout",
		"management/scan", "management/sshkey",
		"management/state",
		"management/step",
		"management/merge",
		"management/notify",
		"management/hardware",
		"management/selector",
		"management/window",
		"management/repository",
		"management/step/playbook",
	},
	"management/etcd": {
		"inventory",
		"configuration",
		"inventory/etcd",
		"management/access",
		"management/audit",
		"management/backup",
		"management/cluster",
		"management/job",
		"management/plan",
		"management/repository",
		"management/rollout",

		"management/secret",
		"management/sshkey",
		"management/state",
		"management/variable",
		"management/notify",
		"management/record",
		"management/metrics",
	},
	"management/etcd/tool": {
		"inventory", "inventory/etcd", "management/audit", "management/etcd", "management/record",
	},
	// What a manager does when its records are of another time than the hosts.
	"management/survivor": {
		"inventory",
		"inventory/etcd",
		"inventory/localfile",
		"management/audit",
		"management/etcd",
		"management/instance",
		"management/record",
		"management/state",
	},
	"management/restore": {
		"inventory", "inventory/etcd", "inventory/localfile", "management/access", "management/api",
		"management/audit", "management/backup", "management/cluster/datadir", "management/engine",
		"management/etcd", "management/instance", "management/metrics", "management/record", "management/state",
	},
	// The HTTP kit contains no use case, so that every API family can use it.
	"management/server/rest":     {"inventory", "management/access", "management/api", "management/openapi"},
	"management/server/nodelist": {"inventory", "management/api", "management/state"},
	"management/server/nodelist/nodelisttest": {
		"configuration",
		"inventory",
		"management/job",
		"management/state",
		"management/merge",
		"management/record",
	},
	"management/fleet": {
		"inventory",
		"configuration",
		"management/access",
		"management/api",
		"management/job",
		"management/node",
		"management/record",
		"management/selector",
		"management/state",
		"management/variable",
	},
	"management/server/legacy": {
		"inventory",
		"configuration",
		"management/access",
		"management/api",
		"management/job",
		"management/openapi",
		"management/server/nodelist",
		"management/server/rest",
		"management/state",
		"management/merge", "management/variable",
	},
	"management/server": {
		"inventory/facts",
		"management/hardware", "inventory",
		"inventory/machine",
		"configuration",
		"management/access",
		"management/api",
		"management/audit",
		"management/backup",
		"management/boot",
		"management/desired",
		"management/explain",
		"management/enroll",
		"management/fleet",
		"management/gossipkey",
		"management/image",
		"management/job",
		"management/metrics",
		"management/node",
		"management/openapi",
		"management/plan",
		"management/repository",
		"management/rotation",
		"management/scan", "management/selector",
		"management/sshkey",
		"management/server/legacy",
		"management/server/nodelist",
		"management/server/rest",
		"management/state",
		"management/merge", "management/variable",
		"management/notify",
		"management/window",
		"management/rollout",
		"management/record",
	},
	"management/daemon": {
		"inventory",
		"management/boot",
		"management/client",
		"management/image",
		"management/instance",
		"management/instance/joining",
		"monitor",
		"configuration",
		"management/access",
		"management/control",
		"management/access/mtls",
		"management/access/oidc",
		"management/restore",
		"management/survivor",
		"management/audit",
		"management/cluster",
		"management/cluster/datadir",
		"management/desired",
		"management/engine",
		"management/enroll",
		"management/explain",
		"management/gossip",
		"management/gossipkey",
		"management/job",
		"management/node",
		"management/pki",
		"management/policy",
		"management/repository",
		"management/plan",
		"management/rollout/gate",
		"management/scan", "management/secret/keyring",
		"management/setting",
		"management/sshkey",
		"management/state",
		"management/step",
		"inventory/bmc",
		"management/step/appear",
		"management/step/credentials",
		"management/step/inspect",
		"management/step/install",
		"management/step/netboot",
		"management/step/power",
		"management/step/playbook",
		"management/step/playbook/program",
		"management/step/probe",
		"management/merge", "management/variable",
		"inventory/etcd",
		"inventory/localfile",
		"monitor/serf",
		"configuration/ansible",
		"configuration/repository",
		"configuration/source",
		"management/etcd",
		"management/etcd/tool",
		"management/api",
		"management/metrics",
		"management/server",
		"management/notify",
		"management/window",
		"management/rollout",
		"management/record",
		"management/hardware", "management/health",
		"management/metrics/present",
	},
	"clusterctl": {
		"clusterctl/bootstrap",
		"clusterctl/bundle",
		"clusterctl/contexts",
		"clusterctl/exit",
		"clusterctl/fleet",
		"clusterctl/follow",
		"clusterctl/hosts",
		"clusterctl/print",
		"inventory",
		"inventory/facts",
		"inventory/localfile",
		"configuration",
		"configuration/image",
		"configuration/image/build",
		"configuration/image/environment",
		"configuration/image/kernel",
		"management/api",
		"management/backup",
		"management/client",
	},
	"clusterctl/contexts":  {"inventory", "inventory/localfile", "inventory/yamlfile"},
	"clusterctl/exit":      {"inventory", "management/api"},
	"clusterctl/print":     {"clusterctl/exit", "inventory", "management/api"},
	"clusterctl/follow":    {"clusterctl/exit", "clusterctl/print", "inventory", "management/api", "management/client"},
	"clusterctl/bundle":    {"clusterctl/exit", "clusterctl/print", "inventory", "management/api", "management/client"},
	"clusterctl/bootstrap": {"clusterctl/exit", "management/api"},
	"clusterctl/hosts":     {"inventory", "inventory/localfile", "management/api"},
	"clusterctl/fleet": {
		"clusterctl/exit",
		"clusterctl/follow",
		"inventory",
		"management/api",
		"management/client",
	},
	"cmd/clusterctl":     {"clusterctl", "management/api"},
	"cmd/clusterm-facts": {"inventory/facts/collect"},
	"cmd/clusterm-boot":  {"configuration/image/installer", "inventory/facts/collect"},
	"cmd/clusterm": {
		"clusterctl/print", // text for people fits the terminal
		"inventory",
		"inventory/etcd",
		"inventory/localfile",
		"monitor/report",
		"monitor/serf",
		"configuration/ansible",
		"management/api",
		"management/audit",
		"management/client",
		"management/daemon",
		"management/etcd/tool",
		"management/pki",
		"management/restore",
		"management/step/playbook/program",
	},
	"cmd/clusterm/processtest": {},
	"ansible":                  {},
	".ci/seeds":                {},
	"vagrant/bench": {
		"configuration", "configuration/repository/git", "inventory", "inventory/bmc", "inventory/bmc/bmctest",
		"inventory/etcd", "inventory/facts", "inventory/machine", "management/access",
		"management/api", "management/client", "management/daemon", "management/etcd", "management/job",
		"management/policy", "management/record", "management/rollout", "management/secret", "management/selector",
		"management/state", "management/step", "management/step/inspect", "management/step/power",
	},
	"vagrant/systemtest": {"inventory", "inventory/bmc/bmctest", "management/api", "management/client"},
}

// homes lists the only packages that may import paths with the prefix.
var homes = []struct {
	prefix string
	in     []string
	why    string
}{
	{
		"github.com/gorilla/mux",
		[]string{"management/server/rest"},
		"one home per dependency: handlers depend on rest, not on the router",
	},
	{
		"github.com/urfave/cli",
		[]string{"clusterctl", "cmd/clusterctl", "cmd/clusterm"},
		"one home per dependency; the rooms of clusterctl work without a command line",
	},
	{"github.com/google/btree", []string{"management/record"}, "one home per dependency"},
	{"github.com/robfig/cron", []string{"management/window"}, "one home per dependency"},
	{"github.com/vbauerster/mpb", []string{"clusterctl/follow"}, "one home per dependency"},
	{
		"github.com/mattn/go-runewidth",
		[]string{"clusterctl", "clusterctl/follow", "clusterctl/print"},
		"only text for a terminal needs the width of a character",
	},
	{"github.com/hashicorp/", []string{"monitor/serf"}, "one home per dependency"},
	{"github.com/yuin/goldmark", []string{"management/openapi"}, "one home per dependency"},
	{
		"github.com/getkin/kin-openapi",
		[]string{"management/openapi", "management/contracttest"},
		"one home per dependency, and its checks",
	},
	{module + "/configuration/image/kernel/kerneltest", nil, "it is for tests"},
	{module + "/management/contracttest", nil, "it is for tests"},
	{module + "/management/job/jobtest", nil, "it is for tests"},
	{module + "/management/server/nodelist/nodelisttest", nil, "it is for tests"},
	{module + "/monitor/serf/serftest", nil, "it is for tests"},
	{module + "/cmd/clusterm/processtest", nil, "it is for tests"},
	{
		"go.etcd.io/",
		[]string{"inventory/etcd", "management/etcd", "vagrant/bench"},
		"one home per dependency, and what it is measured against",
	},
	{
		"github.com/cenkalti/backoff",
		[]string{
			"clusterctl/follow",
			"configuration/image/installer",
			"inventory/etcd",
			"management/client",
			"management/control",
			"management/engine",
			"management/notify",
			"management/repository",
			"management/setting",
			"management/state",
			"monitor",
			"monitor/serf",
		},
		"these packages retry; the pure ones leave time to their callers",
	},
	{"k8s.io/", []string{"management/selector"}, "one home per dependency"},
	{"github.com/creack/pty", nil, "only tests need a terminal"},
	{"github.com/anishathalye/porcupine", nil, "only tests judge histories"},
	{"github.com/coreos/go-oidc/", []string{"management/access/oidc"}, "one home per dependency"},
	{
		"golang.org/x/crypto/",
		[]string{"management/secret", "management/sshkey", "configuration/repository/git"},
		"who encrypts, who makes ssh keys, and who logs in to fetch and checks signatures",
	},
	{"github.com/standard-webhooks/", []string{"management/notify"}, "one home per dependency"},
	{"github.com/wneessen/go-mail", []string{"management/notify"}, "one home per dependency"},
	{
		"github.com/klauspost/compress/",
		[]string{"configuration/image/compression", "configuration/image/kernel", "management/record"},
		"who looks into compressed images, and who compresses initrds and records",
	},
	{
		"github.com/ulikunitz/xz",
		[]string{"configuration/image/compression", "configuration/image/kernel/kerneltest"},
		"one home per dependency",
	},
	{"github.com/diskfs/", []string{"configuration/image/disk"}, "one home per dependency"},
	{"github.com/insomniacslk/", []string{"configuration/image/netboot/dhcp"}, "one home per dependency"},
	{"github.com/pin/tftp", nil, "only tests ask a TFTP server"},
	{"github.com/bougou/", []string{"inventory/bmc", "inventory/bmc/bmctest"}, "one home per dependency"},
	{"github.com/stmcginnis/", []string{"inventory/bmc"}, "one home per dependency"},
	{"github.com/jaypipes/", []string{"inventory/facts/collect"}, "one home per dependency"},
	{"github.com/digitalocean/", []string{"inventory/facts/collect"}, "one home per dependency"},
	{"github.com/go-git/", []string{"configuration/repository/git"}, "one home per dependency"},
	{"github.com/skeema/knownhosts", []string{"configuration/repository/git"}, "one home per dependency"},
	{"github.com/rogpeppe/go-internal/diff", []string{"configuration/repository/git"}, "one home per dependency"},
	{
		"github.com/prometheus/",
		[]string{"management/metrics", "management/server"},
		"who measures",
	},
	{
		"os/exec",
		[]string{
			".ci/seeds",
			"configuration/ansible",
			"configuration/source",
			"inventory/etcd",
			"inventory/facts/collect",
			"clusterctl/bundle",
			"clusterctl/bootstrap",
			"configuration/image/build",
			"vagrant/bench",
			"cmd/clusterm/processtest",
			"monitor/serf/serftest",
		},
		"processes are started by the runner, for the embedded etcd, for secrets and gates, to be measured, by " +
			"tests, to read the journal for a support bundle, for ssh to a fresh host, and to ask lldpd and ipmitool " +
			"for facts",
	},
	{
		"github.com/sirupsen/logrus",
		[]string{
			"cmd/clusterm",
			"inventory/etcd",
			"monitor/serf",
			"monitor/report",
			"management/audit",
			"management/boot",
			"management/control",
			"management/image",
			"management/instance",
			"management/survivor",
			"management/engine",
			"management/enroll",
			"management/gossip",
			"management/gossipkey",
			"management/node",
			"management/notify",
			"management/policy",
			"management/restore",
			"management/rollout",
			"management/repository",
			"management/setting",
			"management/sshkey",
			"management/step/playbook",
			"management/step/playbook/program",
			"management/scan",
			"management/step/power",
			"management/etcd",
			"management/secret/keyring",
			"management/server",
			"management/server/rest",
			"management/daemon",
			"vagrant/bench",
		},
		"the pure packages and the command line log nothing",
	},
}

// onlyStandard lists packages that use only the standard library and the listed
// exceptions.
var onlyStandard = map[string][]string{
	"inventory":          {},
	"management/cluster": {},
	"management/pki":     {},
	"monitor":            {"github.com/cenkalti/backoff/v5"}, // delays only: it never sleeps by itself
	"management/api":     {},
	"management/client":  {"github.com/cenkalti/backoff/v5"},
	"ansible":            {},
	"configuration":      {"go.yaml.in/yaml/v3"},
}

// source is one package as it is written, without its tests.
type source struct {
	imports map[string]string // by path: a file that imports it
	docs    []string          // files with a package comment
}

// sources parses every package of the project.
func sources(t *testing.T) map[string]*source {
	t.Helper()
	packages := map[string]*source{}
	files := token.NewFileSet()
	everyFile(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return
		}

		f, err := parser.ParseFile(files, filepath.Join(root, path), nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}

		dir := filepath.Dir(path)
		if packages[dir] == nil {
			packages[dir] = &source{imports: map[string]string{}}
		}
		p := packages[dir]
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			p.imports[name] = path
		}

		if f.Doc != nil {
			p.docs = append(p.docs, path)
		}
	})

	if len(packages) < 10 {
		t.Fatalf("only %d packages were found below %s", len(packages), root)
	}

	return packages
}

// everyFile calls found for every file of the project.
func everyFile(t *testing.T, found func(path string)) {
	t.Helper()

	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (name[0] == '.' && name != ".ci" || name == "bin" || name == "dist" ||
			name == "__pycache__"):
			return fs.SkipDir
		case !d.IsDir():
			found(path)
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImports(t *testing.T) {
	t.Parallel()

	packages := sources(t)
	for dir, p := range packages {
		allowed, known := mayImport[dir]
		if !known {
			t.Errorf("%s is a new package: say in this test what it may import", dir)
		}

		for name, file := range p.imports {
			own, ours := strings.CutPrefix(name, module+"/")
			if ours && !slices.Contains(allowed, own) {
				t.Errorf(
					"%s imports %s: imports point one way, and %s may import only %s",
					file,
					own,
					dir,
					cmp.Or(strings.Join(allowed, ", "), "nothing of ours"),
				)
			}

			for _, h := range homes {
				if strings.HasPrefix(name, h.prefix) && !slices.Contains(h.in, dir) {
					t.Errorf("%s imports %s, which belongs into %s: %s", file, name, strings.Join(h.in, ", "), h.why)
				}
			}

			if more, pure := onlyStandard[dir]; pure && !ours && strings.Contains(name, ".") &&
				!slices.Contains(more, name) {
				t.Errorf("%s imports %s: %s uses the standard library only", file, name, dir)
			}
		}
	}

	for dir := range mayImport {
		if packages[dir] == nil && dir != "vagrant/systemtest" {
			t.Errorf("%s has no Go files", dir)
		}
	}
}

// TestFloors expects no longer chain of imports than today's.
func TestFloors(t *testing.T) {
	t.Parallel()

	const most = 10

	packages := sources(t)
	chains := map[string][]string{} // the longest one down from each package

	var chain func(dir string) []string

	chain = func(dir string) []string {
		if found, ok := chains[dir]; ok {
			return found
		}

		var longest []string
		for name := range packages[dir].imports {
			below, ours := strings.CutPrefix(name, module+"/")
			if ours && len(chain(below)) > len(longest) {
				longest = chain(below)
			}
		}

		chains[dir] = append([]string{dir}, longest...)

		return chains[dir]
	}

	for dir := range packages {
		if found := chain(dir); len(found) > most {
			t.Errorf("imports on %d floors, more than %d: %s", len(found), most, strings.Join(found, " > "))
		}
	}
}

// TestDaemonWires bounds the daemon: what does more than wire parts belongs to the room of its noun.
func TestDaemonWires(t *testing.T) {
	t.Parallel()

	const most = 1756

	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}

	lines := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}

		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(text, []byte("\n"))
	}

	if lines == 0 || lines > most {
		t.Errorf("the daemon has %d lines; at most %d", lines, most)
	}
}

// TestCommandLineLinksNoDaemon follows the imports of clusterctl to the end.
func TestCommandLineLinksNoDaemon(t *testing.T) {
	t.Parallel()
	packages := sources(t)
	seen := map[string]bool{}
	var follow func(dir, way string)
	follow = func(dir, way string) {
		if seen[dir] || packages[dir] == nil {
			return
		}

		seen[dir] = true
		for name := range packages[dir].imports {
			if own, ours := strings.CutPrefix(name, module+"/"); ours {
				follow(own, way+" -> "+own)
			}

			for _, not := range []string{
				"github.com/hashicorp/", "go.etcd.io/", "github.com/gorilla/", module + "/management/daemon",
				module + "/management/server",
			} {
				if strings.HasPrefix(name, not) {
					t.Errorf("clusterctl links %s: %s", name, way)
				}
			}
		}
	}
	follow("cmd/clusterctl", "cmd/clusterctl")

	if !seen["management/client"] {
		t.Error("clusterctl does not use the client")
	}
}

func TestPackageComments(t *testing.T) {
	t.Parallel()

	for dir, p := range sources(t) {
		if len(p.docs) != 1 {
			t.Errorf("package %s has its comment in %d files %v; one says what it is for", dir, len(p.docs), p.docs)
		}
	}
}

// TestLicence checks that every source file has its licence in its first lines.
func TestLicence(t *testing.T) {
	t.Parallel()
	sources := []string{".go", ".py", ".sh", ".yml", ".yaml", ".service", ".rb"}
	names := []string{
		"Makefile",
		"Vagrantfile",
		"run",
		"lab",
		"recipe",
		"demo",
		"flow",
		"provision",
		"deps",
		"test",
		"build",
		"man",
	}
	count := 0
	everyFile(t, func(path string) {
		ext, name := filepath.Ext(path), filepath.Base(path)
		if !slices.Contains(sources, ext) && !slices.Contains(names, name) ||
			strings.Contains(path, "testdata/inventory/") {
			return
		}

		count++

		f, err := os.Open(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()

		lines := bufio.NewScanner(f)
		for range 3 {
			if !lines.Scan() {
				break
			}

			if strings.Contains(lines.Text(), "SPDX-License-Identifier: Apache-2.0") {
				return
			}
		}

		t.Errorf("%s does not begin with SPDX-License-Identifier: Apache-2.0", path)
	})

	if count < 50 {
		t.Errorf("only %d source files were found", count)
	}
}

// TestNoSleeping checks that tests sleep only in files with bubbles of testing/synctest.
// Elsewhere they wait for an event.
func TestNoSleeping(t *testing.T) {
	t.Parallel()
	everyFile(t, func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}

		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("time."+"Sleep(")) && !bytes.Contains(text, []byte(`"testing/synctest"`)) {
			t.Errorf("%s sleeps, and has no bubble of testing/synctest", path)
		}
	})
}
