// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration/image/netboot"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Kind are the addresses. The key is the address, so that nobody else can have it.
var Kind = record.Kind[api.Address]{
	Name: "addresses", Key: func(a *api.Address) string { return a.Addr },
	Nodes: func(a *api.Address) []string {
		if a.Node == "" {
			return nil
		}
		return []string{a.Node}
	},
}

const (
	// batch is how many addresses are written in one transaction.
	batch = 50
	// serveEvery is how soon a changed configuration, and an interface that appears, have an effect.
	serveEvery  = 2 * time.Second
	maxQueries  = 200
	maxDeclines = 100
	// maxDeclined is how many addresses one port may make unusable.
	maxDeclined = 3
	// witnesses is how many free addresses are asked to tell a router with proxy ARP from a host.
	witnesses = 4
	// conflictTime is after how long an address that cannot be used is probed again.
	conflictTime = time.Hour
)

// Options are the dependencies of a Service.
type Options struct {
	Store        record.Store
	Sync         func(context.Context) error // after it, the records are the newest
	Leads        func() bool
	Node         string // the host of this instance
	Config       func() Config
	Stale        func() bool // whether the records may be of a former time; nil: they never are
	Ports        Ports
	Environments Environments
	Disks        Disks
	// Networks returns the addresses of this instance on the interfaces that it serves, each with its network; nil: as
	// they are. For tests.
	Networks func() []netip.Prefix
	// Probe returns who has the addresses now: the MAC of each one that answers. nil: Probe.
	Probe  func(context.Context, []netip.Addr) (map[netip.Addr]string, error)
	Audit  access.Auditor
	Logger logrus.FieldLogger
}

// Ports are those of the services; 0: the usual one. Tests have others.
type Ports struct{ DHCP, TFTP, Web uint16 }

// Environments makes the files of boot environments out of images, and has them. All methods may be called at once.
type Environments interface {
	// For returns the name of the image whose kernel boots machines of the architecture, or KindRefused.
	For(r record.Reader, arch string) (image string, err error)
	// Make makes the files of an image on this instance, unless they are there.
	Make(ctx context.Context, image string) error
	// Open opens the kernel or the initrd of an image. It makes them as Make does.
	Open(ctx context.Context, image, file string) (*os.File, error)
}

// isHeld reports whether an address is of nobody, but was of a machine whose lease may still run.
func isHeld(a *api.Address) bool { return a.Node == "" && a.Conflict == "" && !a.Until.IsZero() }

// Service gives addresses to registered machines, answers their queries, and serves those that are to boot.
type Service struct {
	Options

	Loop    *control.Loop // of the leader: each registered machine has an address
	Serving *control.Loop // of each instance: its interfaces are served; see Serve

	declines chan decline
	checked  map[netip.Addr]time.Time // when conflicts were probed again; of Serving alone

	mu      sync.Mutex // guards what follows
	servers map[string]*serving
	queries map[string]*api.BootQuery // by MAC
	heard   map[string]heard          // by node
	index   index
	proxy   error // what the newest probe found that nobody can tell who has addresses; nil: nothing
}

// New returns a service whose loops are not started.
func New(o Options) *Service {
	if o.Probe == nil {
		o.Probe = Probe
	}
	if o.Stale == nil {
		o.Stale = func() bool { return false }
	}

	s := &Service{
		Options: o, declines: make(chan decline, maxDeclines), servers: map[string]*serving{},
		queries: map[string]*api.BootQuery{}, heard: map[string]heard{}, checked: map[netip.Addr]time.Time{},
	}
	if s.Networks == nil {
		s.Networks = s.served
	}

	s.Loop = control.New(control.Options{
		Name: "addresses of machines", Duty: o.Leads, Begin: o.Sync, Changed: o.Store.Changed, Round: s.round,
		Pace: time.Second, Every: time.Minute, Backoff: 10 * time.Second,
		Trouble: "machines could not get their addresses; retrying", Logger: o.Logger,
	})
	s.Serving = control.New(control.Options{
		Name: "boot network", Round: s.serveRound, Every: serveEvery, Pace: serveEvery,
		Trouble: "the queries of machines could not be served; retrying", Logger: o.Logger,
	})

	return s
}

