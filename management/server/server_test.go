// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/contracttest"
	"github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

var (
	_ server.Jobs      = (*engine.Engine)(nil)
	_ server.Logs      = (*engine.Engine)(nil)
	_ server.Nodes     = (*node.Nodes)(nil)
	_ server.Variables = (*variable.Variables)(nil)
	_ server.Explainer = (*explain.Explainer)(nil)
)

func TestMain(m *testing.M) {
	// The tests mostly wait, so more of them run at a time than there are processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}

	debug.SetGCPercent(400) // the tests end before much garbage exists
	os.Exit(m.Run())
}

// site is a server on a real socket and a real port.
type site struct {
	*server.Server
	manager  *fakeManager
	config   *fakeSettings
	health   *api.Health
	registry *prometheus.Registry
	log      *logtest.Hook
	socket   string
	url      string
}

func serve(t *testing.T, adjust ...func(*server.Options)) *site {
	t.Helper()
	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	s := &site{
		manager: newFakeManager(), config: newFakeSettings(), log: hook, registry: prometheus.NewRegistry(),
		health: &api.Health{Status: api.HealthOK, Instance: "one"},
	}

	o := s.manager.options(s.config)
	o.Logger, o.Registerer = logger, s.registry
	o.Health = func(context.Context) api.Health { return *s.health }
	o.Version = func(context.Context) api.Version { return api.Version{Version: "1.2.3", Go: "go1"} }
	o.PlainHTTPRole = access.RoleAdmin
	o.Metrics = promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{})

	for _, f := range adjust {
		f(&o)
	}

	s.Server = server.New(o)
	s.socket = filepath.Join(shortTemp(t), "s.sock")

	unix, err := server.ListenUnix(s.socket)
	if err != nil {
		t.Fatal(err)
	}

	tcp, err := server.ListenLoopback("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + tcp.Addr().String()

	ended := make(chan error, 1)
	go func() { ended <- s.Serve(unix, tcp) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()

		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}

		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})

	return s
}

// shortTemp returns a folder with a path that is short enough for sockets.
func shortTemp(t *testing.T) string {
	t.Helper()

	dir, err := os.MkdirTemp("", "srv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	return dir
}

// client connects over the socket.
func (s *site) client(t *testing.T, adjust ...func(*client.Options)) *client.Client {
	t.Helper()

	o := client.Options{Socket: s.socket, UserAgent: "test/1", Patience: patience}
	for _, f := range adjust {
		f(&o)
	}

	if o.HTTPClient == nil {
		o.HTTPClient = &http.Client{Transport: contracttest.Transport{Base: dialing(o.Socket), Report: t.Errorf}}
	}

	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dialing returns a transport to the socket, or to the host of the URL without one.
func dialing(socket string) http.RoundTripper {
	transport := &http.Transport{}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}

	return transport
}

func overTCP(s *site) func(*client.Options) {
	return func(o *client.Options) { o.Socket, o.URL = "", s.url }
}

// ownAccount returns the principal of this process on the socket.
func ownAccount(t *testing.T) string {
	t.Helper()

	u, err := user.Current()
	if err != nil {
		t.Skip("this account has no name: ", err)
	}
	return u.Username
}

func must[T any](t *testing.T) func(got T, err error) T {
	return func(got T, err error) T {
		t.Helper()

		if err != nil {
			t.Fatalf("%T: %v", got, err)
		}
		return got
	}
}

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()

	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %#v, want %#v", what, got, want)
	}
}

// TestEveryRoute calls every method of the client, over the socket and over TCP,
// and expects every served route to be used.
func TestEveryRoute(t *testing.T) {
	t.Parallel()

	for _, way := range []string{"unix", "tcp"} {
		t.Run(way, func(t *testing.T) {
			s := serve(t, func(o *server.Options) { o.Trail = openTrail(t, 3) })

			c := s.client(t)
			if way == "tcp" {
				c = s.client(t, overTCP(s))
			}
			everyMethod(t, s, c, way == "unix")

			used := map[string]bool{}

			families := must[[]string](t)(routesUsed(s.registry))
			for _, f := range families {
				used[f] = true
			}

			forPeople := []string{api.PathOpenAPI, api.PathOpenAPIJSON, api.PathDocs}
			for _, rt := range s.Routes() {
				if strings.HasPrefix(rt.Path, "/v1/") && !slices.Contains(forPeople, rt.Path) &&
					!used[rt.Method+" "+rt.Path] {
					t.Errorf("the client never used %s %s", rt.Method, rt.Path)
				}
			}
		})
	}
}

func routesUsed(r *prometheus.Registry) ([]string, error) {
	families, err := r.Gather()

	var out []string
	for _, f := range families {
		if f.GetName() != "clusterm_http_requests_total" {
			continue
		}

		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}

			out = append(out, labels["method"]+" "+labels["route"])
		}
	}

	return out, err
}

