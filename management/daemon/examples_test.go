// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/contracttest"
	"github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/step/inspect"
)

var update = flag.Bool("update", false, "write the answers of the examples in examples.yaml anew")

// TestExamples makes the request of every example in examples.yaml to a daemon
// with a prepared world, and compares the answer with the one in the document.
// Requests that change nothing come first, then the others, in the order of
// the document.
//
//	go test ./management/daemon -run Examples -update
//
// writes the answers that differ.
func TestExamples(t *testing.T) {
	t.Parallel()

	c, err := contracttest.Load()
	if err != nil {
		t.Fatal(err)
	}

	w := newWorld(t)
	defer w.end()

	answers := map[int]string{} // by line
	for _, changing := range []bool{false, true} {
		for _, o := range c.Operations {
			for _, e := range c.Cases(o) {
				if changes(o, e) == changing {
					w.example(o, e, answers)
				}
			}
		}
	}

	if *update {
		rewrite(t, answers)
	}
}

// noAudit leaves no trace in the examples of the audit trail.
type noAudit struct{}

func (noAudit) Record(context.Context, access.Record) {}

// documentedPlan is the id of a plan in the document.
const documentedPlan = "3f9a1c20-7b1e44d2"

func changes(o openapi.Operation, c openapi.Case) bool {
	return o.Method != http.MethodGet && o.Path != api.LegacyNodes && (c.Status == "" || c.Status[0] == '2')
}

