// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

func TestMatches(t *testing.T) {
	t.Parallel()

	const (
		card  = "pci:v00008086d000010D3sv00001AF4sd00001100bc02sc00i00"
		board = "dmi:bvnDellInc.:bvr2.1:rn0ABC/D:"
	)

	for _, c := range []struct {
		pattern, modalias string
		want              bool
	}{
		{"virtio:d00000001v*", "virtio:d00000001v00001AF4", true},
		{"virtio:d00000002v*", "virtio:d00000001v00001AF4", false},
		{"pci:v00008086d000010D3sv*sd*bc*sc*i*", card, true},
		{"pci:v00008086d000010D4sv*sd*bc*sc*i*", card, false},
		{"pci:v*d*sv*sd*bc02sc00i*", card, true},
		{"pci:v0000808[5-7]d*", card, true},
		{"pci:v0000808[7-9]d*", card, false},
		{"pci:v0000808?d*", card, true},
		{"pci:", card, false}, // not a part of it
		{"*", card, true},
		{"dmi*:bvn*:rn0ABC/*:*", board, true},
		{"dmi*:rn*:", board, true}, // a star stands for a slash, too
		{"pci:v[", card, false},
		{"", card, false},
	} {
		if got := matches(c.pattern, c.modalias); got != c.want {
			t.Errorf("%q, %q: %v", c.pattern, c.modalias, got)
		}
	}
}

// loads returns a loader of modules, and the names that it inserts. Those that begin with "bad" fail.
func loads(all ...kernel.Module) (*modules, *[]string) {
	var order []string

	return newModules(kernel.Index{Modules: all}, func(m kernel.Module) error {
		if strings.HasPrefix(m.Name, "bad") {
			return errors.New("invalid argument")
		}
		order = append(order, m.Name)

		return nil
	}), &order
}

func module(name string, aliases, depends []string) kernel.Module {
	return kernel.Module{Name: name, Path: "lib/" + name + ".ko", Aliases: aliases, Depends: depends}
}

func TestDependencies(t *testing.T) {
	t.Parallel()

	m, order := loads(
		module("virtio_net", []string{"virtio:d00000001v*"}, []string{"net_failover", "virtio"}),
		module("net_failover", nil, []string{"failover"}),
		module("failover", nil, nil),
		module("virtio", nil, nil),
		module("other", []string{"virtio:d00000002v*"}, nil),
	)
	m.drive([]string{"virtio:d00000001v00001AF4"})
	m.drive([]string{"virtio:d00000001v00001AF4"})

	if want := []string{"failover", "net_failover", "virtio", "virtio_net"}; !slices.Equal(*order, want) {
		t.Errorf("loaded %q, not %q", *order, want)
	}
	if len(m.problems) > 0 {
		t.Error(m.problems)
	}
}

// TestMissingDependency reports a module once that cannot be loaded, and loads the others.
func TestMissingDependency(t *testing.T) {
	t.Parallel()

	m, order := loads(
		module("lost", []string{"a:*"}, []string{"nowhere"}),
		module("above", []string{"a:*"}, []string{"lost"}),
		module("bad", []string{"a:*"}, nil),
		module("one", []string{"a:*"}, []string{"two"}),
		module("two", []string{"a:*"}, []string{"one"}),
		module("good", []string{"a:*"}, nil),
	)
	m.drive([]string{"a:1"})
	m.drive([]string{"a:1", "a:2"})

	if !slices.Equal(*order, []string{"good"}) {
		t.Errorf("loaded %q", *order)
	}

	want := []string{
		"cannot load the module lost: it needs nowhere, which the environment lacks",
		"cannot load the module above: it needs lost, which is not loaded",
		"cannot load the module bad: invalid argument",
		"cannot load the module two: it needs one, which is not loaded",
		"cannot load the module one: it needs two, which is not loaded",
	}
	if got := texts(m.problems); !slices.Equal(got, want) {
		t.Errorf("problems:\n%s", strings.Join(got, "\n"))
	}
}

// TestStuck: a module that is stuck in its device costs the machine a while, and none of the others, unless there are
// several.
func TestStuck(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var console strings.Builder

		broken := make(chan struct{})
		defer close(broken)

		by := &patient{console: &console, insert: func(m kernel.Module) error {
			if strings.HasPrefix(m.Name, "stuck") {
				<-broken
			}
			return nil
		}}

		begun := time.Now()
		if err := by.load(module("stuck", nil, nil)); err == nil || time.Since(begun) != moduleTime {
			t.Errorf("a module that is stuck for %s: %v", time.Since(begun), err)
		}
		errtest.None(t, by.load(module("good", nil, nil)))

		want := []string{
			"Loading the module stuck.", "The module stuck is stuck. Going on without it.", "Loading the module good.",
		}
		for _, line := range want {
			if !strings.Contains(console.String(), line) {
				t.Errorf("the console lacks %q:\n%s", line, console.String())
			}
		}

		for range maxStuck - 1 {
			if err := by.load(module("stuck2", nil, nil)); err == nil {
				t.Error("a module that is stuck is loaded")
			}
		}
		if err := by.load(module("good", nil, nil)); err == nil {
			t.Errorf("after %d that are stuck another one is loaded", maxStuck)
		}
	})
}