func everyMethod(t *testing.T, s *site, c *client.Client, known bool) {
	ctx := testCtx(t)
	actor := func(call string) string {
		_, who, _ := strings.Cut(call, "actor=")
		return who
	}
	expectActor := func() {
		t.Helper()

		switch who := actor(s.manager.last()); {
		case known && who != ownAccount(t):
			t.Errorf("actor: %q, want %q", who, ownAccount(t))
		case !known && who != "http:127.0.0.1":
			t.Errorf("actor: %q", who)
		}
	}

	nodes := must[api.List[api.Node]](t)(c.Nodes(ctx, client.NodeFilter{}))
	expect(t, "nodes", len(nodes.Items), 3)
	expect(t, "revision", nodes.Revision, 10)
	a := nodes.Items[0]
	expect(t, "name", a.Name, "a-1")
	expect(t, "node revision", a.Revision, 7)
	expect(t, "connection", a.Connection, &api.Connection{User: "admin", Port: 2222})

	hosts := must[api.List[api.InventoryHost]](t)(c.Inventory(ctx, client.NodeFilter{Names: []string{"a-1"}}))
	expect(t, "hosts", len(hosts.Items), 1)
	expect(t, "user", hosts.Items[0].Vars["ansible_user"], any("admin"))
	expect(t, "port", hosts.Items[0].Vars["port"], any(json.Number("8080")))

	some := must[api.List[api.Node]](t)(c.Nodes(ctx, client.NodeFilter{
		Names: []string{
			"bb-1",
			"a-1",
		},
		Status: []inventory.Status{inventory.Unallocated},
		State:  []inventory.State{inventory.Discovered},
	}))
	expect(t, "two nodes", len(some.Items), 2)
	none := must[api.List[api.Node]](t)(c.Nodes(ctx, client.NodeFilter{Group: []string{inventory.GroupMaster}}))
	expect(t, "no masters", len(none.Items), 0)
	_, err := c.Nodes(ctx, client.NodeFilter{Names: []string{"x-1", "a-1", "y-2"}})
	expect(t, "unknown nodes", inventory.KindOf(err), inventory.KindNotFound)

	if !strings.Contains(err.Error(), "x-1, y-2") {
		t.Errorf("not all named: %v", err)
	}

	var refusal *inventory.Error
	if errors.As(err, &refusal) {
		expect(t, "about", refusal.Nodes, []string{"x-1", "y-2"})
	}

	expect(t, "node", must[api.Node](t)(c.Node(ctx, "bb-1")).Addr, "10.0.0.2")
	yes := true
	patched := must[api.Node](
		t,
	)(
		c.PatchNode(ctx, "bb-1", api.NodePatch{Connection: &api.Connection{Become: &yes}, ForgetHostKey: true}),
	)
	expect(t, "become", *patched.Connection.Become, true)
	expectActor()
	r1 := "r1"
	expect(
		t,
		"labels",
		must[api.Node](
			t,
		)(
			c.PatchNode(ctx, "a-1", api.NodePatch{Labels: map[string]*string{"rack": &r1, "old": nil}}),
		).Labels,
		map[string]string{"rack": "r1"},
	)
	chosen := must[api.List[api.Node]](
		t,
	)(
		c.Nodes(ctx, client.NodeFilter{Selector: "rack in (r1,r2),status!=Allocated"}),
	)
	expect(t, "chosen", len(chosen.Items), 1)
	expect(
		t,
		"without a rack",
		len(
			must[api.List[api.Node]](
				t,
			)(
				c.Nodes(ctx, client.NodeFilter{Selector: "!rack", Names: []string{"a-1", "bb-1"}}),
			).Items,
		),
		1,
	)
	expect(t, "history", len(must[api.List[inventory.HistoryEntry]](t)(c.History(ctx, "a-1", 0)).Items), 2)
	expect(t, "newest entry", must[api.List[inventory.HistoryEntry]](t)(c.History(ctx, "a-1", 1)).Items[0].Seq, 2)
	expect(t, "groups", must[api.List[api.Group]](t)(c.Groups(ctx)).Items[1].Requires[inventory.GroupMaster], 1)

	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	s.manager.change(func(v *state.View) {
		v.View = record.WithList(v.View, &state.Instances, &state.Instance{
			Identity: cluster.Identity{ID: "i1", Node: "m-1"}, API: []string{"unix:///s"}, Version: "v1",
			Started: noon,
		})
	})
	if powers := must[api.List[api.Power]](t)(c.Power(ctx)); powers.Total != 0 {
		t.Errorf("machines without a BMC have a power: %+v", powers)
	}

	instances := must[api.List[api.Instance]](t)(c.Instances(ctx))
	expect(
		t,
		"instance",
		instances.Items,
		[]api.Instance{{ID: "i1", Node: "m-1", API: []string{"unix:///s"}, Version: "v1", Started: noon}},
	)

	made := must[api.NewToken](t)(c.CreateToken(ctx, api.TokenRequest{Role: "viewer", Name: "ci"}))
	stored, _ := s.manager.tokens.Latest()
	s.manager.change(func(v *state.View) {
		v.View = record.WithList(v.View, &access.TokenKind, record.List(stored, &access.TokenKind)...)
	})
	expect(t, "tokens", must[api.List[api.Token]](t)(c.Tokens(ctx)).Items, []api.Token{made.Record})
	must[api.Changed](t)(c.RevokeToken(ctx, "ci"))

	must[api.Changed](t)(c.RevokeCertificate(ctx, "serial:2B"))

	certs := must[api.List[api.Certificate]](t)(c.Certificates(ctx)).Items
	if len(certs) != 2 || certs[0].Serial != "2b" || certs[0].Revoked == nil || certs[1].Name != "rack1" {
		t.Errorf("certificates: %+v", certs)
	}

	everyAudit(t, c)

	expect(t, "the caller", must[api.Identity](t)(c.WhoAmI(ctx)).Role, "admin")
	expect(t, "a permission", must[api.Permission](t)(c.CanI(ctx, "update", "a-1")).Allowed, true)
	expect(t, "an unknown node", must[api.Permission](t)(c.CanI(ctx, "update", "zz-1")).Allowed, false)

	if state := must[api.Secrets](t)(c.Secrets(ctx)); state.Key == "" || len(state.Keys) != 1 {
		t.Errorf("the secrets: %+v", state)
	}

	must[api.Secrets](t)(c.RotateSecrets(ctx, false))

	if l := must[api.Notifications](t)(c.Notifications(ctx)); len(l.Items) != 1 || l.Items[0].Dead != 1 {
		t.Errorf("the targets are %+v", l)
	}

	if l := must[api.Deliveries](t)(c.Deliveries(ctx, "chat", "dead")); len(l.Items) != 1 {
		t.Errorf("the dead deliveries are %+v", l)
	}

	if l := must[api.Deliveries](t)(c.Deliveries(ctx, "chat", "pending")); len(l.Items) != 0 {
		t.Errorf("the pending deliveries are %+v", l)
	}

	if _, err := c.Deliveries(ctx, "chat", "lost"); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a status that does not exist gave %v", err)
	}

	if _, err := c.TestNotification(ctx, "phone"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("a test of an unknown target gave %v", err)
	}

	must[api.Notification](t)(c.TestNotification(ctx, "chat"))
	must[api.Notification](t)(c.RetryDeliveries(ctx, "chat"))
	must[api.Changed](t)(c.PatchSecretVars(ctx, client.ScopeGlobal, api.Vars{"pin": "1234"}, "pin"))

	if _, err := c.RotateSecrets(ctx, true); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("a key that is there was abandoned: %v", err)
	}

	j := must[api.Job](t)(c.Submit(ctx, api.JobRequest{
		Verb:      inventory.VerbCommission,
		Nodes:     []string{"a-1"},
		Group:     inventory.GroupMaster,
		ExtraVars: json.RawMessage(`{"big": 9007199254740993}`),
		Timeout:   api.Duration(90 * time.Minute),
	}))
	expect(t, "job", [3]string{j.ID, string(j.Status), j.WaitReason}, [3]string{"1", "Queued", "job 99 holds a-1"})
	expectActor()

	if !strings.Contains(s.manager.last(), "extra=map[big:9007199254740993]") {
		t.Errorf("variables were changed on the way: %s", s.manager.last())
	}

	whole := must[api.Job](t)(c.Job(ctx, "1"))
	expect(t, "vars", whole.Vars, map[string]api.MergedVars{"a-1": {
		"big": {Value: int64(9007199254740993), Origin: "request"}, "motd": {Value: "hello", Origin: "global"},
	}})
	list := must[api.List[api.Job]](
		t,
	)(
		c.Jobs(ctx, client.JobFilter{Status: []api.JobStatus{api.Queued}, Node: "a-1", Limit: 5}),
	)
	expect(t, "jobs", len(list.Items), 1)
	expect(t, "waits for", list.Items[0].WaitsFor, []string{"99"})
	expect(t, "no jobs", len(must[api.List[api.Job]](t)(c.Jobs(ctx, client.JobFilter{Node: "bb-1"})).Items), 0)

	s.manager.write("1", job.StreamText, "PLAY [all]\nok\n")
	s.manager.write("1", job.StreamEvents, `{"event":"task","task":"x","time":1700000000.5}`+"\nnonsense\n")
	log := must[*client.Stream](t)(c.Log(ctx, "1", 5, false))
	text := must[[]byte](t)(io.ReadAll(log))
	_ = log.Close()
	expect(t, "log", string(text), "[all]\nok\n")
	expect(t, "offset", log.Offset(), 14)

	var events []api.Event
	if err := c.Events(
		ctx,
		"1",
		0,
		false,
		func(e api.Event) error { events = append(events, e); return nil },
	); err != nil {
		t.Fatal(err)
	}

	expect(
		t,
		"events",
		[]string{events[0].Task, events[1].Event, events[1].Message},
		[]string{"x", api.EventUnreadable, "nonsense"},
	)
	expect(t, "log bytes", must[api.Job](t)(c.Job(ctx, "1")).LogBytes, 14)

	cancelled := must[api.Job](t)(c.Cancel(ctx, "1"))
	expect(t, "cancelled", cancelled.Status, api.Cancelled)
	expectActor()
	expect(t, "ended", must[api.Job](t)(c.WaitJob(ctx, "last")).ID, "1")
	retried := must[api.Job](t)(c.Retry(ctx, "last", api.Retry{Failed: true}))
	expect(
		t,
		"retried",
		[3]string{retried.ID, retried.RetryOf, retried.Group},
		[3]string{"2", "1", inventory.GroupMaster},
	)
	expect(t, "place", retried.Position, 1)
	expectActor()
	everyPlanRoute(t, s, c)
	expectActor()

	why := must[api.JobExplanation](t)(c.ExplainJob(ctx, "2"))
	expect(t, "why", why.Summary, "it is queued: place 1 of 1 in the queue, and its turn has come")
	if b := must[api.NodeBoots](t)(c.NodeBoots(ctx, "a-1")); b.Node != "a-1" || len(b.Boots) != 0 {
		t.Errorf("boots %+v", b)
	}
	if f := must[api.NodeFacts](t)(c.Facts(ctx, "a-1", 1)); f.Facts.Arch != "x86_64" {
		t.Errorf("facts: %+v", f)
	}

	difference := must[api.Difference](t)(c.Difference(ctx, "a-1"))
	expect(t, "difference", difference.Tasks, []api.TaskFinding{
		{Kind: api.FindingDiffers, Playbook: "site.yml", Task: "Write", Path: "site.yml:3", Diff: "-x\n+y"},
	})
	expect(t, "verdict", difference.Verification.Describe(), "drifted: 1 task would change")

	explained := must[api.NodeExplanation](t)(c.Explain(ctx, "a-1"))
	expect(
		t,
		"explained",
		[3]string{explained.Node.Name, explained.Jobs[0].ID, explained.Findings[0].About},
		[3]string{"a-1", "2", "queue"},
	)
	expect(t, "not ready", explained.Ready, false)

	for _, scope := range []client.Scope{
		client.ScopeGlobal, client.ScopeGroup(inventory.GroupWorker), client.ScopeNode("a-1"),
	} {
		set := must[api.Changed](t)(c.SetVars(ctx, scope, api.Vars{"x": 1, "t": "{{ y }}"}))
		expect(t, "warnings", set.Warnings, []string{"t looks like a template"})
		expectActor()
		must[api.Changed](t)(c.PatchVars(ctx, scope, api.Vars{"t": nil, "z": []any{1.5, "a", json.Number("1.0")}}))
		expect(
			t,
			"vars",
			must[api.Vars](t)(c.Vars(ctx, scope)),
			api.Vars{"x": int64(1), "z": []any{1.5, "a", json.Number("1.0")}},
		)
	}

	past := must[api.List[api.VarsChange]](t)(c.VarsHistory(ctx, client.ScopeNode("a-1"), 0)).Items
	expect(t, "history of variables", past[1].Before, api.Vars{"port": int64(80)})

	for _, scope := range []client.Scope{client.ScopeGlobal, client.ScopeGroup(inventory.GroupWorker)} {
		expect(t, "newest", must[api.List[api.VarsChange]](t)(c.VarsHistory(ctx, scope, 1)).Items[0].Actor, "bob")
		must[api.Changed](t)(c.UndoVars(ctx, scope, 4))
		expect(t, "undone", must[api.Vars](t)(c.Vars(ctx, scope)), api.Vars{"undone": int64(4)})
		expectActor()
	}

	vars, tag, err := c.TaggedVars(ctx, client.ScopeNode("a-1"))
	expect(t, "undone", err, nil)
	_, err = c.IfMatch(client.Tag(1)).UndoVars(ctx, client.ScopeNode("a-1"), 4)
	expect(t, "an undo of other variables", inventory.KindOf(err), inventory.KindPrecondition)
	must[api.Changed](t)(c.IfMatch(tag).UndoVars(ctx, client.ScopeNode("a-1"), 4))
	must[api.Changed](t)(c.SetVars(ctx, client.ScopeNode("a-1"), vars))

	merged := must[api.MergedVars](t)(c.MergedVars(ctx, "a-1"))
	expect(t, "merged", merged["x"], api.MergedVar{Value: int64(1), Origin: "node"})

	config := must[api.Config](t)(c.Config(ctx))
	expect(t, "config", config["jobs.limit"], api.Setting{Value: int64(4), Origin: "default", Settable: true})
	preview := must[api.Config](t)(c.PreviewConfig(ctx, map[string]any{"jobs.limit": 7}))
	expect(t, "before", must[api.Config](t)(c.Config(ctx)), config)
	config = must[api.Config](t)(c.PatchConfig(ctx, map[string]any{"jobs.limit": 7}))
	expect(t, "previewed", config, preview)
	expect(t, "overlay", config["jobs.limit"], api.Setting{Value: int64(7), Origin: "overlay", Settable: true})
	expect(t, "after a reload", must[api.Config](t)(c.ReloadConfig(ctx)), config)

	diff := must[api.FleetDiff](t)(c.FleetDiff(ctx, api.FleetRequest{
		Files: []api.FleetFile{{Name: "f", Text: "fleet: 1\nnodes: {a-1: {labels: {fleet: x}}}"}},
	}))
	expect(t, "steps", len(diff.Steps), 1)
	must[api.Changed](t)(c.FleetApply(ctx, *diff.Steps[0].Apply))
	must[json.RawMessage](t)(c.Fleet(ctx))

	_, err = c.PatchConfig(ctx, map[string]any{"data_dir": "/tmp"})
	expect(t, "data_dir", inventory.KindOf(err), inventory.KindRefused)

	var kinds []string
	for change, err := range c.Watch(ctx, client.WatchOptions{}) {
		if err != nil {
			t.Fatal(err)
		}

		kinds = append(kinds, string(change.Type)+string(change.Kind))
		if change.Type == api.ChangeSync {
			break
		}
	}

	expect(t, "watch", slices.Compact(kinds), []string{"putnodes", "putjobs", "putvars", "putconfig", "sync"})
	s.gauge(t, "clusterm_http_requests_in_flight", 0) // a watch is counted when the server has noticed its end

	expect(t, "health", must[api.Health](t)(c.Health(ctx)).Instance, "one")
	s.health.Status = api.HealthDegraded
	expect(t, "degraded", must[api.Health](t)(c.Health(ctx)).Status, api.HealthDegraded)
	s.health.Status = api.HealthOK
	expect(t, "version", must[api.Version](t)(c.Version(ctx)).Version, "1.2.3")

	var file bytes.Buffer
	if err := c.Backup(ctx, &file); err != nil || !strings.HasPrefix(file.String(), "clusterm-backup ") {
		t.Errorf("a backup that begins %.20q, %v", &file, err)
	}

	if text := must[string](t)(c.Metrics(ctx)); !strings.Contains(text, "\n# TYPE ") {
		t.Errorf("metrics: %q", text)
	}

	if err := c.Report(ctx, true, []api.LegacyEventNode{{Label: "d", Serial: "1", Addr: "10.0.0.4"}}); err != nil {
		t.Error(err)
	}

	expect(
		t,
		"observations",
		s.manager.observations,
		[]inventory.Observation{
			{Observer: inventory.ObserverPost, Label: "d", Serial: "1", Addr: "10.0.0.4", Alive: true},
		},
	)

	s.manager.observations = nil
	reported := must[api.Reported](t)(c.Observe(ctx,
		api.Report{Observer: "rack1", Full: true, Observations: []api.Observation{
			{Label: "d", Serial: "1", Addr: "10.0.0.4", Alive: true, Joined: true, Others: []string{"10.0.0.5"}},
			{Label: "no label", Serial: "1", Addr: "10.0.0.6", Alive: true},
		}}))
	expect(t, "the reported observations", s.manager.observations, []inventory.Observation{{
		Observer: "rack1", Label: "d", Serial: "1", Addr: "10.0.0.4", Alive: true, Joined: true,
		Others: []string{"10.0.0.5"},
	}})

	if len(reported.Refused) != 1 || reported.Refused[0].Index != 1 || reported.Refused[0].Message == "" ||
		reported.Refused[0].Remedy == "" {
		t.Errorf("refused: %+v", reported.Refused)
	}

	pings(ctx, t, c, s.manager)

	forgotten := must[api.Changed](t)(c.Forget(ctx, api.Forget{Nodes: []string{"ccc-1"}, Force: true, Reason: "gone"}))
	expectActor()
	expect(
		t,
		"left",
		len(must[api.List[api.Node]](t)(c.At(forgotten.Revision).Nodes(ctx, client.NodeFilter{})).Items),
		2,
	)
	_, err = c.Node(ctx, "")
	expect(t, "no name", inventory.KindOf(err), inventory.KindInvalid)

	_, err = c.Node(ctx, "a/b c")
	if inventory.KindOf(err) != inventory.KindNotFound || !strings.Contains(err.Error(), `"a/b c"`) {
		t.Errorf("a name with a slash: %v", err)
	}
}

