// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/rollout/gate"
)

// TestGateCommand runs a program of the configuration file as the gate of a rollout. A node
// waits in the gate until the program succeeds for it. A program that others can change does
// not run.
func TestGateCommand(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	program, ran, well := filepath.Join(s.dir, "smoke"), filepath.Join(s.dir, "ran"), filepath.Join(s.dir, "well")
	script := fmt.Sprintf(`#!/bin/sh
echo "$1 $CLUSTERM_NODE $CLUSTERM_ADDR $CLUSTERM_GROUP $CLUSTERM_ROLLOUT" >> %s
test "$CLUSTERM_NODE" = a-1 || test -e %s || { echo "no quorum" >&2; exit 3; }
`, ran, well)
	s.must(os.WriteFile(program, []byte(script), 0o600))
	s.must(os.Chmod(program, 0o755))
	s.write(fmt.Sprintf("gate_commands: {smoke: [%s, --quick]}", program))
	s.up()
	t.Cleanup(s.down)

	names, _ := s.fleet("a b")
	checks := &api.RolloutGate{SkipVerify: true, Command: &api.RolloutCommand{
		Name: "other", Timeout: api.Duration(10 * time.Minute),
	}}
	request := api.RolloutRequest{Nodes: names, Spec: api.RolloutSpec{Action: inventory.VerbApply, Gate: checks}}

	_, err := s.Client.StartRollout(s.ctx(), request)
	checkError(t, err, inventory.KindInvalid, "gate_commands in the configuration file has smoke")

	// A right to change settings is no right to run programs.
	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"gate_commands": map[string]any{}})
	checkError(t, err, inventory.KindRefused, "gate_commands belongs to the configuration file")

	checks.Command.Name = "smoke"
	begun, err := s.Client.StartRollout(s.ctx(), request)
	s.must(err)

	// The second one fails again and again, and does not count as done meanwhile.
	s.eventually("the command was repeated", func() bool {
		text, _ := os.ReadFile(ran)
		return strings.Count(string(text), "--quick b-1 ") >= 2
	})

	r := s.rollout(begun.ID)
	if r.Nodes[0].State != rollout.Succeeded || r.Nodes[1].State != rollout.Checking {
		t.Errorf("%+v", r.Nodes)
	}

	s.must(os.WriteFile(well, nil, 0o600))
	s.reach(begun.ID, "it is done", is(rollout.Done))

	text, err := os.ReadFile(ran)
	s.must(err)

	node, _ := s.View().Lookup("a-1")

	want := fmt.Sprintf("--quick a-1 %s service-master %s\n", node.Addr, begun.ID)
	if !strings.HasPrefix(string(text), want) {
		t.Errorf("it ran with\n%s, want %s", text, want)
	}

	s.must(os.Chmod(program, 0o777))

	err = gate.Run(s.ctx(), []string{program}, rollout.CommandNode{Name: "a-1"}, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "others than its owner can write") {
		t.Errorf("a program that others can write: %v", err)
	}
}
