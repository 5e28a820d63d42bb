// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/contract"
)

// fakeDaemon serves /v1 on a Unix socket from memory, with fixed times and revisions.
// It runs nothing: the label of a job's first target decides about its course (see
// play). The state survives stop and start. Every request and every answer is checked
// against openapi.yaml.
type fakeDaemon struct {
	socket string

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced whenever something changes
	server    *http.Server
	served    chan struct{}
	rev       int64
	nodes     map[string]*api.Node
	jobs      []*fakeJob
	vars      map[string]api.Vars // by path
	config    api.Config
	degraded  bool
	stale     bool
	followers int // clients that followed events
	readers   int // clients that followed the text of a log
	waiters   int // clients that waited for the next change of a job
	requests  []string
	wrong     []string // violations of openapi.yaml
	watched   int64    // the last revision that a watch sent
}

// fakeJob is a job with its output so far.
type fakeJob struct {
	api.Job
	text, events bytes.Buffer
	held         bool // stays as it is until release
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newFakeDaemon(socket string) *fakeDaemon {
	d := &fakeDaemon{
		socket:  socket,
		changed: make(chan struct{}),
		rev:     100,
		nodes:   map[string]*api.Node{},
		vars: map[string]api.Vars{
			api.PathGlobalVars: {"env": map[string]any{"proxy": "http://proxy:3128"}, "retries": json.Number("3")},
		},
		config: api.Config{
			"data_dir":      {Value: "/var/lib/clusterm", Origin: "default"},
			"jobs.parallel": {Value: 4, Origin: "default", Settable: true},
			"jobs.timeout":  {Value: "1h0m0s", Origin: "file", Settable: true},
			"plain_http":    {Value: "127.0.0.1:9007", Origin: "file"},
		},
	}
	add := func(label, serial, addr string, status inventory.Status, state inventory.State, group string) *api.Node {
		name := inventory.NodeName(label, serial)
		d.rev++
		d.nodes[name] = &api.Node{
			Revision:  d.rev,
			Name:      name,
			Label:     label,
			Serial:    serial,
			Addr:      addr,
			Status:    status,
			State:     state,
			PrevState: inventory.Unknown,
			Group:     group,
			Seen: map[string]bool{
				"serf": state == inventory.Discovered,
			},
			Entries: 2,
			Created: epoch,
			Updated: epoch.Add(time.Minute),
		}

		return d.nodes[name]
	}
	add("web", "1", "10.0.0.1", inventory.Allocated, inventory.Discovered, "service-master").Applied = "1"
	add("web", "2", "10.0.0.2", inventory.Unallocated, inventory.Discovered, "")
	add("3web", "3", "10.0.0.3", inventory.Unallocated, inventory.Discovered, "")
	add("bad", "1", "10.0.1.1", inventory.Unallocated, inventory.Discovered, "").LastError = "an earlier\nfailure"
	add("slow", "1", "10.0.1.2", inventory.Unallocated, inventory.Discovered, "")
	add("queue", "1", "10.0.1.3", inventory.Unallocated, inventory.Discovered, "")
	add("hang", "1", "10.0.1.4", inventory.Unallocated, inventory.Discovered, "")
	gone := add("gone", "1", "fd00::9", inventory.Quarantined, inventory.Disappeared, "service-worker")
	gone.PrevStatus, gone.PrevState, gone.Residue = inventory.Provisioning, inventory.Discovered, []string{
		"service-worker",
	}
	gone.HostKeys = []string{"ssh-ed25519 AAAAC3Nza"}
	become := true
	gone.Connection = &api.Connection{User: "admin", Port: 2222, Become: &become}

	return d
}

func (d *fakeDaemon) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()

	l, err := net.Listen("unix", d.socket)
	if err != nil {
		return err
	}

	server := &http.Server{Handler: d.handler()}

	d.server, d.served = server, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		_ = server.Serve(l)
	}(d.served)

	return nil
}

