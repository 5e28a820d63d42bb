// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/server/rest"
)

// lamp is a record that no code of the product knows.
type lamp struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
	Level int      `json:"level"`
}

var lamps = record.Kind[lamp]{
	Name:  "lamps",
	Key:   func(l *lamp) string { return l.Name },
	Nodes: func(l *lamp) []string { return l.Nodes },
}

const pathLamps = "/v1/lamps"

// The kind, what the API shows of it, and who may read it are all that a new kind needs.
func init() {
	kinds = append(kinds, &lamps)
	server.Resources = append(server.Resources, &server.ResourceOf[lamp, lamp]{
		Kind: &lamps, Path: pathLamps, One: pathLamps + "/{name}", Allow: access.Readers.Scoped(),
		List: rest.ListingOf[lamp]("level", "name", "level"),
		Show: func(_ *server.Seen, l *lamp) lamp { return *l },
	})
}

// put writes lamps in one revision, and removes those without nodes.
func (s *site) put(all ...lamp) {
	s.t.Helper()

	_, revision, err := record.Decide(s.ctx(), s.store, func(tx *record.Tx) (struct{}, error) {
		for _, l := range all {
			if len(l.Nodes) == 0 {
				record.Remove(tx, &lamps, l.Name)
			} else {
				record.Put(tx, &lamps, &l)
			}
		}

		return struct{}{}, nil
	})
	s.must(err)
	s.must(s.store.Wait(s.ctx(), revision))
}

// lampEvents follows the lamps. The function that it returns expects the next events, as "TYPE
// NAME OBJECT".
func (s *site) lampEvents(token string) (next func(want ...string)) {
	s.t.Helper()

	c, err := client.New(client.Options{Socket: s.dir + "/s", Token: token})
	s.must(err)

	ctx, cancel := context.WithCancel(s.ctx())
	event, stop := iter.Pull2(c.Watch(ctx, client.WatchOptions{Kinds: []api.WatchKind{"lamps"}}))

	s.t.Cleanup(func() { cancel(); stop() })

	return func(want ...string) {
		s.t.Helper()

		for _, w := range want {
			change, err, _ := event()
			for err == nil && change.Type == api.ChangeProgress {
				change, err, _ = event()
			}

			s.must(err)

			got := strings.Join(strings.Fields(string(change.Type)+" "+change.Name+" "+string(change.Object)), " ")
			if got != w {
				s.t.Fatalf("got %q, want %q", got, w)
			}
		}
	}
}

// reader reads over the socket as the holder of a token, or as the user of the test.
type reader struct {
	s     *site
	http  *http.Client
	token string
}

func (s *site) reader(token string) reader {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.dir+"/s")
	}

	return reader{s, &http.Client{Transport: &http.Transport{DialContext: dial}}, token}
}

// get returns the status, the body and the tag of an answer.
func (r reader) get(path, known string) (status int, body, tag string) {
	r.s.t.Helper()

	req, err := http.NewRequestWithContext(r.s.ctx(), http.MethodGet, "http://localhost"+path, nil)
	r.s.must(err)

	if known != "" {
		req.Header.Set("If-None-Match", known)
	}

	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}

	resp, err := r.http.Do(req)
	r.s.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	r.s.must(err)

	return resp.StatusCode, string(text), resp.Header.Get("ETag")
}

// lists expects a list to have the lamps, and returns the token of the next page.
func (r reader) lists(path, want string) (next string) {
	r.s.t.Helper()

	_, body, _ := r.get(path, "")

	var list api.List[lamp]
	r.s.must(json.Unmarshal([]byte(body), &list))

	var names []string
	for _, l := range list.Items {
		names = append(names, l.Name)
	}

	if got := strings.Join(names, " "); got != want {
		r.s.t.Errorf("%s lists %q, want %q: %s", path, got, want, body)
	}

	return list.Continue
}

// TestNewKind expects a kind of record that no code of the product names to have a list, a
// read and a watch, and scopes in all of them.
func TestNewKind(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a b")

	rack := "r1"
	_, err := s.PatchNode(s.ctx(), "a-1", api.NodePatch{Labels: map[string]*string{"rack": &rack}})
	s.must(err)
	s.put(lamp{"x", []string{"a-1"}, 2}, lamp{"y", []string{"b-1"}, 1})

	all := s.reader("")
	part := s.reader(s.tokenFor(api.TokenRequest{Role: "viewer", Scope: &api.Scope{Selector: "rack=r1"}}))

	// Lists have orders, pages, fields and scopes.
	all.lists(pathLamps+"?sort=-name", "y x")
	part.lists(pathLamps, "x")

	next := all.lists(pathLamps+"?limit=1", "y")
	all.lists(pathLamps+"?limit=1&continue="+next, "x")

	if _, body, _ := all.get(pathLamps+"?fields=level&limit=1", ""); !strings.Contains(body, `[{"level":1}]`) {
		t.Error(body)
	}

	// Reads have tags and scopes.
	status, body, tag := part.get(pathLamps+"/x", "")
	if status != http.StatusOK || body != `{"name":"x","nodes":["a-1"],"level":2}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, _, _ := part.get(pathLamps+"/x", tag); status != http.StatusNotModified {
		t.Errorf("%d with the tag %s", status, tag)
	}

	if status, body, _ := part.get(pathLamps+"/y", ""); status != http.StatusNotFound {
		t.Errorf("outside of the scope: %d %s", status, body)
	}

	// A watch begins with the state, and follows changes and removals. A record that leaves the
	// scope is gone there.
	whole, within := s.lampEvents(""), s.lampEvents(part.token)
	whole(`put x {"name":"x","nodes":["a-1"],"level":2}`, `put y {"name":"y","nodes":["b-1"],"level":1}`, "sync")
	within(`put x {"name":"x","nodes":["a-1"],"level":2}`, "sync")

	s.put(lamp{"y", []string{"b-1"}, 5})
	s.put(lamp{"x", []string{"b-1"}, 3})
	whole(`put y {"name":"y","nodes":["b-1"],"level":5}`, `put x {"name":"x","nodes":["b-1"],"level":3}`)
	within("delete x")

	s.put(lamp{"z", []string{"a-1"}, 4})
	within(`put z {"name":"z","nodes":["a-1"],"level":4}`)
	whole(`put z {"name":"z","nodes":["a-1"],"level":4}`)

	s.put(lamp{Name: "x"})
	s.put(lamp{Name: "z"})
	within("delete z")
	whole("delete x", "delete z")
}