// world is a daemon with nodes and jobs of every kind.
type world struct {
	*site
	http  *http.Client
	plain *strings.Replacer // what differs from machine to machine

	gate    string // where the running job waits
	plan    string // the id of a plan that can be applied
	running string
	bmc     machine.BMC
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := prepare(t)
	fake, err := os.ReadFile("testdata/fake/ansible-playbook")
	s.must(err)
	s.must(writeProgram(filepath.Join(s.dir, "ansible-playbook"), string(fake)))
	s.write(
		"gossip: {bind: 127.0.0.1:0}",
		`node: {label: host1, serial: c976, addr: 10.0.0.1}`,
		"jobs: {limit: 1}",
		"ansible_playbook: "+s.dir+"/ansible-playbook",
	)
	s.up()
	t.Cleanup(s.down)
	me, err := user.Current()
	s.must(err)
	w := &world{
		site: s,
		http: s.checked(),
		plain: strings.NewReplacer(
			s.dir+"/d",
			"/var/lib/clusterm",
			s.dir+"/playbooks",
			"/srv/playbooks",
			s.dir+"/ansible-playbook",
			"ansible-playbook",
			s.dir+"/s",
			"/run/clusterm/clusterm.sock",
			s.file,
			"/etc/clusterm/clusterm.yaml",
			s.url,
			"http://127.0.0.1:9007",
			`"actor":"`+me.Username+`"`,
			`"actor":"root"`,
			`"cancel_by":"`+me.Username+`"`,
			`"cancel_by":"root"`,
			`"status_by":"`+me.Username+`"`,
			`"status_by":"root"`,
			`"who":"`+me.Username+`"`,
			`"who":"root"`,
			`"from":"uid `+me.Uid+`"`,
			`"from":"uid 0"`,
			`"created_by":"`+me.Username+`"`,
			`"created_by":"root"`,
			` by `+me.Username+`: `,
			` by root: `,
			` by `+me.Username+` `,
			` by root `,
		),
	}
	s.state("host1-c976", inventory.Discovered)

	var nodes []string
	for i, serial := range strings.Fields("04f4 35a0 6d21 9c1e c0de 8e2d 71b3 0a11 0b22 0c33") {
		nodes = append(nodes, fmt.Sprintf(`{"label":"host%d","serial":%q,"addr":"10.0.0.%d"}`, i+2, serial, i+2))
	}

	postEvent := func(event string, nodes ...string) {
		t.Helper()

		if code, text := s.post(
			api.LegacyMonitorEvent,
			`{"monitor_event":{"name":"`+event+`","nodes":[`+strings.Join(nodes, ",")+`]}}`,
		); code != http.StatusOK {
			t.Fatalf("%d: %s", code, text)
		}
	}
	postEvent("discovered", nodes...)
	_, err = s.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"env": "prod", "dns": []string{"10.0.0.2", "10.0.0.3"}})
	s.must(err)
	_, err = s.SetVars(s.ctx(), client.ScopeGroup(inventory.GroupWorker), api.Vars{"proxy": "http://10.0.0.2:3128"})
	s.must(err)
	_, err = s.SetVars(s.ctx(), client.ScopeNode("host3-35a0"), api.Vars{"disks": []string{"sda", "sdb"}})
	s.must(err)

	for name, rack := range map[string]string{"host8-71b3": "r1", "host9-0a11": "r2"} {
		_, err = s.PatchNode(s.ctx(), name, api.NodePatch{Labels: map[string]*string{"rack": &rack}})
		s.must(err)
	}

	runJob := func(want api.JobStatus, r api.JobRequest) {
		t.Helper()

		if j := s.runJob(r); j.Status != want {
			t.Fatalf("job %s is %s: %s", j.ID, j.Status, j.Message)
		}
	}
	runJob(api.Complete, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"host2-04f4"}})
	runJob(
		api.Complete,
		api.JobRequest{
			Verb:      inventory.VerbCommission,
			Nodes:     []string{"host3-35a0", "host4-6d21"},
			Group:     inventory.GroupWorker,
			ExtraVars: []byte(`{"fleet":"blue"}`),
		},
	)
	runJob(
		api.Errored,
		api.JobRequest{
			Verb:      inventory.VerbMaintenance,
			Nodes:     []string{"host3-35a0"},
			ExtraVars: []byte(`{"fails_on":"host3-35a0"}`),
		},
	)
	runJob(
		api.Complete,
		api.JobRequest{
			Verb:       inventory.VerbDecommission,
			Nodes:      []string{"host4-6d21"},
			JobOptions: inventory.JobOptions{SharedOptions: inventory.SharedOptions{Reason: "needs a new disk"}},
		},
	)
	postEvent("disappeared", nodes[4])
	_, err = s.Forget(s.ctx(), api.Forget{Nodes: []string{"host7-8e2d"}, Force: true, Reason: "sold"})
	s.must(err)
	postEvent("discovered", nodes[5])
	_, err = s.CreateToken(s.ctx(), api.TokenRequest{Role: "viewer", Name: "backup"})
	s.must(err)

	// This one runs until the end, and since one runs at a time all others wait.
	running, fifo := s.submitWaiting(api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"host5-9c1e"}, Group: inventory.GroupWorker,
	})
	_, err = s.IdempotencyKey("7c9e6679-7425-40de-944b-e07fc1f90ae7").
		Submit(s.ctx(), api.JobRequest{
			Verb:       inventory.VerbMaintenance,
			Nodes:      []string{"host5-9c1e"},
			JobOptions: inventory.JobOptions{SharedOptions: inventory.SharedOptions{Reason: "new kernel"}},
		})
	s.must(err)

	planned, err := s.Plan(s.ctx(), api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"host4-6d21"}, Group: inventory.GroupWorker,
	})
	s.must(err)

	for _, disks := range []string{"S1", "S1 S2"} {
		_, err := inspect.KeepIn(s.store, s.settings.Inspection)(s.ctx(), "host3-35a0", "",
			facts.Found{Facts: shownMachine(disks)})
		s.must(err)
	}

	_, err = s.CreateClass(s.ctx(), api.ClassRequest{Name: "storage", From: "host3-35a0", Nodes: "use=storage"})
	s.must(err)

	_, err = s.CreateImage(s.ctx(), api.ImageRequest{
		Name:        "debian-13",
		Kind:        api.ImageDisk,
		Arch:        "amd64",
		Boot:        "uefi",
		Description: "Debian 13 with the agent",
		Files: []api.ImageFileRequest{
			{Role: "image", Size: 641728512, Digest: "sha256:" + strings.Repeat("9c1e35a0", 8)},
		},
	})
	s.must(err)

	redfish := bmctest.NewRedfish(t, 1).BMC
	s.register("host3-35a0", redfish, "52:54:00:aa:00:03", "52:54:00:aa:00:04")
	_, err = s.ReserveAddress(s.ctx(), api.AddressRequest{
		Addr: "10.9.1.21", Node: "host3-35a0", MAC: "52:54:00:aa:00:04",
	})
	s.must(err)
	s.eventually("its power", func() bool { return len(s.powers()) == 1 })

	w.gate, w.running, w.plan, w.bmc = fifo, running.ID, planned.ID, redfish

	return w
}

