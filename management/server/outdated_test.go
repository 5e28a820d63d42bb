// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/state/statetest"
)

// configureAll puts the nodes a-1 and bb-1 into service. a-1 was configured as is desired
// now; the configuration of bb-1 is not known. ccc-1 is not in service.
func configureAll(t *testing.T, s *site) {
	t.Helper()

	key := configuration.NewChecksumKey()
	s.manager.change(func(v *state.View) {
		statetest.SetChecksumKey(v, key)
		v.View = record.Set(v.View, &state.InstancePlaybooks, "i", &state.Playbooks{Digest: "p1"})

		sum, err := key.Checksum(map[string]configuration.Var{
			"motd": {Value: "hello"}, "port": {Value: 8080},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}

		for i, name := range []string{"a-1", "bb-1"} {
			m := v.Nodes()[i].Clone()
			m.Status, m.Group, m.Applied = inventory.Allocated, inventory.GroupWorker, "3"

			if name == "a-1" {
				m.Configured = &inventory.Configured{
					Configuration: inventory.Configuration{
						Playbooks: "p1", Group: inventory.GroupWorker, Variables: sum,
						Masters: inventory.MastersOf(
							merge.MastersSum(key, nil), merge.Settings{}.MasterVarsSum(v, key, nil, nil)),
					},
					Time: time.Unix(1, 0),
				}
			}

			v.PutNode(&m)
		}
	})
}

// TestDesired changes the desired configuration: lists, single nodes and
// selectors show it at once, and an unknown configuration is not outdated.
func TestDesired(t *testing.T) {
	t.Parallel()

	s := serve(t)
	configureAll(t, s)

	list := func(query string) (names []string, nodes []api.Node) {
		code, body := s.request(t, http.MethodGet, "/v1/nodes"+query, "")

		var all api.List[api.Node]
		if err := json.Unmarshal([]byte(body), &all); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %s", query, code, body)
		}

		for _, n := range all.Items {
			names = append(names, n.Name)
		}

		return names, all.Items
	}
	selects := func(selector string, want ...string) {
		t.Helper()

		if got, _ := list("?selector=" + selector); !slices.Equal(got, want) {
			t.Errorf("%s selects %v, want %v", selector, got, want)
		}
	}

	_, nodes := list("")
	if n := nodes[0]; n.Outdated == nil || *n.Outdated || n.Desired != nil || n.Differs != nil || n.Configured == nil {
		t.Errorf("as desired: %+v", n)
	}
	if n := nodes[1]; n.Outdated != nil || n.Configured != nil || n.Desired == nil || n.Desired.Playbooks != "p1" {
		t.Errorf("not known: %+v", n)
	}

	if n := nodes[2]; n.Outdated != nil || n.Desired != nil {
		t.Errorf("not in service: %+v", n)
	}

	selects("outdated=true")
	selects("outdated=false", "a-1")
	selects("!outdated", "bb-1", "ccc-1")

	s.manager.change(func(v *state.View) {
		v.View = record.Set(v.View, &state.InstancePlaybooks, "i", &state.Playbooks{Digest: "p2"})
		statetest.SetVars(v, state.ScopeGroup(inventory.GroupWorker), configuration.Vars{"motd": "other"})
	})

	selects("outdated=true", "a-1")
	selects("outdated", "a-1")
	selects("outdated!=true", "bb-1", "ccc-1")

	want := []inventory.Part{inventory.PartPlaybooks, inventory.PartVariables}

	_, nodes = list("")
	if n := nodes[0]; n.Outdated == nil || !*n.Outdated || !slices.Equal(n.Differs, want) || n.Desired == nil ||
		n.Desired.Playbooks != "p2" || n.Desired.Variables == n.Configured.Variables {
		t.Errorf("outdated: %+v", n)
	}

	code, body := s.request(t, http.MethodGet, "/v1/nodes/a-1", "")
	if code != http.StatusOK || !strings.Contains(body, `"outdated":true,"differs":["playbooks","variables"]`) {
		t.Errorf("alone: %d %s", code, body)
	}

	for _, path := range []string{"/v1/nodes?selector=outdated%3Dperhaps", "/v1/watch?selector=outdated%3Dtrue"} {
		if code, body := s.request(t, http.MethodGet, path, ""); code != http.StatusBadRequest ||
			!strings.Contains(body, "outdated") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// TestDesiredWithinScope: a caller with a scope sees the same of its nodes as others. A
// scope cannot depend on it.
func TestDesiredWithinScope(t *testing.T) {
	t.Parallel()

	s, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})
	s.manager.change(func(v *state.View) {
		statetest.SetChecksumKey(v, configuration.NewChecksumKey())
		v.View = record.Set(v.View, &state.InstancePlaybooks, "i", &state.Playbooks{Digest: "p2"})

		for _, n := range v.Nodes() {
			m := n.Clone()
			if m.Group != "" {
				m.Configured = &inventory.Configured{Configuration: inventory.Configuration{Playbooks: "p1"}}
			}
			v.PutNode(&m)
		}
	})

	filter := client.NodeFilter{Selector: "outdated=true"}

	whole, err := json.Marshal(must[api.List[api.Node]](t)(s.client(t).Nodes(testCtx(t), filter)))
	if err != nil || strings.Count(string(whole), `"outdated":true`) < 2 {
		t.Fatalf("the whole: %s, %v", whole, err)
	}

	w := send(http.MethodGet, "/v1/nodes?selector=outdated%3Dtrue", "")
	if !strings.Contains(w.Body.String(), `"total":1`) ||
		!strings.Contains(w.Body.String(), `"differs":["playbooks"]`) {
		t.Errorf("the part: %s", w.Body)
	}

	if w := send(http.MethodGet, "/v1/health", ""); !strings.Contains(w.Body.String(), `"outdated":1`) {
		t.Errorf("the health: %s", w.Body)
	}

	err = access.Scope{Selector: "outdated=true"}.Check(inventory.DefaultGroups())
	if inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a scope by outdated: %v", err)
	}
}
