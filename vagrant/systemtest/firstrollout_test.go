// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestFirstRolloutPage does what docs/operating/first-rollout.md says, in its order:
// it writes each file and runs each command, with the addresses of the lab.
func TestFirstRolloutPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/operating/first-rollout.md")
	errtest.None(t, err)

	w := newWorld(t, setup{noAgents: true})
	w.write("host1", "/root/.gitconfig", "[user]\nname = operator\nemail = operator@example.com\n")

	// As the package does.
	w.sh("host1", `mkdir -p /etc/clusterm; printf 'repository:\n  url: ""\n  branch: ""\n' >>`+configFile)

	const folder = "/srv/web/"

	var script strings.Builder

	// A block of commands continues the shell of the blocks before.
	run := func() {
		w.sh("host1", "set -e; export HOME=/root; "+script.String())
		script.Reset()
		script.WriteString("cd " + folder + "\n")
	}

	text := strings.ReplaceAll(string(page), "192.0.2.", "10.77.0.")
	for _, block := range regexp.MustCompile("(?ms)^```(yaml)?\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		name, isFile := strings.CutPrefix(strings.SplitN(block[2], "\n", 2)[0], "# ")

		switch {
		case block[1] == "":
			script.WriteString(block[2])
			run()
		case isFile:
			w.sh("host1", "mkdir -p "+filepath.Dir(folder+name))
			w.write("host1", folder+name, block[2])
		default:
			t.Errorf("a block of YAML does not begin with the name of its file: %s", block[2])
		}
	}

	for _, host := range []string{"host2", "host3", "host4"} {
		w.wantNode(host, inventory.Allocated, "web")

		if got := w.sh("host1", "curl -s http://"+addr(host)+":8080/").stdout; got != "version 1.1\n" {
			t.Errorf("%s serves %q", host, got)
		}
	}

	// One job for each node, one after the other: canary, then the others.
	var upgraded []string

	for _, j := range w.jobs() {
		if j.Verb == inventory.VerbApply {
			upgraded = append(upgraded, j.Nodes...)
		}
	}

	slices.Sort(upgraded)

	if want := w.nodeNames("host2", "host3", "host4"); !slices.Equal(upgraded, want) {
		t.Errorf("the rollout applied to %v, want %v", upgraded, want)
	}
}
