// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// register records the machine of a node, with network ports.
func (s *site) register(node string, b machine.BMC, macs ...string) {
	s.t.Helper()

	m := state.Machine{
		Machine: machine.Machine{Node: node, BMC: &b, Registered: time.Now()},
		Secrets: configuration.Vars{state.SecretBMC: configuration.NewSecret(b.Password)},
	}
	for _, mac := range macs {
		m.Ports = append(m.Ports, machine.Port{MAC: mac})
	}
	if b.Next != "" {
		m.Secrets[state.SecretBMCNext] = configuration.NewSecret(b.Next)
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

	n, err := s.Node(s.ctx(), "web-1")
	s.must(err)
	if n.Power != string(bmc.On) {
		t.Errorf("web-1 shows the power %q", n.Power)
	}

	if old, err := s.Node(s.ctx(), "old-1"); err != nil || old.BMCProblem == "" || n.BMCProblem != "" {
		t.Errorf("problems of BMCs: old-1 %q, web-1 %q, %v", old.BMCProblem, n.BMCProblem, err)
	}

	for selected, want := range map[string]string{"power=on": "db-1 web-1", "!power": "old-1", "power!=on": "old-1"} {
		var names []string

		for n, err := range s.EachNode(s.ctx(), client.NodeFilter{Selector: selected + ",label in (web,db,old)"}) {
			s.must(err)
			names = append(names, n.Name)
		}

		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s selects %s, want %s", selected, got, want)
		}
	}

	for _, n := range []string{"web-1", "db-1", "old-1"} {
		if got := s.status(n); !strings.HasPrefix(got, string(inventory.Unallocated)) {
			t.Errorf("%s is %s", n, got)
		}
	}
}

// TestBMCPasswords: passwords of BMCs are replaced, also after a crash between any two steps, and are not taken back by
// an old list.
func TestBMCPasswords(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	s.up()
	t.Cleanup(s.down)
	s.report("web db set stored bad two")

	const stored = "stored-before-the-crash"

	redfish, ipmi := bmctest.NewRedfish(t, 1), bmctest.NewIPMI(t, 0)
	set, left := bmctest.NewIPMI(t, 0), bmctest.NewRedfish(t, 1)
	bad, shared := bmctest.NewRedfish(t, 1), bmctest.NewRedfish(t, 2)
	bad.Forget(true)

	s.register("web-1", redfish.BMC)
	s.register("db-1", ipmi.BMC)
	s.register("bad-1", bad.BMC)

	// A manager has crashed before it set the new password, or after that.
	half := set.BMC
	half.Next = stored[:20]
	s.must(bmc.New().SetPassword(s.ctx(), half))
	s.register("set-1", half)

	half = left.BMC
	half.Next = stored
	s.register("stored-1", half)

	s.eventually("the power of all", func() bool { return len(s.powers()) == 5 })

	for node, p := range s.powers() {
		if p.Power != string(bmc.Off) || p.Problem != "" {
			t.Errorf("with both passwords, %s is %+v", node, p)
		}
	}

	nodes := []string{"web-1", "db-1", "set-1", "stored-1", "bad-1"}

	j := s.runJob(api.JobRequest{
		Verb: inventory.VerbPower, Nodes: nodes, ExtraVars: []byte(`{"rotate_password":true}`),
	})
	if j.Status != api.Errored || !strings.Contains(j.Message, "has taken the new password") {
		t.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
	}

	accepts := map[string]func(string) bool{
		"web-1": redfish.Accepts, "db-1": ipmi.Accepts, "set-1": set.Accepts, "stored-1": left.Accepts,
		"bad-1": bad.Accepts,
	}
	seen, output := map[string]bool{}, ""

	for _, stream := range []job.Stream{job.StreamText, job.StreamEvents} {
		part, err := s.store.ReadLog(s.ctx(), j.ID, stream, 0)
		s.must(err)
		output += string(part)
	}

	for _, node := range nodes {
		m := record.Get(s.store.View(), &state.Machines, node)
		now, err := m.Password()
		s.must(err)
		next, err := m.Secret(state.SecretBMCNext)
		s.must(err)

		if !accepts[node](now) || (next != "") != (node == "bad-1") || (now == bmctest.Password) != (node == "bad-1") {
			t.Errorf("%s: the BMC takes the stored password: %t; there is a next one: %t", node, accepts[node](now),
				next != "")
		}

		if seen[now] {
			t.Errorf("%s has the password of another one", node)
		}
		seen[now] = true

		if strings.Contains(j.Message+output, now) {
			t.Errorf("the password of %s is shown", node)
		}
	}

	// What failed goes on once the BMC does what it says.
	bad.Forget(false)

	retried, err := s.Retry(s.ctx(), j.ID, api.Retry{Failed: true})
	s.must(err)
	done, err := s.WaitJob(s.ctx(), retried.ID)
	s.must(err)

	if done.Status != api.Complete || bad.Accepts(bmctest.Password) {
		t.Errorf("the retry is %s: %s", done.Status, done.Message)
	}

	// A list that still has the first password does not take back the third.
	again := s.runJob(api.JobRequest{
		Verb: inventory.VerbPower, Nodes: []string{"db-1"}, ExtraVars: []byte(`{"rotate_password":true}`),
	})
	if m := record.Get(s.store.View(), &state.Machines, "db-1"); again.Status != api.Complete ||
		!m.Replaced(bmctest.Password) {
		t.Errorf("the second rotation is %s: %s; the first password is known: %t", again.Status, again.Message,
			m.Replaced(bmctest.Password))
	}

	// Systems of one service have one password.
	first, second := shared.BMC, shared.BMC
	first.System, second.System = "/redfish/v1/Systems/1", "/redfish/v1/Systems/2"
	s.register("two-1", first)
	s.register("web-1", second)

	_, err = s.Submit(s.ctx(), api.JobRequest{
		Verb: inventory.VerbPower, Nodes: []string{"two-1"}, ExtraVars: []byte(`{"rotate_password":true}`),
	})
	if err == nil || !strings.Contains(err.Error(), "two-1, web-1 have one BMC") {
		t.Errorf("a shared BMC: %v", err)
	}
}

