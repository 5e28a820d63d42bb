// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// list reads a list in its wire form.
func (s *site) list(t *testing.T, path string) api.List[map[string]any] {
	t.Helper()
	status, text := s.request(t, "GET", path, "")

	var out api.List[map[string]any]
	if err := json.Unmarshal([]byte(text), &out); err != nil || status != 200 {
		t.Fatalf("%s: %d %s", path, status, text)
	}
	return out
}

// values joins one field of all items.
func values(l api.List[map[string]any], field string) string {
	var out []string
	for _, item := range l.Items {
		out = append(out, fmt.Sprint(item[field]))
	}

	return strings.Join(out, " ")
}

// fill replaces the nodes of the view: n000-1 and so on, in four groups.
func (s *site) fill(count int) {
	s.manager.change(func(v *state.View) {
		v.SetNodes()
		for i := range count {
			n := aNode(fmt.Sprintf("n%03d", i))
			n.Addr, n.Group = fmt.Sprintf("10.0.%d.%d", i/4, 100-i%100), "g"+strconv.Itoa(i%4)
			n.Updated = time.Unix(1700000000+int64(i%7), 0).UTC()
			v.PutNode(n)
		}
	})
}

// TestPagesUnderChange expects every unchanged item on exactly one page, while
// other items change between the pages.
func TestPagesUnderChange(t *testing.T) {
	t.Parallel()

	s := serve(t)
	for _, sort := range []string{"", "-name", "group", "-updated,addr", "status,-group,name"} {
		s.fill(60)
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		touched := map[string]bool{}
		seen := map[string]int{}
		var order []string

		query := url.Values{"limit": {"7"}}
		if sort != "" {
			query.Set("sort", sort)
		}

		for {
			page := s.list(t, "/v1/nodes?"+query.Encode())
			for _, item := range page.Items {
				name := item["name"].(string)
				seen[name]++
				order = append(order, name)
			}

			if page.Continue == "" {
				break
			}

			query.Set("continue", page.Continue)
			s.manager.change(func(v *state.View) {
				for range 3 {
					i := random.IntN(len(v.Nodes()))
					n := v.Nodes()[i].Clone()

					touched[n.Name] = true
					switch random.IntN(3) {
					case 0: // remove it
						v.SetNodes(slices.Delete(slices.Clone(v.Nodes()), i, i+1)...)
					case 1: // change its position
						n.Group, n.Updated, n.Status = "g"+strconv.Itoa(
							random.IntN(9),
						), n.Updated.Add(
							time.Hour,
						), inventory.Allocated
						v.PutNode(&n)
					case 2: // add another
						n.Name += "x"

						touched[n.Name] = true
						if _, err := v.Node(n.Name); err != nil {
							v.PutNode(&n)
						}
					}
				}
			})
		}

		for i := range 60 {
			if name := fmt.Sprintf("n%03d-1", i); !touched[name] && seen[name] != 1 {
				t.Errorf("sorted by %q, seed %d: %s came %d times", sort, seed, name, seen[name])
			}
		}

		if len(order) < 40 {
			t.Errorf("sorted by %q, seed %d: only %d came", sort, seed, len(order))
		}
	}
}

func TestSorting(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.fill(6)
	s.manager.change(func(v *state.View) {
		six := *v.Nodes()[5]
		six.Addr = "fd00::1"
		v.PutNode(&six)
	})

	for sort, want := range map[string]string{
		"name":                "n000-1 n001-1 n002-1 n003-1 n004-1 n005-1",
		"-name":               "n005-1 n004-1 n003-1 n002-1 n001-1 n000-1",
		"addr":                "n003-1 n002-1 n001-1 n000-1 n004-1 n005-1",
		"-group,-name":        "n003-1 n002-1 n005-1 n001-1 n004-1 n000-1",
		"group":               "n000-1 n004-1 n001-1 n005-1 n002-1 n003-1",
		"status, -updated":    "n005-1 n004-1 n003-1 n002-1 n001-1 n000-1",
		"state,revision,name": "n000-1 n001-1 n002-1 n003-1 n004-1 n005-1",
	} {
		if got := values(s.list(t, "/v1/nodes?sort="+url.QueryEscape(sort)), "name"); got != want {
			t.Errorf("%q: %s, not %s", sort, got, want)
		}
	}

	for range 12 {
		if status, text := s.request(t, "POST", "/v1/jobs", `{"verb":"commission","nodes":["n000-1"]}`); status != 202 {
			t.Fatal(text)
		}
	}

	s.manager.setJob("3", func(j *job.Job) { j.Status = job.Complete })

	for query, want := range map[string]string{
		"":                           "12 11 10 9 8 7 6 5 4 3 2 1",
		"?limit=3":                   "12 11 10",
		"?limit=0":                   "12 11 10 9 8 7 6 5 4 3 2 1",
		"?sort=id&limit=3":           "1 2 3",
		"?sort=status,-id&limit=2":   "3 12",
		"?status=Complete":           "3",
		"?sort=-started,accepted,id": "1 2 3 4 5 6 7 8 9 10 11 12",
		"?status=Queued&sort=-id&node=n000-1&limit=2": "12 11",
	} {
		if got := values(s.list(t, "/v1/jobs"+query), "id"); got != want {
			t.Errorf("jobs%s: %s, not %s", query, got, want)
		}
	}

	if got := values(s.list(t, "/v1/nodes/n000-1/history?limit=1"), "seq"); got != "2" {
		t.Errorf("the newest entry: %s", got)
	}

	if got := values(s.list(t, "/v1/nodes/n000-1/history?sort=seq"), "seq"); got != "1 2" {
		t.Errorf("the oldest first: %s", got)
	}
}

