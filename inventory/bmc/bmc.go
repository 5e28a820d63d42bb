// SPDX-License-Identifier: Apache-2.0

// Package bmc switches machines by their BMCs: power, and the device of the next boot, by Redfish or IPMI 2.0. By
// Redfish it also reads what hardware a machine has.
//
// BMCs are slow, have few sessions, and lock accounts out. So there is at most one session with a BMC at a time, and
// a login that was refused is not tried again until the user or the password is another one. Answers are untrusted.
// See README.md.
package bmc

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
)

// Power is whether a machine is on.
type Power string

// The states of power.
const (
	On       Power = "on"
	Off      Power = "off"
	Changing Power = "changing" // between the two (Redfish)
)

// Action changes the power of a machine.
type Action string

// The actions.
const (
	TurnOn  Action = "on"
	TurnOff Action = "off"   // at once, as if the plug was pulled
	Cycle   Action = "cycle" // off, and on again; a machine that is off is turned on
	Reset   Action = "reset" // restart at once, without power loss
	Soft    Action = "soft"  // ask the operating system to shut down, and wait until the machine is off
)

// Actions lists every action with its meaning.
var Actions = []struct {
	Action  Action
	Meaning string
}{
	{TurnOn, "turn machines on"},
	{TurnOff, "turn machines off at once, without a shutdown"},
	{Cycle, "turn machines off at once, and on again"},
	{Reset, "restart machines at once, without a shutdown"},
	{Soft, "shut down the operating systems, and wait until the machines are off"},
}

// Device is what a machine boots from.
type Device string

// The devices.
const (
	Disk    Device = "disk"
	PXE     Device = "pxe"
	CDROM   Device = "cdrom"
	Setup   Device = "setup"   // the setup of the firmware
	Default Device = "default" // the order of the firmware
)

// Devices lists every device with its meaning.
var Devices = []struct {
	Device  Device
	Meaning string
}{
	{PXE, "the network"},
	{Disk, "the first disk"},
	{CDROM, "the CD-ROM, also a virtual one"},
	{Setup, "the setup of the firmware"},
	{Default, "the order of the firmware: takes back the others"},
}

// Mode is how the firmware boots.
type Mode string

// The modes. The empty one leaves it as it is (Redfish), or is UEFI (IPMI).
const (
	BIOS Mode = "bios"
	UEFI Mode = "uefi"
)

// Boot is what a machine boots from, next time or from now on.
type Boot struct {
	Device  Device
	Mode    Mode
	Lasting bool // not for the next boot only
}

// ErrLogin is wrapped by the errors of a login that a BMC refused, or that is not tried for that reason.
var ErrLogin = errors.New("the BMC refused the login")

// The times that a BMC may take.
const (
	waitTurn    = 2 * time.Minute  // for the end of the session that another caller has; the longest one reads facts
	waitSession = 20 * time.Second // for all of a session
	waitPower   = time.Minute      // until the machine is on or off, once the BMC was told to
	waitSoft    = 5 * time.Minute  // until the operating system has shut down
	pollPower   = time.Second
)

// Pool reaches BMCs. All methods may be called at once. They block until the BMC has done it, the time for that is
// over, or ctx ends.
type Pool struct {
	mu    sync.Mutex
	gates map[string]*gate // by protocol and address

	poll     time.Duration // until the power is looked at again
	datagram time.Duration // until a datagram is given up for lost (IPMI)
}

// New returns a Pool.
func New() *Pool { return &Pool{gates: map[string]*gate{}, poll: pollPower, datagram: datagramTimeout} }

// gate is what all sessions with one BMC share.
type gate struct {
	turn     chan struct{} // holds a token during a session
	datagram time.Duration // see Pool

	// Only the holder of the turn uses the others.
	refused []credentials // of the record, as far as the BMC has refused them
	login   credentials   // of the session
	suite   cipherSuite   // that worked (IPMI); 0: not known
	system  string        // the only one that the BMC has (Redfish); "": not known
}

type credentials struct {
	user, password string
	given          int // see machine.BMC
}

// session is an open session with a BMC about one machine.
type session interface {
	power(ctx context.Context) (Power, error)
	act(ctx context.Context, a Action) error
	boot(ctx context.Context, b Boot) error
	setPassword(ctx context.Context, password string) error
	close(ctx context.Context)
}