// shownMachine is a machine with disks of those serial numbers.
func shownMachine(disks string) facts.Facts {
	f := facts.Facts{
		Schema: facts.Schema, Arch: "x86_64",
		System: facts.System{Vendor: "Dell Inc.", Product: "PowerEdge R640", Serial: "ABC1234"},
		CPU:    facts.CPU{Model: "Xeon Silver 4210", Sockets: 1, Cores: 10, Threads: 20},
		Memory: facts.Memory{TotalMB: 16384, Modules: []facts.Module{{Slot: "A1", SizeMB: 16384, Type: "DDR4"}}},
	}
	for i, serial := range strings.Fields(disks) {
		f.Disks = append(f.Disks, facts.Disk{Name: "sd" + string("ab"[i]), SizeBytes: 480_103_981_056, Serial: serial})
	}

	return f
}

// example makes one request and compares its answer.
func (w *world) example(o openapi.Operation, c openapi.Case, answers map[int]string) {
	at := fmt.Sprintf("%s %s, example %s", o.Method, o.Path, c.Name)

	body := []byte(c.Text)
	if c.HasBody {
		var err error
		body, err = json.Marshal(c.Body)
		w.must(err)
	}

	if c.Size > 0 {
		body = bytes.Repeat([]byte(" "), c.Size)
	}

	// The ids of plans are random.
	path := strings.Replace(c.Path, documentedPlan, w.plan, 1)

	req, err := http.NewRequestWithContext(w.ctx(), o.Method, "http://localhost"+path, bytes.NewReader(body))
	w.must(err)

	if len(body) > 0 {
		req.Header.Set("Content-Type", api.TypeJSON)
	}

	for name, value := range c.Headers {
		req.Header.Set(name, value)
	}

	// The others are sent by root.
	if o.Path == api.PathJoin {
		tokens := access.NewTokens(w.store, noAudit{}, inventory.DefaultGroups)
		root := access.Caller{Principal: "root"}
		_, token, err := tokens.Create(w.ctx(), root, access.Identity{Role: access.RoleAdmin},
			access.TokenRequest{Name: "invitation", Role: access.RoleInstance})
		w.must(err)
		req.Header.Set("Authorization", "Bearer "+token)
		defer func() { _, err := tokens.Revoke(w.ctx(), root, "invitation"); w.must(err) }()
	}

	status, text := w.send(c.Fault, req)

	wanted := strconv.Itoa(status) == cmp.Or(c.Status, success(o))
	if c.Status == "default" {
		wanted = status >= 400
	}

	if !wanted {
		w.t.Errorf("%s: answered with %d, not %s: %s", at, status, c.Status, text)
		return
	}

	if c.Answer == nil {
		return
	}

	text = strings.ReplaceAll(w.plain.Replace(text), fmt.Sprintf(":%d", w.bmc.Port), ":8443")

	var got any = text
	if strings.HasSuffix(c.ContentType, "json") && c.ContentType != api.TypeLines {
		w.must(json.Unmarshal([]byte(text), &got))
	}

	difference := differ("", c.Answer.Value, got, c.Answer.Part)
	if difference == "" {
		return
	}

	if *update && !c.Answer.Part {
		if line := lineOf(w.t, o, c); answers[line] == "" {
			answers[line] = written(w.t, text, got)
		}
		return
	}

	w.t.Errorf(
		"%s: %s\nthe answer is %.2000s\nto write it into the document: go test ./management/daemon -run Examples "+
			"-update",
		at,
		difference,
		text,
	)
}

// success returns the status of the operation's first answer, if that is none of a failure.
func success(o openapi.Operation) string {
	if a := o.Answers(); len(a) > 0 && a[0].Status[0] == '2' {
		return a[0].Status
	}
	return "200"
}

// end ends all jobs.
func (w *world) end() {
	w.t.Helper()
	list, err := w.Jobs(w.ctx(), client.JobFilter{Status: []api.JobStatus{api.Queued}})
	w.must(err)

	for _, j := range slices.Backward(list.Items) { // those that build on others first
		_, err := w.Cancel(w.ctx(), j.ID)
		w.must(err)
	}

	w.release(w.gate)
	_, err = w.WaitJob(w.ctx(), w.running)
	w.must(err)
}

