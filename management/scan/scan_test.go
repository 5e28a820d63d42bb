// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
)

func TestParseRange(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]int{
		"10.9.0.0/30": 4, "10.9.0.7": 1, "10.9.0.5/30:6230": 4, "fd00::/120": 256, "10.9.0.0/20": 4096,
		"[fd00::1]:623": 1,
	} {
		r, err := ParseRange(text)
		if err != nil || (Config{Ranges: []Range{r}}).Size() != want {
			t.Errorf("%s: %d addresses, %v; want %d", text, (Config{Ranges: []Range{r}}).Size(), err, want)
		}
	}

	for _, text := range []string{
		"", "10.9.0.0/19", "fd00::/64", "10.9.0.0/33", "bmc.example.com", "10.9.0.1:0", "10.9.0.1:70000", "10.9.0.1-9",
	} {
		if r, err := ParseRange(text); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%q is taken for %v, %v", text, r, err)
		}
	}
}

// site is a scanner with a store in memory, on a network of BMCs that answer by their addresses.
type site struct {
	*Scanner

	store *recordtest.Store

	mu    sync.Mutex
	bmcs  map[string]bmc.Hello // by driver and address
	asked []string
}

func newSite(t *testing.T, every time.Duration, ranges ...string) *site {
	t.Helper()

	s := &site{
		store: recordtest.NewStore(&Kind, &FoundKind, &state.Machines, &state.Powers, &job.Kind),
		bmcs:  map[string]bmc.Hello{},
	}
	c := Config{Every: every, Rate: 1000}

	for _, text := range ranges {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		c.Ranges = append(c.Ranges, r)
	}

	log := logrus.New()
	log.SetOutput(io.Discard)

	s.Scanner = New(Options{
		Config: c, Store: s.store, Sync: func(context.Context) error { return nil }, Leads: func() bool { return true },
		Greet: s.greet, Audit: noAudit{}, Logger: log,
	})

	return s
}

func (s *site) greet(_ context.Context, b machine.BMC) (bmc.Hello, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	at := string(b.Driver) + " " + net.JoinHostPort(b.Address, strconv.Itoa(b.Port))
	s.asked = append(s.asked, at)

	if hello, ok := s.bmcs[at]; ok {
		return hello, nil
	}
	return bmc.Hello{}, errors.New("no answer")
}

func (s *site) found() (all []string) {
	r, _ := s.store.Latest()
	for key := range record.All(r, &FoundKind) {
		all = append(all, key)
	}
	return all
}

