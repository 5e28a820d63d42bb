// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// configurable is a world with nodes that were registered, two of them inspected.
func configurable(t *testing.T) (*world, *Service) {
	t.Helper()

	w := newWorld(t)
	s := w.run()

	w.imported(s, api.Import{File: `[{"name":"r1","addr":"10.0.7.1","capabilities":"profile:compute"},
{"name":"r2","addr":"10.0.7.2"},{"name":"r3","addr":"10.0.7.3"},{"name":"u1","addr":"10.0.7.4"},
{"name":"s1","addr":"10.0.7.5"}]`})

	for name, status := range map[string]inventory.Status{
		"r1": inventory.Manageable, "r2": inventory.Manageable, "r3": inventory.Manageable,
		"u1": inventory.Unallocated, "s1": inventory.Allocated,
	} {
		w.become(name, status)
	}

	for _, name := range []string{"r1", "r2"} {
		found := facts.Facts{Schema: facts.Schema, Disks: []facts.Disk{
			{Name: "sda", SizeBytes: 480e9, Model: "Samsung", WWN: "0x5000" + name},
			{Name: "sdb", SizeBytes: 4e12, Model: "Seagate", Serial: "Z" + name, Rotational: true},
		}}

		_, _, err := record.Decide(t.Context(), w, func(tx *record.Tx) (none struct{}, err error) {
			kept, err := record.Get(tx, &state.Facts, name).With(name, "1", facts.Found{Facts: found}, time.Unix(1, 0))
			record.Put(tx, &state.Facts, kept)

			return none, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	return w, s
}

func (w *world) become(name string, status inventory.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := w.nodes[name]
	n.Status = status
	w.nodes[name] = n
}

func (w *world) configure(s *Service, r api.Configure) (string, error) {
	w.t.Helper()

	done, err := s.Configure(w.t.Context(), access.Caller{Principal: "anna"}, nil, r, configuration.Connection{})

	var lines []string
	for _, m := range done.Machines {
		lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", m.Node, m.Action, inWords(m.Changes)), ": "))
	}

	return strings.Join(append(lines, done.Warnings...), "\n"), err
}

// TestConfigure changes nodes that are Manageable, once each.
func TestConfigure(t *testing.T) {
	t.Parallel()

	w, s := configurable(t)

	r := api.Configure{
		Nodes: []string{"r1", "r2"}, BootMode: "uefi", RootDeviceStrategy: facts.Largest,
		Labels: map[string]string{"rack": "a"}, DryRun: true,
	}
	want := `r1 changed: capabilities {"profile":"compute"} → {"boot_mode":"uefi","profile":"compute"}, ` +
		`labels.rack none → a, root_device none → {"serial":"Zr1"}
r2 changed: capabilities none → {"boot_mode":"uefi"}, labels.rack none → a, root_device none → {"serial":"Zr2"}`

	for _, dryRun := range []bool{true, false} {
		r.DryRun = dryRun

		if got, err := w.configure(s, r); err != nil || got != want {
			t.Errorf("dry run %t: got %v\n%s\nwant\n%s", dryRun, err, got, want)
		}

		if entries := len(w.history["r1"]); dryRun && entries != 1 {
			t.Errorf("the dry run has left a history of %d entries", entries)
		}
	}

	if got, err := w.configure(s, r); err != nil || got != "r1 same\nr2 same" {
		t.Errorf("the same again: %v\n%s", err, got)
	}

	for _, name := range r.Nodes {
		if n, _ := w.View().Lookup(name); len(w.history[name]) != 2 || n.Labels["rack"] != "a" ||
			n.Status != inventory.Manageable {
			t.Errorf("%s: %+v with the history %+v", name, n, w.history[name])
		}
	}

	// A list that has the same values changes nothing.
	w.expect(s, api.Import{File: `[{"name":"r2","addr":"10.0.7.2","capabilities":"boot_mode:uefi"}]`}, "r2 same")

	// Without an inspection a hint is taken, and a strategy is not.
	r = api.Configure{Nodes: []string{"r3"}, RootDevice: map[string]any{"model": "X"}}
	if got, err := w.configure(s, r); err != nil || !strings.Contains(got, "r3 changed") ||
		!strings.Contains(got, "r3: the hints are not checked") {
		t.Errorf("without an inspection: %v\n%s", err, got)
	}
}

// TestConfigureAllOrNothing names every reason, and changes no node.
func TestConfigureAllOrNothing(t *testing.T) {
	t.Parallel()

	w, s := configurable(t)

	for _, test := range []struct {
		r    api.Configure
		kind inventory.Kind
		want []string
	}{
		{
			api.Configure{
				Nodes: []string{"r1", "u1", "s1", "r2", "r3"}, RootDeviceStrategy: facts.Smallest, Image: "debian",
			},
			inventory.KindRefused,
			[]string{
				"3 nodes cannot be configured", "u1: it is Unallocated", "s1: it is Allocated",
				"r3: it was not inspected",
			},
		},
		{
			api.Configure{Nodes: []string{"r1", "r2"}, RootDevice: map[string]any{"model": "Samsung", "serial": "Zr1"}},
			inventory.KindRefused,
			[]string{
				"2 nodes", "r1: no disk fits the hints model=Samsung serial=Zr1: " +
					"it has sda 480 GB Samsung, sdb 4.0 TB Seagate Zr1",
			},
		},
		{
			api.Configure{
				Nodes: []string{"r1"}, BootMode: "legacy", RootDevice: map[string]any{"size": "big", "colour": "red"},
				RootDeviceStrategy: "middle", KernelArgs: "a\nb", Labels: map[string]string{"Ä": "x"},
			},
			inventory.KindInvalid,
			[]string{"legacy", "big", "colour", "middle", "exclude", "kernel_args", "labels"},
		},
		{api.Configure{Nodes: []string{"r1"}}, inventory.KindInvalid, []string{"changes nothing"}},
		{api.Configure{Nodes: []string{"r1", "x", "y"}, Image: "a"}, inventory.KindNotFound, []string{"x, y"}},
		{api.Configure{Image: "a"}, inventory.KindInvalid, []string{"no node is named"}},
	} {
		_, err := w.configure(s, test.r)
		if inventory.KindOf(err) != test.kind {
			t.Errorf("%+v: got %v, want the kind %s", test.r, err, test.kind)
			continue
		}

		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %q is not in %v", test.r, part, err)
			}
		}
	}

	for name, entries := range w.history {
		if len(entries) != 1 {
			t.Errorf("%s was changed: %+v", name, entries)
		}
	}

	if len(pending(w)) != 0 {
		t.Error("a refused request waits to be carried out")
	}
}

// TestImportedHints: hints in a list that fit no disk of an inspected node are a mistake in that field, unless the node
// is in service. Without an inspection they are taken.
func TestImportedHints(t *testing.T) {
	t.Parallel()

	w, s := configurable(t)

	_, err := s.Import(t.Context(), access.Caller{Principal: "anna"}, nil, api.Import{File: `[
{"name":"r1","addr":"10.0.7.1","root_device":{"serial":"Zr1"}},
{"name":"r2","addr":"10.0.7.2","root_device":{"serial":"Zr1"}},
{"name":"r3","addr":"10.0.7.3","root_device":{"serial":"Zr1"}}]`})

	for _, part := range []string{
		"entry 2", "root_device: no disk fits the hint serial=Zr1: it has sda 480 GB Samsung, sdb 4.0 TB Seagate Zr2",
	} {
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}

	if err != nil && (strings.Contains(err.Error(), "entry 1") || strings.Contains(err.Error(), "entry 3")) {
		t.Errorf("entries without a mistake: %v", err)
	}

	w.become("r2", inventory.Allocated)
	w.expect(s, api.Import{File: `[
{"name":"r2","addr":"10.0.7.2","root_device":{"serial":"Zr1"}},
{"name":"r3","addr":"10.0.7.3","root_device":{"serial":"Zr1"}}]`},
		"r2 skipped: it is Allocated: in service\nr3 changed: root_device none → {\"serial\":\"Zr1\"}")
}

// TestConfigureLosesToAJob leaves a node alone that is no longer Manageable once the change is carried out.
func TestConfigureLosesToAJob(t *testing.T) {
	t.Parallel()

	w, s := configurable(t)

	commits := 0
	w.Before = func(*record.Tx) error {
		if commits++; commits == 2 { // the first one accepts the request
			w.become("r1", inventory.Unallocated)
			return inventory.Errorf(inventory.KindConflict, "the node changed meanwhile")
		}

		return nil
	}

	done, err := s.Configure(t.Context(), access.Caller{Principal: "anna"}, nil,
		api.Configure{Nodes: []string{"r1", "r2"}, Image: "debian"}, configuration.Connection{})
	if err != nil {
		t.Fatal(err)
	}

	if m := done.Machines[0]; m.Action != api.ImportSkipped || !strings.Contains(m.Reason, "Unallocated") {
		t.Errorf("got %+v", m)
	}

	if m := done.Machines[1]; m.Action != api.ImportChanged || len(w.history["r1"]) != 1 || len(w.history["r2"]) != 2 {
		t.Errorf("got %+v", m)
	}

	// Who may not change connections learns it before anything is changed.
	w.Before = nil
	forbidden := errors.New("admins only")

	_, err = s.Configure(t.Context(), access.Caller{Principal: "anna"}, forbidden,
		api.Configure{Nodes: []string{"r2"}, Image: "x"}, configuration.Connection{User: "root"})
	if !errors.Is(err, forbidden) || len(w.history["r2"]) != 2 {
		t.Errorf("got %v", err)
	}
}
