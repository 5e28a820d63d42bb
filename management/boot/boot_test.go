// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration/image/netboot"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
)

type noAudit struct{}

func (noAudit) Record(context.Context, access.Record) {}

var ann = access.Caller{Principal: "ann"}

// site is a service with a store in memory, on a network of hosts that answer.
type site struct {
	*Service
	*testing.T

	store    *recordtest.Store
	config   Config
	networks []netip.Prefix
	stale    bool

	mu    sync.Mutex
	hosts map[netip.Addr]string // MACs
}

// newSite returns one with machines r01, r02 and so on.
func newSite(t *testing.T, machines int, pool ...string) *site {
	t.Helper()

	s := &site{
		T: t, store: recordtest.NewStore(&Kind, &BootsKind, &job.Kind, &state.Machines, &job.Nodes, &state.Instances),
		config: Config{Interfaces: []string{"eth1"}, Lease: time.Hour}, hosts: map[netip.Addr]string{},
		networks: []netip.Prefix{netip.MustParsePrefix("10.9.1.254/24")},
	}
	for _, text := range pool {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		s.config.Pool = append(s.config.Pool, r)
	}

	log := logrus.New()
	log.SetOutput(io.Discard)

	s.Service = New(Options{
		Store: s.store, Sync: s.store.Sync, Leads: func() bool { return true }, Node: "host1",
		Config: func() Config { return s.config }, Probe: s.probeHosts, Audit: noAudit{}, Logger: log,
		Networks: func() []netip.Prefix { return s.networks }, Stale: func() bool { return s.stale },
	})

	for i := range machines {
		s.register(nodeOf(i), macOf(i))
	}

	return s
}

func nodeOf(i int) string { return fmt.Sprintf("r%02d", i+1) }

func macOf(i int) string { return fmt.Sprintf("52:54:00:00:00:%02x", i+1) }

func (s *site) write(write func(*record.Tx)) {
	s.Helper()

	if _, _, err := record.Decide(s.Context(), s.store, func(tx *record.Tx) (any, error) {
		write(tx)
		return nil, nil
	}); err != nil {
		s.Fatal(err)
	}
}

func (s *site) register(node string, macs ...string) {
	s.Helper()

	m := state.Machine{Machine: machine.Machine{Node: node}}
	for _, mac := range macs {
		m.Ports = append(m.Ports, machine.Port{MAC: mac})
	}
	s.write(func(tx *record.Tx) { record.Put(tx, &state.Machines, &m) })
}

func (s *site) probeHosts(_ context.Context, addrs []netip.Addr) (map[netip.Addr]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	all := map[netip.Addr]string{}
	for _, a := range addrs {
		if mac := s.hosts[a]; mac != "" {
			all[a] = mac
		}
	}

	return all, nil
}

// addresses returns those that are recorded, as words.
func (s *site) addresses() string {
	r, _ := s.store.Latest()

	var all []string
	for _, a := range record.List(r, &Kind) {
		word := a.Addr + "=" + a.Node
		if a.Reserved {
			word += "!"
		}
		if a.Conflict != "" {
			word += "?"
		}
		if isHeld(a) {
			word += "~" + a.MAC[len(a.MAC)-2:]
		}
		all = append(all, word)
	}

	return strings.Join(all, " ")
}