// TestKindsBothWays sends an error of every kind through both ends.
func TestKindsBothWays(t *testing.T) {
	s := serve(t)
	// The contract does not list every kind for every operation.
	c := s.client(t, func(o *client.Options) { o.HTTPClient = &http.Client{Transport: dialing(o.Socket)} })
	for _, kind := range inventory.Kinds {
		want := inventory.Errorf(kind, "the %s one: %w", kind, errors.New("secret cause")).
			Do("do that").
			About("a-1", "bb-1")
		want.Message = "the " + string(kind) + " one"
		s.manager.fail = want
		_, err := c.Submit(testCtx(t), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})

		var got *inventory.Error
		if !errors.As(err, &got) {
			t.Fatalf("%s: %v", kind, err)
		}

		expect(t, "kind", got.Kind, kind)

		if kind == inventory.KindInternal {
			if strings.Contains(err.Error(), "one") || !strings.Contains(err.Error(), "incident") {
				t.Errorf("an internal error is shown: %v", err)
			}

			continue
		}

		// The first contract has one status for all errors: a header names the kind.
		err = c.Report(testCtx(t), false, []api.LegacyEventNode{{Label: "d", Serial: "1", Addr: "10.0.0.4"}})
		expect(t, "kind of a report", inventory.KindOf(err), kind)
		expect(t, "error of a report", err.Error(), want.Error())
		expect(
			t,
			"error",
			[3]any{got.Message, got.Remedy, strings.Join(got.Nodes, " ")},
			[3]any{want.Message, "do that", "a-1 bb-1"},
		)
	}
}