// stop closes the daemon and every connection, as kill -9 does.
func (d *fakeDaemon) stop() {
	d.mu.Lock()
	server, served := d.server, d.served
	d.server = nil
	d.mu.Unlock()

	if server == nil {
		return
	}

	_ = server.Close()
	<-served
	_ = os.Remove(d.socket)
}

// touch increments the revision and wakes all waiting requests. The caller holds the
// lock.
func (d *fakeDaemon) touch() int64 {
	d.rev++
	close(d.changed)
	d.changed = make(chan struct{})

	return d.rev
}

// await blocks until the condition holds, or returns an error after patience.
func (d *fakeDaemon) await(what string, cond func() bool) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()

	for {
		d.mu.Lock()
		ok, changed := cond(), d.changed
		d.mu.Unlock()

		if ok {
			return nil
		}

		select {
		case <-changed:
		case <-deadline.C:
			return fmt.Errorf("timeout: %s", what)
		}
	}
}

// release finishes all held jobs.
func (d *fakeDaemon) release() {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, j := range d.jobs {
		if j.held {
			j.held = false
			d.finish(j)
		}
	}
}

func (d *fakeDaemon) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(r *http.Request, body []byte) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}

			d.mu.Lock()

			line := r.Method + " " + r.URL.RequestURI()
			if len(body) > 0 {
				line += " " + string(body)
			}

			d.requests = append(d.requests, line)
			d.mu.Unlock()
			v, err := f(r, body)
			status := http.StatusOK
			w.Header().Set("Content-Type", api.TypeJSON)

			if err != nil {
				p := problemOf(err)
				w.Header().Set("Content-Type", api.TypeProblem)
				v, status = p, p.Status
			}

			if h, ok := v.(api.Health); ok && h.Status != "ok" {
				status = http.StatusServiceUnavailable
			}

			d.mu.Lock() // the objects belong to the daemon
			b, err := json.Marshal(v)
			d.mu.Unlock()

			if status == http.StatusOK && err == nil {
				d.check(r, body, b)
			}

			if err == nil {
				w.WriteHeader(status)
				_, _ = w.Write(b)
			}
		})
	}
	handle("GET "+api.PathNodes, d.getNodes)
	handle("GET "+api.PathNode, func(r *http.Request, _ []byte) (any, error) { return d.node(r.PathValue("name")) })
	handle("PATCH "+api.PathNode, d.patchNode)
	handle("GET "+api.PathHistory, d.history)
	handle("POST "+api.PathForget, d.forget)
	handle("GET "+api.PathJobs, d.getJobs)
	handle("POST "+api.PathJobs, d.submit)
	handle("GET "+api.PathJob, d.getJob)
	handle("POST "+api.PathCancel, d.cancel)
	handle("POST "+api.PathRetry, d.retry)
	handle("GET "+api.PathExplain, d.explain)
	handle("GET "+api.PathGroups, func(*http.Request, []byte) (any, error) {
		return api.List[api.Group]{Items: []api.Group{
			{Name: inventory.GroupMaster},
			{Name: inventory.GroupWorker, Needs: inventory.GroupMaster},
		}}, nil
	})
	handle("GET "+api.PathExplainJob, d.explainJob)

	for _, p := range []string{api.PathGlobalVars, api.PathGroupVars, api.PathNodeVars} {
		handle("GET "+p, d.getVars)
	}

	handle("GET "+api.PathConfig, func(*http.Request, []byte) (any, error) { return d.config, nil })
	handle("GET "+api.PathHealth, d.health)
	mux.HandleFunc("GET "+api.PathWatch, d.watch)
	mux.HandleFunc("GET "+api.PathLog, func(w http.ResponseWriter, r *http.Request) { d.stream(w, r, false) })
	mux.HandleFunc("GET "+api.PathEvents, func(w http.ResponseWriter, r *http.Request) { d.stream(w, r, true) })

	return mux
}

