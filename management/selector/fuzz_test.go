// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/selector"
)

// FuzzParse expects a selector to be refused as invalid, or to be the same selection
// in any order and beside its own repetition. A name matches that node only.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", " ", "group=service-worker,status!=Allocated", "rack in (r1,r2),!old", "name=node1", "addr=fd00::1",
		"job=7", "verb=commission",
		"rack notin (a)", "x=x0,xx=x1", "state==Discovered", "example.com/rack", "a=b=c", "((", "name in ()", "!",
		"job>7", "label=node,serial=1",
	} {
		f.Add(s, "r1")
	}

	accept := func(string) error { return nil }

	f.Fuzz(func(t *testing.T, text, rack string) {
		s, err := selector.Parse(text, accept)
		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}

		if len(text) > selector.MaxBytes {
			t.Fatalf("a selector of %d bytes is accepted", len(text))
		}

		nodes := []*inventory.Node{
			{
				Name:   "node1",
				Label:  "node",
				Serial: "1",
				Addr:   "10.0.0.1",
				Status: inventory.Allocated,
				Group:  "service-worker",
			},
			{Name: "node10", Addr: "fd00::1", Status: inventory.Unallocated, Labels: map[string]string{"rack": rack}},
		}

		twice, err := selector.Parse(text+","+text, accept)
		if text != "" && 2*len(text) < selector.MaxBytes && err != nil {
			t.Fatalf("%q is accepted once, and not twice: %v", text, err)
		}

		for _, n := range nodes {
			if text == "" && !s.Matches(n) {
				t.Fatalf("the empty selector omits %s", n.Name)
			}

			if text != "" && err == nil && s.Matches(n) != twice.Matches(n) {
				t.Fatalf("%q matches %s: %v, twice %v", text, n.Name, s.Matches(n), twice.Matches(n))
			}
		}

		if inventory.CheckName(rack) == nil {
			exact, err := selector.Parse("name="+rack, accept)
			if err != nil {
				t.Fatalf("the name %q: %v", rack, err)
			}

			for _, n := range nodes {
				if exact.Matches(n) != (n.Name == rack) {
					t.Fatalf("name=%s matches %s: %v", rack, n.Name, exact.Matches(n))
				}
			}
		}
	})
}
