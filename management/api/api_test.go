// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

func TestKindTable(t *testing.T) {
	var kinds []inventory.Kind
	for _, row := range api.KindTable {
		kinds = append(kinds, row.Kind)
		e := &inventory.Error{Kind: row.Kind, Message: "m", Remedy: "r", Nodes: []string{"a-1"}}

		p := api.ProblemOf(e)
		if p.Status != row.Status || p.Title != row.Title || row.Title == "" || http.StatusText(row.Status) == "" {
			t.Errorf("%s: %+v", row.Kind, p)
		}
		if back := p.Restore(); !reflect.DeepEqual(back, e) {
			t.Errorf("%s: restored as %+v", row.Kind, back)
		}

		if p.Type != api.ProblemBase+string(row.Kind) || p.Detail != "m" || p.Remedy != "r" ||
			!slices.Equal(p.Nodes, []string{"a-1"}) {
			t.Errorf("%s: %+v", row.Kind, p)
		}

		if p := api.ProblemOf(&inventory.Error{Kind: row.Kind, Message: "m"}); p.Remedy == "" ||
			p.Remedy != row.Remedy {
			t.Errorf("%s without a remedy: %+v", row.Kind, p)
		}

		if row.Kind != inventory.KindConflict && api.KindOfStatus(row.Status) != row.Kind {
			t.Errorf("status %d means %s, not %s", row.Status, api.KindOfStatus(row.Status), row.Kind)
		}
	}

	if !slices.Equal(kinds, inventory.Kinds) {
		t.Errorf("the table has the kinds %v, want %v", kinds, inventory.Kinds)
	}

	future := api.Problem{Type: "urn:clusterm:problem:of-the-future", Status: 404, Detail: "d"}
	if kind := future.Restore().Kind; kind != inventory.KindNotFound {
		t.Errorf("an unknown type: %s", kind)
	}

	if api.StatusOf("what") != 500 {
		t.Error("an unknown kind is not an internal error")
	}
}

func TestPath(t *testing.T) {
	for _, c := range []struct {
		pattern string
		params  []string
		want    string
	}{
		{api.PathNodes, nil, "/v1/nodes"},
		{api.PathHistory, []string{"a-1"}, "/v1/nodes/a-1/history"},
		{api.PathNode, []string{"a/b c?%"}, "/v1/nodes/a%2Fb%20c%3F%25"},
		{api.LegacyMonitorNode, []string{"discovered", "a-1"}, "/monitor/discovered/a-1"},
		{api.PathNode, []string{""}, ""},
		{api.LegacyMonitorNode, []string{"discovered"}, ""},
	} {
		got, err := api.Path(c.pattern, c.params...)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s %q: %q %v", c.pattern, c.params, got, err)
		}
	}
}

func TestEvent(t *testing.T) {
	at := time.Unix(1700000000, 500000000).UTC()
	for _, c := range []struct {
		line string
		want api.Event
	}{
		{`{"time":1700000000.5,"event":"ok","host":"a-1","task":"x","changed":true,"seconds":1.5,"new":[1]}`,
			api.Event{Time: at, Event: "ok", Host: "a-1", Task: "x", Changed: true, Seconds: 1.5}},
		{`{"time":"2023-11-14T22:13:20.5Z","event":"failed","item":{"a":1},"message":["x"],"ignored":true}`,
			api.Event{Time: at, Event: "failed", Item: `{"a":1}`, Message: `["x"]`, Ignored: true}},
		{`{"event":"stats","stats":{"a-1":{"ok":2,"failures":1}},"time":null,"message":null}`,
			api.Event{Event: "stats", Stats: map[string]api.HostStat{"a-1": {OK: 2, Failures: 1}}}},
		{`{"event":"play","hosts":["a-1"],"time":-1}`, api.Event{Event: "play", Hosts: []string{"a-1"}}},
	} {
		var got api.Event
		if err := json.Unmarshal([]byte(c.line), &got); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v %v", c.line, got, err)
		}

		// The encoded event decodes to the same event.
		b, err := json.Marshal(got)
		errtest.None(t, err)

		var again api.Event
		if err := json.Unmarshal(b, &again); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: %+v %v", b, again, err)
		}
	}
}

func TestNodeIsOneObject(t *testing.T) {
	yes := true
	n := api.Node{
		Name:       "a-1",
		Status:     inventory.Allocated,
		Seen:       map[string]bool{"gossip": true},
		Connection: &api.Connection{Become: &yes},
		Revision:   5,
	}

	b, err := json.Marshal(n)
	errtest.None(t, err)

	var flat map[string]any
	if err := json.Unmarshal(b, &flat); err != nil || flat["name"] != "a-1" || flat["revision"] != 5.0 {
		t.Errorf("%s %v", b, err)
	}

	var back api.Node
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, n) {
		t.Errorf("%+v %v", back, err)
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`"90s"`: 90 * time.Second, `"1h30m"`: 90 * time.Minute, `"0s"`: 0,
	} {
		var d api.Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %v %v", text, d, err)
		}
	}

	for _, text := range []string{`"-1s"`, `"soon"`, `""`} {
		var d api.Duration
		if err := json.Unmarshal([]byte(text), &d); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", text, err)
		}
	}
}