// send makes the request with the named fault in place.
func (w *world) send(fault string, req *http.Request) (int, string) {
	w.t.Helper()

	var err error
	switch fault {
	case "conflict":
		err = inventory.Errorf(inventory.KindConflict, "it was changed by somebody else meanwhile").
			Do("read it again and repeat")
	case "busy":
		err = inventory.Errorf(inventory.KindBusy, "root has 64 requests open already").
			Do("wait until one of them has ended, or let an admin raise max_requests in the configuration")
	case "unavailable":
		err = inventory.Errorf(inventory.KindUnavailable, "the store does not answer: %w", context.DeadlineExceeded).
			Do("see the log of clusterm and the state of etcd")
	case "over-tcp":
		u, parseErr := url.Parse(w.url)
		w.must(parseErr)
		req.URL.Host, req.Host = u.Host, ""
		return w.answer(http.DefaultClient, req)
	case "internal":
		err = errors.New("a node of job 7 is of no group")
	case "ansible":
		path := filepath.Join(w.dir, "ansible-playbook")
		w.must(os.Rename(path, path+".away"))
		defer func() { w.must(os.Rename(path+".away", path)) }()
	case "configuration":
		text, readErr := os.ReadFile(w.file)
		w.must(readErr)
		w.must(os.WriteFile(w.file, append(slices.Clone(text), "jobs.limit: 8\n"...), 0o600))
		defer func() { w.must(os.WriteFile(w.file, text, 0o600)) }()
	case "silent":
		return w.sendTo(server.Options{
			Ping: node.New(
				node.Options{
					State:    w.store,
					Prober:   func(string) node.Prober { return silence{} },
					Settings: w.settings.Nodes,
				},
			),
			Jobs: w.engine,
		}, req)
	case "shown":
		return w.sendTo(server.Options{Desired: w.desired, Keys: server.Keys{HostKeys: node.New(node.Options{
			State:    w.store,
			Store:    w.store,
			Prober:   func(string) node.Prober { return aHost{} },
			Settings: w.settings.Nodes,
			Audit:    w.audit,
		})}}, req)
	case "told":
		return w.sendTo(server.Options{Automation: server.Automation{Notifier: chat{}}}, req)
	case "rolls":
		return w.sendTo(server.Options{
			State: rolling{w.store}, Desired: w.desired,
			Automation: server.Automation{Rollouts: steps{w.Rollouts(), w.store.View}},
		}, req)
	case "night":
		return w.sendTo(server.Options{Automation: server.Automation{Windows: nightly{}}}, req)
	case "waits":
		return w.sendTo(server.Options{Keys: server.Keys{SSHKey: waitingKey{}}}, req)
	case "":
	default:
		w.t.Fatalf("there is no fault %q", fault)
	}

	if err != nil {
		return w.sendTo(server.Options{Jobs: broken{w.engine, err}, Ping: w.nodes}, req)
	}

	return w.answer(w.http, req)
}

// sendTo makes the request to a server of its own, with the jobs and the ping of the
// options.
func (w *world) sendTo(o server.Options, req *http.Request) (int, string) {
	w.t.Helper()

	if o.State == nil {
		o.State = w.store
	}

	o.Logs, o.Nodes, o.Variables = w.engine, w.nodes, w.variables
	o.Settings = w.settings
	o.Tokens = w.tokens
	s := server.New(o)
	path := filepath.Join(w.dir, "broken")
	l, err := server.ListenUnix(path)
	w.must(err)

	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer func() {
		w.must(s.Shutdown(w.ctx()))
		w.must(<-ended)
	}()

	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()

	return w.answer(&http.Client{Transport: transport}, req)
}

// answer makes the request, and returns its status and body.
func (w *world) answer(c *http.Client, req *http.Request) (int, string) {
	w.t.Helper()

	res, err := c.Do(req)
	w.must(err)
	defer res.Body.Close()

	if res.Header.Get("Content-Type") == api.TypeEventStream {
		return res.StatusCode, untilSync(res.Body)
	}

	text, err := io.ReadAll(res.Body)
	w.must(err)

	return res.StatusCode, string(text)
}

// untilSync reads a watch up to the sync event, which follows the present objects.
func untilSync(r io.Reader) string {
	var text strings.Builder

	synced := false
	for lines := bufio.NewScanner(r); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")

		synced = synced || lines.Text() == "event: "+string(api.ChangeSync)
		if synced && lines.Text() == "" {
			break
		}
	}

	return text.String()
}

// broken is a manager whose store fails to accept a job.
type broken struct {
	*engine.Engine
	err error
}

func (b broken) Submit(context.Context, access.Caller, job.Request) (job.Job, error) {
	return job.Job{}, b.err
}

