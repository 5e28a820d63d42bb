// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

const maxShown = 60 // bytes of a text in an error

func refused(format string, args ...any) *inventory.Error {
	return inventory.Errorf(inventory.KindRefused, format, args...)
}

// Allocate gives an address of the pool to each of the registered machines that has none, and returns those of all.
// Either all get one, or none does. It probes each address before, which takes a second or more.
func (s *Service) Allocate(
	ctx context.Context, c access.Caller, nodes []string,
) (out map[string]netip.Addr, err error) {
	entry := access.Record{Action: "addresses.allocate", Targets: nodes}
	err = access.Audited(ctx, s.Audit, c, entry, func(ctx context.Context, _ *access.Record) (err error) {
		out, err = s.allocate(ctx, c, nodes)
		return err
	})

	return out, err
}

func (s *Service) allocate(ctx context.Context, c access.Caller, nodes []string) (map[string]netip.Addr, error) {
	// Before the first one is written: they would have to be taken back.
	if r, _ := s.Store.Latest(); len(nodes) > batch {
		if _, _, err := s.choose(r, nodes); err != nil {
			return nil, err
		}
	}

	quiet := map[netip.Addr]bool{}
	out := map[string]netip.Addr{}

	var made []string

	for part := range slices.Chunk(nodes, batch) {
		chosen, added, err := s.allocatePart(ctx, c, part, quiet)
		if err != nil {
			for _, addr := range made {
				_ = s.takeBack(context.WithoutCancel(ctx), addr) // what stays is given to its node the next time
			}
			return nil, err
		}

		maps.Copy(out, chosen)
		made = append(made, added...)
	}

	return out, nil
}

// part is what a transaction has chosen.
type part struct {
	all  map[string]netip.Addr
	made map[string]netip.Addr
	// unknown are those of the chosen addresses that were not probed, with the MACs of the machine. Nothing was written
	// then.
	unknown map[netip.Addr][]machine.Port
}

// allocatePart allocates in one transaction. quiet are the addresses at which nobody answers.
func (s *Service) allocatePart(
	ctx context.Context, c access.Caller, nodes []string, quiet map[netip.Addr]bool,
) (all map[string]netip.Addr, made []string, err error) {
	for {
		p, _, err := access.Decide(ctx, s.Store, c, nil, func(tx *record.Tx) (part, error) {
			has, chosen, err := s.choose(tx, nodes)
			if err != nil {
				return part{}, err
			}

			p := part{all: has, made: chosen, unknown: map[netip.Addr][]machine.Port{}}
			for node, addr := range chosen {
				if !quiet[addr] {
					p.unknown[addr] = record.Get(tx, &state.Machines, node).Ports
				}
			}
			if len(p.unknown) > 0 {
				return p, nil
			}

			now := time.Now().UTC()
			for node, addr := range chosen {
				mac := record.Get(tx, &state.Machines, node).Ports[0].MAC
				record.Put(tx, &Kind, &api.Address{Addr: addr.String(), Node: node, MAC: mac, Since: now})
			}

			return p, nil
		})
		if err != nil {
			return nil, nil, err
		}

		if len(p.unknown) == 0 {
			for node, addr := range p.made {
				p.all[node] = addr
				made = append(made, addr.String())
			}
			return p.all, made, nil
		}

		if err := s.probe(ctx, p.unknown, quiet); err != nil {
			return nil, nil, err
		}
	}
}

// choose returns the addresses that nodes have, and free ones for the others.
func (s *Service) choose(r record.Reader, nodes []string) (has, chosen map[string]netip.Addr, err error) {
	has, chosen = map[string]netip.Addr{}, map[string]netip.Addr{}

	for _, a := range record.List(r, &Kind) {
		if !slices.Contains(nodes, a.Node) {
			continue
		}
		if m := record.Get(r, &state.Machines, a.Node); m == nil || len(m.Ports) == 0 || m.Ports[0].MAC != a.MAC {
			continue // it is for another port
		}
		if a.Conflict != "" {
			return nil, nil, refused("%s, which is reserved for %s, cannot be used: %s", a.Addr, a.Node, a.Conflict).
				Do("release it, or reserve another one").About(a.Node)
		}
		has[a.Node] = addrOf(a.Addr)
	}

	var need []string
	for _, node := range nodes {
		if _, ok := has[node]; ok {
			continue
		}
		if m := record.Get(r, &state.Machines, node); m == nil || len(m.Ports) == 0 {
			return nil, nil, notRegistered(node)
		}
		need = append(need, node)
	}

	p := s.pool(r)

	need = slices.DeleteFunc(need, func(node string) bool {
		own := p.ownOf(r, node)
		if own.IsValid() {
			chosen[node] = own
		}

		return own.IsValid()
	})

	left := p.free()
	if len(left) < len(need) {
		return nil, nil, refused("%d machines need an address, and %d of the %d addresses of the pool are free",
			len(need), len(left), p.config.size()).
			Do("widen boot.pool in the configuration file, or release addresses that nobody needs")
	}

	for i, node := range need {
		chosen[node] = left[i]
	}

	return has, chosen, nil
}

