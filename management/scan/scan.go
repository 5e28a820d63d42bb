// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
)

const (
	// atOnce is how many addresses are asked at a time.
	atOnce = 64
	// batch is how many records are written in one transaction.
	batch = 50
)

// Kind is the newest scan.
var Kind = record.Kind[api.Scan]{Name: "scan", Single: true}

// Found is a BMC that answered the newest scan.
type Found struct {
	Address string         `json:"address"` // IP address and port
	Driver  machine.Driver `json:"driver"`  // IPMI or Redfish
	Product string         `json:"product,omitempty"`
	UUID    string         `json:"uuid,omitempty"`
	Since   time.Time      `json:"since"` // of the first scan that found it, without a gap
}

// FoundKind are the BMCs that answered, by address.
var FoundKind = record.Kind[Found]{Name: "bmcs", Key: func(f *Found) string { return f.Address }}

// Config says where and when to look for BMCs.
type Config struct {
	Ranges []Range
	Every  time.Duration // 0: only when asked to
	Rate   int           // addresses in a second
}

// Range is a range of addresses, and a port if it is no usual one.
type Range struct {
	netip.Prefix

	Port uint16 // 0: 623 for IPMI, and 443 for Redfish
}

// MaxAddresses bounds all ranges together.
const MaxAddresses = 4096

// ParseRange returns the range of a text such as 10.9.0.0/24, 10.9.0.5 or 10.9.0.0/24:6230.
func ParseRange(text string) (Range, error) {
	var r Range

	words := text
	if host, port, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return r, inventory.Errorf(inventory.KindInvalid, "%q has no valid port", text)
		}
		words, r.Port = host, uint16(n)
	}

	prefix, err := netip.ParsePrefix(words)
	if err != nil {
		addr, single := netip.ParseAddr(words)
		if single != nil {
			return r, inventory.Errorf(inventory.KindInvalid, "%q is no range of addresses", text).
				Do("write a range such as 10.9.0.0/24, or an address; a port follows after a colon")
		}
		prefix = netip.PrefixFrom(addr.WithZone(""), addr.BitLen())
	}
	r.Prefix = prefix.Masked()

	if r.size() > MaxAddresses {
		return r, inventory.Errorf(inventory.KindInvalid, "%q has more than %d addresses", text, MaxAddresses).
			Do("name smaller ranges, of BMCs only")
	}

	return r, nil
}

// size is the number of addresses, at most one more than MaxAddresses.
func (r Range) size() int {
	bits := r.Addr().BitLen() - r.Bits()
	if bits > 12 { // 2^12 is MaxAddresses
		return MaxAddresses + 1
	}
	return 1 << bits
}

// Size returns the number of addresses of all ranges.
func (c Config) Size() (n int) {
	for _, r := range c.Ranges {
		n += r.size()
	}
	return n
}

// targets returns what is asked: each address by both protocols.
func (c Config) targets() []machine.BMC {
	var all []machine.BMC

	for _, r := range c.Ranges {
		for addr, left := r.Addr(), r.size(); left > 0; addr, left = addr.Next(), left-1 {
			for _, driver := range []machine.Driver{machine.IPMI, machine.Redfish} {
				b := machine.BMC{Driver: driver, Address: addr.String(), Port: int(r.Port)}
				if b.Port == 0 {
					b.Port = b.DefaultPort()
				}
				all = append(all, b)
			}
		}
	}

	return all
}

// Options are the dependencies of a Scanner.
type Options struct {
	Config Config
	Store  record.Store
	Sync   func(context.Context) error // after it, the records are the newest
	Leads  func() bool
	Watch  func() <-chan struct{} // closed when there is a newer view
	Greet  func(context.Context, machine.BMC) (bmc.Hello, error)
	Audit  access.Auditor
	Logger logrus.FieldLogger
}

// Scanner scans the ranges of the site: when it is asked to, and in turn.
type Scanner struct {
	Options

	Loop *control.Loop
}

// New returns a scanner, whose loop is not started.
func New(o Options) *Scanner {
	s := &Scanner{Options: o}
	s.Loop = control.New(control.Options{
		Name: "scan for BMCs", Duty: o.Leads, Begin: o.Sync, Changed: o.Watch,
		Round: s.round, Pace: time.Second, Every: time.Hour, Backoff: 10 * time.Second,
		Trouble: "the scan for BMCs could not be recorded; retrying", Logger: o.Logger,
	})

	return s
}

