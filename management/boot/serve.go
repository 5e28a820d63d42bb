// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"cmp"
	"context"
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
	"time"

	"github.com/contiv/cluster/configuration/image/netboot"
	"github.com/contiv/cluster/configuration/image/netboot/dhcp"
	"github.com/contiv/cluster/configuration/image/netboot/tftp"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
)

// endTime is how long the end of the service may take.
const endTime = 5 * time.Second

// serving is an interface that is to be served.
type serving struct {
	index   int // of the interface: one that was made anew has another one
	addr    netip.Prefix
	problem error // why it is not served; nil: it is
	server  *dhcp.Server
	stop    func()        // ends the server, and waits for it
	ended   chan struct{} // closed when it has ended
}

// decline is what a machine says that found another host at its address.
type decline struct {
	addr      netip.Addr
	node, mac string
}

// Serve serves the interfaces of the configuration until ctx ends.
func (s *Service) Serve(ctx context.Context) {
	defer func() {
		s.keep(nil)

		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()

		if err := s.recordEvents(ending); err != nil {
			s.Logger.WithError(err).Warn("the last events of boots are lost")
		}
	}()
	s.Serving.Run(ctx)
}

// serveRound serves the interfaces of the configuration, and no other ones.
func (s *Service) serveRound(ctx context.Context) (control.Next, error) {
	want := s.Config().Interfaces
	s.keep(want)

	for _, name := range want {
		s.mu.Lock()
		was := s.servers[name]
		s.mu.Unlock()

		if was == nil || was.problem != nil {
			s.begin(ctx, name)
		}
	}

	if err := errors.Join(s.markDeclined(ctx), s.recordEvents(ctx)); err != nil {
		return control.Next{}, err
	}

	if s.Stale() {
		return control.Next{}, nil
	}

	return control.Next{}, s.recheck(ctx)
}

// keep ends the servers of other interfaces, and those whose interface has another address now.
func (s *Service) keep(names []string) {
	s.mu.Lock()

	var gone []*serving
	for name, is := range s.servers {
		index, addr, err := addressOf(name)
		same := err == nil && addr == is.addr && index == is.index
		if slices.Contains(names, name) && (is.problem != nil || same && !is.over()) {
			continue
		}

		delete(s.servers, name)
		gone = append(gone, is)
	}

	s.mu.Unlock()

	for _, is := range gone {
		if is.stop != nil {
			is.stop()
		}
	}
}

func (s *serving) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// begin serves an interface, or notes why it cannot.
func (s *Service) begin(ctx context.Context, name string) {
	is := &serving{}
	is.index, is.addr, is.problem = addressOf(name)

	var services []service
	if is.problem == nil {
		services, is.problem = s.listen(ctx, name, is)
	}

	if is.problem == nil {
		// They end with Serve, and not with the round; and all of them if one does.
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		is.ended = make(chan struct{})
		is.stop = func() { cancel(); <-is.ended }

		var tasks sync.WaitGroup
		for _, one := range services {
			tasks.Go(func() {
				defer cancel()

				if err := one.serve(running); err != nil {
					s.Logger.WithField("interface", name).WithError(err).Warn(one.name + " ended; it begins again")
				}
			})
		}

		go func() {
			tasks.Wait()
			close(is.ended)
		}()
	}

	s.mu.Lock()
	was := s.servers[name]
	s.servers[name] = is
	s.mu.Unlock()

	switch log := s.Logger.WithField("interface", name); {
	case is.problem == nil:
		log.WithField("addr", is.addr).Info("machines are served by DHCP")
	case was == nil: // once, and not in each round
		log.WithError(is.problem).Warn("machines cannot be served")
	}
}

// service is a protocol that is served on an interface.
type service struct {
	name  string
	serve func(context.Context) error // it closes the port at its end
	close func() error
}

// listen binds the ports of all services on an interface, or of none.
func (s *Service) listen(ctx context.Context, name string, is *serving) (all []service, err error) {
	defer func() {
		if err != nil {
			for _, one := range all {
				_ = one.close()
			}
		}
	}()

	defer func() {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: end the program that serves %s already, or leave the interface out", err, name)
		}
	}()

	is.server, err = dhcp.Listen(ctx, dhcp.Options{
		Interface: name, Port: s.Ports.DHCP,
		Answer: func(q netboot.Query) (netboot.Reply, netboot.Site) { return s.answer(name, is.addr, q) },
	})
	if err != nil {
		return all, fmt.Errorf("DHCP: %w", err)
	}
	all = append(all, service{"DHCP", is.server.Serve, is.server.Close})

	files, err := tftp.Listen(ctx, tftp.Options{
		Interface: name, Addr: netip.AddrPortFrom(is.addr.Addr(), cmp.Or(s.Ports.TFTP, tftp.Port)),
		Open: func(from netip.Addr, file string) (io.ReadCloser, int64, error) {
			return s.openLoader(from, file, FromTFTP)
		},
	})
	if err != nil {
		return all, fmt.Errorf("TFTP: %w", err)
	}
	all = append(all, service{"TFTP", files.Serve, files.Close})

	listener, err := listenOn(ctx, name, netip.AddrPortFrom(is.addr.Addr(), cmp.Or(s.Ports.Web, WebPort)))
	if err != nil {
		return all, fmt.Errorf("HTTP: %w", err)
	}
	site := web{s, is.addr}
	serve := func(ctx context.Context) error { return site.serveWeb(ctx, listener) }

	return append(all, service{"HTTP", serve, listener.Close}), nil
}