// Power logs in, and returns the power of the machine.
func (p *Pool) Power(ctx context.Context, b machine.BMC) (power Power, err error) {
	err = p.with(ctx, b, func(ctx context.Context, s session) error {
		power, err = s.power(ctx)
		return err
	})

	return power, err
}

// Retry lets the next call log in even if the BMC has refused the login before: somebody has corrected it there.
func (p *Pool) Retry(ctx context.Context, b machine.BMC) error {
	g := p.gate(b)

	if err := g.take(ctx, b); err != nil {
		return err
	}
	defer g.release()

	g.refused = nil

	return nil
}

// Prove logs in even if the BMC has refused that login before, and returns the power of the machine. What was refused
// before stays so: the login need not become that of the record.
func (p *Pool) Prove(ctx context.Context, b machine.BMC) (power Power, err error) {
	g := p.gate(b)

	if err := g.take(ctx, b); err != nil {
		return "", err
	}
	defer g.release()

	refused := g.refused
	defer func() { g.refused = refused }()

	g.refused = nil

	err = g.within(ctx, b, waitSession, func(ctx context.Context, s session) error {
		power, err = s.power(ctx)
		return err
	})

	return power, err
}

// Boot sets what the machine boots from.
func (p *Pool) Boot(ctx context.Context, b machine.BMC, boot Boot) error {
	return p.with(ctx, b, func(ctx context.Context, s session) error { return s.boot(ctx, boot) })
}

// Act changes the power of the machine, and waits until it has changed. Nothing is done to one that is on or off as
// wanted.
func (p *Pool) Act(ctx context.Context, b machine.BMC, a Action) error {
	done := false
	err := p.with(ctx, b, func(ctx context.Context, s session) error {
		now, err := s.power(ctx)
		if err != nil {
			return err
		}

		next, err := a.after(now)
		if done = next == ""; err != nil || done {
			return err
		}
		a = next

		return s.act(ctx, next)
	})
	if err != nil || done || a.end() == "" {
		return err
	}

	return p.await(ctx, b, a)
}

// SetPassword gives the user of the BMC the password Next of its record, and returns once a login with that has worked.
// After an error the BMC has one of the two passwords.
func (p *Pool) SetPassword(ctx context.Context, b machine.BMC) error {
	g := p.gate(b)

	err := p.with(ctx, b, func(ctx context.Context, s session) error {
		// An earlier attempt has set it.
		if g.login.password == b.Next {
			return nil
		}

		if err := s.setPassword(ctx, b.Next); err != nil {
			return err
		}
		// If the BMC has refused the password, that was before.
		g.refused = nil

		return nil
	})
	if err != nil {
		return err
	}

	b.Password, b.Next = b.Next, ""

	_, err = p.Power(ctx, b)
	if errors.Is(err, ErrLogin) {
		return inventory.Errorf(inventory.KindUnavailable,
			"the BMC at %s has taken the new password, and %w with it", hostPort(b), err).
			Do("try again: it has the new password or the one before, and both are kept")
	}

	return err
}

// after returns what is to be done to a machine with this power; "": nothing.
func (a Action) after(now Power) (Action, error) {
	switch {
	case now == a.end():
		return "", nil
	case a == Cycle && now == Off:
		return TurnOn, nil
	case a == Reset && now == Off:
		return "", inventory.Errorf(inventory.KindRefused, "the machine is off, and cannot be reset").
			Do("turn it on instead")
	}

	return a, nil
}

// end returns the power at the end of the action; "": that does not show when it is over.
func (a Action) end() Power {
	switch a {
	case TurnOn:
		return On
	case TurnOff, Soft:
		return Off
	}

	return ""
}