// problemOf returns the wire form of an error, all of which have a kind.
func problemOf(err error) api.Problem {
	e, ok := errors.AsType[*inventory.Error](err)
	if !ok {
		panic(err)
	}

	return api.ProblemOf(e)
}

// check compares a request and its answer with openapi.yaml.
func (d *fakeDaemon) check(r *http.Request, body, answer []byte) {
	c, err := contract.Load()
	if err == nil {
		err = errors.Join(c.Request(r, body), c.Success(r, answer))
	}

	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.wrong = append(
			d.wrong,
			fmt.Sprintf(
				"%s %s violates openapi.yaml: %v\nrequest %s\nanswer %s",
				r.Method,
				r.URL.RequestURI(),
				err,
				body,
				answer,
			),
		)
	}
}

func (d *fakeDaemon) getNodes(r *http.Request, _ []byte) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := r.URL.Query()

	var missing []string
	for _, name := range q["name"] {
		if d.nodes[name] == nil {
			missing = append(missing, name)
		}
	}

	if missing != nil {
		return nil, inventory.Errorf(inventory.KindNotFound, "there is no node %s", strings.Join(missing, ", ")).
			Do("clusterctl nodes get lists them").
			About(missing...)
	}

	match := func(key, value string) bool { return q[key] == nil || slices.Contains(q[key], value) }

	list := api.List[api.Node]{Items: []api.Node{}, Revision: d.rev, Stale: d.stale}
	for name, n := range d.nodes {
		if match("name", name) && match("status", string(n.Status)) && match("state", string(n.State)) &&
			match("group", n.Group) {
			list.Items = append(list.Items, *n)
		}
	}

	slices.SortFunc(list.Items, func(a, b api.Node) int { return strings.Compare(a.Name, b.Name) })

	if s := q.Get("selector"); s != "" {
		field, value, ok := strings.Cut(s, "=") // the only selectors of this daemon
		if field != "label" && field != "status" || !ok {
			return nil, inventory.Errorf(inventory.KindInvalid, "the selector %q is malformed", s).
				Do("write it like status=Allocated")
		}

		list.Items = slices.DeleteFunc(list.Items, func(n api.Node) bool {
			return value != map[string]string{"label": n.Label, "status": string(n.Status)}[field]
		})
	}

	list.Total = len(list.Items)

	return list, nil
}

// explain returns an explanation with every kind of finding.
func (d *fakeDaemon) explain(r *http.Request, _ []byte) (any, error) {
	n, err := d.node(r.PathValue("name"))
	if err != nil {
		return nil, err
	}

	if n.Status == inventory.Allocated {
		return api.NodeExplanation{
			Node:    *n,
			Ready:   true,
			Summary: "it is in service",
			Next:    "nothing, until an operator asks for something",
		}, nil
	}

	since, deadline := epoch.Add(time.Minute), epoch.Add(time.Hour)

	return api.NodeExplanation{
		Node:        *n,
		Summary:     "it is fenced until an operator clears it: the cleanup failed",
		StatusSince: &since,
		StatusBy:    "anna",
		StateSince:  &epoch,
		Rule:        "a service-worker needs a commissioned, Discovered service-master",
		Next:        "job 8 begins",
		Jobs: []api.Job{
			{
				ID:       "7",
				Verb:     inventory.VerbDiscover,
				Status:   api.Running,
				Addrs:    []string{n.Addr},
				Phase:    "configure",
				Deadline: &deadline,
			},
			{
				ID:       "8",
				Verb:     inventory.VerbClear,
				Status:   api.Queued,
				Nodes:    []string{n.Name},
				Position: 2,
				RetryOf:  "6",
			},
		},
		Failures: []api.Failure{
			{
				Job:      "6",
				Phase:    "configure",
				Playbook: "site.yml",
				Host:     n.Name,
				Task:     "etcd : install",
				Message:  "no space\x1b[31m left\nwhile it wrote",
			},
			{Job: "6", Phase: "undo", Playbook: "cleanup.yml", Host: n.Name, Unreachable: true, Message: "timed out"},
		},
		Findings: []api.Finding{
			{
				About:   "quarantine",
				Message: "it is fenced until an operator clears it: the cleanup failed",
				Remedy:  "make sure of the host, then: clusterctl nodes clear " + n.Name,
			},
			{About: "tombstone", Message: "it was forgotten once"},
		},
	}, nil
}