func (s *site) expect(what, want string) {
	s.Helper()
	if got := s.addresses(); got != want {
		s.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

func (s *site) refused(what string, err error, words ...string) {
	s.Helper()
	if inventory.KindOf(err) != inventory.KindRefused {
		s.Errorf("%s: %v", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			s.Errorf("%s: %v lacks %q", what, err, w)
		}
	}
}

func (s *site) round() {
	s.Helper()
	if _, err := s.Service.round(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// TestAllocate lets 20 callers ask at once, each for four machines that others ask for too. It counts who has what.
func TestAllocate(t *testing.T) {
	t.Parallel()

	const machines = 40
	s := newSite(t, machines, "10.9.1.100-10.9.1.149")

	var (
		tasks sync.WaitGroup
		mu    sync.Mutex
		got   = map[string]map[netip.Addr]bool{} // by node
	)
	for i := range 20 {
		tasks.Go(func() {
			nodes := []string{
				nodeOf(2 * i),
				nodeOf(2*i + 1),
				nodeOf((2*i + 20) % machines),
				nodeOf((2*i + 21) % machines),
			}

			all, err := s.Allocate(t.Context(), ann, nodes)
			if err != nil || len(all) != len(nodes) {
				t.Errorf("%v: %v, %v", nodes, all, err)
			}

			mu.Lock()
			defer mu.Unlock()
			for node, addr := range all {
				if got[node] == nil {
					got[node] = map[netip.Addr]bool{}
				}
				got[node][addr] = true
			}
		})
	}
	tasks.Wait()

	whose := map[netip.Addr]string{}
	for node, addrs := range got {
		if len(addrs) != 1 {
			t.Errorf("%s has the addresses %v", node, addrs)
		}
		for addr := range addrs {
			if other := whose[addr]; other != "" {
				t.Errorf("both %s and %s have %s", node, other, addr)
			}
			whose[addr] = node
		}
	}

	if recorded := strings.Fields(s.addresses()); len(whose) != machines || len(recorded) != machines {
		t.Errorf("%d addresses were given, and %d are recorded, to %d machines", len(whose), len(recorded), machines)
	}
}

// TestExhausted refuses all machines of a call if there are too few addresses, and takes none that somebody has.
func TestExhausted(t *testing.T) {
	t.Parallel()

	s := newSite(t, 3, "10.9.1.100-10.9.1.104")
	s.config.Gateway = netip.MustParseAddr("10.9.1.100")
	s.write(func(tx *record.Tx) {
		record.Put(tx, &job.Nodes, &inventory.Node{Name: "web", Addr: "10.9.1.101"})
		in := state.Instance{Addr: "10.9.1.102"}
		in.ID, in.Node = "i1", "host1"
		record.Put(tx, &state.Instances, &in)
	})

	_, err := s.Allocate(t.Context(), ann, []string{"r01", "r02", "r03"})
	s.refused("three machines", err, "3 machines need an address", "2 of the 5 addresses")
	s.expect("after a refusal", "")

	// The loop gives what there is.
	s.round()
	s.expect("after a round", "10.9.1.103=r01 10.9.1.104=r02")

	if status := s.Status(); status.Free != 0 || fmt.Sprint(status.Waiting) != "[r03]" || len(s.Warnings()) != 1 {
		t.Errorf("status %+v, warnings %v", status, s.Warnings())
	}

	// Where no addresses are given at all, nobody waits for one.
	s.config = Config{}
	if status := s.Status(); len(status.Waiting) != 0 {
		t.Errorf("off, %v wait", status.Waiting)
	}
}

// TestMany gives more addresses than one transaction writes, or none.
func TestMany(t *testing.T) {
	t.Parallel()

	s := newSite(t, 120, "10.9.1.1-10.9.1.119")

	var nodes []string
	for i := range 120 {
		nodes = append(nodes, nodeOf(i))
	}

	commits := s.store.Commits()

	_, err := s.Allocate(t.Context(), ann, nodes)
	s.refused("120 machines", err)
	s.expect("after a refusal", "")

	if n := s.store.Commits() - commits; n != 0 {
		t.Errorf("%d writes for a refusal", n)
	}

	if all, err := s.Allocate(t.Context(), ann, nodes[:119]); err != nil || len(all) != 119 {
		t.Errorf("%d of 119 got an address: %v", len(all), err)
	}
}

// TestConflict gives out no address at which somebody answers, but the machine itself, and none that a machine has
// declined.
func TestConflict(t *testing.T) {
	t.Parallel()

	s := newSite(t, 2, "10.9.1.100-10.9.1.104")
	s.hosts[netip.MustParseAddr("10.9.1.100")] = "02:00:00:00:00:99"
	s.hosts[netip.MustParseAddr("10.9.1.102")] = macOf(1)

	s.round()
	s.expect("after a round", "10.9.1.100=? 10.9.1.101=r01 10.9.1.102=r02")

	decline := netboot.Query{
		Type: netboot.Decline, MAC: macOf(1), Server: netip.MustParseAddr("10.9.1.1"),
		Addr: netip.MustParseAddr("10.9.1.102"),
	}
	other := decline
	other.MAC = macOf(0) // it declines what it has not
	free := other
	free.Addr = netip.MustParseAddr("10.9.1.104") // nobody has it
	nothing := other
	nothing.Addr = netip.Addr{}

	own := netip.MustParsePrefix("10.9.1.1/24")
	for _, step := range []struct {
		queries []netboot.Query
		want    string
	}{
		{[]netboot.Query{other, free, nothing}, "10.9.1.100=? 10.9.1.101=r01 10.9.1.102=r02"},
		{[]netboot.Query{decline, decline}, "10.9.1.100=? 10.9.1.101=r01 10.9.1.102=?"},
	} {
		for _, q := range step.queries {
			if r, _ := s.answer("eth1", own, q); r.Type != "" {
				t.Errorf("a decline was answered: %+v", r)
			}
		}
		if err := s.markDeclined(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.expect("after a decline", step.want)
	}

	s.round()
	s.expect("after another round", "10.9.1.100=? 10.9.1.101=r01 10.9.1.102=? 10.9.1.103=r02")

	if err := s.Release(t.Context(), ann, "10.9.1.100"); err != nil {
		t.Fatal(err)
	}
	if n := s.Status().Conflicts; n != 1 {
		t.Errorf("%d conflicts after a release", n)
	}
}

// TestReserve reserves, moves and refuses.
func TestReserve(t *testing.T) {
	t.Parallel()

	s := newSite(t, 2, "10.9.1.100-10.9.1.104")
	s.register("two", "02:00:00:00:00:01", "02:00:00:00:00:02")
	s.write(func(tx *record.Tx) {
		record.Put(tx, &job.Nodes, &inventory.Node{Name: "web", Addr: "10.9.1.50"})
		record.Put(tx, &job.Nodes, &inventory.Node{Name: "r01", Addr: "10.9.1.51"})
	})
	s.round()
	s.expect("after a round", "10.9.1.100=r01 10.9.1.101=r02 10.9.1.102=two")

	reserve := func(r api.AddressRequest) error {
		_, err := s.Reserve(t.Context(), ann, r)
		return err
	}

	for _, r := range []api.AddressRequest{
		{Addr: "10.9.1.51", Node: "r01"}, // its own, outside of the pool
		{Addr: "10.9.1.51", Node: "r01"},
		{Addr: "10.9.1.101", Node: "r02"}, // that it has already
		{Addr: "10.9.1.60", Node: "two", MAC: "02:00:00:00:00:02"},
	} {
		if err := reserve(r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	s.expect("reserved", "10.9.1.100=~01 10.9.1.101=r02! 10.9.1.102=two 10.9.1.51=r01! 10.9.1.60=two!")

	for words, r := range map[string]api.AddressRequest{
		"the address of r02": {Addr: "10.9.1.101", Node: "r01"},
		"another node":       {Addr: "10.9.1.50", Node: "r01"},
		"not registered":     {Addr: "10.9.1.99", Node: "web"},
		"no network port":    {Addr: "10.9.1.99", Node: "r01", MAC: macOf(1)},
	} {
		s.refused(words, reserve(r), words)
	}

	if err := reserve(
		api.AddressRequest{Addr: "fe80::1", Node: "r01"},
	); inventory.KindOf(
		err,
	) != inventory.KindInvalid {
		t.Errorf("an IPv6 address: %v", err)
	}
	if err := s.Release(t.Context(), ann, "10.9.1.9"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("an address of nobody: %v", err)
	}
}

// TestTidy takes back the addresses of machines and ports that are gone, and gives a new port one.
func TestTidy(t *testing.T) {
	t.Parallel()

	s := newSite(t, 3, "10.9.1.100-10.9.1.104")
	s.round()

	s.write(func(tx *record.Tx) { record.Remove(tx, &state.Machines, "r01") })
	s.register("r02", "02:00:00:00:00:07")
	s.round()
	s.expect("after a removal", "10.9.1.100=~01 10.9.1.101=~02 10.9.1.102=r03 10.9.1.103=r02")

	if got := s.machine("02:00:00:00:00:07"); got == nil || got.Addr.String() != "10.9.1.103" {
		t.Errorf("the new port has %+v", got)
	}
}

// lapse ends the leases of former machines.
func (s *site) lapse() {
	s.Helper()
	s.write(func(tx *record.Tx) {
		for _, a := range record.List(tx, &Kind) {
			if isHeld(a) {
				was := *a
				was.Until = time.Now().Add(-time.Second)
				record.Put(tx, &Kind, &was)
			}
		}
	})
}

// TestHeld: an address of a machine that was forgotten, of one that was moved, and one that was released stay the
// machine's own until its lease is over, and are given to others then.
func TestHeld(t *testing.T) {
	t.Parallel()

	s := newSite(t, 3, "10.9.1.100-10.9.1.103")
	s.round()

	s.write(func(tx *record.Tx) { record.Remove(tx, &state.Machines, "r01") })
	s.register("r04", macOf(3))
	s.register("r05", macOf(4))
	s.round()
	s.expect("after a removal", "10.9.1.100=~01 10.9.1.101=r02 10.9.1.102=r03 10.9.1.103=r04")

	if is := s.Status(); is.Held != 1 || is.Free != 0 || fmt.Sprint(is.Waiting) != "[r05]" {
		t.Errorf("while it is held: %+v", is)
	}

	var held api.Address
	s.write(func(tx *record.Tx) { held = *record.Get(tx, &Kind, "10.9.1.100") })
	if left := held.Until.Sub(held.Since); left != time.Hour {
		t.Errorf("it is held for %s, not as long as a lease", left)
	}

	reserve := func(addr, node string) error {
		_, err := s.Reserve(t.Context(), ann, api.AddressRequest{Addr: addr, Node: node})
		return err
	}
	s.refused("an address that is held", reserve("10.9.1.100", "r05"), macOf(0), "may still use", "release it")

	// The machine comes back, under another name.
	s.register("back", macOf(0))
	s.round()
	s.expect("after its return", "10.9.1.100=back 10.9.1.101=r02 10.9.1.102=r03 10.9.1.103=r04")

	// r02 moves, r03 is released, and gets its own again.
	if err := reserve("10.9.1.50", "r02"); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), ann, "10.9.1.102"); err != nil {
		t.Fatal(err)
	}
	s.expect("before a round", "10.9.1.100=back 10.9.1.101=~02 10.9.1.102=~03 10.9.1.103=r04 10.9.1.50=r02!")
	s.round()
	s.expect("after a move and a release",
		"10.9.1.100=back 10.9.1.101=~02 10.9.1.102=r03 10.9.1.103=r04 10.9.1.50=r02!")

	// Somebody else answers at what a machine would get again.
	s.write(func(tx *record.Tx) { record.Remove(tx, &state.Machines, "r04") })
	s.round()
	s.hosts[netip.MustParseAddr("10.9.1.103")] = "02:00:00:00:00:99"
	s.register("r04", macOf(3))
	_, err := s.Service.round(t.Context())
	s.refused("no address is left", err)
	s.expect("after another host came",
		"10.9.1.100=back 10.9.1.101=~02 10.9.1.102=r03 10.9.1.103=? 10.9.1.50=r02!")

	s.lapse()
	s.round()
	s.expect("after the lease", "10.9.1.100=back 10.9.1.101=r04 10.9.1.102=r03 10.9.1.103=? 10.9.1.50=r02!")

	// An operator who knows that the machine is off need not wait.
	s.write(func(tx *record.Tx) { record.Remove(tx, &state.Machines, "r03") })
	s.round()
	if err := s.Release(t.Context(), ann, "10.9.1.102"); err != nil {
		t.Fatal(err)
	}
	s.round()
	s.expect("after another release",
		"10.9.1.100=back 10.9.1.101=r04 10.9.1.102=r05 10.9.1.103=? 10.9.1.50=r02!")
}

// TestMerged: the address of a port, and its reservation, go to the machine that has the port now.
func TestMerged(t *testing.T) {
	t.Parallel()

	s := newSite(t, 4, "10.9.1.100-10.9.1.109")
	s.round()

	reserve := func(addr, node string) {
		t.Helper()
		if _, err := s.Reserve(t.Context(), ann, api.AddressRequest{Addr: addr, Node: node}); err != nil {
			t.Fatal(err)
		}
	}
	merge := func(from, to, mac string) {
		s.write(func(tx *record.Tx) { record.Remove(tx, &state.Machines, from) })
		s.register(to, mac)
	}

	reserve("10.9.1.20", "r01")
	merge("r01", "web1", macOf(0))
	merge("r02", "web2", macOf(1))
	s.round()
	s.expect("after a merge", "10.9.1.100=~01 10.9.1.101=web2 10.9.1.102=r03 10.9.1.103=r04 10.9.1.20=web1!")

	// The machine has got an address of the pool, or a reservation, before the tidy came.
	reserve("10.9.1.21", "r03")
	merge("r03", "web3", macOf(2))
	if _, err := s.Allocate(t.Context(), ann, []string{"web3"}); err != nil {
		t.Fatal(err)
	}
	merge("r04", "web4", macOf(3))
	reserve("10.9.1.22", "web4")
	s.round()
	s.expect("after late merges", "10.9.1.100=~01 10.9.1.101=web2 10.9.1.102=~03 10.9.1.103=~04 "+
		"10.9.1.20=web1! 10.9.1.21=web3! 10.9.1.22=web4!")

	// Whose it is cannot be told.
	s.register("a", macOf(0))
	merge("web1", "b", macOf(0))
	s.round()
	if got := s.addresses(); !strings.Contains(got, "10.9.1.20=~01") {
		t.Errorf("with two heirs: %s", got)
	}
}

// TestProxy: a router that answers for every address burns none, and machines get none. A host with two addresses has
// two conflicts.
func TestProxy(t *testing.T) {
	t.Parallel()

	for _, machines := range []int{1, 3} {
		s := newSite(t, machines, "10.9.1.100-10.9.1.149")
		r, _ := ParseRange("10.9.1.100-10.9.1.149")
		for a := range (Config{Pool: []Range{r}}).addrs() {
			s.hosts[a] = "02:00:00:00:00:fe"
		}

		for range 9 {
			_, err := s.Service.round(t.Context())
			if inventory.KindOf(err) != inventory.KindUnavailable {
				t.Errorf("%d machines: %v", machines, err)
			}
		}
		s.expect("behind a proxy", "")

		if w := strings.Join(s.Warnings(), "\n"); !strings.Contains(w, "02:00:00:00:00:fe") ||
			!strings.Contains(w, "turn proxy ARP off") {
			t.Errorf("warnings: %s", w)
		}

		clear(s.hosts)
		s.hosts[r.From], s.hosts[r.From.Next()] = "02:00:00:00:00:fe", "02:00:00:00:00:fe"
		s.round()

		if got := len(strings.Fields(s.addresses())); got != machines+min(2, machines)+max(0, 2-machines) ||
			s.Status().Conflicts != 2 || len(s.Warnings()) != 2 {
			t.Errorf("beside a host with two addresses: %s, %v", s.addresses(), s.Warnings())
		}
	}
}

// TestDeclines: a machine that declines all it gets uses up three addresses, and gets no answer then.
func TestDeclines(t *testing.T) {
	t.Parallel()

	s := newSite(t, 2, "10.9.1.100-10.9.1.119")
	own := netip.MustParsePrefix("10.9.1.1/24")
	offers := 0

	for range 10 {
		s.round()

		q := netboot.Query{Type: netboot.Discover, MAC: macOf(0), Server: own.Addr()}
		r, _ := s.answer("eth1", own, q)
		if r.Type == netboot.Offer {
			offers++
		}

		// It declines even what it was not offered.
		q.Type, q.Addr = netboot.Decline, s.machine(macOf(0)).Addr
		s.answer("eth1", own, q)
		if err := s.markDeclined(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	if n := s.Status().Conflicts; n != maxDeclined || offers != maxDeclined {
		t.Errorf("%d conflicts after %d offers", n, offers)
	}
	if r, _ := s.answer("eth1", own, netboot.Query{Type: netboot.Discover, MAC: macOf(1)}); r.Type != netboot.Offer {
		t.Errorf("another machine got %+v", r)
	}
	if w := strings.Join(s.Warnings(), "\n"); !strings.Contains(w, "r01 ("+macOf(0)+") has declined 10.9.1.100, ") {
		t.Errorf("warnings: %s", w)
	}
}

// age makes the conflicts older.
func (s *site) age(by time.Duration) {
	s.Helper()
	s.write(func(tx *record.Tx) {
		for _, a := range record.List(tx, &Kind) {
			if a.Conflict != "" {
				was := *a
				was.Since = was.Since.Add(-by)
				record.Put(tx, &Kind, &was)
			}
		}
	})
}

func (s *site) recheck() {
	s.Helper()
	if err := s.Service.recheck(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// TestRecheck: a conflict ends when nobody answers after an hour. It is shown until then.
func TestRecheck(t *testing.T) {
	t.Parallel()

	s := newSite(t, 1, "10.9.1.100-10.9.1.109")
	a, b := netip.MustParseAddr("10.9.1.100"), netip.MustParseAddr("10.9.1.101")
	s.hosts[a], s.hosts[b] = "02:00:00:00:00:98", "02:00:00:00:00:99"
	s.round()
	s.expect("at first", "10.9.1.100=? 10.9.1.101=? 10.9.1.102=r01")

	for _, words := range []string{"10.9.1.100 ", "02:00:00:00:00:98", "since 20", "leave it out of boot.pool"} {
		if w := s.Warnings(); len(w) != 2 || !strings.Contains(w[0], words) {
			t.Errorf("%q is not in the warnings %q", words, w)
		}
	}

	delete(s.hosts, a)
	s.recheck()
	s.expect("before the hour", "10.9.1.100=? 10.9.1.101=? 10.9.1.102=r01")

	s.age(conflictTime)
	s.networks[0] = netip.MustParsePrefix("10.9.2.254/24")
	s.recheck()
	s.expect("where it cannot be asked", "10.9.1.100=? 10.9.1.101=? 10.9.1.102=r01")

	s.networks[0] = netip.MustParsePrefix("10.9.1.254/24")
	s.recheck()
	s.expect("after the hour", "10.9.1.101=? 10.9.1.102=r01")

	// It is not probed again at once.
	delete(s.hosts, b)
	s.recheck()
	s.expect("soon after", "10.9.1.101=? 10.9.1.102=r01")
	s.checked[b] = time.Now().Add(-conflictTime)
	s.recheck()
	s.expect("after another hour", "10.9.1.102=r01")
}

// TestReservedProbe: a reservation is probed before it is given. If another host answers, it stays, as a conflict.
func TestReservedProbe(t *testing.T) {
	t.Parallel()

	s := newSite(t, 3, "10.9.1.100-10.9.1.109")
	s.round()
	s.hosts[netip.MustParseAddr("10.9.1.20")] = "02:00:00:00:00:99"
	s.hosts[netip.MustParseAddr("10.9.1.21")] = macOf(1)

	for node, addr := range map[string]string{"r01": "10.9.1.20", "r02": "10.9.1.21", "r03": "10.9.1.102"} {
		if _, err := s.Reserve(t.Context(), ann, api.AddressRequest{Addr: addr, Node: node}); err != nil {
			t.Fatal(err)
		}
	}

	own := netip.MustParsePrefix("10.9.1.1/24")
	offered := func() (all string) {
		for i := range 3 {
			r, _ := s.answer("eth1", own, netbootDiscover(i))
			all += " " + r.Addr.String()
		}
		return all
	}

	// r03 had its address already.
	if got, want := offered(), " invalid IP invalid IP 10.9.1.102"; got != want {
		t.Errorf("before the probe: %s", got)
	}
	s.recheck()
	if got, want := offered(), " invalid IP 10.9.1.21 10.9.1.102"; got != want {
		t.Errorf("after the probe: %s", got)
	}
	s.expect("after the probe", "10.9.1.100=~01 10.9.1.101=~02 10.9.1.102=r03! 10.9.1.20=r01!? 10.9.1.21=r02!")

	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "reserved for r01") {
		t.Errorf("warnings: %v", w)
	}

	clear(s.hosts)
	clear(s.checked) // as an hour later
	s.age(conflictTime)
	s.recheck()
	if got, want := offered(), " 10.9.1.20 10.9.1.21 10.9.1.102"; got != want {
		t.Errorf("after the conflict: %s", got)
	}
}

func netbootDiscover(i int) netboot.Query {
	return netboot.Query{Type: netboot.Discover, MAC: macOf(i)}
}

// TestCollisions warns of an address that was given, and that another one has now.
func TestCollisions(t *testing.T) {
	t.Parallel()

	s := newSite(t, 5, "10.9.1.100-10.9.1.109")
	s.round()
	s.write(func(tx *record.Tx) {
		for node, addr := range map[string]string{"r01": "10.9.1.100", "web": "10.9.1.101"} {
			record.Put(tx, &job.Nodes, &inventory.Node{Name: node, Addr: addr})
		}
	})
	if w := s.Warnings(); len(w) != 1 {
		t.Errorf("beside a node: %q", w)
	}

	s.config.Gateway = netip.MustParseAddr("10.9.1.102")
	s.config.DNS = []netip.Addr{netip.MustParseAddr("10.9.1.103")}
	s.networks = []netip.Prefix{netip.MustParsePrefix("10.9.1.104/24")}

	w := s.Warnings()
	if len(w) != 4 {
		t.Fatalf("%d warnings: %q", len(w), w)
	}
	for i, other := range []string{"web", "the gateway", "a name server", "the instance on host1"} {
		want := fmt.Sprintf("10.9.1.10%d, which %s gets, is also the address of %s; correct", i+1, nodeOf(i+1), other)
		if !strings.HasPrefix(w[i], want) {
			t.Errorf("%q\nis not %s", w[i], want)
		}
	}
}

// TestOwnAddress: a machine that has an address of the pool already keeps it, unless another node has it, too.
func TestOwnAddress(t *testing.T) {
	t.Parallel()

	s := newSite(t, 4, "10.9.1.100-10.9.1.104")
	s.write(func(tx *record.Tx) {
		for node, addr := range map[string]string{
			"r01": "10.9.1.9", "r02": "10.9.1.103", "r03": "10.9.1.104", "r04": "10.9.1.104",
		} {
			record.Put(tx, &job.Nodes, &inventory.Node{Name: node, Addr: addr})
		}
	})
	s.round()
	s.expect("after a round", "10.9.1.100=r01 10.9.1.101=r03 10.9.1.102=r04 10.9.1.103=r02")

	// A reservation for another port is none for the first one.
	s.register("two", "02:00:00:00:00:01", "02:00:00:00:00:02")
	if _, err := s.Reserve(t.Context(), ann, api.AddressRequest{
		Addr: "10.9.1.60", Node: "two", MAC: "02:00:00:00:00:02",
	}); err != nil {
		t.Fatal(err)
	}

	s.write(func(tx *record.Tx) { record.Remove(tx, &job.Nodes, "r04") })
	s.write(func(tx *record.Tx) { record.Remove(tx, &job.Nodes, "r03") })
	s.round()
	s.expect("with another port",
		"10.9.1.100=r01 10.9.1.101=r03 10.9.1.102=r04 10.9.1.103=r02 10.9.1.104=two 10.9.1.60=two!")
}

// TestNetworks gives addresses of hosts in the networks that this instance serves, and no other ones.
func TestNetworks(t *testing.T) {
	t.Parallel()

	s := newSite(t, 9, "10.9.1.0-10.9.2.1")
	s.networks = []netip.Prefix{netip.MustParsePrefix("10.9.1.2/29")}
	s.round()
	s.expect("in a network of eight addresses", "10.9.1.1=r01 10.9.1.3=r02 10.9.1.4=r03 10.9.1.5=r04 10.9.1.6=r05")

	s.networks = nil
	s.round()

	if n := len(strings.Fields(s.addresses())); n != 5 || len(s.Status().Waiting) != 4 {
		t.Errorf("without a network, %d machines have an address", n)
	}
}

// TestStale: an instance without contact to the store lets machines keep what they have, and decides nothing.
func TestStale(t *testing.T) {
	t.Parallel()

	s := newSite(t, 1, "10.9.1.100")
	s.round()

	own, addr := netip.MustParsePrefix("10.9.1.254/24"), netip.MustParseAddr("10.9.1.100")
	for _, c := range []struct {
		query       netboot.Query
		fresh, cold netboot.Type
	}{
		{netboot.Query{Type: netboot.Discover}, netboot.Offer, ""},
		{netboot.Query{Type: netboot.Request, Addr: addr}, netboot.Ack, netboot.Ack},
		{netboot.Query{Type: netboot.Request, Addr: addr.Next()}, netboot.Nak, ""},
	} {
		c.query.MAC = macOf(0)
		for stale, want := range map[bool]netboot.Type{false: c.fresh, true: c.cold} {
			s.stale = stale
			if r, _ := s.answer("eth1", own, c.query); r.Type != want {
				t.Errorf("%+v, stale %t: %+v", c.query, stale, r)
			}
		}
	}
}

// TestOff writes nothing while no interface is configured.
func TestOff(t *testing.T) {
	t.Parallel()

	s := newSite(t, 1, "10.9.1.100")
	s.config.Interfaces = nil
	s.round()
	s.expect("without an interface", "")
}

// TestQuery answers registered machines, and writes nothing for it, whoever asks.
func TestQuery(t *testing.T) {
	t.Parallel()

	s := newSite(t, 3, "10.9.1.100-10.9.1.104")
	s.register("two", "02:00:00:00:00:01", "02:00:00:00:00:02")
	s.register("twin", macOf(2))
	s.round()

	own, commits, got := netip.MustParsePrefix("10.9.1.1/24"), s.store.Commits(), map[string]string{}
	for _, mac := range []string{
		macOf(0), macOf(1), macOf(2), "02:00:00:00:00:01", "02:00:00:00:00:02", "02:ff:ff:ff:ff:ff",
	} {
		r, site := s.answer("eth1", own, netboot.Query{Type: netboot.Discover, MAC: mac})
		if r.Type == netboot.Offer {
			got[mac] = r.Addr.String()
		}
		if site.Server != own || site.Lease != time.Hour {
			t.Errorf("%+v", site)
		}
	}

	want := map[string]string{macOf(0): "10.9.1.100", macOf(1): "10.9.1.101", "02:00:00:00:00:01": "10.9.1.104"}
	if !maps.Equal(got, want) || s.store.Commits() != commits {
		t.Errorf("offered %v with %d writes", got, s.store.Commits()-commits)
	}

	// 300 more that nobody knows: the newest stay.
	for i := range 300 {
		s.answer("eth1", own, netboot.Query{Type: netboot.Discover, MAC: fmt.Sprintf("02:00:00:00:01:%04x", i)})
	}
	if n := len(s.Status().Queries); n != maxQueries {
		t.Errorf("%d queries are kept", n)
	}

	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "r03 and twin") {
		t.Errorf("warnings: %v", w)
	}
}

// TestInterfaces notes an interface that does not exist, and forgets it with the configuration.
func TestInterfaces(t *testing.T) {
	t.Parallel()

	s := newSite(t, 0)
	s.config.Interfaces = []string{"none0"}

	for range 2 {
		if _, err := s.serveRound(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Problem(); err == nil || !strings.Contains(err.Error(), "no network interface none0") {
		t.Errorf("the problem is %v", err)
	}

	s.config.Interfaces = nil
	if _, err := s.serveRound(t.Context()); err != nil || s.Problem() != nil || len(s.Status().Interfaces) != 0 {
		t.Errorf("%v, %v", err, s.Problem())
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]int{"10.9.1.100-10.9.1.199": 100, "10.9.1.7": 1, "10.9.0.255-10.9.1.0": 2} {
		r, err := ParseRange(text)

		c := Config{Pool: []Range{r}}
		if err != nil || c.size() != want || len(slices.Collect(c.addrs())) != want {
			t.Errorf("%s: %d addresses, %v", text, c.size(), err)
		}
	}

	for _, text := range []string{
		"", "10.9.1.9-10.9.1.8", "10.9.1.1-", "fd00::1", "10.9.1.0/24", "0.0.0.0", "255.255.255.255", "224.0.0.1",
	} {
		if r, err := ParseRange(text); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%q is taken for %v, %v", text, r, err)
		}
	}

	pool := func(texts ...string) (c Config) {
		for _, text := range texts {
			r, _ := ParseRange(text)
			c.Pool = append(c.Pool, r)
		}
		return c
	}
	gateway := pool("10.9.1.1-10.9.1.9")
	gateway.Gateway = netip.MustParseAddr("10.9.1.5")

	for what, c := range map[string]Config{
		"overlap": pool("10.9.1.5-10.9.1.9", "10.9.1.1-10.9.1.5"),
		"gateway": gateway, "large": pool("10.0.0.1-10.9.0.1"),
	} {
		if err := c.Check(); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// entries is an ARP table with one address.
func entries(addr netip.Addr, states ...uint16) func() ([]neighbour, error) {
	return func() ([]neighbour, error) {
		state := states[0]
		if len(states) > 1 {
			states = states[1:]
		}
		other := neighbour{addr: addr.Next(), mac: "02:00:00:00:00:98", state: reachable}

		return []neighbour{other, {addr, "02:00:00:00:00:99", state}}, nil
	}
}

// TestSettled takes no entry of before for a host: it waits until the kernel has asked again.
func TestSettled(t *testing.T) {
	t.Parallel()

	const incomplete, stale, failed, static = 0x01, 0x04, 0x20, 0x80
	addr := netip.MustParseAddr("10.9.1.100")

	for what, c := range map[string]struct {
		states []uint16
		found  bool
		took   time.Duration
	}{
		"it answers":              {[]uint16{reachable}, true, time.Second},
		"nobody answers":          {[]uint16{incomplete}, false, time.Second},
		"nobody answered before":  {[]uint16{failed}, false, time.Second},
		"an entry that was there": {[]uint16{stale}, false, time.Second},
		"an entry of an operator": {[]uint16{static}, false, time.Second},
		"it is gone":              {[]uint16{delay, delay, probing, failed}, false, 4 * time.Second},
		"it is there still":       {[]uint16{delay, probing, reachable}, true, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			got, err := settled(t.Context(), []netip.Addr{addr}, entries(addr, c.states...))
			if err != nil || len(got) > 1 || (got[addr] == "02:00:00:00:00:99") != c.found ||
				time.Since(began) != c.took {
				t.Errorf("%s: %v, %v, after %s", what, got, err, time.Since(began))
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		if got, err := settled(t.Context(), []netip.Addr{addr}, entries(addr, probing)); err == nil {
			t.Errorf("what does not end is %v", got)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := settled(ctx, []netip.Addr{addr}, entries(addr, reachable)); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v, %v", got, err)
		}
	})
}

// TestNeighbours parses what the kernel sends, also if it is cut off anywhere.
func TestNeighbours(t *testing.T) {
	t.Parallel()

	order := binary.NativeEndian
	entry := []byte{syscall.AF_INET, 0, 0, 0, 2, 0, 0, 0}
	entry = order.AppendUint16(entry, reachable)
	entry = append(entry, 0, 1)
	for _, a := range []struct {
		kind  uint16
		value []byte
	}{{1, []byte{10, 9, 1, 100}}, {2, []byte{2, 0, 0, 0, 0, 0x99, 0, 0}[:6]}, {4, []byte{0, 0, 0, 1}}} {
		entry = order.AppendUint16(entry, uint16(4+len(a.value)))
		entry = order.AppendUint16(entry, a.kind)
		entry = append(entry, a.value...)
		for len(entry)%4 != 0 {
			entry = append(entry, 0)
		}
	}

	want := neighbour{netip.MustParseAddr("10.9.1.100"), "02:00:00:00:00:99", reachable}
	if got := parseNeighbour(entry); got != want {
		t.Errorf("%+v", got)
	}

	found := 0
	for n := range len(entry) {
		if got := parseNeighbour(entry[:n]); got.addr.IsValid() {
			found++
		}
	}
	if found != len(entry)-20 { // the header, and the address
		t.Errorf("the address is found in %d parts", found)
	}

	if got, err := Probe(t.Context(), []netip.Addr{netip.MustParseAddr("127.9.1.1")}); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestInterfaceAnew: an interface that was made anew under its name is served anew, and one that stays is left alone.
func TestInterfaceAnew(t *testing.T) {
	t.Parallel()

	s := newSite(t, 0)
	index, addr, err := addressOf("lo")
	if err != nil {
		t.Fatal(err)
	}

	for is, want := range map[int]bool{index: false, index + 1: true} {
		stopped := false
		s.servers["lo"] = &serving{
			index: is, addr: addr, ended: make(chan struct{}), stop: func() { stopped = true }, server: nil,
		}

		if s.keep([]string{"lo"}); stopped != want {
			t.Errorf("the server of interface %d, which is %d now, was ended: %t", is, index, stopped)
		}
	}
}

// TestInterfaceProblems: what keeps an interface from being served says what to do.
func TestInterfaceProblems(t *testing.T) {
	t.Parallel()

	s := newSite(t, 0)
	s.config.Interfaces = []string{"none0", "lo"}

	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	web := uint16(taken.Addr().(*net.TCPAddr).Port)
	s.Ports = Ports{DHCP: web, TFTP: web + 1, Web: web}

	s.begin(t.Context(), "none0")
	s.begin(t.Context(), "lo")

	text := fmt.Sprint(s.Problem())
	for _, want := range []string{
		"no network interface none0: make it, or correct the name", "end the program that serves lo already",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %q", text, want)
		}
	}
}