func notRegistered(node string) error {
	return refused("%s is not registered with a network port", inventory.Shorten(node, maxShown)).
		Do("import it with the MACs of its ports")
}

// probe adds the addresses to quiet at which nobody answers, or the machine itself does, and marks the others.
func (s *Service) probe(ctx context.Context, addrs map[netip.Addr][]machine.Port, quiet map[netip.Addr]bool) error {
	answers, err := s.ask(ctx, slices.Collect(maps.Keys(addrs)))
	if err != nil {
		return err
	}

	strange := map[netip.Addr]string{}
	for addr, ports := range addrs {
		mac := answers[addr]
		if mac == "" || slices.ContainsFunc(ports, func(p machine.Port) bool { return p.MAC == mac }) {
			quiet[addr] = true
			continue
		}
		strange[addr] = mac
	}

	proxy, err := s.findProxy(ctx, addrs, strange)
	if err != nil {
		return err
	}

	s.setProxy(proxy)
	if proxy != nil {
		return proxy
	}

	for addr, mac := range strange {
		if err := s.mark(ctx, addr, "a host with the MAC "+mac+" answered there", ""); err != nil {
			return err
		}
	}

	return nil
}

// ask returns who has the addresses.
func (s *Service) ask(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]string, error) {
	if len(addrs) == 0 {
		return nil, nil
	}

	answers, err := s.Probe(ctx, addrs)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable,
			"it is not known whether other hosts have the addresses: %w", err).
			Do("see that the network of boot.interfaces works")
	}

	return answers, nil
}

// findProxy looks for one host that answers for most of the addresses, which nobody has then: a router with proxy ARP.
// It asks for some free addresses, too, since only one may have been asked for.
func (s *Service) findProxy(
	ctx context.Context, asked map[netip.Addr][]machine.Port, strange map[netip.Addr]string,
) (proxy, err error) {
	if len(strange) == 0 {
		return nil, nil
	}

	r, _ := s.Store.Latest()
	free := slices.DeleteFunc(s.pool(r).free(), func(a netip.Addr) bool { return asked[a] != nil })
	free = free[max(0, len(free)-witnesses):]

	more, err := s.ask(ctx, free)
	if err != nil {
		return nil, err
	}

	count := map[string]int{}
	for _, answers := range []map[netip.Addr]string{strange, more} {
		for _, mac := range answers {
			count[mac]++
		}
	}

	total := len(asked) + len(free)
	for mac, n := range count {
		if n > 1 && 2*n > total {
			return inventory.Errorf(
				inventory.KindUnavailable,
				"the host with the MAC %s answers for %d of %d addresses of boot.pool, as a router with proxy ARP: "+
					"nobody can tell who has them, so they are given to nobody",
				mac,
				n,
				total,
			).
				Do("turn proxy ARP off there; or if that host has them, leave them out of boot.pool"), nil
		}
	}

	return nil, nil
}

func (s *Service) setProxy(proxy error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxy = proxy
}

// recheck probes new reservations, and conflicts again that are old, in the networks of this instance. A reservation
// begins, and a conflict ends, if nobody answers.
func (s *Service) recheck(ctx context.Context) error {
	r, _ := s.Store.Latest()
	now, networks := time.Now(), s.Networks()
	maps.DeleteFunc(s.checked, func(_ netip.Addr, t time.Time) bool { return now.Sub(t) >= conflictTime })

	open := map[netip.Addr]*api.Address{}
	for _, a := range record.List(r, &Kind) {
		addr := addrOf(a.Addr)
		if len(open) < batch && s.toCheck(a, now) && canAsk(networks, addr) {
			open[addr] = a
		}
	}

	answers, err := s.ask(ctx, slices.Collect(maps.Keys(open)))
	if err != nil {
		return err
	}

	for addr, a := range open {
		s.checked[addr] = now
		if err := s.settle(ctx, a, answers[addr]); err != nil {
			return err
		}
	}

	return nil
}

// toCheck reports whether an address is to be probed, or to be probed again.
func (s *Service) toCheck(a *api.Address, now time.Time) bool {
	_, checked := s.checked[addrOf(a.Addr)]
	return a.Unprobed || a.Conflict != "" && !checked && now.Sub(a.Since) >= conflictTime
}