func (d *fakeDaemon) explainJob(r *http.Request, _ []byte) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	j, err := d.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	e := api.JobExplanation{
		Job:     j.Job,
		Summary: "it is queued: place 1 of 1 in the queue",
		Next:    "job " + j.ID + " begins",
	}

	e.Job.Runs, e.Job.Hosts, e.Job.Vars = nil, nil, nil
	if j.Status == api.Errored {
		e.Summary, e.Next = "it ended Errored: "+j.Message, "nothing: it has ended"
		e.Steps = []string{"configure (site.yml) failed on bad-1", "ended as Unallocated: bad-1"}
		e.Failures = []api.Failure{
			{
				Job:      j.ID,
				Phase:    "configure",
				Playbook: "site.yml",
				Host:     "bad-1",
				Task:     "etcd : install etcd",
				Message:  "no package",
			},
		}
		e.Findings = []api.Finding{
			{
				About:   "failure",
				Message: "not as the verb wants it: bad-1",
				Remedy:  "once the cause is corrected: clusterctl job retry " + j.ID,
			},
		}
	}

	return e, nil
}

func (d *fakeDaemon) retry(r *http.Request, body []byte) (any, error) {
	var req api.Retry
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the body is no Retry: %v", err)
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	old, err := d.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	if old.Status == api.Complete {
		return nil, inventory.Errorf(inventory.KindRefused, "nothing failed in job %s", old.ID).
			Do("to do the same again, ask for it")
	}

	j := &fakeJob{Job: api.Job{
		ID: strconv.Itoa(
			7 + len(d.jobs),
		),
		Verb:     old.Verb,
		Status:   api.Running,
		Nodes:    old.Nodes,
		Group:    old.Group,
		RetryOf:  old.ID,
		Actor:    "root",
		Accepted: epoch,
	}}
	d.jobs = append(d.jobs, j)
	accepted := j.Job
	accepted.Status, accepted.Revision = api.Queued, d.touch()
	j.Revision = accepted.Revision + 1
	d.play(j)
	d.touch()

	return accepted, nil
}

func (d *fakeDaemon) node(name string) (*api.Node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if n := d.nodes[name]; n != nil {
		return n, nil
	}

	return nil, inventory.Errorf(inventory.KindNotFound, "there is no node %s", name).
		Do("clusterctl nodes get lists them")
}

func (d *fakeDaemon) patchNode(r *http.Request, body []byte) (any, error) {
	n, err := d.node(r.PathValue("name"))
	if err != nil {
		return nil, err
	}

	var p api.NodePatch
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the body is no NodePatch: %v", err)
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	if p.Connection != nil {
		n.Connection = p.Connection
	}

	if p.ForgetHostKey {
		n.HostKeys = nil
	}

	relabelled, err := recordOf(n).Relabel(p.Labels)
	if err != nil {
		return nil, err
	}

	n.Labels = relabelled.Labels
	n.Revision = d.touch()

	return n, nil
}

// recordOf returns the part of the domain's record that the domain's rules read.
func recordOf(n *api.Node) inventory.Node {
	return inventory.Node{Name: n.Name, Status: n.Status, State: n.State, Job: n.Job, Labels: n.Labels}
}