// aHost shows one ssh host key, whatever host is asked.
type aHost struct{ silence }

func (aHost) HostKeys(context.Context, configuration.Host) ([]string, error) {
	return []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"}, nil
}

// chat is a notifier with one target.
type chat struct{}

func (chat) Status() []api.Notification {
	return []api.Notification{{
		Name: "chat", To: "https://chat.example.com", Delivered: 12,
		Events: []string{notify.KindNodeStatus, notify.KindJobFailed, notify.KindHealth},
	}}
}

func (chat) List(string) ([]api.Delivery, error) {
	at := time.Date(2026, 11, 20, 16, 47, 31, 0, time.UTC)

	return []api.Delivery{{
		ID: "chat/4711-job.failed-12", Target: "chat", Status: notify.Dead, Created: at, Attempts: 1, Last: &at,
		Error: "https://chat.example.com answered 410 Gone",
		Event: api.NotifiedEvent{
			ID: "4711-job.failed-12", Kind: notify.KindJobFailed, Time: at, Manager: "host1-35a0",
			Summary: "job 12 (commission of host3-35a0) is Errored", To: "Errored", Job: "12", Verb: "commission",
			Nodes: []string{"host3-35a0"}, Detail: "a task failed on host3-35a0",
		},
	}}, nil
}

func (chat) Test(context.Context, access.Caller, string) error { return nil }

func (chat) Retry(context.Context, access.Caller, string) (int, error) { return 1, nil }

// waitingKey is a rotation of the ssh key that waits for one node.
type waitingKey struct{ server.SSHKeeper }

func (waitingKey) Status() sshkey.Status {
	keys, _ := aHost{}.HostKeys(context.Background(), configuration.Host{})

	return sshkey.Status{
		Known:    4,
		Laggards: []rotation.Laggard{{Name: "host8-71b3", Reason: "it is Disappeared: no route to the host"}},
		Rotation: sshkey.Rotation{
			Phase: rotation.PhaseRemove, Actor: "ann", Confirmed: make([]string, 3), Removed: make([]string, 3),
			New: sshkey.Key{Path: "/var/lib/clusterm/ssh/id_ed25519-1", Public: keys[0], Generated: true},
		},
	}
}

// silence reaches no host.
type silence struct{}

func (silence) HostKeys(context.Context, configuration.Host) ([]string, error) {
	return nil, errors.New("no answer from port 22 within 3s")
}

func (silence) Probe(_ context.Context, hosts []configuration.Host) []configuration.Reach {
	all := make([]configuration.Reach, len(hosts))
	for i := range all {
		all[i] = configuration.Reach{Port: "no answer from port 22 within 3s", Silent: true, Took: 3 * time.Second}
	}

	return all
}