// TestInternalErrorsAreHidden expects an error without a kind, and a panic, in the
// log under the incident number that the client receives.
func TestInternalErrorsAreHidden(t *testing.T) {
	s := serve(t)
	for _, fault := range []any{errors.New("password is hunter2"), "password is hunter2"} {
		s.manager.fail = fault
		for _, path := range []string{api.PathJobs, api.LegacyCommission} {
			s.log.Reset()

			status, body := s.request(t, "POST", path, `{"verb":"commission","nodes":["a-1"]}`)
			if status != 500 || strings.Contains(body, "hunter2") {
				t.Errorf("%s: %d %s", path, status, body)
			}

			found := false
			for _, e := range s.log.AllEntries() {
				incident, _ := e.Data["incident"].(string)

				text, _ := e.String()
				if incident != "" && strings.Contains(body, incident) && strings.Contains(text, "hunter2") {
					found = true
				}
			}

			if !found {
				t.Errorf("%s: the log has no entry for %s", path, body)
			}
		}
	}

	s.manager.fail = nil
	if _, err := s.client(t).Nodes(testCtx(t), client.NodeFilter{}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// request sends text over TCP as a script would.
func (s *site) request(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	res, text := s.exchange(t, method, path, body, headers...)
	return res.StatusCode, text
}

func (s *site) exchange(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()

	req, err := http.NewRequestWithContext(testCtx(t), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		req.Body = http.NoBody
	}

	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}

		req.Header.Set(headers[i], headers[i+1])
	}

	res, err := (&http.Client{Transport: contracttest.Transport{Report: t.Errorf}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()

	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// TestReads covers revisions, waiting for one, and cancelling the wait.
func TestReads(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(t)
	res, _ := s.exchange(t, "GET", api.PathNodes, "")
	expect(t, "revision", res.Header.Get(api.HeaderRevision), "10")

	s.manager.change(func(v *state.View) { v.Revision, v.Stale = 10, true })

	res, text := s.exchange(t, "GET", api.PathNodes, "")
	if res.Header.Get(api.HeaderStale) != "true" || !strings.Contains(text, `"stale":true`) {
		t.Errorf("a stale answer is not marked: %v", res.Header)
	}

	got := make(chan error, 1)
	go func() {
		list, err := c.At(12).Nodes(testCtx(t), client.NodeFilter{})
		if err == nil && list.Revision < 12 {
			err = errors.New("too old an answer")
		}

		got <- err
	}()

	for range 2 {
		s.manager.change(func(*state.View) {})
	}

	if err := <-got; err != nil {
		t.Error(err)
	}

	ctx, cancel := context.WithCancel(testCtx(t))
	go func() {
		_, err := c.At(1000).Nodes(ctx, client.NodeFilter{})
		got <- err
	}()
	cancel()

	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

// TestLinearizable expects every linearizable read to show the newest revision of
// the store, or to fail.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must[api.Job](
		t,
	)(
		s.client(t).Submit(testCtx(t), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}),
	)

	must[api.Plan](
		t,
	)(
		s.client(t).Plan(testCtx(t), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}),
	)

	for _, route := range s.Routes() {
		path := route.Path
		linearizable := func(p openapi.Param) bool { return p.Name == "consistency" }

		if !slices.ContainsFunc(route.Query, linearizable) || path == api.PathWatch {
			continue
		}

		switch {
		case strings.HasPrefix(path, "/v1/jobs"):
			path = strings.ReplaceAll(path, "{id}", "1")
		case strings.HasPrefix(path, "/v1/plans"):
			path = strings.ReplaceAll(path, "{id}", planID(1))
		case path == api.PathImportRun:
			path = strings.ReplaceAll(path, "{id}", "first")
		case path == api.PathRollout, path == api.PathImage, path == api.PathImageFile:
			continue // there is none
		case strings.HasPrefix(path, "/v1/vars/groups"):
			path = strings.ReplaceAll(path, "{name}", inventory.GroupMaster)
		case strings.HasPrefix(path, "/v1/policies"):
			path = strings.ReplaceAll(path, "{name}", "returns")
		default:
			path = strings.ReplaceAll(path, "{name}", "a-1")
		}

		s.manager.sync = func(context.Context) error { s.manager.change(func(*state.View) {}); return nil }
		before := s.manager.View().Revision

		res, text := s.exchange(t, "GET", path+"?consistency=linearizable", "")
		if revision := res.Header.Get(api.HeaderRevision); res.StatusCode != 200 || revision != fmt.Sprint(before+1) {
			t.Errorf("%s: %d %s (revision %s, was %d)", path, res.StatusCode, text, revision, before)
		}

		s.manager.sync = func(context.Context) error {
			return inventory.Errorf(inventory.KindUnavailable, "the store does not answer").Do("see the log")
		}

		res, text = s.exchange(t, "GET", path+"?consistency=linearizable", "")
		if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" ||
			!strings.Contains(text, "repeat without consistency=linearizable") {
			t.Errorf("%s without a store: %d %s", path, res.StatusCode, text)
		}
	}

	// With a stale view the read waits for a shorter time.
	for stale, patience := range map[bool]time.Duration{false: 10 * time.Second, true: time.Second} {
		s.manager.change(func(v *state.View) { v.Stale = stale })
		var least, most time.Duration // bounds of the timeout, seen from both ends of the call
		begun := time.Now()
		s.manager.sync = func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			least, most = time.Until(deadline), deadline.Sub(begun)
			return context.DeadlineExceeded
		}

		res, text := s.exchange(t, "GET", "/v1/nodes?consistency=linearizable", "")
		if least > patience || most < patience || res.StatusCode != 503 ||
			strings.Contains(text, "has had no quorum for more than 3 s") != stale {
			t.Errorf("stale: %t: between %s and %s; %d %s", stale, least, most, res.StatusCode, text)
		}
	}

	_, err := s.client(t).Newest().Nodes(testCtx(t), client.NodeFilter{})
	expect(t, "without a store", inventory.KindOf(err), inventory.KindUnavailable)
	must[api.Version](t)(s.client(t).Newest().At(1 << 40).Version(testCtx(t)))
}