// round gives an address to each machine that has none, and takes those back that are of no machine any more.
func (s *Service) round(ctx context.Context) (control.Next, error) {
	// Other instances may serve machines, also if this one does not.
	if err := s.tidyBoots(ctx); err != nil {
		return control.Next{}, err
	}

	config := s.Config()
	if len(config.Interfaces) == 0 {
		return control.Next{}, nil
	}

	if err := s.tidy(ctx); err != nil {
		return control.Next{}, err
	}

	r, _ := s.Store.Latest()
	p := s.pool(r)
	left := len(p.free())

	// As many as there are addresses get one; Status tells the others.
	nodes := slices.DeleteFunc(waiting(r), func(node string) bool {
		if p.ownOf(r, node).IsValid() {
			return false
		}
		left--

		return left < 0
	})

	// One transaction, of which nothing has to be taken back. The next ones follow it.
	nodes = nodes[:min(len(nodes), batch)]
	if len(nodes) == 0 {
		s.setProxy(nil)
		return control.Next{}, nil
	}

	_, err := s.Allocate(ctx, access.Caller{Principal: principal}, nodes)

	return control.Next{}, err
}

// waiting are the registered machines whose first network port has no address.
func waiting(r record.Reader) []string {
	has := map[[2]string]bool{}
	for _, a := range record.List(r, &Kind) {
		has[[2]string{a.Node, a.MAC}] = true
	}

	nodes := []string{}
	for _, m := range record.List(r, &state.Machines) {
		if len(m.Ports) > 0 && !has[[2]string{m.Node, m.Ports[0].MAC}] {
			nodes = append(nodes, m.Node)
		}
	}

	return nodes
}

// declinedBy are the addresses that ports have declined, by their MACs.
func declinedBy(r record.Reader) map[string][]string {
	all := map[string][]string{}
	for _, a := range record.List(r, &Kind) {
		if a.Declined != "" {
			all[a.Declined] = append(all[a.Declined], a.Addr)
		}
	}
	return all
}

// pool tells which addresses of the pool can be given.
type pool struct {
	config   Config
	networks []netip.Prefix
	taken    map[netip.Addr]bool
	held     map[netip.Addr]string // the MACs of the ports that had them
	users    map[netip.Addr][]string
}

func (s *Service) pool(r record.Reader) pool {
	p := pool{s.Config(), s.Networks(), map[netip.Addr]bool{}, map[netip.Addr]string{}, users(r)}

	p.taken[p.config.Gateway] = true
	for _, a := range slices.Concat(p.config.DNS, s.own()) {
		p.taken[a] = true
	}
	for _, a := range record.List(r, &Kind) {
		if isHeld(a) {
			p.held[addrOf(a.Addr)] = a.MAC
			continue
		}
		p.taken[addrOf(a.Addr)] = true
	}

	return p
}

// gives reports whether an address can be given to a port, unless a node has it. Only in the networks of this instance
// it can be asked who has it.
func (p pool) gives(a netip.Addr, mac string) bool {
	if former, held := p.held[a]; held && former != mac {
		return false
	}
	return !p.taken[a] && canAsk(p.networks, a)
}

// canAsk reports whether an address is that of a host in one of the networks.
func canAsk(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return netboot.IsHost(n, a) })
}

// free are the addresses that can be given to anybody.
func (p pool) free() (all []netip.Addr) {
	for a := range p.config.addrs() {
		if p.gives(a, "") && len(p.users[a]) == 0 {
			all = append(all, a)
		}
	}

	return all
}

