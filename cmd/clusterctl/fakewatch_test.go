// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// watch sends the state and its changes. It keeps no past changes, and refuses to
// resume.
func (d *fakeDaemon) watch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Has("since") {
		p := api.ProblemOf(
			inventory.Errorf(inventory.KindExpired, "what changed after revision %s is no longer kept", q.Get("since")),
		)
		w.Header().Set("Content-Type", api.TypeProblem)
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p)

		return
	}

	w.Header().Set("Content-Type", api.TypeEventStream)

	sent := map[string]string{}
	for first := true; ; first = false {
		d.mu.Lock()
		now, revision, changed := d.watchable(q["kinds"], q["name"]), d.rev, d.changed
		d.mu.Unlock()
		var b bytes.Buffer

		send := func(c api.Change) {
			c.Revision = revision
			data, _ := json.Marshal(c)
			fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", c.Type, data)
		}
		for _, key := range slices.Sorted(maps.Keys(now)) {
			if kind, name, _ := strings.Cut(key, "/"); now[key] != sent[key] {
				send(
					api.Change{
						Type:   api.ChangePut,
						Kind:   api.WatchKind(kind),
						Name:   name,
						Object: json.RawMessage(now[key]),
					},
				)
			}
		}

		for _, key := range slices.Sorted(maps.Keys(sent)) {
			if kind, name, _ := strings.Cut(key, "/"); now[key] == "" {
				send(api.Change{Type: api.ChangeDelete, Kind: api.WatchKind(kind), Name: name})
			}
		}

		sent = now

		last := api.ChangeProgress
		if first {
			last = api.ChangeSync
		}

		fmt.Fprintf(&b, "id: %d\n", revision)
		send(api.Change{Type: last, Stale: d.stale})

		if _, err := w.Write(b.Bytes()); err != nil {
			return
		}

		_ = http.NewResponseController(w).Flush()
		d.mu.Lock()
		d.watched = revision
		d.mu.Unlock()

		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// watchable returns the objects by kind/name, as JSON. The caller holds the lock.
func (d *fakeDaemon) watchable(kinds, names []string) map[string]string {
	out := map[string]string{}

	put := func(kind, name string, object any) {
		data, _ := json.Marshal(object)
		if slices.Contains(kinds, kind) && (len(names) == 0 || slices.Contains(names, name)) {
			out[kind+"/"+name] = string(data)
		}
	}
	for name, n := range d.nodes {
		put("nodes", name, n)
	}

	for _, j := range d.jobs {
		put("jobs", j.ID, j.Job)
	}

	return out
}

// cmdWatching is `watching CODE PATTERN PROGRAM ARG…`: while the program watches, nodes
// and jobs change, at last during an outage of the daemon. It starts with the nodes of
// a new daemon, and interrupts the program once its output matches the pattern.
func cmdWatching(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	out, errs := &syncBuffer{}, &syncBuffer{}
	c := command(ts, args[2:])
	c.Stdout, c.Stderr = out, errs
	fail := func(err error) {
		if err != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
			ts.Fatalf("%v\n%s%s", err, out.String(), errs.String())
		}
	}
	awaitSent := func(revision int64) {
		fail(poll(func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.watched >= revision }))
	}
	d.mu.Lock()
	d.watched, d.nodes = 0, newFakeDaemon("").nodes
	d.mu.Unlock()
	ts.Check(c.Start())
	awaitSent(1)
	change := func(name string, f func(n *api.Node)) {
		d.mu.Lock()
		f(d.nodes[name])
		revision := d.touch()
		d.nodes[name].Revision = revision
		d.mu.Unlock()
		awaitSent(revision)
	}
	change("web-2", func(n *api.Node) {
		n.PrevStatus, n.Status, n.Group = n.Status, inventory.Provisioning, "service-worker"
		n.Job, n.Verb = "7", inventory.VerbCommission
	})
	change("web-2", func(n *api.Node) {
		n.PrevStatus, n.Status, n.Job, n.Verb, n.Applied = n.Status, inventory.Allocated, "", "", "7"
	})
	change("web-1", func(n *api.Node) { n.Updated = n.Updated.Add(1) }) // invisible
	change("web-1", func(n *api.Node) { n.State, n.LastError = inventory.Disappeared, "it\nfailed" })
	change("web-1", func(*api.Node) {
		for _, j := range d.jobs[max(0, len(d.jobs)-1):] {
			j.Status, j.Message = api.Errored, "it was watched"
		}
	})
	d.stop()
	fail(poll(func() bool { return strings.Contains(errs.String(), "retrying for") }))
	d.mu.Lock()
	delete(d.nodes, "3web-3")
	fresh := *d.nodes["slow-1"]
	fresh.Name = "new-1"
	d.nodes["new-1"] = &fresh
	d.touch()
	d.mu.Unlock()
	fail(d.start())
	pattern := regexp.MustCompile(args[1])
	fail(poll(func() bool {
		return pattern.MatchString(out.String()) && strings.Contains(errs.String(), "reconnected")
	}))
	ts.Check(c.Process.Signal(os.Interrupt))
	checkCode(ts, args[0], waitFor(c))
	ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(out.String()), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("err"), []byte(errs.String()), 0o644))
}