// TestShutdownAnswers expects an error for a request that outlasts the shutdown.
func TestShutdownAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	waits := make(chan struct{})
	s.manager.sync = func(ctx context.Context) error {
		close(waits)
		<-ctx.Done()
		return ctx.Err()
	}

	answered := make(chan error, 1)
	go func() {
		_, err := s.client(t, func(o *client.Options) { o.Patience = -1 }).
			Newest().
			Nodes(testCtx(t), client.NodeFilter{})
		answered <- err
	}()
	select {
	case <-waits:
	case err := <-answered:
		t.Fatalf("the request did not wait: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}

	if err := <-answered; inventory.KindOf(err) != inventory.KindUnavailable ||
		!strings.Contains(err.Error(), "the manager is stopping") {
		t.Error(err)
	}
}

// TestWaitJob follows the record of a job to its end.
func TestWaitJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(t)
	ctx := testCtx(t)
	must[api.Job](t)(c.Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1", "bb-1"}}))
	seen := make(chan api.Job, 10)

	ended := make(chan api.Job, 1)
	go func() {
		j, err := c.WaitJob(ctx, "1", func(j api.Job) { seen <- j })
		if err != nil {
			t.Error(err)
		}
		ended <- j
	}()
	expect(t, "first", (<-seen).Status, api.Queued)
	s.manager.change(func(*state.View) {}) // irrelevant to the job
	s.manager.setJob("1", func(j *job.Job) { j.Status = job.Running })
	expect(t, "then", (<-seen).Status, api.Running)
	s.manager.setJob("1", func(j *job.Job) {
		j.Status, j.Cause, j.Message = job.Errored, job.CauseFailed, "site.yml failed on a-1"
		j.Runs = []job.Run{
			{
				Kind:     job.StepPlaybook,
				Phase:    job.PhaseConfigure,
				Playbook: "site.yml",
				Hosts:    []string{"a-1", "bb-1"},
				Exit:     "failed",
				Results: map[string]job.HostResult{
					"a-1": {
						Begun:   true,
						Failed:  1,
						Changed: 2,
						Task:    "install",
						Message: "no space",
					},
					"bb-1": {Begun: true, Changed: 3, OK: 4, Done: true},
				},
			},
			{
				Kind:     job.StepPlaybook,
				Phase:    job.PhaseUndo,
				Playbook: "cleanup.yml",
				Hosts:    []string{"a-1", "bb-1"},
				Exit:     "done",
				Results: map[string]job.HostResult{
					"a-1": {Begun: true, Changed: 1, Done: true}, "bb-1": {Begun: true, Changed: 1, Done: true},
				},
			},
		}
		j.Outcomes = map[string]inventory.Outcome{
			"a-1":  {Status: inventory.Unallocated, Error: `task "install": no space`},
			"bb-1": {Status: inventory.Unallocated, Error: "site.yml failed on a-1"},
		}
	})
	j := <-ended
	expect(t, "hosts", j.Hosts, []api.HostSummary{
		{Host: "a-1", Status: inventory.Unallocated, Changed: 3, Error: `task "install": no space`},
		{Host: "bb-1", Status: inventory.Unallocated, Changed: 4, Error: "site.yml failed on a-1"},
	})
	expect(t, "runs", len(j.Runs), 2)
	expect(
		t,
		"result",
		j.Runs[0].Results[0],
		api.HostResult{Host: "a-1", Changed: 2, Failed: 1, Task: "install", Message: "no space"},
	)

	if j.Vars != nil {
		t.Error("the waiter received variables")
	}
}

// TestFollow expects two followers to receive the same bytes as a later reader.
func TestFollow(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ctx := testCtx(t)
	must[api.Job](t)(s.client(t).Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}))
	s.manager.setJob("1", func(j *job.Job) { j.Status, j.Started = job.Running, time.Now() })
	var followers sync.WaitGroup
	texts := make([]string, 2)

	open := make(chan struct{}, 2)
	for i := range texts {
		followers.Go(func() {
			stream, err := s.client(t).Log(ctx, "active", 0, true)
			if err != nil {
				t.Error(err)
			}

			open <- struct{}{}

			b, err := io.ReadAll(stream)
			if err != nil {
				t.Error(err)
			}

			_ = stream.Close()
			texts[i] = string(b)
		})
	}

	<-open // connected, although there is no output yet
	<-open

	want := strings.Repeat("x", 100<<10) + "\n"
	for i := range 20 {
		s.manager.write("1", job.StreamText, want[i*5000:(i+1)*5000])
	}

	s.manager.write("1", job.StreamText, want[100000:])
	s.manager.setJob("1", func(j *job.Job) { j.Status = job.Complete })
	followers.Wait()

	for i := range texts {
		if texts[i] != want {
			t.Errorf("follower %d: %d bytes, want %d", i, len(texts[i]), len(want))
		}
	}
}

