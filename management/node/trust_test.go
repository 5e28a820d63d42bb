// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/state"
)

// aTrail keeps the audit records.
type aTrail struct{ records []access.Record }

func (a *aTrail) Record(_ context.Context, r access.Record) { a.records = append(a.records, r) }

// aStore keeps what is written, and shows it in the view. Any other method panics.
type aStore struct {
	Store
	view   *state.View
	writes []state.NodeWrite
}

func (s *aStore) PutNodes(_ context.Context, writes []state.NodeWrite) ([]string, error) {
	s.writes = append(s.writes, writes...)

	for _, w := range writes {
		for _, n := range s.view.Nodes() {
			if n.Name == w.Node.Name {
				s.view.PutNode(&w.Node)
			}
		}
	}

	return nil, nil
}

const (
	newKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"
	// Of the node j-1.
	takenKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vW"
	rsaKey   = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7vQ=="
)

func TestTrustHostKey(t *testing.T) {
	t.Parallel()

	fingerprint := configuration.Fingerprint(newKey)
	other := "SHA256:" + strings.Repeat("A", 43)

	for name, c := range map[string]struct {
		node  string
		trust Trust
		kind  inventory.Kind // of the error; empty: the key is recorded
		text  string         // in the error, or in the history
	}{
		"fingerprint": {
			node: "a-1", trust: Trust{Fingerprint: fingerprint, Reason: "new disk"},
			text: "in place of ssh-ed25519 ",
		},
		"key":     {node: "a-1", trust: Trust{Key: newKey + " root@a"}, text: fingerprint},
		"first":   {node: "b-1", trust: Trust{Key: newKey}, text: fingerprint},
		"another": {node: "a-1", trust: Trust{Fingerprint: other}, kind: inventory.KindRefused, text: fingerprint},
		"held":    {node: "d-1", trust: Trust{Fingerprint: fingerprint}, kind: inventory.KindRefused, text: "job 7"},
		"silent": {
			node: "e-1", trust: Trust{Fingerprint: fingerprint},
			kind: inventory.KindUnavailable, text: "refuses",
		},
		"hostile": {node: "g-1", trust: Trust{Fingerprint: fingerprint}, kind: inventory.KindInvalid, text: "address"},
		"unknown": {node: "z-1", trust: Trust{Fingerprint: fingerprint}, kind: inventory.KindNotFound, text: "z-1"},
		"taken": {
			node: "b-1", trust: Trust{Fingerprint: configuration.Fingerprint(takenKey)},
			kind: inventory.KindRefused, text: "b-1, " + configuration.Fingerprint(takenKey) + ", is that of node j-1",
		},
		"nothing": {node: "a-1", kind: inventory.KindInvalid, text: "no ssh host key"},
		"both": {
			node: "a-1", trust: Trust{Key: newKey, Fingerprint: fingerprint},
			kind: inventory.KindInvalid, text: "one of them",
		},
		"malformed": {
			node: "a-1", trust: Trust{Key: "ssh-ed25519 {{ x }}"},
			kind: inventory.KindInvalid, text: "public key",
		},
		"no print": {
			node: "a-1", trust: Trust{Fingerprint: "MD5:00"},
			kind: inventory.KindInvalid, text: "fingerprint",
		},
		"long": {
			node: "a-1", trust: Trust{Fingerprint: fingerprint, Reason: strings.Repeat("x", maxReason+1)},
			kind: inventory.KindTooLarge, text: "limit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := &reaches{shown: []string{newKey, rsaKey, takenKey}, results: map[string]configuration.Reach{
				"e-1": {Port: "port 22 refuses connections"},
			}}
			ns := pinged(p)
			trail, store := &aTrail{}, &aStore{view: ns.state.View()}
			ns.audit, ns.store = trail, store

			n, err := ns.TrustHostKey(t.Context(), access.Caller{Principal: "ann"}, c.node, c.trust)
			if c.kind != "" {
				if inventory.KindOf(err) != c.kind || !strings.Contains(errorText(err), c.text) ||
					len(store.writes) > 0 {
					t.Errorf("%v, want %s with %q; writes %v", err, c.kind, c.text, store.writes)
				}

				return
			}

			if err != nil || len(n.HostKeys) != 1 || n.HostKeys[0] != newKey || !p.bounded {
				t.Fatalf("%v, %v", n.HostKeys, err)
			}

			entry := store.writes[0].Entries[0]
			if entry.Verb != inventory.VerbTrust || entry.Actor != "ann" || !strings.Contains(entry.Reason, c.text) ||
				!strings.Contains(entry.Reason, c.trust.Reason) || entry.From != entry.To {
				t.Errorf("history: %+v", entry)
			}

			if r := trail.records[0]; r.Action != "nodes.trust" || r.Reason != entry.Reason || r.Err != nil {
				t.Errorf("audit: %+v", r)
			}
		})
	}
}