// Request asks the leader for a scan, and returns at once.
func (s *Scanner) Request(ctx context.Context, c access.Caller) (api.Scan, error) {
	if len(s.Config.Ranges) == 0 {
		return api.Scan{}, inventory.Errorf(inventory.KindRefused, "the site names no ranges of BMCs").
			Do("set scan.ranges in the configuration file, and restart the manager")
	}

	var asked api.Scan

	err := access.Audited(
		ctx,
		s.Audit,
		c,
		access.Record{Action: "scan.start"},
		func(ctx context.Context, _ *access.Record) error {
			var err error
			asked, _, err = record.Decide(ctx, s.Store, func(tx *record.Tx) (api.Scan, error) {
				next := record.One(tx, &Kind)
				if next.Running() {
					return next, nil
				}

				next = api.Scan{
					Requested: time.Now(),
					Actor:     c.Principal,
					Addresses: s.Config.Size(),
					Ended:     next.Ended,
				}
				record.Put(tx, &Kind, &next)

				return next, nil
			})
			return err
		},
	)

	return asked, err
}

// round scans if it is due: requested, broken off by the end of a former leader, or after the time.
func (s *Scanner) round(ctx context.Context) (control.Next, error) {
	r, _ := s.Store.Latest()
	last := record.One(r, &Kind)

	if len(s.Config.Ranges) == 0 {
		return control.Next{}, nil
	}

	if !last.Running() {
		due := last.Ended.Add(s.Config.Every)
		if s.Config.Every == 0 {
			return control.Next{}, nil
		}
		if time.Now().Before(due) {
			return control.Next{At: due}, nil
		}

		last = api.Scan{Requested: time.Now(), Addresses: s.Config.Size(), Ended: last.Ended}
	}

	found, err := s.ask(ctx)
	if err != nil {
		return control.Next{}, err
	}

	return control.Next{}, s.keep(ctx, last, found)
}

// ask asks all addresses, and returns those that answer.
func (s *Scanner) ask(ctx context.Context) (map[string]Found, error) {
	var (
		mu    sync.Mutex
		tasks sync.WaitGroup
		found = map[string]Found{}
		slots = make(chan struct{}, atOnce)
		// Each address is asked by two protocols.
		pace = rate.NewLimiter(rate.Limit(2*s.Config.Rate), 2)
	)

	defer tasks.Wait()

	for _, b := range s.Config.targets() {
		if err := pace.Wait(ctx); err != nil {
			return nil, err
		}

		slots <- struct{}{} // each one ends within seconds

		tasks.Go(func() {
			defer func() { <-slots }()

			hello, err := s.Greet(ctx, b)
			if err != nil {
				return
			}

			f := Found{
				Address: net.JoinHostPort(b.Address, strconv.Itoa(b.Port)), Driver: b.Driver,
				Product: hello.Product, UUID: hello.UUID,
			}

			mu.Lock()
			defer mu.Unlock()

			found[f.Address] = f
		})
	}

	tasks.Wait()

	return found, ctx.Err()
}

// keep records what was found, removes what answers no more, and ends the scan.
func (s *Scanner) keep(ctx context.Context, last api.Scan, found map[string]Found) error {
	r, _ := s.Store.Latest()

	var gone []string
	for key := range record.All(r, &FoundKind) {
		if _, still := found[key]; !still {
			gone = append(gone, key)
		}
	}

	now := time.Now()

	var changed []Found
	for key, f := range found {
		f.Since = now
		if was := record.Get(r, &FoundKind, key); was != nil {
			f.Since = was.Since
			if *was == f {
				continue
			}
		}
		changed = append(changed, f)
	}

	for len(changed)+len(gone) > 0 {
		put, drop := changed[:min(batch, len(changed))], gone[:min(batch, len(gone))]
		changed, gone = changed[len(put):], gone[len(drop):]

		if _, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (any, error) {
			for _, f := range put {
				record.Put(tx, &FoundKind, &f)
			}
			for _, key := range drop {
				record.Remove(tx, &FoundKind, key)
			}
			return nil, nil
		}); err != nil {
			return err
		}
	}

	last.Ended, last.Found = now, len(found)

	_, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (any, error) {
		record.Put(tx, &Kind, &last)
		return nil, nil
	})

	return err
}
