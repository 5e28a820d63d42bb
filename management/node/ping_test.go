// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/state"
)

// fixedView is a state that never changes. Any other method panics.
type fixedView struct {
	state.Reader
	view *state.View
}

func (f fixedView) View() *state.View { return f.view }

// reaches has the results of hosts by name, and records the hosts.
type reaches struct {
	results map[string]configuration.Reach
	asked   []configuration.Host
	bounded bool
	shown   []string // the host keys of every host
}

func (r *reaches) Probe(ctx context.Context, hosts []configuration.Host) []configuration.Reach {
	_, r.bounded = ctx.Deadline()
	r.asked = append(r.asked, hosts...)

	all := make([]configuration.Reach, len(hosts))
	for i, h := range hosts {
		all[i] = r.results[h.Name]
	}

	return all
}

func (r *reaches) HostKeys(ctx context.Context, h configuration.Host) ([]string, error) {
	_, r.bounded = ctx.Deadline()
	r.asked = append(r.asked, h)

	if failed := r.results[h.Name].Reason(); failed != "" {
		return nil, errors.New(failed)
	}
	return r.shown, nil
}

const aKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFirst"

// pinged returns the use cases with nodes a-1 to g-1 over a prober.
func pinged(p Prober) *Nodes {
	node := func(label string, change func(*inventory.Node)) *inventory.Node {
		n := &inventory.Node{
			Name: label + "-1", Label: label, Serial: "1", Addr: "127.0.0.1", Status: inventory.Allocated,
			State: inventory.Discovered, Group: "workers", HostKeys: []string{aKey},
		}
		if change != nil {
			change(n)
		}
		return n
	}

	v := &state.View{Snapshot: jobtest.With(
		node("a", nil),
		node("b", func(n *inventory.Node) { n.HostKeys = nil }),
		node("c", func(n *inventory.Node) { n.State = inventory.Disappeared }),
		node("d", func(n *inventory.Node) { n.Job, n.Verb = "7", inventory.VerbUpdate }),
		node("e", nil),
		node("f", nil),
		node("g", func(n *inventory.Node) { n.Addr = "-oProxyCommand=x" }),
		node("h", nil),
		node("i", nil),
		node("j", func(n *inventory.Node) { n.HostKeys = []string{takenKey} }),
	)}

	return New(Options{State: fixedView{view: v}, Prober: func(string) Prober { return p }, Settings: func() Settings {
		return Settings{Connect: func(_ *state.View, group, node string) configuration.Connection {
			c := configuration.Connection{User: group + "-" + node}
			if node == "h-1" || node == "i-1" {
				c.Jump = "gate.example"
			}
			return c
		}}
	}})
}

func TestPing(t *testing.T) {
	t.Parallel()

	p := &reaches{results: map[string]configuration.Reach{
		"a-1": {Took: time.Second},
		"c-1": {Port: "port 22 refuses connections", Silent: true},
		"d-1": {Login: "ssh access as x@127.0.0.1 was denied (publickey): check user"},
		"e-1": {Login: "the ssh host key of e-1 is not the one recorded at the first contact: another machine"},
		"f-1": {Login: "the login was not complete within 15s"},
		"h-1": {Login: "the ssh host key of the jump host gate.example has changed: another machine"},
		"i-1": {Login: "no ssh connection to the jump host gate.example, port 22: connection refused"},
	}}

	results, err := pinged(
		p,
	).Ping(t.Context(), access.Caller{}, []string{"f-1", "e-1", "d-1", "c-1", "b-1", "a-1", "h-1", "i-1", "g-1"})
	errtest.None(t, err)

	var lines []string
	for _, r := range results {
		line := fmt.Sprintf("%s verified=%t %s", r.Node, r.HostKeyVerified, r.Took)
		if !r.Answered {
			line += fmt.Sprintf(" | %s | %s | %v", r.Message, r.Remedy, r.Actions)
		}
		lines = append(lines, line)
	}

	want := []string{
		"f-1 verified=false 0s | the login was not complete within 15s | " +
			"try ssh to 127.0.0.1 on the host of the manager, and see the log of its sshd | []",
		"e-1 verified=false 0s | the ssh host key of e-1 is not the one recorded at the first contact: another " +
			"machine |  | [trust-host-key nodes=e-1]",
		"d-1 verified=false 0s | ssh access as x@127.0.0.1 was denied (publickey): check user |  | " +
			"[set-connection nodes=d-1]",
		"c-1 verified=false 0s | port 22 refuses connections | the monitor does not see the node either; check the " +
			"host, its address and the port of its sshd | [set-connection nodes=c-1]",
		"b-1 verified=false 0s",
		"a-1 verified=true 1s",
		"h-1 verified=false 0s | the ssh host key of the jump host gate.example has changed: another machine |  | " +
			"[set-connection nodes=h-1]",
		"i-1 verified=false 0s | no ssh connection to the jump host gate.example, port 22: connection refused | on " +
			"the host of the manager, try ssh to the jump host, and from there to 127.0.0.1; see the logs of both " +
			"sshd | [set-connection nodes=i-1]",
	}
	if got := strings.Join(lines[:8], "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}

	// An address that ssh would take for an option reaches no program.
	if bad := results[8]; bad.Answered || !strings.Contains(bad.Message, "ProxyCommand") {
		t.Errorf("%+v", bad)
	}

	// The host of a node without a recorded key must not be that of another one.
	if p.asked[4].Name != "b-1" || p.asked[4].Taken[takenKey] != "j-1" {
		t.Errorf("asked %+v", p.asked[4])
	}

	if len(p.asked) != 8 || !p.bounded || p.asked[0].Connection.User != "workers-f-1" ||
		p.asked[0].HostKeys[0] != aKey {
		t.Errorf("bounded %t, asked %+v", p.bounded, p.asked)
	}
}

// TestPingRefusals: a request that is not in order reaches no host.
func TestPingRefusals(t *testing.T) {
	t.Parallel()

	many := make([]string, MaxPing+1)
	for i := range many {
		many[i] = fmt.Sprintf("n%d-1", i)
	}

	for _, tt := range []struct {
		name  string
		nodes []string
		kind  inventory.Kind
		text  string
	}{
		{"none", nil, inventory.KindInvalid, "node"},
		{"twice", []string{"a-1", "a-1"}, inventory.KindInvalid, "a-1"},
		{"unknown", []string{"a-1", "x-9", "y-9"}, inventory.KindNotFound, "x-9, y-9"},
		{"no name", []string{"a 1"}, inventory.KindInvalid, "a 1"},
		{"too many", many, inventory.KindInvalid, "at most 64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			p := &reaches{}

			_, err := pinged(p).Ping(t.Context(), access.Caller{}, tt.nodes)
			if inventory.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.text) || len(p.asked) > 0 {
				t.Errorf("%v; asked %v", err, p.asked)
			}
		})
	}
}