// TestStalledFollower expects a client that stops reading to be disconnected
// without delaying others.
func TestStalledFollower(t *testing.T) {
	t.Parallel()
	s := serve(t, func(o *server.Options) { o.Stall = 300 * time.Millisecond })
	dropped := make(chan error, 1) // the first one; on a slow machine others are dropped too, and reconnect
	s.manager.onEmit = func(err error) {
		select {
		case dropped <- err:
		default:
		}
	}
	ctx := testCtx(t)
	must[api.Job](t)(s.client(t).Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}))
	s.manager.setJob("1", func(j *job.Job) { j.Status = job.Running })

	stalled := must[net.Conn](t)(net.Dial("unix", s.socket))
	defer func() { _ = stalled.Close() }()

	if _, err := io.WriteString(stalled, "GET /v1/jobs/1/log?follow=true HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}

	big := strings.Repeat("0123456789abcdef", 1<<20) // 16 MiB: more than all buffers of a connection
	s.manager.write("1", job.StreamText, big)
	s.manager.setJob("1", func(j *job.Job) { j.Status = job.Complete })

	log := must[*client.Stream](t)(s.client(t).Log(ctx, "1", 0, true))
	n := must[int64](t)(io.Copy(io.Discard, log))
	_ = log.Close()
	expect(t, "bytes that others got", n, int64(len(big)))

	select {
	case err := <-dropped:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("dropped because of %v", err)
		}
	case <-ctx.Done():
		t.Error("the stalled follower was not dropped")
	}
}

// TestRestart expects a follower and a waiter to continue after a restart of the
// server, and the shutdown not to wait for them.
func TestRestart(t *testing.T) {
	t.Parallel()
	manager, config := newFakeManager(), newFakeSettings()
	path := filepath.Join(shortTemp(t), "s.sock")
	start := func() (stop func()) {
		srv := server.New(manager.options(config))
		l := must[net.Listener](t)(server.ListenUnix(path))

		ended := make(chan error, 1)
		go func() { ended <- srv.Serve(l) }()

		return func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()

			if err := srv.Shutdown(ctx); err != nil {
				t.Errorf("a stream held up the shutdown: %v", err)
			}

			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	stop := start()
	c := must[*client.Client](t)(client.New(client.Options{Socket: path, Patience: patience}))
	ctx := testCtx(t)
	must[api.Job](t)(c.Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}))
	manager.setJob("1", func(j *job.Job) { j.Status, j.Started = job.Running, time.Now() })
	stream := must[*client.Stream](t)(c.Log(ctx, "active", 0, true))
	manager.write("1", job.StreamText, "before ")

	first := make([]byte, 7)
	if _, err := io.ReadFull(stream, first); err != nil {
		t.Fatal(err)
	}

	waited := make(chan api.Job, 1)

	known := make(chan struct{}, 10)
	go func() {
		j, err := c.WaitJob(ctx, "1", func(api.Job) { known <- struct{}{} })
		if err != nil {
			t.Error(err)
		}
		waited <- j
	}()
	<-known
	stop()
	manager.write("1", job.StreamText, "meanwhile ")
	manager.change(func(v *state.View) { // another job is the active one now
		v.PutJob(&job.Job{ID: "2", Status: job.Running, Started: time.Now()})
	})
	stop = start()
	manager.write("1", job.StreamText, "after")
	manager.setJob("1", func(j *job.Job) { j.Status = job.Complete })
	rest := must[[]byte](t)(io.ReadAll(stream))
	expect(t, "log", string(first)+string(rest), "before meanwhile after")
	expect(t, "waited", (<-waited).Status, api.Complete)

	stop()
	impatient := must[*client.Client](t)(client.New(client.Options{Socket: path, Patience: -1}))
	_, err := impatient.WaitJob(ctx, "1")
	expect(t, "gone", inventory.KindOf(err), inventory.KindUnavailable)
}

// TestBrokenOff expects an incomplete log to end with an error.
func TestBrokenOff(t *testing.T) {
	s := serve(t)
	ctx := testCtx(t)
	must[api.Job](t)(s.client(t).Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}))
	s.manager.setJob("1", func(j *job.Job) { j.Status = job.Running })
	s.manager.write("1", job.StreamText, "half")
	log := must[*client.Stream](t)(s.client(t, func(o *client.Options) { o.Patience = -1 }).Log(ctx, "1", 0, true))

	half := make([]byte, 4)
	if _, err := io.ReadFull(log, half); err != nil {
		t.Fatal(err)
	}

	s.manager.change(func(v *state.View) { v.SetJobs() }) // the log fails now

	_, err := io.ReadAll(log)
	if err == nil {
		t.Error("a broken log ended as if it were whole")
	}
}

// TestAccessLog expects a log line for every mutating request, without values of
// variables.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(t, func(o *client.Options) { o.Actor = "alice" })
	ctx := testCtx(t)

	who := "alice"
	if os.Getuid() != 0 {
		who = ownAccount(t) // only root may name another actor
	}

	must[api.Changed](t)(c.PatchVars(ctx, client.ScopeGlobal, api.Vars{"token": "s3cret"}))
	_, _ = c.Submit(
		ctx,
		api.JobRequest{
			Verb:      inventory.VerbCommission,
			Nodes:     []string{"a-1", "zz-9"},
			ExtraVars: json.RawMessage(`{"t":"s3cret"}`),
		},
	)
	must[api.List[api.Node]](t)(c.Nodes(ctx, client.NodeFilter{}))
	s.request(t, "POST", api.LegacyDecommission+"?extra_vars=%7B%22t%22%3A%22s3cret%22%7D", `{"nodes":["a-1"]}`)
	s.request(t, "POST", api.LegacyNodes, "")

	var lines []*logrus.Entry
	for _, e := range s.log.AllEntries() {
		if e.Message == "request" {
			lines = append(lines, e)
		}

		if text, _ := e.String(); strings.Contains(text, "s3cret") {
			t.Errorf("a value is in the log: %s", text)
		}
	}

	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3", len(lines))
	}

	expect(
		t,
		"vars",
		[3]any{lines[0].Data["actor"], lines[0].Data["vars"], lines[0].Data["status"]},
		[3]any{who, []string{"token"}, 200},
	)
	expect(
		t,
		"refused",
		[3]any{lines[1].Data["verb"], lines[1].Data["nodes"], lines[1].Data["status"]},
		[3]any{inventory.VerbCommission, []string{"a-1", "zz-9"}, 404},
	)
	expect(t, "legacy", [2]any{lines[2].Data["verb"], lines[2].Data["job"]}, [2]any{inventory.VerbDecommission, "1"})

	for _, field := range []string{"duration", "remote", "method", "path"} {
		if lines[0].Data[field] == nil {
			t.Errorf("no %s", field)
		}
	}
}

