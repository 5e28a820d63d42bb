// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// register records the machine of a node.
func (s *site) register(node string, b machine.BMC) {
	s.t.Helper()

	m := state.Machine{
		Machine: machine.Machine{Node: node, BMC: &b, Registered: time.Now()},
		Secrets: configuration.Vars{state.SecretBMC: configuration.NewSecret(b.Password)},
	}

	_, _, err := record.Decide(s.ctx(), s.store, func(tx *record.Tx) (any, error) {
		record.Put(tx, &state.Machines, &m)
		return nil, nil
	})
	s.must(err)
}

// powers returns the recorded power of the nodes.
func (s *site) powers() map[string]api.Power {
	s.t.Helper()

	list, err := s.Power(s.ctx())
	s.must(err)

	all := map[string]api.Power{}
	for _, p := range list.Items {
		all[p.Node] = p
	}

	return all
}

// TestPower: jobs switch machines by their BMCs, of either protocol, and the manager records what the BMCs say.
func TestPower(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	s.up()
	t.Cleanup(s.down)
	s.report("web db old")

	redfish, ipmi, dead := bmctest.NewRedfish(t, 1), bmctest.NewIPMI(t, 0), bmctest.NewRedfish(t, 1)
	wrong := dead.BMC
	wrong.Password = "wrong"

	s.register("web-1", redfish.BMC)
	s.register("db-1", ipmi.BMC)
	s.register("old-1", wrong)

	s.eventually("the power of all", func() bool { return len(s.powers()) == 3 })

	for node, want := range map[string]string{"web-1": "off", "db-1": "off", "old-1": ""} {
		if p := s.powers()[node]; p.Power != want || (p.Problem == "") != (want != "") {
			t.Errorf("%s: %+v, want %q", node, p, want)
		}
	}

	j := s.runJob(api.JobRequest{
		Verb: inventory.VerbPower, Nodes: []string{"web-1", "db-1", "old-1"}, ExtraVars: []byte(`{"to":"on"}`),
	})
	if j.Status != api.Errored || !redfish.System(1).On() || !ipmi.Machine.On() {
		t.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
	}

	if n := dead.Logins(); n != 1 {
		t.Errorf("a wrong password was tried %d times", n)
	}

	s.eventually("power on", func() bool {
		all := s.powers()
		return all["web-1"].Power == string(bmc.On) && all["db-1"].Power == string(bmc.On)
	})

	for _, n := range []string{"web-1", "db-1", "old-1"} {
		if got := s.status(n); !strings.HasPrefix(got, string(inventory.Unallocated)) {
			t.Errorf("%s is %s", n, got)
		}
	}
}