// TestScan asks each address of the ranges once by each protocol, keeps what answers, and forgets what answers no more.
func TestScan(t *testing.T) {
	t.Parallel()

	s := newSite(t, 0, "10.9.0.0/30", "10.9.1.1:6230")
	s.bmcs["ipmi 10.9.0.1:623"] = bmc.Hello{}
	s.bmcs["redfish 10.9.0.2:443"] = bmc.Hello{Product: "Acme 9"}

	// Nobody asked for it.
	if _, err := s.round(t.Context()); err != nil || len(s.asked) > 0 {
		t.Fatalf("%d addresses are asked unasked, %v", len(s.asked), err)
	}

	asked, err := s.Request(t.Context(), access.Caller{Principal: "ann"})
	if err != nil || !asked.Running() || asked.Addresses != 5 {
		t.Fatalf("the request: %+v, %v", asked, err)
	}

	if again, err := s.Request(t.Context(), access.Caller{}); err != nil || !again.Requested.Equal(asked.Requested) {
		t.Errorf("a second request began another scan: %+v, %v", again, err)
	}

	for range 2 {
		if _, err := s.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	want := []string{
		"ipmi 10.9.0.0:623", "ipmi 10.9.0.1:623", "ipmi 10.9.0.2:623", "ipmi 10.9.0.3:623", "ipmi 10.9.1.1:6230",
		"redfish 10.9.0.0:443", "redfish 10.9.0.1:443", "redfish 10.9.0.2:443", "redfish 10.9.0.3:443",
		"redfish 10.9.1.1:6230",
	}
	if slices.Sort(s.asked); !slices.Equal(s.asked, want) {
		t.Errorf("asked %q, want %q", s.asked, want)
	}

	if got := s.found(); !slices.Equal(got, []string{"10.9.0.1:623", "10.9.0.2:443"}) {
		t.Errorf("found %q", got)
	}

	r, _ := s.store.Latest()
	if done := record.One(r, &Kind); done.Running() || done.Found != 2 || done.Actor != "ann" {
		t.Errorf("the scan: %+v", done)
	}

	since := record.Get(r, &FoundKind, "10.9.0.2:443").Since

	delete(s.bmcs, "ipmi 10.9.0.1:623")

	if _, err := s.Request(t.Context(), access.Caller{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.round(t.Context()); err != nil {
		t.Fatal(err)
	}

	r, _ = s.store.Latest()
	if got := s.found(); !slices.Equal(got, []string{"10.9.0.2:443"}) ||
		!record.Get(r, &FoundKind, "10.9.0.2:443").Since.Equal(since) {
		t.Errorf("after the second scan: %q", got)
	}
}

// TestScanBrokenOff checks that the next leader scans again: half a scan removes nothing.
func TestScanBrokenOff(t *testing.T) {
	t.Parallel()

	s := newSite(t, 0, "10.9.0.0/28")
	s.bmcs["ipmi 10.9.0.1:623"] = bmc.Hello{}

	if _, err := s.Request(t.Context(), access.Caller{}); err != nil {
		t.Fatal(err)
	}

	over, stop := context.WithCancel(t.Context())
	stop()

	if _, err := s.round(over); err == nil || len(s.found()) > 0 {
		t.Fatalf("a broken off scan: %v, %q", err, s.found())
	}

	if _, err := s.round(t.Context()); err != nil || len(s.found()) != 1 {
		t.Errorf("the next one: %v, %q", err, s.found())
	}
}

// TestScanInTurn scans again after its time, and not before.
func TestScanInTurn(t *testing.T) {
	t.Parallel()

	s := newSite(t, time.Hour, "10.9.0.1")

	for range 3 {
		if _, err := s.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	if len(s.asked) != 2 {
		t.Errorf("asked %q", s.asked)
	}
}

// TestScanWithoutRanges refuses a scan of a site that names none.
func TestScanWithoutRanges(t *testing.T) {
	t.Parallel()

	if _, err := newSite(t, 0).Request(t.Context(), access.Caller{}); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("got %v", err)
	}
}

// TestExpected compares what is registered with what is seen.
func TestExpected(t *testing.T) {
	t.Parallel()

	store := recordtest.NewStore(&Kind, &FoundKind, &state.Machines, &state.Powers, &job.Kind)
	node := func(name string, s inventory.State) *inventory.Node { return &inventory.Node{Name: name, State: s} }
	nodes := []*inventory.Node{
		node("agent", inventory.Discovered), node("both", inventory.Discovered), node("dead", inventory.Unknown),
		node("gone", inventory.Disappeared), node("on", inventory.Unknown), node("silent", inventory.Unknown),
	}

	if _, _, err := record.Decide(t.Context(), store, func(tx *record.Tx) (any, error) {
		for name, addr := range map[string]string{
			"both": "10.9.0.1", "dead": "10.9.0.2", "on": "10.9.0.3", "silent": "10.9.0.4",
		} {
			record.Put(tx, &state.Machines, &state.Machine{Machine: machine.Machine{
				Registered: time.Unix(1, 0),
				Node:       name, BMC: &machine.BMC{Driver: machine.IPMI, Address: addr},
			}})
		}

		record.Put(tx, &state.Powers, &inventory.Power{Node: "on", Power: "off"})
		record.Put(tx, &state.Powers, &inventory.Power{Node: "silent", Power: "on", Problem: "no answer"})

		for _, f := range []Found{
			{Address: "10.9.0.3:623", Driver: machine.IPMI},
			{Address: "10.9.0.3:443", Driver: machine.Redfish}, // the same BMC by the other protocol
			{Address: "10.9.0.3:6231", Driver: machine.IPMI},   // another machine at this address
			{Address: "10.9.0.9:443", Driver: machine.Redfish, Product: "Acme 9"},
		} {
			record.Put(tx, &FoundKind, &f)
		}

		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}

	r, _ := store.Latest()

	text := func(all bool) (lines []string) {
		for _, e := range Expected(r, nodes, all, time.Now()) {
			by := make([]string, len(e.Seen))
			for i, s := range e.Seen {
				by[i] = string(s)
			}
			lines = append(
				lines,
				strings.Join([]string{e.Key(), string(e.Result), strings.Join(by, "+"), e.Product}, " "),
			)
		}
		return lines
	}

	want := []string{
		"10.9.0.3:6231 unlisted scan ", "10.9.0.9:443 unlisted scan Acme 9",
		"agent unlisted gossip ", "both seen gossip ", "dead missing  ", "on seen bmc+scan ", "silent missing  ",
	}
	if got := text(true); !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if got := text(false); !slices.Equal(got, want[2:]) {
		t.Errorf("within a scope: got\n%q\nwant\n%q", got, want[2:])
	}
}

// TestExpectedLooks: what was inspected, or logged in to, within a day is there; and what LLDP sees beside such nodes.
func TestExpectedLooks(t *testing.T) {
	t.Parallel()

	now := time.Unix(1_000_000, 0)
	store := recordtest.NewStore(&Kind, &FoundKind, &state.Machines, &state.Powers, &job.Kind)

	inspected := func(name string, age time.Duration, beside ...inventory.Neighbour) *inventory.Node {
		return &inventory.Node{
			Name: name, Hardware: &inventory.Hardware{Time: now.Add(-age), Neighbours: beside},
		}
	}
	nodes := []*inventory.Node{
		inspected("r1", time.Hour,
			inventory.Neighbour{Port: "eth0", Name: "sw1", Chassis: "aa:00:00:00:00:01", Forwards: true},
			inventory.Neighbour{Port: "eth1", Name: "spare.example.com", Chassis: "aa:00:00:00:00:02"},
			inventory.Neighbour{Port: "eth2", Name: "r3.example.com"},
			inventory.Neighbour{Port: "eth3", Chassis: "aa:00:00:00:00:04"}),
		inspected("r2", 25*time.Hour, inventory.Neighbour{Port: "eth0", Name: "old"}),
		{Name: "r3"}, {Name: "r4"}, {Name: "r5"}, {Name: "r6"},
		inspected("r7", time.Hour, inventory.Neighbour{Port: "eth0", Name: "sw1", Chassis: "aa:00:00:00:00:01"}),
		{Name: "r8"},
	}

	if _, _, err := record.Decide(t.Context(), store, func(tx *record.Tx) (any, error) {
		for _, n := range nodes {
			m := &state.Machine{Machine: machine.Machine{Node: n.Name, Registered: time.Unix(1, 0)}}
			if n.Name == "r4" {
				m.Ports = []machine.Port{{MAC: "aa:00:00:00:00:04"}}
			}
			if n.Name == "r8" {
				m.BMC = &machine.BMC{Driver: machine.IPMI, Address: "10.9.0.8"}
				record.Put(tx, &state.Powers, &inventory.Power{Node: n.Name, Problem: "refused", LoginRefused: true})
			}
			record.Put(tx, &state.Machines, m)
		}

		for i, ended := range []time.Time{now.Add(-time.Hour), now.Add(-25 * time.Hour)} {
			outcomes := map[string]inventory.Outcome{
				"r5": {Status: inventory.Manageable}, "r6": {Status: inventory.Enrolled, Error: "denied"},
			}
			if i > 0 {
				outcomes = map[string]inventory.Outcome{"r6": {Status: inventory.Manageable}}
			}
			record.Put(tx, &job.Kind, &job.Job{
				ID: strconv.Itoa(i + 1), Verb: inventory.VerbManage, Status: job.Complete, Ended: ended,
				Outcomes: outcomes,
			})
		}

		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}

	r, _ := store.Latest()

	text := func(all bool) (lines []string) {
		for _, e := range Expected(r, nodes, all, now) {
			lines = append(lines, strings.TrimSpace(fmt.Sprint(e.Key(), " ", e.Result, " ", e.Seen, " ", e.Kind, " ",
				strings.Join(e.Ports, ", "))))
		}
		return lines
	}

	listed := []string{
		"r1 seen [inspection]", "r2 missing []", "r3 seen [lldp]", "r4 seen [lldp]", "r5 seen [credentials]",
		"r6 missing []", "r7 seen [inspection]", "r8 seen [login-refused]",
	}
	others := []string{
		"spare.example.com aa:00:00:00:00:02 unlisted [lldp] host r1 eth1",
		"sw1 aa:00:00:00:00:01 unlisted [lldp] switch r1 eth0, r7 eth0",
	}

	if got, want := text(true), slices.Concat(listed, others); !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if got := text(false); !slices.Equal(got, listed) {
		t.Errorf("within a scope: got\n%q\nwant\n%q", got, listed)
	}
}

type noAudit struct{}

func (noAudit) Record(context.Context, access.Record) {}
