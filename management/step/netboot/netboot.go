// SPDX-License-Identifier: Apache-2.0

// Package netboot has machines boot from the network for a step, and waits until they have done what they boot for.
package netboot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

const (
	// silence is how long a machine that was switched on may be silent before it is started again.
	silence = 5 * time.Minute
	// retryAfter is the least time between two looks at a machine that may be silent.
	retryAfter = 2 * time.Second
)

// Service serves machines that boot: a boot.Service.
type Service interface {
	Ready(r record.Reader, node string) error
	Begin(ctx context.Context, o boot.Order) (api.Boot, error)
	Started(ctx context.Context, node, job, how string) error
	Await(ctx context.Context, node, job string, seen int) (boot.Progress, error)
	End(ctx context.Context, node, job, result string) error
}

// Switch switches machines: a bmc.Pool.
type Switch interface {
	Power(ctx context.Context, b machine.BMC) (bmc.Power, error)
	Boot(ctx context.Context, b machine.BMC, boot bmc.Boot) error
	Act(ctx context.Context, b machine.BMC, a bmc.Action) error
}

// BMCs knows the BMCs of nodes: power.Registered.
type BMCs interface {
	// Find returns the BMC of a node, nil if it has none, or why it cannot be reached.
	Find(v *state.View, node string) (*machine.BMC, error)
}

// Booter boots machines from the network.
type Booter struct {
	Service Service
	Switch  Switch
	BMCs    BMCs
}

// Prepare refuses nodes that cannot boot from the network.
func (b Booter) Prepare(r step.Request) error {
	for _, t := range r.Job.Targets {
		if err := b.Service.Ready(r.View, t.Name); err != nil {
			return err
		}
	}

	return nil
}

// Boot is what one machine boots for.
type Boot struct {
	Step  step.Step
	Out   step.Events
	Node  string
	Order boot.Order // without its node and job

	// Starts is how often the machine is started at most: again after it was silent.
	Starts int
	// Silent reports whether a machine that is silent may be started again, as far as it has come; nil: if it was never
	// heard of.
	Silent func(b api.Boot) bool
	// Late is why it has not done what it boots for in time. p has events.
	Late func(p boot.Progress) string
}

// running is a machine that boots.
type running struct {
	Booter
	Boot

	bmc *machine.BMC // nil: a person switches the machine
}

// Run has a machine boot, and returns once it has done what it boots for, or why it has not; the progress says how far
// it came. A machine that is booting for the job already goes on, and is not started.
func (b Booter) Run(ctx context.Context, o Boot) (boot.Progress, error) {
	is, err := b.BMCs.Find(o.Step.View(), o.Node)
	if err != nil {
		return boot.Progress{}, err
	}

	m := running{Booter: b, Boot: o, bmc: is}

	o.Order.Node, o.Order.Job = o.Node, o.Step.Job.ID
	if o.Order.Then == nil {
		o.Order.Then = m.then
	}

	begun, err := b.Service.Begin(ctx, o.Order)
	if err != nil {
		return boot.Progress{}, err
	}

	if begun.Started == nil {
		if err := m.start(ctx); err != nil {
			return boot.Progress{}, err
		}
	}

	return m.await(ctx)
}

// End ends the boot of a machine, after which nothing of it is served. One whose step goes on elsewhere stays open for
// the next owner; and one that cannot be ended now ends with its job. ctx is that of Run.
func (b Booter) End(ctx context.Context, s step.Step, node, done string, err error) {
	if ctx.Err() != nil && step.Stopped(ctx) == "" {
		return
	}

	if err != nil {
		done = err.Error()
	}

	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()

	_ = step.Retry(ending, func() error { return b.Service.End(ending, node, s.Job.ID, done) })
}

// then leaves the power of the machine as it is.
func (m running) then(ctx context.Context) (string, error) {
	if m.bmc == nil {
		return boot.Restart, nil
	}

	is, err := m.Switch.Power(ctx, *m.bmc)
	if err != nil || is != bmc.Off {
		return boot.Restart, err
	}

	return boot.Off, nil
}