// addressOf returns the index of an interface, and its first IPv4 address.
func addressOf(name string) (int, netip.Prefix, error) {
	found, err := net.InterfaceByName(name)
	if err != nil {
		return 0, netip.Prefix{}, fmt.Errorf("there is no network interface %s: make it, or correct the name", name)
	}

	addrs, err := found.Addrs()
	if err != nil {
		return 0, netip.Prefix{}, err
	}

	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return found.Index, p, nil
		}
	}

	return 0, netip.Prefix{}, fmt.Errorf("the network interface %s has no IPv4 address: give it one that stays", name)
}

// answer decides on a query. It reads the newest view, and writes nothing.
func (s *Service) answer(on string, own netip.Prefix, q netboot.Query) (netboot.Reply, netboot.Site) {
	config := s.Config()
	site := netboot.Site{
		Server: own, Gateway: config.Gateway, DNS: config.DNS, Lease: config.Lease, Web: cmp.Or(s.Ports.Web, WebPort),
	}
	m := s.machine(q.MAC)
	reply, why := netboot.Answer(q, site, m)

	if file := netboot.Program(q.Loader); reply.File != "" && file != "" && !s.hasProgram(file) {
		reply, why = netboot.Reply{}, file+" of iPXE is not in boot.ipxe of this instance"
	}

	// A machine that has its address keeps it; whatever is new may have changed elsewhere.
	if reply.Type != "" && reply.Type != netboot.Ack && s.Stale() {
		reply, why = netboot.Reply{}, "this instance has lost the store, and may not know the newest addresses"
	}

	// Whether the address is that of the machine is judged when it is marked.
	if q.Type == netboot.Decline && q.Server == own.Addr() && m != nil && m.Twin == "" {
		select {
		case s.declines <- decline{q.Addr, m.Node, q.MAC}:
			s.Serving.Kick()
		default: // the machine asks again, and declines again
		}
	}

	s.note(on, q, m, reply, why)

	if m != nil && m.Boots && q.Loader != "" {
		s.happened(m.Node, FromDHCP, string(q.Loader)+": "+string(q.Type)+"; "+why)
	}

	return reply, site
}

// note keeps the newest query of each MAC, for Status.
func (s *Service) note(on string, q netboot.Query, m *netboot.Machine, reply netboot.Reply, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	is := s.queries[q.MAC]
	if is == nil {
		if len(s.queries) >= maxQueries {
			oldest := slices.MinFunc(slices.Collect(maps.Values(s.queries)), func(a, b *api.BootQuery) int {
				return a.Last.Compare(b.Last)
			})
			delete(s.queries, oldest.MAC)
		}

		is = &api.BootQuery{MAC: q.MAC}
		s.queries[q.MAC] = is
	}

	is.Node, is.Addr = "", ""
	if m != nil {
		is.Node = m.Node
	}
	if reply.Addr.IsValid() {
		is.Addr = reply.Addr.String()
	}

	is.Interface, is.Query, is.Answer, is.Why, is.Last = on, string(q.Type), string(reply.Type), why, time.Now().UTC()
	is.Count++
}

// markDeclined marks the addresses that machines have declined.
func (s *Service) markDeclined(ctx context.Context) error {
	for {
		select {
		case d := <-s.declines:
			if err := s.mark(ctx, d.addr, d.node+" ("+d.mac+") says that another host has it", d.mac); err != nil {
				return err // the machine declines it again
			}
		default:
			return nil
		}
	}
}

// served are the addresses of this instance on the interfaces that it serves, with their networks.
func (s *Service) served() (all []netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, is := range s.servers {
		if is.problem == nil {
			all = append(all, is.addr)
		}
	}

	return all
}

// own are the addresses of this host, on any interface.
func (s *Service) own() (all []netip.Addr) {
	for _, n := range s.Networks() {
		all = append(all, n.Addr())
	}

	// Without them, the probe still finds those that other hosts see.
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p.Addr())
		}
	}

	return all
}

// Problem returns why an interface is not served, or nil.
func (s *Service) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	var all []error
	for _, name := range slices.Sorted(maps.Keys(s.servers)) {
		if problem := s.servers[name].problem; problem != nil {
			all = append(all, fmt.Errorf("boot.interfaces: %w; machines there get no address", problem))
		}
	}

	return errors.Join(all...)
}