// vague matches the parts of texts that differ from run to run, with their
// placeholders.
var vague = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{32}\b`), "CHECKSUM"},
	{regexp.MustCompile(`\b[0-9a-f]{16,64}\b`), "DIGEST"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{8}\b`), "PLAN"},
	{regexp.MustCompile(`\bbegin with [0-9a-f]{8}\b`), "begin with MANAGER"},
	{regexp.MustCompile(`"seq":\d+`), "NUMBER"},
	{regexp.MustCompile(`\b(incident|grep) [0-9a-f]{8}\b`), "$1 NUMBER"},
	{regexp.MustCompile(`(\b(?:revision|after|at)\b|"revision":|id:) ?\d+\b`), "$1 NUMBER"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m\d+s)\b`), "DURATION"},
}

// loose lists the fields whose values differ from run to run.
var loose = []string{"seq", "entries", "last", "revision", "read_revision", "continue", "go", "etcd"}

// differ returns the path at which an answer differs from the document, or "".
func differ(path string, want, got any, part bool) string {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			break
		}

		for key, value := range want {
			have, ok := object[key]
			if !ok {
				return fmt.Sprintf("%s.%s is not in the answer", path, key)
			}

			if slices.Contains(loose, key) {
				if fmt.Sprintf("%T", plainNumber(value)) != fmt.Sprintf("%T", have) {
					return fmt.Sprintf("%s.%s is %v", path, key, have)
				}

				continue
			}

			if d := differ(path+"."+key, value, have, part); d != "" {
				return d
			}
		}

		for key := range object {
			// Each request has an id of its own.
			if _, ok := want[key]; !ok && !part && key != "request_id" {
				return fmt.Sprintf("%s.%s is not in the document", path, key)
			}
		}

		return ""
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			break
		}

		for i := range want {
			if d := differ(fmt.Sprintf("%s[%d]", path, i), want[i], list[i], part); d != "" {
				return d
			}
		}

		return ""
	case string:
		text, ok := got.(string)
		if !ok {
			break
		}

		if path == "" && part {
			for line := range strings.Lines(want) {
				if !strings.Contains(text, line) {
					return fmt.Sprintf("there is no line %q", line)
				}
			}

			return ""
		}

		wanted, had := want, text
		for _, v := range vague {
			wanted, had = v.what.ReplaceAllString(wanted, v.as), v.what.ReplaceAllString(had, v.as)
		}

		if wanted == had {
			return ""
		}
	default:
		if plainNumber(want) == got {
			return ""
		}
	}

	return fmt.Sprintf("%s is %v, in the document %v", path, got, want)
}

// plainNumber is a number as encoding/json has it.
func plainNumber(v any) any {
	switch n := v.(type) {
	case int:
		return float64(n)
	case int64:
		return float64(n)
	}

	return v
}

// written returns an answer in the form for the document.
func written(t *testing.T, text string, got any) string {
	t.Helper()

	var n yaml.Node
	if _, isText := got.(string); isText {
		n = yaml.Node{
			Kind:  yaml.ScalarNode,
			Tag:   "!!str",
			Value: fraction.ReplaceAllString(text, "${1}Z"),
			Style: yaml.LiteralStyle,
		}
	} else {
		if err := yaml.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}

		n = *n.Content[0]
		tidy(&n)
	}

	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)

	if err := e.Encode(map[string]*yaml.Node{"value": &n}); err != nil {
		t.Fatal(err)
	}

	return b.String()
}

var fraction = regexp.MustCompile(`(T\d\d:\d\d:\d\d)\.\d+Z`)

// tidy puts short values on one line, and removes fractions of times.
func tidy(n *yaml.Node) {
	n.Style = 0

	size := 0
	for _, child := range n.Content {
		tidy(child)

		size += len(child.Value) + 4
		if child.Kind != yaml.ScalarNode {
			size += 1000
		}
	}

	if n.Kind == yaml.ScalarNode {
		n.Value = fraction.ReplaceAllString(n.Value, "${1}Z")
	} else if size < 110 {
		n.Style = yaml.FlowStyle
	}
}

// lineOf returns the line of the key "value" of an answer in examples.yaml.
func lineOf(t *testing.T, o openapi.Operation, c openapi.Case) int {
	t.Helper()

	var file yaml.Node
	if err := yaml.Unmarshal(api.Examples, &file); err != nil {
		t.Fatal(err)
	}

	at := file.Content[0]
	for _, step := range []string{o.OperationID, c.Status, c.Name} {
		_, next := entry(at, step)
		if next == nil {
			t.Fatalf("examples.yaml has no %s in %s", step, o.OperationID)
		}
		at = next
	}

	key, _ := entry(at, "value")

	return key.Line
}

// entry returns the key and the value of an entry of a mapping, or nil.
func entry(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}

	for pair := range slices.Chunk(n.Content, 2) {
		if n.Kind == yaml.MappingNode && pair[0].Value == name {
			return pair[0], pair[1]
		}
	}

	return nil, nil
}

// rewrite puts answers into examples.yaml, each by the line where it begins.
func rewrite(t *testing.T, answers map[int]string) {
	t.Helper()
	const path = "../api/examples.yaml"
	lines := strings.SplitAfter(string(api.Examples), "\n")
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

	starts := make([]int, 0, len(answers))
	for line := range answers {
		starts = append(starts, line)
	}

	slices.SortFunc(starts, func(a, b int) int { return b - a })

	for _, start := range starts {
		from := start - 1
		for !strings.HasPrefix(strings.TrimLeft(lines[from], " "), "value:") {
			from--
		}

		margin := indent(lines[from])

		to := from + 1
		for to < len(lines) && (indent(lines[to]) > margin || strings.TrimSpace(lines[to]) == "" && to+1 < len(lines)) {
			to++
		}

		var text strings.Builder
		for line := range strings.Lines(answers[start]) {
			if strings.TrimSpace(line) != "" {
				text.WriteString(strings.Repeat(" ", margin))
			}

			text.WriteString(line)
		}

		lines = slices.Replace(lines, from, to, text.String())
	}

	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
}