// TestConcurrentClients runs many clients at a time, for the race detector.
func TestConcurrentClients(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ctx := testCtx(t)

	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			c := s.client(t)
			if i%2 == 1 {
				c = s.client(t, overTCP(s))
			}

			for range 10 {
				j, err := c.Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
				if err != nil {
					t.Error(err)
					return
				}

				s.manager.write(j.ID, job.StreamText, "line\n")

				if _, err := c.PatchVars(ctx, client.ScopeGlobal, api.Vars{"n": i}); err != nil {
					t.Error(err)
				}

				if _, err := c.Jobs(ctx, client.JobFilter{Limit: 3}); err != nil {
					t.Error(err)
				}

				go s.manager.setJob(j.ID, func(j *job.Job) { j.Status = job.Complete })

				log, err := c.Log(ctx, j.ID, 0, true)
				if err != nil {
					t.Error(err)
					return
				}

				if text, err := io.ReadAll(log); err != nil || string(text) != "line\n" {
					t.Errorf("%q %v", text, err)
				}

				_ = log.Close()

				if _, err := c.WaitJob(ctx, j.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}

	all.Wait()
	expect(t, "jobs", len(s.manager.View().Jobs()), 80)
}

// TestSummaries covers the result of a job for a host.
func TestSummaries(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(t)
	ended := func(j job.Job) []api.HostSummary {
		s.manager.change(func(v *state.View) { v.SetJobs([]*job.Job{&j}...) })
		return must[api.Job](t)(c.Job(testCtx(t), j.ID)).Hosts
	}
	target := func(names ...string) (out []job.Target) {
		for _, n := range names {
			out = append(out, job.Target{Name: n})
		}

		return out
	}
	expect(
		t,
		"never begun",
		ended(
			job.Job{
				ID:      "1",
				Verb:    inventory.VerbUpdate,
				Status:  job.Cancelled,
				Message: "cancelled by bob",
				Targets: target("a-1"),
			},
		),
		[]api.HostSummary{{Host: "a-1", Error: "cancelled by bob"}},
	)
	expect(
		t,
		"best effort",
		ended(job.Job{
			ID:      "1",
			Verb:    inventory.VerbDecommission,
			Status:  job.Complete,
			Targets: target("a-1", "bb-1"),
			Outcomes: map[string]inventory.Outcome{
				"a-1":  {Status: inventory.Decommissioned},
				"bb-1": {Status: inventory.Decommissioned, Error: "not cleaned: unreachable"},
			},
		}),
		[]api.HostSummary{
			{Host: "a-1", Status: inventory.Decommissioned, OK: true},
			{Host: "bb-1", Status: inventory.Decommissioned, Error: "not cleaned: unreachable"},
		},
	)
	expect(
		t,
		"discover",
		ended(
			job.Job{
				ID:      "1",
				Verb:    inventory.VerbDiscover,
				Status:  job.Errored,
				Message: "10.0.0.9 did not appear",
				Targets: target("10.0.0.8", "10.0.0.9"),
				Runs: []job.Run{
					{
						Kind:  job.StepPlaybook,
						Phase: job.PhaseConfigure,
						Hosts: []string{"10.0.0.8", "10.0.0.9"},
						Results: map[string]job.HostResult{
							"10.0.0.8": {Done: true, Changed: 2},
							"10.0.0.9": {Done: true},
						},
					},
					{
						Kind:  job.StepAppear,
						Phase: job.PhaseAppear,
						Hosts: []string{"10.0.0.8", "10.0.0.9"},
						Results: map[string]job.HostResult{
							"10.0.0.8": {Done: true},
							"10.0.0.9": {Message: "not seen"},
						},
					},
				},
			},
		),
		[]api.HostSummary{{Host: "10.0.0.8", OK: true, Changed: 2}, {Host: "10.0.0.9", Error: "not seen"}},
	)
}

// pings pings nodes, of which the second one does not answer.
func pings(ctx context.Context, t *testing.T, c *client.Client, m *fakeManager) {
	t.Helper()

	if node.MaxPing != api.MaxPing {
		t.Errorf("the API has the limit %d, the use case %d", api.MaxPing, node.MaxPing)
	}

	list := must[api.List[api.PingResult]](t)(c.Ping(ctx, "a-1", "bb-1"))
	if len(list.Items) != 2 || list.Total != 2 || list.Revision == 0 {
		t.Fatalf("%+v", list)
	}
	first, second := list.Items[0], list.Items[1]
	if !first.Answered || !first.HostKeyVerified || time.Duration(first.Took) != 12*time.Millisecond {
		t.Errorf("%+v", first)
	}

	if second.Answered || second.Message == "" || len(second.Actions) != 1 ||
		second.Actions[0].Path != "/v1/nodes/bb-1" {
		t.Errorf("%+v", second)
	}

	m.change(func(v *state.View) {
		v.View = record.WithOne(v.View, &gossipkey.Kind, gossipkey.Rotation{
			Phase: rotation.PhaseRemove, Laggards: []rotation.Laggard{{Name: "a-1", Reason: "it does not answer"}},
		})
	})

	rotation := must[api.GossipKey](t)(c.GossipKey(ctx))
	if rotation.Phase != "remove" || len(rotation.Laggards) != 1 || rotation.Laggards[0].Name != "a-1" {
		t.Errorf("%+v", rotation)
	}

	again := must[api.GossipKey](
		t,
	)(
		c.RotateGossipKey(ctx, api.GossipKeyRotation{Force: true, LockOut: []string{"a-1"}}),
	)
	if again.Phase != rotation.Phase {
		t.Errorf("%+v", again)
	}

	key := must[api.SSHKey](t)(c.SSHKey(ctx))
	if key.Phase != "remove" || key.Key.PublicKey != shownKey || !key.Key.Generated || key.Old != nil ||
		key.Confirmed != 1 || key.Laggards[0].Name != "a-1" || !slices.Equal(key.OwnKeys, []string{"c-1"}) {
		t.Errorf("%+v", key)
	}

	must[api.SSHKey](t)(c.RotateSSHKey(ctx, api.SSHKeyRotation{To: "/k2"}))
	must[api.SSHKey](t)(c.CancelSSHKey(ctx))

	policies := must[api.Policies](t)(c.Policies(ctx))
	if !policies.Brake.Engaged || policies.Brake.Vanished != 3 || len(policies.Policies) != 1 ||
		policies.Policies[0].Paused.Actor != "ann" || policies.Decisions[0].Evidence[0] != "its boot id changed" {
		t.Errorf("%+v", policies)
	}

	if p := must[api.Policy](t)(c.Policy(ctx, "returns")); p.Pending != 2 || len(p.Decisions) != 1 {
		t.Errorf("%+v", p)
	}

	shown := must[api.Policy](t)(c.Policy(ctx, "returns"))
	expect(t, "roles", shown.Roles, []api.PolicyRole{{
		Group: "service-master", Count: 3, Spread: "rack", ReplaceAfter: "1h0m0s", Fence: "power",
		Places:    map[string]int{"r1": 2},
		InService: 3, Healthy: 2, Coming: 1, Surplus: 1, Silent: []string{"a-1"}, Warnings: []string{"one too many"},
		Notes: []string{"a-1 is silent"},
	}})
	expect(t, "replaces", shown.Decisions[0].Replaces, "a-9")

	if _, err := c.Policy(ctx, "nightly"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Error(err)
	}

	paused := api.PolicyControl{Reason: "a move"}
	must[api.Policies](t)(c.ControlPolicy(ctx, api.PathPausePolicy, paused, api.AllPolicies))
	must[api.Policies](t)(c.ControlPolicy(ctx, api.PathResumePolicy, api.PolicyControl{}, "returns"))
	must[api.Policies](t)(c.ControlPolicy(ctx, api.PathReleaseBrake, api.PolicyControl{Reason: "repaired"}))
	must[api.Policies](t)(c.ControlPolicy(ctx, api.PathEnablePolicy, api.PolicyEnable{All: true}, "returns"))
	must[api.Policies](t)(c.ControlPolicy(ctx, api.PathDisablePolicy, api.PolicyControl{}, "returns"))
	testsPolicies(t, c)
	windowMethods(t, c)
	rolloutMethods(t, c)
	repositoryMethods(t, c)

	alert := api.AlertRequest{
		Nodes: []string{"a-1"}, Reason: "a disk fails", Effects: []inventory.Effect{inventory.Silenced},
	}
	added := must[api.List[api.NodeAlert]](t)(c.AddAlert(ctx, alert))
	expect(t, "added alerts", added.Items[0].Reason, alert.Reason)
	expect(t, "alerts", must[api.List[api.NodeAlert]](t)(c.Alerts(ctx)).Items, added.Items)
	login := api.BMCLogin{User: "root", Password: "secret", Reason: "a new board"}
	if p := must[api.Power](t)(c.SetBMCLogin(ctx, "a-1", login)); p.Node != "a-1" || p.Power != "on" {
		t.Errorf("the power is %+v", p)
	}

	ended := must[api.List[api.NodeAlert]](t)(c.EndAlert(ctx, api.AlertEnd{ID: added.Items[0].ID}))
	expect(t, "ended alerts", ended.Items, added.Items)

	imported := must[api.Imported](t)(c.Import(ctx, api.Import{File: "list", DryRun: true}))
	expect(t, "imported", imported.Machines, []api.ImportedMachine{{Node: "list", Action: api.ImportCreated}})
	expect(t, "imports", must[api.List[api.ImportRun]](t)(c.Imports(ctx)).Items[0].Failed, 1)
	expect(t, "nodes of an import", must[api.ImportRun](t)(c.ImportRun(ctx, "first")).Nodes, []api.ImportedNode{{
		Node: "a-1", Status: inventory.Unallocated, Step: inventory.VerbManage, Error: "manage was refused: not now",
	}})
	same := must[api.Imported](t)(c.Configure(ctx, api.Configure{Nodes: []string{"a-1"}, BootMode: "uefi"}))
	expect(t, "configured", same.Machines, []api.ImportedMachine{{Node: "a-1", Action: api.ImportSame}})
	expect(t, "machines", must[api.List[machine.Machine]](t)(c.Machines(ctx)).Total, 0)
	class := must[api.Class](t)(c.CreateClass(ctx, api.ClassRequest{Name: "r640", From: "a-1", Nodes: "rack=r1"}))
	expect(t, "class", class, api.Class{Name: "r640", From: "a-1", Nodes: "rack=r1"})
	expect(t, "classes", must[api.List[api.Class]](t)(c.Classes(ctx)).Total, 0)
	must[api.Changed](t)(c.DeleteClass(ctx, "r640"))
	imageMethods(t, c)
	reserved := must[api.Address](t)(c.ReserveAddress(ctx, api.AddressRequest{Addr: "10.9.1.100", Node: "a-1"}))
	expect(t, "reserved", reserved, api.Address{Addr: "10.9.1.100", Node: "a-1", Reserved: true})
	expect(t, "addresses", must[api.List[api.Address]](t)(c.Addresses(ctx)).Total, 0)
	must[api.Changed](t)(c.ReleaseAddress(ctx, "10.9.1.100"))
	expect(t, "boot", must[api.BootStatus](t)(c.Boot(ctx)).Instance, "host1")
	expect(t, "members", must[api.List[api.Member]](t)(c.Members(ctx)).Items[0].Etcd, api.EtcdAlone)
	expect(t, "an invitation", must[api.Invite](t)(c.Invite(ctx, api.InviteRequest{})).Token, "t")
	_, err := c.Join(ctx, api.JoinRequest{ID: "81b2f06cd1a94e37", Addr: "10.0.0.2"})
	expect(t, "a join without an invitation", inventory.KindOf(err), inventory.KindForbidden)
	must[api.Changed](t)(c.RemoveMember(ctx, "a-1"))
	expect(t, "a new scan", must[api.Scan](t)(c.StartScan(ctx)).Addresses, 4)
	expect(t, "the scan", must[api.Scan](t)(c.Scan(ctx)).Found, 0)
	expect(t, "what is seen and not listed", must[api.List[api.ExpectedMachine]](t)(c.Expected(ctx)).Items[0].Result,
		api.ExpectedUnknown)
	expect(t, "export", string(must[json.RawMessage](t)(c.Export(ctx))), `{"nodes":[]}`)

	must[api.Changed](t)(c.Merge(ctx, api.Merge{Machine: "r1", Node: "a-1"}))
	must[api.Changed](t)(c.Split(ctx, api.Split{Node: "a-1", As: "r1"}))

	keys := must[api.HostKeys](t)(c.ScanHostKeys(ctx, "a-1"))
	if len(keys.Shown) != 1 || keys.Shown[0].Key != shownKey ||
		!strings.HasPrefix(keys.Shown[0].Fingerprint, "SHA256:") {
		t.Errorf("%+v", keys)
	}

	trust := api.HostKeyTrust{Fingerprint: keys.Shown[0].Fingerprint, Reason: "reinstalled"}
	if n := must[api.Node](t)(c.TrustHostKey(ctx, "a-1", trust)); !slices.Equal(n.HostKeys, []string{shownKey}) {
		t.Errorf("%+v", n)
	}

	if _, err := c.Ping(ctx, "x-9"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Error(err)
	}
}

// imageMethods calls the methods about images.
func imageMethods(t *testing.T, c *client.Client) {
	t.Helper()

	ctx := testCtx(t)

	made := must[api.Image](t)(c.CreateImage(ctx, api.ImageRequest{
		Name: "debian-13", Kind: api.ImageDisk, Files: []api.ImageFileRequest{},
	}))
	expect(t, "image", made.Name, "debian-13")
	expect(t, "images", must[api.List[api.Image]](t)(c.Images(ctx)).Total, 0)
	expect(t, "check", must[api.ImageCheck](t)(c.VerifyImage(ctx, "debian-13")).Image, "debian-13")

	sent := must[api.Image](t)(c.SendImage(ctx, "debian-13", "image", 0, strings.NewReader("content")))
	expect(t, "sent", sent.Name, "debian-13")
	must[api.Changed](t)(c.DeleteImage(ctx, "debian-13"))

	_, err := c.Image(ctx, "debian-13")
	expect(t, "an image", inventory.KindOf(err), inventory.KindNotFound)

	_, err = c.ImageContent(ctx, "debian-13", "image", 0)
	expect(t, "content", inventory.KindOf(err), inventory.KindRefused)
}