// ownOf is the address that a machine has or had already, if it can be given, or zero. A machine that runs keeps its
// address.
func (p pool) ownOf(r record.Reader, node string) netip.Addr {
	mac := record.Get(r, &state.Machines, node).Ports[0].MAC
	inside := func(a netip.Addr) bool {
		return slices.ContainsFunc(p.config.Pool, func(r Range) bool { return r.contains(a) })
	}

	if n := record.Get(base(r), &job.Nodes, node); n != nil {
		a := addrOf(n.Addr)
		if inside(a) && p.gives(a, mac) && slices.Equal(p.users[a], []string{node}) {
			return a
		}
	}

	for _, a := range slices.SortedFunc(maps.Keys(p.held), netip.Addr.Compare) {
		used := slices.ContainsFunc(p.users[a], func(name string) bool { return name != node })
		if p.held[a] == mac && inside(a) && p.gives(a, mac) && !used {
			return a
		}
	}

	return netip.Addr{}
}

// base returns what a transaction began with: nodes and instances change often, so they guard none.
func base(r record.Reader) record.Reader {
	if tx, ok := r.(*record.Tx); ok {
		return tx.Base()
	}
	return r
}

// users are the nodes, and those of the instances, by their addresses.
func users(r record.Reader) map[netip.Addr][]string {
	all := map[netip.Addr][]string{}
	for _, n := range record.List(base(r), &job.Nodes) {
		all[addrOf(n.Addr)] = append(all[addrOf(n.Addr)], n.Name)
	}
	for _, i := range record.List(base(r), &state.Instances) {
		if a := addrOf(i.Addr); !slices.Contains(all[a], i.Node) {
			all[a] = append(all[a], i.Node)
		}
	}

	return all
}

// addrOf returns the address in a text; zero: it is none, such as a host name.
func addrOf(text string) netip.Addr {
	addr, _ := netip.ParseAddr(text)
	return addr
}

// index finds machines by their MACs, at a revision of the records.
type index struct {
	revision int64
	machines map[string]*netboot.Machine
	at       map[netip.Addr]*netboot.Machine
}

// machine returns what is known of a MAC, nil if it is of no registered machine.
func (s *Service) machine(mac string) *netboot.Machine { return s.indexed().machines[mac] }

// machineAt returns the machine that has an address of the manager, or nil.
func (s *Service) machineAt(addr netip.Addr) *netboot.Machine { return s.indexed().at[addr] }

func (s *Service) indexed() index {
	r, revision := s.Store.Latest()

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.index.machines == nil || s.index.revision != revision {
		s.index = index{revision, machines(r), map[netip.Addr]*netboot.Machine{}}
		for _, m := range s.index.machines {
			if m.Addr.IsValid() {
				s.index.at[m.Addr] = m
			}
		}
	}

	return s.index
}

// machines are the registered machines by the MACs of their ports.
func machines(r record.Reader) map[string]*netboot.Machine {
	all := map[string]*netboot.Machine{}

	for _, m := range record.List(r, &state.Machines) {
		for _, p := range m.Ports {
			if other := all[p.MAC]; other != nil && other.Node != m.Node {
				other.Twin = m.Node
				continue
			}
			all[p.MAC] = &netboot.Machine{Node: m.Node, Boots: record.Get(r, &BootsKind, m.Node).Serves()}
		}
	}

	ports := map[string]string{} // of the node that has an address
	for _, a := range record.List(r, &Kind) {
		m := all[a.MAC]
		if m == nil || m.Node != a.Node {
			continue
		}

		m.Addr, ports[a.Node] = addrOf(a.Addr), a.MAC
		if a.Conflict != "" {
			m.Problem = a.Addr + " cannot be used: " + a.Conflict
		} else if a.Unprobed {
			m.Problem = "it is not known yet whether another host has " + a.Addr
		}
	}

	for mac, declined := range declinedBy(r) {
		if m := all[mac]; m != nil && len(declined) >= maxDeclined {
			m.Problem = m.Node + " has declined too many addresses: " + strings.Join(declined, ", ")
		}
	}

	for _, m := range all {
		if port := ports[m.Node]; !m.Addr.IsValid() && port != "" {
			m.Problem = "the address of " + m.Node + " is for its port " + port + ", and none is reserved for this one"
		}
	}

	return all
}
