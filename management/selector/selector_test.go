// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/selector"
)

var longName = strings.Repeat("a", 40) + "-" + strings.Repeat("b", 40)

var nodes = []inventory.Node{
	{
		Name:   "a-1",
		Label:  "a",
		Serial: "1",
		Addr:   "10.0.0.1",
		Status: inventory.Allocated,
		State:  inventory.Discovered,
		Group:  "service-master",

		Verification: &inventory.Verdict{Result: inventory.Drifted},

		Labels: map[string]string{"rack": "r1", "example.com/zone": "x", "slot": "7", "empty": ""},
	},
	{
		Name:   "b-2",
		Label:  "b",
		Serial: "2",
		Addr:   "fd00::2",
		Status: inventory.Provisioning,
		State:  inventory.Discovered,
		Group:  "service-worker",
		Job:    "12",
		Verb:   inventory.VerbCommission,
		Labels: map[string]string{"rack": "r2", "slot": "10"},

		LastError: "site.yml failed",
	},
	{
		Name:   "c-3",
		Label:  "c",
		Serial: "3",
		Addr:   "10.0.0.3",
		Status: inventory.Unallocated,
		State:  inventory.Disappeared,
		Labels: map[string]string{"slot": "x"},
		Alerts: []inventory.Alert{{ID: "1"}},
	},
	{
		Name:   longName,
		Label:  "d",
		Serial: "4",
		Addr:   "host.example",
		Status: inventory.Unallocated,
		State:  inventory.Discovered,
	},
}

func noGroup(string) error { return nil }

func TestMatches(t *testing.T) {
	all := []string{"a-1", "b-2", "c-3", longName}
	for text, want := range map[string][]string{
		"":                   all,
		"name=a-1":           {"a-1"},
		"name in (a-1, c-3)": {"a-1", "c-3"},
		"name==" + longName:  {longName},
		"addr=fd00::2":       {"b-2"},
		"addr in (fd00::2,10.0.0.1,host.example)": {"a-1", "b-2", longName},
		"addr!=fd00::2":                      {"a-1", "c-3", longName},
		"label=a":                            {"a-1"},
		"serial notin (1,2)":                 {"c-3", longName},
		"status=allocated":                   {"a-1"},
		"status!=Allocated,state=Discovered": {"b-2", longName},
		"group=service-worker":               {"b-2"},
		"group!=service-worker":              {"a-1", "c-3", longName},
		"group":                              {"a-1", "b-2"},
		"!group":                             {"c-3", longName},
		"job=12,verb=commission":             {"b-2"},
		"!job":                               {"a-1", "c-3", longName},
		"verification=drifted":               {"a-1"},
		"!verification":                      {"b-2", "c-3", longName},
		"last_error":                         {"b-2"},
		"!last_error,status=Allocated":       {"a-1"},
		"alert":                              {"c-3"},
		"!alert,state=Discovered":            {"a-1", "b-2", longName},
		"rack=r1":                            {"a-1"},
		"rack in (r1,r2)":                    {"a-1", "b-2"},
		"rack!=r1":                           {"b-2", "c-3", longName},
		"rack,!example.com/zone":             {"b-2"},
		"example.com/zone=x":                 {"a-1"},
		"empty=":                             {"a-1"},
		"slot>7":                             {"b-2"},
		"slot<10":                            {"a-1"},
		" group = service-worker , rack notin ( r1 ) ": {"b-2"},
		"nosuch=x":    nil,
		"xx0=x0,x=xx": nil,
	} {
		s, err := selector.Parse(text, noGroup)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}

		var got []string
		for i := range nodes {
			if s.Matches(&nodes[i]) {
				got = append(got, nodes[i].Name)
			}
		}

		if !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	group := func(name string) error {
		if name != "service-worker" {
			return inventory.Errorf(inventory.KindNotFound, "there is no group %q", name)
		}
		return nil
	}
	for text, part := range map[string]string{
		" ":                          "is blank",
		"\t\n":                       "is blank",
		"status=Alocated":            `"Alocated" is not a status; the statuses are Enrolled, `,
		"status in (Allocated,nope)": `"nope" is not a status`,
		"status!=nope":               `"nope" is not a status`,
		"state=gone":                 `"gone" is not a state; the states are Unknown, Discovered, Disappeared`,
		"group=service-wroker":       `there is no group "service-wroker"`,
		"verb=comission":             `"comission" is not a verb of a job`,
		"last_error=x":               "last_error has no value to compare",
		"alert=1":                    "write alert or !alert",
		"verification=dirty":         `"dirty" is not a verdict: clean, drifted or unknown`,
		"job=last":                   "give the number of a job",
		"status=":                    "write status or !status",
		"status>5":                   "use =, !=, in or notin",
		"residue=x":                  "one of the fields name, label",
		"updated":                    "one of the fields name, label",
		"rack=a:b":                   "cannot be the value of a label",
		"a:b=c":                      "neither a field nor a valid label",
		"rack in (r1":                "write it like",
		"=x":                         "is malformed",
		"a b":                        "is malformed",
		"rack>r1":                    "is malformed",
		strings.Repeat("a,", 5000):   "the limit is 8192",
	} {
		_, err := selector.Parse(text, group)
		if inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%q: %v", text, err)
			continue
		}

		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %q does not contain %q", text, err, part)
		}
	}
}