// errorText returns an error with its remedy.
func errorText(err error) string {
	if err == nil {
		return ""
	}

	text := err.Error()
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		text += " " + e.Remedy
	}
	return text
}

// TestTrustSetsAside: the claims of a node at other addresses cease to count only when
// that is asked for, with a reason, which the history keeps with the claims.
func TestTrustSetsAside(t *testing.T) {
	t.Parallel()

	key := Trust{Key: newKey, Reason: "m2 is misconfigured"}
	aside := Trust{Key: newKey, Reason: "m2 is misconfigured", SetAside: true}

	for name, c := range map[string]struct {
		trust  Trust
		kind   inventory.Kind
		claims int
	}{
		"the key only": {key, "", 1},
		"set aside":    {aside, "", 0},
		"no reason":    {Trust{Key: newKey, Reason: " ", SetAside: true}, inventory.KindInvalid, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ns := pinged(&reaches{shown: []string{newKey}})
			v := ns.state.View()
			store := &aStore{view: v}
			ns.audit, ns.store = &aTrail{}, store

			for _, n := range v.Nodes() {
				if n.Name == "a-1" {
					m, _, _ := n.Observe(
						inventory.Observation{Observer: "gossip", Addr: n.Addr, Alive: true},
						time.Now(),
					)
					m, _, _ = m.Observe(
						inventory.Observation{Observer: "m2", Addr: "192.0.2.9", Alive: true},
						time.Now(),
					)
					v.PutNode(&m)
				}
			}

			_, err := ns.TrustHostKey(t.Context(), access.Caller{Principal: "ann"}, "a-1", c.trust)
			if inventory.KindOf(err) != c.kind && err != nil {
				t.Fatal(err)
			}

			n, _ := v.Node("a-1")
			if len(n.Duplicates) != c.claims {
				t.Errorf("it is claimed at %v", n.Duplicates)
			}

			if c.claims > 0 {
				return
			}

			reason := store.writes[0].Entries[0].Reason
			for _, part := range []string{"m2 sees it at 192.0.2.9", aside.Reason} {
				if !strings.Contains(reason, part) {
					t.Errorf("the history lacks %q: %s", part, reason)
				}
			}
		})
	}
}

// TestTrustHostKeyRace: a node that changed since the scan keeps its key.
func TestTrustHostKeyRace(t *testing.T) {
	t.Parallel()

	ns := pinged(&reaches{shown: []string{newKey}})
	store := &aStore{view: ns.state.View()}
	ns.audit, ns.store = &aTrail{}, store

	scanned := HostKeys{Node: "a-1", Addr: "127.0.0.9", Recorded: []string{aKey}}
	for _, s := range []HostKeys{scanned, {Node: "a-1", Addr: "127.0.0.1", Recorded: []string{rsaKey}}} {
		_, err := ns.recordHostKey(t.Context(), access.Caller{}, s, newKey, "", false)
		if inventory.KindOf(err) != inventory.KindPrecondition || len(store.writes) > 0 {
			t.Errorf("%v, writes %v", err, store.writes)
		}
	}
}

// busyProber has no turn for any caller.
type busyProber struct{ Prober }

func (busyProber) HostKeys(context.Context, configuration.Host) ([]string, error) {
	return nil, inventory.Errorf(inventory.KindBusy, "too many logins wait")
}

// TestScanBusy: a caller with too many logins under way learns that, and not that the
// host is silent.
func TestScanBusy(t *testing.T) {
	t.Parallel()

	var callers []string

	ns := pinged(nil)
	ns.prober = func(caller string) Prober {
		callers = append(callers, caller)
		return busyProber{}
	}

	_, err := ns.ScanHostKeys(t.Context(), access.Caller{Principal: "ann"}, "a-1")
	if inventory.KindOf(err) != inventory.KindBusy || len(callers) != 1 || callers[0] != "ann" {
		t.Errorf("%v for %v", err, callers)
	}
}