// TestSmallLists expects groups and instances to have order and pages.
func TestSmallLists(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.manager.change(func(v *state.View) {
		for i, id := range []string{"c", "a", "b"} {
			v.View = record.Set(v.View, &state.Instances, id, &state.Instance{
				Identity: cluster.Identity{ID: id, Node: "m-" + strconv.Itoa(3-i)},

				Addr:    fmt.Sprintf("10.0.0.%d", 9+i),
				Version: "v1",
				API:     []string{},
				Started: time.Unix(int64(i), 0),
			})
		}
	})

	for path, want := range map[string]string{
		"/v1/instances?":                     "c a b",
		"/v1/instances?sort=id":              "a b c",
		"/v1/instances?sort=-id":             "c b a",
		"/v1/instances?sort=node":            "b a c",
		"/v1/instances?sort=version,-addr":   "b a c",
		"/v1/instances?sort=-version,-start": "",
	} {
		if want == "" {
			if status, _ := s.request(t, "GET", path, ""); status != 400 {
				t.Errorf("%s: %d", path, status)
			}

			continue
		}

		if got := s.pages(t, path, "id"); got != want {
			t.Errorf("%s: %s, not %s", path, got, want)
		}
	}

	for path, want := range map[string]string{
		"/v1/groups?":              "service-master service-worker",
		"/v1/groups?sort=-place":   "service-worker service-master",
		"/v1/groups?sort=-name":    "service-worker service-master",
		"/v1/groups?sort=requires": "service-master service-worker",
	} {
		if got := s.pages(t, path, "name"); got != want {
			t.Errorf("%s: %s, not %s", path, got, want)
		}
	}

	c := s.client(t)
	page := must[api.List[api.Instance]](t)(c.Instances(testCtx(t), client.Page{Sort: []string{"-id"}, Limit: 2}))
	expect(t, "total", page.Total, 3)
	page = must[api.List[api.Instance]](
		t,
	)(
		c.Instances(testCtx(t), client.Page{Sort: []string{"-id"}, Limit: 2, Continue: page.Continue}),
	)
	expect(t, "last", page.Items[0].ID, "a")
	groups := must[api.List[api.Group]](t)(c.Groups(testCtx(t), client.Page{Limit: 1}))
	expect(t, "first", groups.Items, []api.Group{{Group: inventory.Group{Name: inventory.GroupMaster}}})
	_, err := c.Groups(testCtx(t), client.Page{Limit: -1})
	expect(t, "limit", inventory.KindOf(err), inventory.KindInvalid)
}

// pages reads a list one item at a time, and returns a field of each.
func (s *site) pages(t *testing.T, path, field string) string {
	t.Helper()

	var got []string
	for token := ""; ; {
		query := "&limit=1"
		if token != "" {
			query += "&continue=" + token
		}
		page := s.list(t, path+query)

		got = append(got, values(page, field))
		if token = page.Continue; token == "" {
			return strings.Join(got, " ")
		}
	}
}

func TestFields(t *testing.T) {
	t.Parallel()

	s := serve(t)
	for path, want := range map[string]string{
		"/v1/nodes?limit=1&fields=status,name": `{"items":[{"name":"a-1","status":"Unallocated"}],` +
			`"continue":"…","total":3,"revision":10}`,
		"/v1/nodes?limit=1&fields=name,group,job": `{"items":[{"name":"a-1"}],"continue":"…",` +
			`"total":3,"revision":10}`,
		"/v1/nodes?name=a-1&fields=connection,revision": `{"items":[{"connection":{"user":"admin",` +
			`"port":2222},"revision":7}],"total":1,"revision":10}`,
		"/v1/nodes?name=a-1&fields=created": `{"items":[{"created":"0001-01-01T00:00:00Z"}],` +
			`"total":1,"revision":10}`,
		"/v1/nodes/a-1/history?fields=seq,verb,group&limit=1": `{"items":[{"seq":2,"verb":"commission"}],` +
			`"continue":"…","total":2,"revision":10}`,
		"/v1/jobs?fields=id":                 `{"items":[],"total":0,"revision":10}`,
		"/v1/groups?fields=requires&limit=1": `{"items":[{}],"continue":"…","total":2,"revision":10}`,
		"/v1/instances?fields=id":            `{"items":[],"total":0,"revision":10}`,
	} {
		status, text := s.request(t, "GET", path, "")
		if before, after, ok := strings.Cut(text, `"continue":"`); ok {
			_, after, _ = strings.Cut(after, `"`)
			text = before + `"continue":"…"` + after
		}

		if status != 200 || strings.TrimSpace(text) != want {
			t.Errorf("%s: %d %s, not %s", path, status, text, want)
		}
	}
}

func TestListRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t)

	token := s.list(t, "/v1/nodes?limit=1&state=Discovered").Continue
	if token == "" {
		t.Fatal("no token")
	}

	if got := s.list(
		t,
		"/v1/nodes?state=Discovered&limit=9&fields=name&continue="+token,
	); values(got, "name") != "bb-1 ccc-1" || got.Continue != "" ||
		got.Total != 3 {
		t.Errorf("the same list: %+v", got)
	}

	for path, says := range map[string]string{
		"/v1/nodes?continue=" + token:                             "belongs to another list",
		"/v1/nodes?state=Discovered&sort=-name&continue=" + token: "belongs to another list",
		"/v1/jobs?continue=" + token:                              "belongs to another list",
		"/v1/nodes?state=Discovered&continue=" + token[1:]:        "invalid continue token",
		"/v1/nodes?continue=%21":                                  "invalid continue token",
		"/v1/nodes?continue=e30":                                  "invalid continue token",
		"/v1/nodes?limit=-1":                                      "a whole number",
		"/v1/nodes?sort=seen":                                     `cannot be sorted by "seen"`,
		"/v1/nodes?sort=name,name":                                "twice",
		"/v1/nodes?sort=name,group":                               "put name last",
		"/v1/nodes?sort=--name":                                   `"-name"`,
		"/v1/nodes?sort=,":                                        `cannot be sorted by ""`,
		"/v1/nodes?fields=name,nope":                              `there is no field "nope"`,
		"/v1/nodes?fields=Name":                                   `there is no field "Name"`,
		"/v1/jobs?sort=name":                                      "sort by accepted, actor",
		"/v1/jobs?fields=name":                                    "the fields are id, verb, status",
		"/v1/groups?sort=-,name":                                  "sort by name, place, requires",
		"/v1/groups?continue=" + token:                            "belongs to another list",
		"/v1/groups?fields=place":                                 "the fields are name, requires, budget",
		"/v1/instances?sort=api":                                  "sort by addr, id, leads, node, started, version",
	} {
		status, text := s.request(t, "GET", path, "")

		var p api.Problem
		if err := json.Unmarshal(
			[]byte(text),
			&p,
		); err != nil || status != 400 ||
			!strings.Contains(p.Detail+"; "+p.Remedy, says) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// TestClientPages expects the client to join pages, the newest job last.
func TestClientPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(t)
	s.fill(23)

	var names []string
	for n, err := range c.EachNode(testCtx(t), client.NodeFilter{
		Sort: []string{"-name"}, Limit: 10, Selector: "group!=g3",
	}) {
		if err != nil {
			t.Fatal(err)
		}

		names = append(names, n.Name)
	}

	if len(names) != 18 || names[0] != "n022-1" || names[17] != "n000-1" {
		t.Errorf("%v", names)
	}

	for _, err := range c.EachNode(testCtx(t), client.NodeFilter{Selector: "status=nope"}) {
		expect(t, "an error", inventory.KindOf(err), inventory.KindInvalid)
	}

	for range 3 {
		must[api.Job](
			t,
		)(
			c.Submit(testCtx(t), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"n001-1"}}),
		)
	}

	page := must[api.List[api.Job]](t)(c.Jobs(testCtx(t), client.JobFilter{Limit: 2}))
	expect(t, "newest", []string{page.Items[0].ID, page.Items[1].ID}, []string{"2", "3"})
	page = must[api.List[api.Job]](t)(c.Jobs(testCtx(t), client.JobFilter{Limit: 2, Continue: page.Continue}))
	expect(t, "older", page.Items[0].ID, "1")
}

// TestGroupsCountTheirNodes: a group has the number of its nodes, and of those that are in service and seen.
func TestGroupsCountTheirNodes(t *testing.T) {
	t.Parallel()

	s := serve(t)

	s.manager.change(func(v *state.View) {
		for label, state := range map[string]inventory.State{
			"dddd": inventory.Discovered, "eeee": inventory.Disappeared,
		} {
			n := aNode(label)
			n.Group, n.Status, n.State = inventory.GroupWorker, inventory.Allocated, state
			v.PutNode(n)
		}
	})

	groups := must[api.List[api.Group]](t)(s.client(t).Groups(testCtx(t))).Items
	expect(t, "nodes of the masters", groups[0].Nodes, 0)
	expect(t, "nodes of the workers", groups[1].Nodes, 2)
	expect(t, "healthy workers", groups[1].Healthy, 1)
}