// start has the machine boot from the network. That it was begun is recorded first: the next owner of the job must not
// restart a machine that is about to report.
func (m running) start(ctx context.Context) error {
	how := "no BMC is known of it: switch it on by hand, and have it boot from the network"
	if m.bmc != nil {
		how = "its BMC is told to switch it on, and to boot from the network once"
	}

	err := step.Retry(ctx, func() error { return m.Service.Started(ctx, m.Node, m.Step.Job.ID, how) })
	if err != nil {
		return err
	}
	if err := m.Out.Line(ctx, m.Node+": "+how); err != nil || m.bmc == nil {
		return err
	}

	once := bmc.Boot{Device: bmc.PXE, Mode: modeOf(m.Step.View(), m.Node)}
	if err := m.Switch.Boot(ctx, *m.bmc, once); err != nil {
		return err
	}

	return m.Switch.Act(ctx, *m.bmc, bmc.Cycle)
}

// modeOf is how the firmware of a machine boots; empty: as it is.
func modeOf(v *state.View, node string) bmc.Mode {
	if r := record.Get(v, &state.Machines, node); r != nil {
		switch mode := bmc.Mode(r.Capabilities["boot_mode"]); mode {
		case bmc.BIOS, bmc.UEFI:
			return mode
		}
	}

	return ""
}

// await waits until the machine has done what it boots for, and tells the job what happens meanwhile. One that is
// silent is started again.
func (m running) await(ctx context.Context) (p boot.Progress, err error) {
	tries, begun := 1, time.Now()
	due := begun.Add(silence)

	for {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if m.bmc != nil && tries < m.Starts && m.mayStart(p.Boot) {
			limited, cancel = context.WithDeadline(ctx, due)
		}

		seen := len(p.Events)
		p, err = m.Service.Await(limited, m.Node, m.Step.Job.ID, seen)
		silent := limited.Err() != nil
		cancel()

		for _, e := range p.Events[min(seen, len(p.Events)):] {
			if !ours(e) { // that was told
				if err := m.Out.Line(ctx, fmt.Sprintf("%s: %s: %s", m.Node, e.From, e.Text)); err != nil {
					return p, err
				}
			}
		}

		switch {
		case p.Over:
			return p, nil
		case step.Stopped(ctx) != "":
			return p, context.Cause(ctx)
		case ctx.Err() != nil:
			return p, m.late(p)
		case silent:
			// While the store is out, nobody can hear the machine.
			now, v := m.Step.Now()
			since := later(begun, lastHeard(p.Events))

			if due = m.Step.PutOff(since, since.Add(silence), now); v.Stale || now.Before(due) {
				due = later(due, now.Add(retryAfter))
				continue
			}

			tries, begun = tries+1, now
			due = begun.Add(silence)

			if err := m.start(ctx); err != nil {
				return p, err
			}
		case err != nil:
			return p, err
		}
	}
}

// mayStart reports whether the machine is started again if it is silent.
func (m running) mayStart(b api.Boot) bool {
	return !Heard(b.Events) || m.Silent != nil && m.Silent(b)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Heard reports whether the machine has asked or reported anything.
func Heard(events []api.BootEvent) bool {
	return slices.ContainsFunc(events, func(e api.BootEvent) bool { return !ours(e) })
}

// ours reports whether the manager did it, and not the machine.
func ours(e api.BootEvent) bool { return e.From == boot.FromManager }

// lastOf returns the last thing that the machine did; nil: nothing. What happens again keeps its place among the
// events.
func lastOf(events []api.BootEvent) *api.BootEvent {
	own := slices.DeleteFunc(slices.Clone(events), ours)
	if len(own) == 0 {
		return nil
	}

	last := slices.MaxFunc(own, func(a, b api.BootEvent) int { return a.At.Compare(b.At) })

	return &last
}

func lastHeard(events []api.BootEvent) time.Time {
	if last := lastOf(events); last != nil {
		return last.At
	}
	return time.Time{}
}

// late is why the machine has not done what it boots for in time: the last that it did, or what to look at if it did
// nothing.
func (m running) late(p boot.Progress) error {
	if last := lastOf(p.Events); last != nil {
		return inventory.Errorf(inventory.KindUnavailable, "%s; the last that it did, at %s, was %s: %s",
			m.Late(p), last.At.Format(time.TimeOnly), last.From, last.Text).
			Do("look at its console, then try again")
	}

	return inventory.Errorf(inventory.KindUnavailable, "it has asked nothing on the boot network").
		Do("see that its firmware boots from the network by the port that is registered, and that this port is on " +
			"the network of boot.interfaces")
}