// settle records what a probe found at an address. mac is the host that answered; empty: none did.
func (s *Service) settle(ctx context.Context, probed *api.Address, mac string) error {
	_, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (any, error) {
		is := record.Get(tx, &Kind, probed.Addr)
		if is == nil || *is != *probed {
			return nil, nil // it has changed meanwhile
		}

		m := record.Get(tx, &state.Machines, is.Node)
		strange := mac != "" && (m == nil || !hasPort(m, mac))
		if strange && !is.Unprobed {
			return nil, nil // the conflict goes on
		}

		next := *is
		next.Unprobed, next.Conflict, next.Declined, next.Since = false, "", "", time.Now().UTC()
		if strange {
			next.Conflict = "a host with the MAC " + mac + " answered there"
		}
		if next.Node == "" && (next.Until.IsZero() || over(&next)) {
			record.Remove(tx, &Kind, is.Addr)
			return nil, nil
		}

		record.Put(tx, &Kind, &next)

		return nil, nil
	})
	return err
}

// mark records that an address cannot be used. mac is the one that has it; empty: none does.
func (s *Service) mark(ctx context.Context, addr netip.Addr, why, mac string) error {
	marked, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (bool, error) {
		next := api.Address{Addr: addr.String()}

		was := record.Get(tx, &Kind, next.Addr)
		switch {
		case was == nil && mac != "":
			return false, nil // no machine has it that could decline it
		case was == nil:
		case isHeld(was) && mac == "":
			next = *was
		case was.MAC != mac || was.Conflict != "":
			return false, nil // it has changed meanwhile
		case len(declinedBy(tx)[mac]) >= maxDeclined:
			return false, nil // it would use up the pool
		case was.Reserved: // who has an address of the pool gets another one
			next = *was
		}

		next.Conflict, next.Declined, next.Since = why, mac, time.Now().UTC()
		record.Put(tx, &Kind, &next)

		return true, nil
	})
	if err == nil && marked {
		s.Logger.WithField("addr", addr).Warn("the address cannot be used: " + why)
	}

	return err
}

// takeBack frees an address that was just given, unless an operator or a conflict has changed it since.
func (s *Service) takeBack(ctx context.Context, addr string) error {
	_, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (any, error) {
		if a := record.Get(tx, &Kind, addr); a != nil && !a.Reserved && a.Conflict == "" {
			s.hold(tx, a)
		}
		return nil, nil
	})
	return err
}

// hold frees an address of a machine. The machine may use it until its lease is over, so nobody else gets it before.
func (s *Service) hold(tx *record.Tx, a *api.Address) {
	now := time.Now().UTC()

	next := api.Address{Addr: a.Addr, MAC: a.MAC, Since: now, Until: now.Add(s.Config().Lease)}
	if a.Conflict != "" {
		next.Conflict, next.Declined, next.Since = a.Conflict, a.Declined, a.Since
	}

	record.Put(tx, &Kind, &next)
}

// tidy frees the addresses of machines and ports that are gone, unless another machine has the port now, and forgets
// those that were held for long enough.
func (s *Service) tidy(ctx context.Context) error {
	r, _ := s.Store.Latest()

	for _, a := range record.List(r, &Kind) {
		if !stale(r, a) && !over(a) {
			continue
		}

		if _, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (any, error) {
			switch is := record.Get(tx, &Kind, a.Addr); {
			case is == nil:
			case over(is):
				record.Remove(tx, &Kind, a.Addr)
			case stale(tx, is):
				s.pass(tx, is)
			}

			return nil, nil
		}); err != nil {
			return err
		}
	}

	return nil
}

// pass gives an address to the machine that has its port now, such as one into which the former was merged. If none has
// it, or several do, the address is free.
func (s *Service) pass(tx *record.Tx, a *api.Address) {
	next := *a
	next.Node = ownerOf(tx, a.MAC)
	if next.Node == "" {
		s.hold(tx, a)
		return
	}

	for _, other := range record.List(tx, &Kind) {
		if other.Node != next.Node || other.MAC != next.MAC {
			continue
		}
		if other.Reserved {
			s.hold(tx, a)
			return
		}
		s.hold(tx, other)
	}

	record.Put(tx, &Kind, &next)
}

// ownerOf is the only machine that has a port, or empty.
func ownerOf(r record.Reader, mac string) (node string) {
	for _, m := range record.List(r, &state.Machines) {
		if !hasPort(m, mac) {
			continue
		}
		if node != "" {
			return ""
		}
		node = m.Node
	}

	return node
}

// over reports whether an address was held for long enough.
func over(a *api.Address) bool { return isHeld(a) && !time.Now().Before(a.Until) }