func (d *fakeDaemon) history(r *http.Request, _ []byte) (any, error) {
	if _, err := d.node(r.PathValue("name")); err != nil {
		return nil, err
	}

	all := []api.HistoryEntry{
		{
			Seq:    1,
			Time:   epoch,
			Verb:   inventory.VerbDiscovered,
			To:     inventory.Unallocated,
			State:  inventory.Discovered,
			Actor:  "monitor:serf",
			Reason: "seen for the first time",
		},
		{
			Seq:   2,
			Time:  epoch.Add(time.Minute),
			Verb:  inventory.VerbCommission,
			From:  inventory.Unallocated,
			To:    inventory.Provisioning,
			State: inventory.Discovered,
			Group: "service-master",
			Actor: "root",
			Job:   "1",
			Read:  17,
		},
		{
			Seq:   3,
			Time:  epoch.Add(2 * time.Minute),
			Verb:  inventory.VerbCommission,
			From:  inventory.Provisioning,
			To:    inventory.Allocated,
			State: inventory.Discovered,
			Group: "service-master",
			Actor: "root",
			Job:   "1",
			Read:  19,
		},
	}
	slices.Reverse(all)

	total := len(all)
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && n < len(all) {
		all = all[:n]
	}

	return api.List[api.HistoryEntry]{Items: all, Total: total, Revision: 107}, nil
}

func (d *fakeDaemon) forget(_ *http.Request, body []byte) (any, error) {
	var f api.Forget
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the body is no Forget: %v", err)
	}

	for _, name := range f.Nodes {
		n, err := d.node(name)
		if err != nil {
			return nil, err
		}

		if err := recordOf(n).CheckForget(f.Force); err != nil {
			return nil, err
		}
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	for _, name := range f.Nodes {
		delete(d.nodes, name)
	}

	return api.Changed{Revision: d.touch()}, nil
}

func (d *fakeDaemon) getJobs(r *http.Request, _ []byte) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := r.URL.Query()

	list := api.List[api.Job]{Items: []api.Job{}, Revision: d.rev}
	for _, j := range d.jobs {
		if q["status"] == nil || slices.Contains(q["status"], string(j.Status)) {
			short := j.Job
			short.Runs, short.Hosts, short.Vars = nil, nil, nil
			list.Items = append(list.Items, short)
		}
	}

	slices.Reverse(list.Items)

	list.Total = len(list.Items)
	if n, err := strconv.Atoi(q.Get("limit")); err == nil && n < len(list.Items) {
		list.Items = list.Items[:n]
	}

	return list, nil
}

// find returns a job by id. The caller holds the lock.
func (d *fakeDaemon) find(id string) (*fakeJob, error) {
	for _, j := range slices.Backward(d.jobs) {
		if j.ID == id || id == "active" && j.Status == api.Running || id == "last" && j.Status.Ended() {
			return j, nil
		}
	}

	return nil, inventory.Errorf(inventory.KindNotFound, "there is no job %s", id).Do("clusterctl job list lists them")
}

func (d *fakeDaemon) getJob(r *http.Request, _ []byte) (any, error) {
	q := r.URL.Query()

	wait, err := time.ParseDuration(q.Get("wait"))
	if err != nil {
		wait = 0
	}

	after, err := strconv.ParseInt(q.Get("after"), 10, 64)
	if err != nil {
		after = -1
	}

	timeout := time.NewTimer(wait)
	defer timeout.Stop()

	for {
		d.mu.Lock()
		j, err := d.find(r.PathValue("id"))

		var now api.Job
		if err == nil {
			now = j.Job
		}

		changed := d.changed
		if now.Revision == after {
			d.waiters++
		}

		d.mu.Unlock()

		if err != nil {
			return nil, err
		}

		if wait == 0 || now.Status.Ended() || now.Revision != after {
			return now, nil
		}

		select {
		case <-changed:
		case <-timeout.C:
			return now, nil
		case <-r.Context().Done():
			return now, nil
		}
	}
}

