// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

// beside prepares a manager on the host ip that may have others beside it.
func beside(t *testing.T, label, ip, key string) *site {
	t.Helper()

	port := func() string {
		_, port, err := net.SplitHostPort(serftest.Free(t, ip))
		if err != nil {
			t.Fatal(err)
		}
		return port
	}

	s := prepare(t, "node: {label: "+label+", serial: \"1\", addr: "+ip+"}", "listen: "+ip+":"+port(),
		"instances: {client_port: "+port()+", peer_port: "+port()+"}", "ssh: {key_file: "+key+"}",
		"jobs: {runner_lease: 20s}")
	s.tune = func(o *Options) { o.InstanceTTL = 8 * time.Second }

	return s
}

// keyPair returns the path of a new key for ssh.
func keyPair(t *testing.T) string {
	t.Helper()

	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}

	return key
}

// join makes a prepared manager an instance of the one that invites.
func (s *site) join(inviting *site) (api.JoinAnswer, error) {
	invite, err := inviting.Invite(inviting.ctx(), api.InviteRequest{})
	inviting.must(err)

	return s.joinWith(inviting, invite, invite.Token)
}

func (s *site) joinWith(inviting *site, invite api.Invite, token string) (api.JoinAnswer, error) {
	_, answer, err := Join(s.ctx(), s.file, client.Options{
		URL: "https://" + inviting.addr(), Token: token, Trust: client.Trust{Fingerprint: invite.Fingerprint},
	})
	return answer, err
}

// addr is the address of HTTPS.
func (s *site) addr() string { return s.Addrs()[2].String() }

// etcds returns what the etcd of each member is, as a site sees it.
func (s *site) etcds() string {
	l, err := s.Members(s.ctx())
	if err != nil {
		return err.Error()
	}

	var all []string
	for _, m := range l.Items {
		all = append(all, strings.TrimSuffix(m.Node, "-1")+" "+m.Etcd)
	}

	return strings.Join(all, ", ")
}

// TestJoin lets a manager with its etcd inside grow to three instances while a job runs, and loses one of them: the
// others have what was acknowledged, and go on.
func TestJoin(t *testing.T) {
	t.Parallel()

	key := keyPair(t)
	a, b, c := beside(t, "a", "127.0.3.1", key), beside(t, "b", "127.0.3.2", key), beside(t, "c", "127.0.3.3", key)

	a.up()
	t.Cleanup(a.down)

	if got := a.etcds(); got != "a alone" {
		t.Fatal(got)
	}

	a.report("m x")
	a.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"m-1"}, Group: inventory.GroupMaster})
	gate := a.fifo("gate")
	running, err := a.Client.Submit(a.ctx(), api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"x-1"}, Group: inventory.GroupWorker,
		ExtraVars: []byte(`{"waits_at":"` + gate + `"}`),
	})
	a.must(err)
	a.waitOutput(running.ID, "waiting\n")

	invite, err := a.Invite(a.ctx(), api.InviteRequest{})
	a.must(err)

	if len(invite.URLs) != 1 || invite.URLs[0] != "https://"+a.addr() {
		t.Errorf("the URLs are %v", invite.URLs)
	}

	// A wrong token changes nothing, here and there.
	_, err = b.joinWith(a, invite, invite.Token[:len(invite.Token)-1]+"x")
	checkError(t, err, inventory.KindUnauthenticated, "unknown or revoked")

	if _, err := os.Stat(filepath.Join(b.dir, "d", "etcd", "member.json")); err == nil {
		t.Error("a refused host has the file of a member")
	}

	_, err = b.joinWith(a, invite, invite.Token)
	b.must(err)
	b.up()
	t.Cleanup(b.down)
	a.eventually("the second waits for a third", func() bool { return a.etcds() == "a voter, b learner" })

	// A used token is worth nothing, and neither is one for a host that has an instance.
	_, err = c.joinWith(a, invite, invite.Token)
	checkError(t, err, inventory.KindUnauthenticated, "unknown or revoked")
	_, err = b.join(a)
	checkError(t, err, inventory.KindRefused, "runs with the data directory")

	// Any instance invites.
	_, err = c.join(b)
	c.must(err)
	c.up()
	t.Cleanup(c.down)
	a.eventually("all vote", func() bool { return c.etcds() == "a voter, b voter, c voter" })

	// The job of the first one was not interrupted.
	a.release(gate)
	j, err := b.Client.WaitJob(b.ctx(), running.ID)
	b.must(err)

	if j.Status != api.Complete || strings.Count(b.output(j.ID), "waiting\n") != 1 {
		t.Errorf("%+v\n%s", j, b.output(j.ID))
	}

	_, err = c.RemoveMember(c.ctx(), "a-1")
	checkError(t, err, inventory.KindRefused, "a-1 is alive", "stop clusterm there first")

	// A copied data directory would take back what the others were told, and a tool works on the store of all.
	c.down()

	tool := c.tool()

	if r, err := tool.Check(c.ctx()); err != nil || !strings.Contains(r.Where, "one of several") {
		t.Errorf("%+v, %v", r, err)
	}
	checkError(t, tool.Defragment(c.ctx()), inventory.KindRefused, "this instance is stopped")
	c.must(tool.Close())

	at := filepath.Join(c.dir, "d", "instance.id")
	id, err := os.ReadFile(at)
	c.must(err)
	c.must(os.Remove(at))
	c.must(os.WriteFile(at, id, 0o600))
	checkError(t, c.try(patience), inventory.KindRefused, "was copied", "clusterctl instance remove")

	_, err = OpenStoreTool(c.ctx(), c.options())
	checkError(t, err, inventory.KindRefused, "was copied")

	c.must(os.Remove(filepath.Join(c.dir, "d", "instance.place")))
	c.up()

	a.down()

	for _, s := range []*site{b, c} {
		s.eventually("it goes on without the first", func() bool {
			_, err := s.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{s.node.Label: 1})
			return err == nil
		})
	}

	b.eventually("one of them leads", func() bool { return b.member.Leads() || c.member.Leads() })

	if got := b.status("x-1"); got != "Allocated service-worker" {
		t.Errorf("x is %s", got)
	}

	b.eventually("the first is gone", func() bool { _, err := b.RemoveMember(b.ctx(), "a-1"); return err == nil })
	b.eventually("two are left", func() bool { return c.etcds() == "b voter, c voter" })
	checkError(t, a.try(patience), inventory.KindRefused, "removed")

	// One that is removed although it runs, as after a pause, ends.
	members, err := c.etcd.Members(c.ctx())
	c.must(err)

	for _, m := range members {
		if m.Name == b.identity.ID {
			c.must(c.etcd.Remove(c.ctx(), m.ID))
		}
	}

	select {
	case err := <-b.failed:
		checkError(t, err, inventory.KindRefused, "removed")
	case <-b.ctx().Done():
		t.Error("a removed instance goes on")
	}
}