// await waits until the machine has the power at the end of the action. Others may use the BMC meanwhile.
func (p *Pool) await(ctx context.Context, b machine.BMC, a Action) error {
	limit := waitPower
	if a == Soft {
		limit = waitSoft
	}

	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	for {
		now, err := p.Power(limited, b)
		if err == nil && now == a.end() || errors.Is(err, ErrLogin) {
			return err
		}

		timer := time.NewTimer(p.poll)
		select {
		case <-timer.C:
			continue
		case <-limited.Done():
			timer.Stop()
		}

		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case a == Soft:
			return inventory.Errorf(inventory.KindUnavailable,
				"the machine is still %s %s after the BMC asked its operating system to shut down", now, limit).
				Do("turn it off without a shutdown, or look at its console")
		}

		return inventory.Errorf(inventory.KindUnavailable,
			"the machine is still %s %s after the BMC was told to turn it %s", now, limit, a.end()).
			Do("look at the BMC: the power supply or the BMC may be faulty")
	}
}

// with calls f with a session of its own.
func (p *Pool) with(ctx context.Context, b machine.BMC, f func(context.Context, session) error) error {
	return p.within(ctx, b, waitSession, f)
}

// within calls f with a session of its own that takes no longer than the limit.
func (p *Pool) within(
	ctx context.Context, b machine.BMC, limit time.Duration, f func(context.Context, session) error,
) error {
	if b.Driver == machine.Manual || b.Address == "" {
		return inventory.Errorf(inventory.KindRefused, "the machine has no BMC").Do("switch it by hand")
	}
	g := p.gate(b)

	if err := g.take(ctx, b); err != nil {
		return err
	}
	defer g.release()

	return g.within(ctx, b, limit, f)
}

// within is that of Pool for the holder of the turn.
func (g *gate) within(
	ctx context.Context, b machine.BMC, limit time.Duration, f func(context.Context, session) error,
) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	s, err := g.connect(limited, b)
	if err == nil {
		err = f(limited, s)
		s.close(limited)
	}

	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}

	return err
}

// take waits for the turn at the BMC, which release ends.
func (g *gate) take(ctx context.Context, b machine.BMC) error {
	limited, cancel := context.WithTimeout(ctx, waitTurn)
	defer cancel()

	select {
	case g.turn <- struct{}{}:
		return nil
	case <-limited.Done():
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return inventory.Errorf(inventory.KindBusy, "another session with the BMC at %s takes too long", hostPort(b)).
			Do("try again")
	}
}

func (g *gate) release() { <-g.turn }

// connect opens a session with the password of the record, or else the next one. What the BMC has refused is not tried
// again.
func (g *gate) connect(ctx context.Context, b machine.BMC) (session, error) {
	connect := connectIPMI
	if b.Driver.SpeaksRedfish() {
		connect = connectRedfish
	}

	logins := []credentials{{b.User, b.Password, b.Given}}
	if b.Next != "" {
		logins = append(logins, credentials{b.User, b.Next, b.Given})
	}

	// Those of another record may work by the time that it has them again.
	g.refused = slices.DeleteFunc(g.refused, func(c credentials) bool { return !slices.Contains(logins, c) })

	var err error = inventory.Errorf(inventory.KindRefused,
		"%w of %s at %s before, and is not asked again, because BMCs lock accounts out",
		ErrLogin, name(b.User), hostPort(b)).
		Do(correct)

	for _, login := range logins {
		if slices.Contains(g.refused, login) {
			continue
		}
		b.Password = login.password

		var s session
		if s, err = connect(ctx, b, g); err == nil {
			g.login = login
			return s, nil
		}

		if !errors.Is(err, ErrLogin) {
			break
		}
		g.refused = append(g.refused, login)
	}

	return nil, err
}

// gate returns what is shared by all sessions with the BMC.
func (p *Pool) gate(b machine.BMC) *gate {
	p.mu.Lock()
	defer p.mu.Unlock()

	key := strconv.FormatBool(b.Driver.SpeaksRedfish()) + " " + hostPort(b)
	if p.gates[key] == nil {
		p.gates[key] = &gate{turn: make(chan struct{}, 1), datagram: p.datagram}
	}

	return p.gates[key]
}

// hostPort returns the address of the BMC with its port.
func hostPort(b machine.BMC) string {
	port := b.Port

	switch {
	case port != 0:
	case !b.Driver.SpeaksRedfish():
		port = 623
	case b.Plain:
		port = 80
	default:
		port = 443
	}

	return net.JoinHostPort(b.Address, strconv.Itoa(port))
}

// name returns the user for messages.
func name(user string) string {
	if user == "" {
		return "the user without a name"
	}
	return "the user " + user
}