func (d *fakeDaemon) cancel(r *http.Request, _ []byte) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	j, err := d.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	if j.Status.Ended() {
		return nil, inventory.Errorf(inventory.KindRefused, "job %s is %s already", j.ID, j.Status)
	}

	j.Cancel++

	j.CancelBy = "root"
	if j.Status == api.Queued || j.Cancel > 1 {
		j.held = false
		j.Status, j.Cause, j.Message = api.Cancelled, "cancelled", "cancelled by root"
		ended := epoch.Add(time.Hour)
		j.Ended = &ended
	}

	j.Revision = d.touch()

	return j.Job, nil
}

func (d *fakeDaemon) submit(r *http.Request, body []byte) (any, error) {
	var req api.JobRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the body is no JobRequest: %v", err)
	}

	t, _ := inventory.TransitionOf(req.Verb)
	for _, name := range req.Nodes {
		if err := inventory.CheckName(name); err != nil {
			return nil, err
		}

		n, err := d.node(name)
		if err != nil {
			return nil, err
		}

		if err := n.Check(t); err != nil && req.Verb != inventory.VerbForget {
			return nil, err
		}

		if n.Label == "hang" {
			<-r.Context().Done()
			return nil, inventory.Errorf(inventory.KindInternal, "unreachable")
		}
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	j := &fakeJob{Job: api.Job{
		ID: strconv.Itoa(
			7 + len(d.jobs),
		),
		Verb:      req.Verb,
		Status:    api.Running,
		Nodes:     req.Nodes,
		Addrs:     req.Addrs,
		Group:     req.Group,
		OnFailure: req.OnFailure,
		Reason:    req.Reason,
		Force:     req.Force,
		Actor:     "root",
		Accepted:  epoch,
	}}
	if req.Verb == inventory.VerbCommission && req.Group == "" {
		j.Group, j.Note = "service-worker", "the group is service-worker: a service-master exists"
	}

	if bytes.Contains(req.ExtraVars, []byte("{{")) {
		j.Warnings = []string{"the variable greeting looks like a template; it is passed on as text"}
	}

	d.jobs = append(d.jobs, j)
	accepted := j.Job
	accepted.Status = api.Queued
	accepted.Revision = d.touch()
	j.Revision = accepted.Revision + 1
	d.play(j)
	d.touch()

	return accepted, nil
}

func (j *fakeJob) event(e api.Event) {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}

	j.events.Write(append(b, '\n'))

	if e.Host != "" {
		fmt.Fprintf(&j.text, "%s: [%s]\n", e.Event, e.Host)
	} else if e.Task != "" {
		fmt.Fprintf(&j.text, "\nTASK [%s] ****\n", e.Task)
	}
}

func (j *fakeJob) targets() []string { return slices.Concat(j.Nodes, j.Addrs) }

// play starts a job. By the prefix of its first target, the job stays queued ("queue")
// or stops after the first task ("slow") until release; a target "bad" fails. The caller
// holds the lock.
func (d *fakeDaemon) play(j *fakeJob) {
	if strings.HasPrefix(j.targets()[0], "queue") {
		j.Status, j.held = api.Queued, true
		j.WaitsFor, j.WaitReason = []string{"6"}, "waits for job 6, which holds "+j.targets()[0]

		return
	}

	d.begin(j)

	if strings.HasPrefix(j.targets()[0], "slow") {
		j.held = true
		return
	}

	d.finish(j)
}

func (d *fakeDaemon) begin(j *fakeJob) {
	started := epoch.Add(time.Second)
	j.Status, j.Started, j.Phase, j.WaitsFor, j.WaitReason = api.Running, &started, "configure", nil, ""
	j.event(api.Event{Event: "playbook"})
	j.event(api.Event{Event: "play", Play: "service-worker", Hosts: j.targets()})
	j.event(api.Event{Event: "task", Task: "Gathering Facts"})

	for _, h := range j.targets() {
		j.event(api.Event{Event: "ok", Task: "Gathering Facts", Host: h})
	}
}