// Warnings are what an operator should know of the addresses.
func (s *Service) Warnings() (all []string) {
	config := s.Config()
	if len(config.Interfaces) == 0 {
		return nil
	}

	r, _ := s.Store.Latest()
	known := machines(r)

	for _, mac := range slices.Sorted(maps.Keys(known)) {
		if m := known[mac]; m.Twin != "" {
			all = append(
				all,
				fmt.Sprintf(
					"%s and %s are registered with the same MAC, %s, so neither gets an address; correct or merge them",
					m.Node,
					m.Twin,
					mac,
				),
			)
		}
	}

	if left := waiting(r); len(left) > 0 && len(config.Pool) > 0 && len(s.pool(r).free()) == 0 {
		all = append(
			all,
			fmt.Sprintf("boot.pool has no free address; widen it for the %d machines that need one: %s", len(left),
				strings.Join(inventory.ShortenAll(left, 5, maxShown), ", ")),
		)
	}

	all = slices.Concat(all, conflictWarnings(r), s.collisions(r, config))

	declined := declinedBy(r)
	for _, mac := range slices.Sorted(maps.Keys(declined)) {
		if m := known[mac]; m != nil && len(declined[mac]) >= maxDeclined {
			all = append(all, fmt.Sprintf(
				"%s (%s) has declined %s, so it gets no answer; find out who has these addresses, and release them",
				m.Node, mac, strings.Join(declined[mac], ", ")))
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.proxy != nil {
		all = append(all, s.proxy.Error())
	}

	for _, name := range slices.Sorted(maps.Keys(s.servers)) {
		network := s.servers[name].addr.Masked()
		inside := func(r Range) bool { return network.Contains(r.From) && network.Contains(r.To) }

		if network.IsValid() && len(config.Pool) > 0 && !slices.ContainsFunc(config.Pool, inside) {
			all = append(
				all,
				fmt.Sprintf("no range of boot.pool is in the network of %s; add one within %s", name, network),
			)
		}
	}

	return all
}

// collisions names addresses that were given, and that others have by now: nodes and the configuration change.
func (s *Service) collisions(r record.Reader, config Config) (all []string) {
	users, own := users(r), s.own()

	for _, a := range record.List(r, &Kind) {
		if a.Node == "" || a.Conflict != "" {
			continue
		}
		addr := addrOf(a.Addr)

		var others []string
		for _, name := range users[addr] {
			if name != a.Node {
				others = append(others, name)
			}
		}
		if a.Node != s.Node && !slices.Contains(others, s.Node) && slices.Contains(own, addr) {
			others = append(others, "the instance on "+s.Node)
		}
		if addr == config.Gateway {
			others = append(others, "the gateway")
		}
		if slices.Contains(config.DNS, addr) {
			others = append(others, "a name server")
		}

		if len(others) > 0 {
			all = append(
				all,
				fmt.Sprintf("%s, which %s gets, is also the address of %s; correct that, or reserve another "+
					"address for %s", a.Addr, a.Node, strings.Join(others, ", "), a.Node),
			)
		}
	}

	return firstOf(all, "addresses are also those of others")
}

// conflictWarnings names the addresses that cannot be used.
func conflictWarnings(r record.Reader) (all []string) {
	for _, a := range record.List(r, &Kind) {
		if a.Conflict == "" {
			continue
		}

		given, remedy := "is given to nobody", "leave it out of boot.pool"
		if a.Node != "" {
			given, remedy = fmt.Sprintf("is reserved for %s (%s) and not given", a.Node, a.MAC), "reserve another one"
		}

		all = append(all, fmt.Sprintf("%s %s since %s: %s; take it from that host, or %s; it is probed each hour",
			a.Addr, given, a.Since.Format(time.RFC3339), a.Conflict, remedy))
	}

	return firstOf(all, "addresses cannot be used")
}

// maxWarnings bounds the warnings of one sort.
const maxWarnings = 5

// firstOf returns some warnings, and how many more there are of the sort.
func firstOf(all []string, sort string) []string {
	if more := len(all) - maxWarnings; more > 0 {
		all = append(all[:maxWarnings:maxWarnings], fmt.Sprintf("%d more %s; list the addresses", more, sort))
	}
	return all
}

// Status returns how this instance serves machines.
func (s *Service) Status() api.BootStatus {
	config := s.Config()
	r, _ := s.Store.Latest()
	left := s.pool(r).free()

	out := api.BootStatus{
		Instance: s.Node, Interfaces: []api.BootInterface{}, Pool: config.size(), Free: len(left), Waiting: []string{},
		Queries: []api.BootQuery{},
	}
	if len(config.Interfaces) > 0 || out.Pool > 0 { // else nobody gets an address, so nobody waits for one
		out.Waiting = waiting(r)
	}
	for _, a := range record.List(r, &Kind) {
		switch {
		case a.Conflict != "":
			out.Conflicts++
		case isHeld(a):
			out.Held++
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	for _, name := range slices.Sorted(maps.Keys(s.servers)) {
		is := s.servers[name]

		shown := api.BootInterface{Name: name}
		if is.addr.IsValid() {
			shown.Addr = is.addr.String()
		}
		if is.problem != nil {
			shown.Problem = is.problem.Error()
		} else {
			out.Dropped += is.server.Dropped()
		}
		out.Interfaces = append(out.Interfaces, shown)
	}

	for _, q := range s.queries {
		out.Queries = append(out.Queries, *q)
	}
	slices.SortFunc(out.Queries, func(a, b api.BootQuery) int { return b.Last.Compare(a.Last) })

	return out
}