// TestWishes: a module is loaded whatever becomes of those that it would like to have, and none of these stands in the
// way of what something needs.
func TestWishes(t *testing.T) {
	t.Parallel()

	card := module("card", []string{"pci:*"}, nil)
	card.Before, card.After = []string{"phy", "bad", "nowhere", "port"}, []string{"net"}
	bad := module("bad", []string{"usb:*"}, nil)

	// The port depends on the card, which would like to have it before.
	m, order := loads(card, bad, module("phy", nil, []string{"bus"}), module("bus", nil, nil),
		module("port", nil, []string{"card"}), module("net", nil, []string{"card"}))
	m.drive([]string{"pci:1"})

	if want := []string{"bus", "phy", "card", "port", "net"}; !slices.Equal(*order, want) {
		t.Errorf("loaded %q, not %q", *order, want)
	}
	if len(m.problems) > 0 {
		t.Errorf("a wish is a problem: %v", m.problems)
	}

	// What was only wished for is needed now.
	m.drive([]string{"usb:1"})
	m.drive([]string{"usb:2"})

	if got := texts(m.problems); !slices.Equal(got, []string{"cannot load the module bad: invalid argument"}) {
		t.Errorf("problems: %q", got)
	}
}

func texts(problems []error) (out []string) {
	for _, p := range problems {
		out = append(out, p.Error())
	}
	return out
}

// TestSettle finds devices that appear with the modules of others, and those that are slow.
func TestSettle(t *testing.T) {
	t.Parallel()

	m, order := loads(module("bus", []string{"pci:*"}, nil), module("card", []string{"bus:*"}, nil),
		module("slow", []string{"usb:*"}, nil))
	pauses := 0
	m.settle(func() []string {
		found := []string{"pci:1"}
		if slices.Contains(*order, "bus") {
			found = append(found, "bus:1")
		}
		if pauses >= quietRounds-1 {
			found = append(found, "usb:1")
		}
		return found
	}, func() { pauses++ })

	if want := []string{"bus", "card", "slow"}; !slices.Equal(*order, want) || len(m.problems) > 0 {
		t.Errorf("loaded %q, problems %v", *order, m.problems)
	}
	if most := 2 * quietRounds; pauses >= most {
		t.Errorf("%d pauses, more than %d", pauses, most)
	}
}

// TestSettleEnds goes on with a machine whose devices come and go for ever.
func TestSettleEnds(t *testing.T) {
	t.Parallel()

	m, _ := loads()
	looks := 0
	m.settle(func() []string {
		if looks++; looks > 10*maxRounds {
			t.Fatal("the search has no end")
		}
		return []string{fmt.Sprint("usb:", looks)}
	}, func() {})

	if got := texts(m.problems); len(got) != 1 || !strings.HasPrefix(got[0], "new devices still appear") {
		t.Errorf("problems: %q", got)
	}
}

func TestFindDevices(t *testing.T) {
	t.Parallel()

	sys := fstest.MapFS{
		"pci0000:00/0000:00:04.0/modalias":         {Data: []byte("pci:v1\n")},
		"pci0000:00/0000:00:04.0/virtio0/modalias": {Data: []byte("virtio:d1\n")},
		"pci0000:00/0000:00:04.0/uevent":           {Data: []byte("MODALIAS=no\n")},
		"mmc0/mmc0:0001/uevent":                    {Data: []byte("MMC_TYPE=SD\nMODALIAS=mmc:block\n")},
		"mmc0/uevent":                              {Data: []byte("MMC_TYPE=SD\nOF_MODALIAS=no\n")},
		"platform/empty/modalias":                  {Data: []byte("\n")},
		"platform/modalias/x":                      {Data: []byte("no")},
	}

	got := slices.Sorted(slices.Values(findDevices(sys)))
	if !slices.Equal(got, []string{"mmc:block", "pci:v1", "virtio:d1"}) {
		t.Errorf("found %q", got)
	}
}

func TestDecodeIndex(t *testing.T) {
	t.Parallel()

	index, err := decodeIndex([]byte(`{"release": "6.1", "new": 1, "modules": [{"name": "a", "path": "lib/a.ko"}]}`))
	if err != nil || len(index.Modules) != 1 || index.Modules[0].Path != "lib/a.ko" {
		t.Errorf("%+v, %v", index, err)
	}

	for _, text := range []string{
		``, `[]`, `{"modules": [{"name": "", "path": "a.ko"}]}`, `{"modules": [{"name": "a"}]}`,
		`{"modules": [{"name": "a", "path": "/a.ko"}]}`, `{"modules": [{"name": "a", "path": "../a.ko"}]}`,
	} {
		if _, err := decodeIndex([]byte(text)); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzIndex expects of any index that no module is loaded twice, or before its dependencies.
func FuzzIndex(f *testing.F) {
	seed, err := json.Marshal(kernel.Index{Modules: []kernel.Module{
		module("a", []string{"pci:*"}, []string{"b", "c"}), module("b", nil, []string{"c"}), module("c", nil, nil),
	}})
	errtest.None(f, err)
	f.Add(seed, "pci:v1")

	f.Fuzz(func(t *testing.T, b []byte, device string) {
		index, err := decodeIndex(b)
		if err != nil {
			return
		}

		done := map[string]bool{}
		newModules(index, func(m kernel.Module) error {
			for _, d := range m.Depends {
				if !done[d] {
					t.Errorf("%s is loaded before %s", m.Name, d)
				}
			}
			if done[m.Name] {
				t.Errorf("%s is loaded twice", m.Name)
			}
			done[m.Name] = true

			return nil
		}).drive([]string{device})
	})
}