func (d *fakeDaemon) finish(j *fakeJob) {
	if j.Status == api.Queued {
		d.begin(j)
	}

	run := api.Run{
		Kind:     "playbook",
		Phase:    "configure",
		Playbook: "site.yml",
		Hosts:    j.targets(),
		Started:  epoch.Add(time.Second),
		Exit:     "done",
	}
	ended := epoch.Add(63 * time.Second)
	j.Ended, j.Status, j.Phase = &ended, api.Complete, ""
	run.Ended = j.Ended
	j.event(api.Event{Event: "task", Task: "install etcd", Role: "etcd"})

	for _, h := range j.targets() {
		res := api.HostResult{Host: h, OK: 2, Changed: 1}
		sum := api.HostSummary{Host: h, Status: inventory.Allocated, OK: true, Changed: 1}

		e := api.Event{Event: "ok", Task: "install etcd", Role: "etcd", Host: h, Changed: true}
		if strings.HasPrefix(h, "bad") {
			e.Event, e.Changed, e.Message = "failed", false, "no package\x1b[31m matches \"etcd\""
			res = api.HostResult{Host: h, OK: 1, Failed: 1, Task: "etcd : install etcd", Message: e.Message}
			sum = api.HostSummary{Host: h, Status: inventory.Unallocated, Error: e.Message}
			j.Status, j.Cause, j.Message = api.Errored, "failed", "site.yml failed on "+h
			run.Exit, run.Code = "failed", 2
		}

		j.event(e)
		run.Results = append(run.Results, res)
		j.Hosts = append(j.Hosts, sum)
	}

	j.Runs = append(j.Runs, run)
	j.Vars = map[string]api.MergedVars{j.targets()[0]: {"retries": {Value: 3, Origin: "global"}}}
	j.LogBytes = int64(j.text.Len())
	j.Revision = d.touch()
}

// stream serves the text or the events of a job.
func (d *fakeDaemon) stream(w http.ResponseWriter, r *http.Request, events bool) {
	q := r.URL.Query()

	offset, err := strconv.Atoi(q.Get("offset"))
	if err != nil {
		offset = 0
	}

	d.mu.Lock()

	j, err := d.find(r.PathValue("id"))
	if err != nil {
		d.mu.Unlock()
		p := problemOf(err)
		w.Header().Set("Content-Type", api.TypeProblem)
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p)

		return
	}

	w.Header().Set(api.HeaderJob, j.ID)
	d.mu.Unlock()

	for first := true; ; first = false {
		d.mu.Lock()

		buf := &j.text
		if events {
			buf = &j.events
		}

		b := slices.Clone(buf.Bytes()[min(offset, buf.Len()):])
		ended := j.Status.Ended()
		d.mu.Unlock()

		offset += len(b)
		if _, err := w.Write(b); err != nil {
			return
		}

		_ = http.NewResponseController(w).Flush()
		d.mu.Lock()
		if first && events {
			d.followers++
			d.touch()
		} else if first && q.Get("follow") == "true" {
			d.readers++
			d.touch()
		}

		changed := d.changed
		again := buf.Len() > offset || j.Status.Ended() != ended
		d.mu.Unlock()

		if again {
			continue
		}

		if ended || q.Get("follow") != "true" {
			return
		}

		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (d *fakeDaemon) getVars(r *http.Request, _ []byte) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if v := d.vars[r.URL.Path]; v != nil {
		return v, nil
	}

	return api.Vars{}, nil
}

func (d *fakeDaemon) health(*http.Request, []byte) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	h := api.Health{
		Status:   "ok",
		Checks:   map[string]string{"store": "ok", "ansible": "ok"},
		Instance: "first",
		Revision: 107,
		Nodes:    len(d.nodes),
	}
	if d.degraded {
		h.Warnings = []string{"the etcd server has known holes"}
		h.Status, h.Checks["ansible"] = "degraded", "ansible-playbook is not in PATH"
	}

	for _, j := range d.jobs {
		if !j.Status.Ended() {
			h.Jobs = map[api.JobStatus]int{j.Status: 1}
		}
	}

	return h, nil
}
