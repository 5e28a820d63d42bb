// SPDX-License-Identifier: Apache-2.0

// The tests follow the verb manage from its command to the records of its nodes, on a manager without Ansible.
package credentials_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/clusterctl"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/daemon"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/credentials"
	"github.com/contiv/cluster/management/step/power"
)

// patience bounds every wait; one that is fulfilled ends at once.
const patience = time.Minute

const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"

// hosts are those that ssh reaches.
type hosts struct {
	mu      sync.Mutex
	refuses map[string]string // the reason, by address
	stuck   string            // an address: the login there ends with its context
	logins  []string          // NAME@ADDRESS

	reached chan string
}

// Credentials implements credentials.SSH.
func (h *hosts) Credentials(ctx context.Context, host configuration.Host) ([]string, error) {
	h.mu.Lock()
	h.logins = append(h.logins, host.Name+"@"+host.Addr)
	reason, stuck := h.refuses[host.Addr], h.stuck == host.Addr
	h.mu.Unlock()

	switch {
	case stuck:
		h.reached <- host.Name
		<-ctx.Done()
		return nil, ctx.Err()
	case reason != "":
		return nil, errors.New(reason)
	case len(host.HostKeys) > 0:
		return nil, nil
	}

	return []string{hostKey + host.Name}, nil
}

// change changes the hosts.
func (h *hosts) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// site is a manager.
type site struct {
	*testing.T
	dir    string
	hosts  *hosts
	daemon *daemon.Daemon
	client *client.Client
}

func newSite(t *testing.T) *site {
	t.Helper()

	dir, err := os.MkdirTemp("", "cm")
	errtest.None(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })

	s := &site{T: t, dir: dir, hosts: &hosts{refuses: map[string]string{}, reached: make(chan string, 1)}}
	errtest.None(t, os.WriteFile(filepath.Join(dir, "clusterm.yaml"), []byte(`data_dir: `+dir+`/d
socket: `+dir+`/s
gossip: off
node: {label: manager, serial: "1"}
ansible_playbook: `+dir+`/no-ansible
playbooks: `+dir+`/no-playbooks
`), 0o600))
	s.up()
	t.Cleanup(s.down)

	return s
}

func (s *site) up() {
	s.Helper()

	log := logrus.New()
	log.SetOutput(io.Discard)

	d, err := daemon.New(daemon.Options{
		ConfigPath: filepath.Join(s.dir, "clusterm.yaml"), Command: []string{os.Args[0]}, InProcess: true, Logger: log,
		Executors: func(r record.Store) step.Executors {
			return step.Executors{job.StepCredentials: credentials.New(
				s.hosts,
				power.Registered{Pool: bmc.New()},
				power.RecordIn(r),
				func() step.Settings { return step.Settings{} },
			)}
		},
	})
	errtest.None(s, err)

	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()

	errtest.None(s, d.Start(ctx))
	s.daemon = d
	s.client, err = client.New(client.Options{Socket: s.dir + "/s", Patience: patience})
	errtest.None(s, err)
}

func (s *site) down() { errtest.None(s, s.daemon.Stop(context.WithoutCancel(s.Context()))) }

// says runs a command, and checks its exit code and what is in its output.
func (s *site) says(code int, words []string, args ...string) {
	s.Helper()

	var out bytes.Buffer

	args = append([]string{"clusterctl", "--url", "unix://" + s.dir + "/s"}, args...)
	o := clusterctl.Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out}

	if got := clusterctl.Run(s.Context(), args, o); got != code {
		s.Errorf("%s: exit code %d, want %d: %s", args, got, code, out.String())
	}

	for _, w := range words {
		if !strings.Contains(out.String(), w) {
			s.Errorf("%s: %q is not in:\n%s", args, w, out.String())
		}
	}
}

// imports registers machines.
func (s *site) imports(list string) {
	s.Helper()

	_, err := s.client.Import(s.Context(), api.Import{File: list})
	errtest.None(s, err)
}