// TestBMCLogin: a login is recorded once the BMC has taken it, for a node of every status, and a refused one is tried
// again when an operator asks.
func TestBMCLogin(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	s.up()
	t.Cleanup(s.down)
	s.breaksLifecycle = true
	s.report("web")

	console := bmctest.NewRedfish(t, 1)
	wrong := console.BMC
	wrong.Password, wrong.Next = "wrong", "left by a rotation"
	s.register("web-1", wrong)
	s.change("web-1", func(n *inventory.Node) { n.Status = inventory.Allocated })

	s.eventually("the refusal", func() bool { return s.powers()["web-1"].Problem != "" })

	if !s.powers()["web-1"].LoginRefused {
		t.Errorf("the power is %+v", s.powers()["web-1"])
	}

	if n := console.Logins(); n != 2 {
		t.Fatalf("the two passwords were tried %d times", n)
	}

	before := record.Get(s.store.View(), &state.Machines, "web-1")

	refused := func(what, words string, login api.BMCLogin, logins int) {
		t.Helper()

		tried := console.Logins()

		_, err := s.SetBMCLogin(s.ctx(), "web-1", login)
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "guess") {
			t.Errorf("%s: %v", what, err)
		}

		if n := console.Logins() - tried; n != logins {
			t.Errorf("%s: %d logins, want %d", what, n, logins)
		}

		if now := record.Get(s.store.View(), &state.Machines, "web-1"); now != before {
			t.Errorf("%s: the machine has changed", what)
		}
	}

	refused("another wrong one", "the BMC refused the login", api.BMCLogin{Password: "guess"}, 1)
	refused("those of the record", "the BMC refused the login", api.BMCLogin{}, 2)
	refused("a control character", "control characters", api.BMCLogin{Password: "guess\n"}, 0)

	console.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	refused("no answer", "502", api.BMCLogin{Password: bmctest.Password}, 0)
	console.Answer(nil)

	s.change("web-1", func(n *inventory.Node) { n.Job, n.Verb = "7", inventory.VerbPower })
	refused("a rotation", "job 7", api.BMCLogin{Password: bmctest.Password}, 0)
	s.change("web-1", func(n *inventory.Node) { n.Job, n.Verb = "", "" })

	// The others go on to be refused without another login.
	tried := console.Logins()

	j := s.runJob(api.JobRequest{Verb: inventory.VerbPower, Nodes: []string{"web-1"}, ExtraVars: []byte(`{"to":"on"}`)})
	if j.Status != api.Errored || console.Logins() != tried {
		t.Errorf("after the refusals, job %s is %s, with %d more logins", j.ID, j.Status, console.Logins()-tried)
	}

	power, err := s.SetBMCLogin(s.ctx(), "web-1", api.BMCLogin{Password: bmctest.Password, Reason: "a new board"})
	s.must(err)

	if power.Power != string(bmc.Off) || power.Problem != "" || power.LoginRefused {
		t.Errorf("the power is %+v", power)
	}

	j = s.runJob(api.JobRequest{Verb: inventory.VerbPower, Nodes: []string{"web-1"}, ExtraVars: []byte(`{"to":"on"}`)})
	if j.Status != api.Complete {
		t.Errorf("with the new login, job %s is %s: %s", j.ID, j.Status, j.Message)
	}

	m := record.Get(s.store.View(), &state.Machines, "web-1")
	if m.Secrets[state.SecretBMCNext] != nil || !m.Replaced("wrong") || s.powers()["web-1"].Problem != "" {
		t.Errorf("the machine is %+v, its power %+v", m.Machine, s.powers()["web-1"])
	}

	// Another attempt counts for all instances.
	_, err = s.SetBMCLogin(s.ctx(), "web-1", api.BMCLogin{})
	s.must(err)

	if now := record.Get(s.store.View(), &state.Machines, "web-1"); now.Given != m.Given+1 || !now.Replaced("wrong") {
		t.Errorf("the logins were given %d times, then %d", m.Given, now.Given)
	}
}