// stale reports whether an address is of a machine that has not its port any more.
func stale(r record.Reader, a *api.Address) bool {
	if a.Node == "" {
		return false
	}
	m := record.Get(r, &state.Machines, a.Node)
	return m == nil || !hasPort(m, a.MAC)
}

func hasPort(m *state.Machine, mac string) bool {
	return slices.ContainsFunc(m.Ports, func(p machine.Port) bool { return p.MAC == mac })
}

func (s *Service) decide(
	ctx context.Context, c access.Caller, action string, targets []string,
	decide func(*record.Tx) (api.Address, error),
) (out api.Address, err error) {
	entry := access.Record{Action: action, Targets: inventory.ShortenAll(targets, len(targets), maxShown)}
	err = access.Audited(ctx, s.Audit, c, entry, func(ctx context.Context, _ *access.Record) (err error) {
		out, _, err = access.Decide(ctx, s.Store, c, nil, decide)
		return err
	})

	return out, err
}

// Reserve gives an address to a registered machine until it is released. It takes the place of one that the port had.
func (s *Service) Reserve(ctx context.Context, c access.Caller, r api.AddressRequest) (api.Address, error) {
	addr, err := ParseAddr(r.Addr)
	if err != nil {
		return api.Address{}, err
	}

	defer s.Serving.Kick()

	return s.decide(ctx, c, "addresses.reserve", []string{r.Node, r.Addr}, func(tx *record.Tx) (api.Address, error) {
		return s.reserve(tx, addr, r.Node, strings.ToLower(r.MAC))
	})
}

func (s *Service) reserve(tx *record.Tx, addr netip.Addr, node, mac string) (api.Address, error) {
	next := api.Address{Addr: addr.String(), Node: node, MAC: mac, Reserved: true, Since: time.Now().UTC()}

	m := record.Get(tx, &state.Machines, node)
	if m == nil || len(m.Ports) == 0 {
		return next, notRegistered(node)
	}

	if mac == "" {
		next.MAC = m.Ports[0].MAC
	} else if !hasPort(m, mac) {
		return next, refused("%s has no network port with the MAC %s", node, inventory.Shorten(mac, maxShown)).
			Do("give one with which it is registered").About(node)
	}

	switch was := record.Get(tx, &Kind, next.Addr); {
	case was != nil && was.Conflict != "":
		return next, refused("%s cannot be used: %s", addr, was.Conflict).
			Do("release it once no other host has it, and reserve it then")
	case was != nil && isHeld(was) && was.MAC != next.MAC:
		return next, refused("a machine with the MAC %s may still use %s until %s", was.MAC, addr,
			was.Until.Format(time.RFC3339)).
			Do("choose another one, or release it if that machine is off")
	case was != nil && !isHeld(was) && was.Node != node:
		return next, refused("%s is the address of %s", addr, was.Node).Do("release it, or choose another one")
	case was != nil && was.Reserved && was.MAC == next.MAC:
		return *was, nil
	}

	config := s.Config()
	others := slices.DeleteFunc(users(tx)[addr], func(name string) bool { return name == node })

	if len(others) > 0 || slices.Contains(slices.Concat(s.own(), config.DNS, []netip.Addr{config.Gateway}), addr) {
		return next, refused("%s is the address of another node, of an instance, the gateway or a name server", addr).
			Do("choose another one")
	}

	// Who had it as an address of the pool was alone there.
	was := record.Get(tx, &Kind, next.Addr)
	next.Unprobed = was == nil || isHeld(was) || was.MAC != next.MAC

	for _, a := range record.List(tx, &Kind) {
		if a.Node == node && a.MAC == next.MAC && a.Addr != next.Addr {
			s.hold(tx, a)
		}
	}

	record.Put(tx, &Kind, &next)

	return next, nil
}

// Release takes an address back, which is held until the lease of its machine is over. Of an address that is held, or
// could not be used, it forgets that. A machine that had it gets one of the pool.
func (s *Service) Release(ctx context.Context, c access.Caller, addr string) error {
	_, err := s.decide(ctx, c, "addresses.release", []string{addr}, func(tx *record.Tx) (api.Address, error) {
		found := record.Get(tx, &Kind, addr)
		if found == nil {
			return api.Address{}, inventory.Errorf(inventory.KindNotFound, "the manager gives %q to nobody",
				inventory.Shorten(addr, maxShown)).Do("list the addresses")
		}

		if found.Node != "" && found.Conflict == "" {
			s.hold(tx, found)
		} else {
			record.Remove(tx, &Kind, addr)
		}

		return *found, nil
	})

	return err
}