// are checks the statuses of all nodes, as NAME STATUS.
func (s *site) are(want ...string) {
	s.Helper()

	nodes, err := s.client.Nodes(s.Context(), client.NodeFilter{})
	errtest.None(s, err)

	var got []string
	for _, n := range nodes.Items {
		got = append(got, n.Name+" "+string(n.Status))
	}

	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		s.Errorf("got %s, want %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// lastError returns the last error of a node.
func (s *site) lastError(name string) string {
	s.Helper()

	n, err := s.client.Node(s.Context(), name)
	errtest.None(s, err)

	return n.LastError
}

// TestManage: each node is checked by all that is known of it, and says all that fails.
func TestManage(t *testing.T) {
	t.Parallel()

	s := newSite(t)
	redfish, ipmi, locked := bmctest.NewRedfish(t, 1), bmctest.NewIPMI(t, 0), bmctest.NewRedfish(t, 1)
	s.hosts.refuses["10.0.7.4"] = "ssh to 10.0.7.4: port 22 refuses connections; check the host"

	bmcOf := func(kind string, port int, password string) string {
		return fmt.Sprintf(`"pm_type":%q,"pm_addr":"127.0.0.1","pm_port":%d,"pm_user":%q,"pm_password":%q,`+
			`"pm_system_id":"/redfish/v1/Systems/1"`, kind, port, bmctest.User, password)
	}

	s.imports(`[
{"name":"a","addr":"10.0.7.1"},
{"name":"b",` + bmcOf("redfish", redfish.BMC.Port, bmctest.Password) + `},
{"name":"c","addr":"10.0.7.3",` + strings.Replace(bmcOf("ipmi", ipmi.BMC.Port, bmctest.Password),
		`,"pm_system_id":"/redfish/v1/Systems/1"`, "", 1) + `},
{"name":"d","addr":"10.0.7.4",` + bmcOf("redfish", locked.BMC.Port, "wrong") + `},
{"name":"e","pm_type":"manual-management","mac":["52:54:00:aa:00:01"]}]`)
	s.are("a Enrolled", "b Enrolled", "c Enrolled", "d Enrolled", "e Enrolled")

	s.says(3, []string{"Errored", "ssh to 10.0.7.4", "the BMC refused the login"}, "nodes", "manage", "--all", "--yes")
	s.are("a Manageable", "b Manageable", "c Manageable", "d Enrolled", "e Enrolled")

	// Both failures with their remedies.
	for _, part := range []string{
		"port 22 refuses connections; check the host", "the BMC refused the login of the user admin",
		"clusterctl power login NAME --user USER",
	} {
		if got := s.lastError("d"); !strings.Contains(got, part) {
			t.Errorf("%q is not in the last error of d: %s", part, got)
		}
	}

	if got := s.lastError("e"); !strings.Contains(got, "neither an address for ssh nor a BMC is known of it") {
		t.Errorf("the last error of e: %s", got)
	}

	s.says(0, []string{
		"a: ssh to 10.0.7.1 works", "b: the BMC at 127.0.0.1 takes the login; the power is off",
		"c: ssh to 10.0.7.3 works", "c: the BMC at 127.0.0.1 takes the login; the power is off",
	}, "job", "logs", "1")
	s.says(0, []string{"the BMC refused the login", "nodes manage d"}, "nodes", "explain", "d")
	s.says(0, []string{"Verifying", "Manageable"}, "nodes", "history", "a")

	// The first contact has recorded the host key.
	if n, err := s.client.Node(t.Context(), "a"); err != nil || len(n.HostKeys) != 1 {
		t.Errorf("the host keys of a: %+v, %v", n, err)
	}

	// A locked out account is the worst of all: one login by the job and by the watch of the power each.
	s.says(3, nil, "nodes", "manage", "--all", "--yes")

	if n := locked.Logins(); n > 2 {
		t.Errorf("a wrong password was tried %d times", n)
	}

	s.hosts.change(func() { delete(s.hosts.refuses, "10.0.7.4") })
	s.imports(`[{"name":"e","addr":"10.0.7.5","mac":["52:54:00:aa:00:01"]}]`)
	s.says(0, []string{"Complete"}, "nodes", "manage", "e")

	// Somebody corrects the password at the BMC. It is asked once more by force alone, and what it says is recorded
	// at once.
	corrected := locked.BMC
	corrected.Next = "wrong"
	errtest.None(t, bmc.New().SetPassword(t.Context(), corrected))

	s.says(3, []string{"is not asked again", "clusterctl power login NAME --again"}, "nodes", "manage", "d")
	s.says(2, []string{"needs a reason"}, "nodes", "manage", "d", "--force")
	s.says(0, []string{"Complete"}, "nodes", "manage", "d", "--force", "--reason", "corrected")

	powers, err := s.client.Power(t.Context())
	errtest.None(t, err)

	for _, p := range powers.Items {
		if p.Node == "d" && (p.Power != "off" || p.Problem != "") {
			t.Errorf("the power of d is %+v", p)
		}
	}
	s.are("a Manageable", "b Manageable", "c Manageable", "d Manageable", "e Manageable")

	if got := s.lastError("d"); got != "" {
		t.Errorf("the last error of d: %s", got)
	}

	s.says(4, []string{"no node matches the selector status=Enrolled"}, "nodes", "manage", "--all", "--yes")
	s.says(5, []string{"a is Manageable", "manage takes nodes that are Enrolled"}, "nodes", "manage", "a")
	s.says(2, []string{"not several of them"}, "nodes", "manage", "a", "--all")

	// Its agent speaks: the credentials that were checked decide on the status.
	_, err = s.client.Observe(t.Context(), api.Report{Observer: "rack", Observations: []api.Observation{
		{Label: "web", Serial: "1", Addr: "10.0.7.1", Alive: true},
		{Label: "db", Serial: "1", Addr: "10.0.7.9", Alive: true},
	}})
	errtest.None(t, err)
	s.are("a Manageable", "b Manageable", "c Manageable", "d Manageable", "db-1 Unallocated", "e Manageable")

	// All means the nodes for which it is the next step.
	s.says(4, nil, "nodes", "manage", "--all", "--yes")
	s.says(0, nil, "nodes", "manage", "db-1")
	s.are("a Manageable", "b Manageable", "c Manageable", "d Manageable", "db-1 Manageable", "e Manageable")
}

// TestManageGoesOn: a manager that ends in the middle has its successor take the job to its end.
func TestManageGoesOn(t *testing.T) {
	t.Parallel()

	s := newSite(t)
	s.imports(`[{"name":"a","addr":"10.0.7.1"},{"name":"b","addr":"10.0.7.2"}]`)
	s.hosts.stuck = "10.0.7.2"

	j, err := s.client.Submit(t.Context(), api.JobRequest{Verb: inventory.VerbManage, Nodes: []string{"a", "b"}})
	errtest.None(t, err)

	select {
	case <-s.hosts.reached:
	case <-time.After(patience):
		t.Fatal("no host was reached")
	}

	s.are("a Verifying", "b Verifying")
	s.down()
	s.hosts.change(func() { s.hosts.stuck = "" })
	s.up()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	if j, err = s.client.WaitJob(ctx, j.ID); err != nil || j.Status != api.Complete {
		t.Errorf("the job is %+v, %v", j, err)
	}

	s.are("a Manageable", "b Manageable")
}

// TestManageIsCancelled: the nodes have the status before.
func TestManageIsCancelled(t *testing.T) {
	t.Parallel()

	s := newSite(t)
	s.imports(`[{"name":"a","addr":"10.0.7.1"}]`)
	s.hosts.stuck = "10.0.7.1"

	j, err := s.client.Submit(t.Context(), api.JobRequest{Verb: inventory.VerbManage, Nodes: []string{"a"}})
	errtest.None(t, err)

	select {
	case <-s.hosts.reached:
	case <-time.After(patience):
		t.Fatal("no host was reached")
	}

	_, err = s.client.Cancel(t.Context(), j.ID)
	errtest.None(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	if j, err = s.client.WaitJob(ctx, j.ID); err != nil || j.Status != api.Cancelled {
		t.Errorf("the job is %+v, %v", j, err)
	}

	s.are("a Enrolled")
}

// TestImportGoesOn: a plain import checks the credentials of what it created, and says who stays behind and why.
func TestImportGoesOn(t *testing.T) {
	t.Parallel()

	s := newSite(t)
	s.hosts.refuses["10.0.7.2"] = "ssh access as root@10.0.7.2 was denied: check user and key_file"

	file := filepath.Join(s.dir, "list.json")
	write := func(list string) { errtest.None(t, os.WriteFile(file, []byte(list), 0o600)) }

	write(`[{"name":"a","addr":"10.0.7.1"},{"name":"b","addr":"10.0.7.2"}]`)
	s.says(0, []string{"a", "created", "credentials: ssh"}, "nodes", "import", file, "--dry-run")
	s.are()
	s.says(3, []string{"created", "credentials: ssh", "Manageable", "ssh access as root@10.0.7.2 was denied"},
		"nodes", "import", file)
	s.are("a Manageable", "b Enrolled")

	// A second import changes nothing, and checks only the one that has failed.
	logins := len(s.hosts.logins)
	s.says(3, []string{"same", "was denied"}, "nodes", "import", file)

	if got := s.hosts.logins[logins:]; len(got) != 1 || !strings.HasPrefix(got[0], "b@") {
		t.Errorf("the second import has logged in: %s", got)
	}

	// One document for programs, and one that is changed is checked again.
	s.hosts.change(func() { s.hosts.refuses = map[string]string{} })
	write(`[{"name":"a","addr":"10.0.7.1","memory":1},{"name":"b","addr":"10.0.7.2","memory":1}]`)

	var out bytes.Buffer

	args := []string{"clusterctl", "--url", "unix://" + s.dir + "/s", "nodes", "import", file, "-o", "json"}
	code := clusterctl.Run(t.Context(), args,
		clusterctl.Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: io.Discard})

	var answer api.Imported
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || code != 0 || len(answer.Jobs) != 1 {
		t.Errorf("exit code %d, %v: %s", code, err, out.String())
	}

	s.are("a Manageable", "b Manageable")

	s.says(0, []string{"created"}, "nodes", "add", "c", "--addr", "10.0.7.3", "--no-manage")
	s.says(0, []string{"created", "Manageable", "done"}, "nodes", "add", "d", "--addr", "10.0.7.4")
	s.says(0, []string{"to see how far: "}, "nodes", "add", "e", "--addr", "10.0.7.5", "--no-wait")
	s.says(0, nil, "job", "wait", "5")
	s.are("a Manageable", "b Manageable", "c Enrolled", "d Manageable", "e Manageable")
}
