// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/power"
)

const (
	// networkPatience bounds the inspection of a machine that boots for it.
	networkPatience = 30 * time.Minute
	// silence is how long a machine that was switched on may be silent before it is started again, and starts how often
	// it is.
	silence = 5 * time.Minute
	starts  = 2
)

// Network boots machines from the network: a boot.Service.
type Network interface {
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

// prepareNetwork refuses machines that cannot boot from the network.
func (x Executor) prepareNetwork(r step.Request) error {
	for _, t := range r.Job.Targets {
		if err := x.o.Network.Ready(r.View, t.Name); err != nil {
			return err
		}
	}

	return nil
}

// booting is a machine that boots for its inspection.
type booting struct {
	Executor

	s    step.Step
	out  step.Events
	node string
	bmc  *machine.BMC // nil: a person switches the machine
}

// bootAndLook has a machine boot from the network, and returns the facts that it reports.
func (x Executor) bootAndLook(ctx context.Context, s step.Step, out step.Events, node string) (facts.Found, error) {
	m := booting{Executor: x, s: s, out: out, node: node}

	switch b, err := x.o.BMCs.Of(s.View(), node); {
	case err == nil:
		m.bmc = &b
	case !errors.Is(err, power.ErrNone):
		return facts.Found{}, power.Locked(err)
	}

	return m.look(ctx)
}

// endBoot ends the boot of a machine, after which nothing of it is served. One whose step goes on elsewhere stays open
// for the next owner; and one that cannot be ended now ends with its job.
func (x Executor) endBoot(ctx context.Context, s step.Step, node string, err error) {
	if ctx.Err() != nil && step.Stopped(ctx) == "" {
		return
	}

	result := "the facts of the machine have come"
	if err != nil {
		result = err.Error()
	}

	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()

	_ = step.Retry(ending, func() error { return x.o.Network.End(ending, node, s.Job.ID, result) })
}

func (m booting) look(ctx context.Context) (facts.Found, error) {
	begun, err := m.o.Network.Begin(ctx, boot.Order{
		Node: m.node, Job: m.s.Job.ID, Purpose: "inspect", Then: m.then,
	})
	if err != nil {
		return facts.Found{}, err
	}

	if begun.Started == nil {
		if err := m.start(ctx); err != nil {
			return facts.Found{}, err
		}
	}

	inBand, err := m.await(ctx)
	if err != nil {
		return facts.Found{}, err
	}
	inBand.Sources = []string{facts.Network}

	ask := m.console(m.s.View(), m.node)
	if ask == nil {
		return facts.Found{Facts: inBand}, nil
	}

	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	outOfBand, err := ask(limited)
	if err != nil {
		inBand.Problems = append(inBand.Problems, "BMC: "+err.Error())
		return facts.Found{Facts: inBand}, nil
	}

	return facts.Found{Facts: inBand, OutOfBand: &outOfBand}, nil
}

// then leaves the power of the machine as it is.
func (m booting) then(ctx context.Context) (string, error) {
	if m.bmc == nil {
		return boot.Restart, nil
	}

	is, err := m.o.Switch.Power(ctx, *m.bmc)
	if err != nil || is != bmc.Off {
		return boot.Restart, err
	}

	return boot.Off, nil
}

// start has the machine boot from the network. That it was begun is recorded first: the next owner of the job must not
// restart a machine that is about to report.
func (m booting) start(ctx context.Context) error {
	how := "no BMC is known of it: switch it on by hand, and have it boot from the network"
	if m.bmc != nil {
		how = "its BMC is told to switch it on, and to boot from the network once"
	}

	if err := step.Retry(ctx, func() error { return m.o.Network.Started(ctx, m.node, m.s.Job.ID, how) }); err != nil {
		return err
	}
	if err := m.out.Line(ctx, m.node+": "+how); err != nil || m.bmc == nil {
		return err
	}

	once := bmc.Boot{Device: bmc.PXE, Mode: modeOf(m.s.View(), m.node)}
	if err := m.o.Switch.Boot(ctx, *m.bmc, once); err != nil {
		return err
	}

	return m.o.Switch.Act(ctx, *m.bmc, bmc.Cycle)
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

// await waits until the machine has reported its facts, and tells the job what happens meanwhile. A machine that is not
// heard of at all is restarted once.
func (m booting) await(ctx context.Context) (facts.Facts, error) {
	var (
		p     boot.Progress
		err   error
		tries = 1
		begun = time.Now()
		due   = begun.Add(silence)
	)

	for {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if m.bmc != nil && tries < starts && !heard(p.Events) {
			limited, cancel = context.WithDeadline(ctx, due)
		}

		seen := len(p.Events)
		p, err = m.o.Network.Await(limited, m.node, m.s.Job.ID, seen)
		silent := limited.Err() != nil
		cancel()

		for _, e := range p.Events[min(seen, len(p.Events)):] {
			if !ours(e) { // that was told
				if err := m.out.Line(ctx, fmt.Sprintf("%s: %s: %s", m.node, e.From, e.Text)); err != nil {
					return facts.Facts{}, err
				}
			}
		}

		switch {
		case p.Facts != nil:
			return *p.Facts, nil
		case step.Stopped(ctx) != "":
			return facts.Facts{}, context.Cause(ctx)
		case ctx.Err() != nil:
			return facts.Facts{}, m.late(p)
		case silent:
			// While the store is out, nobody can hear the machine.
			now, v := m.s.Now()
			if due = m.s.PutOff(begun, begun.Add(silence), now); v.Stale || now.Before(due) {
				due = later(due, now.Add(retryAfter))
				continue
			}

			tries, begun = tries+1, now
			due = begun.Add(silence)

			if err := m.start(ctx); err != nil {
				return facts.Facts{}, err
			}
		case err != nil:
			return facts.Facts{}, err
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// heard reports whether the machine has asked or reported anything.
func heard(events []api.BootEvent) bool {
	return slices.ContainsFunc(events, func(e api.BootEvent) bool { return !ours(e) })
}

// ours reports whether the manager did it, and not the machine.
func ours(e api.BootEvent) bool { return e.From == boot.FromManager }

// late is why there are no facts in time: the last that the machine did, or what to look at if it did nothing.
func (m booting) late(p boot.Progress) error {
	if heard(p.Events) {
		// What happens again keeps its place among the events.
		last := slices.MaxFunc(slices.DeleteFunc(slices.Clone(p.Events), ours), func(a, b api.BootEvent) int {
			return a.At.Compare(b.At)
		})

		return inventory.Errorf(inventory.KindUnavailable, "it has booted from the network, and reports no facts; "+
			"the last that it did, at %s, was %s: %s", last.At.Format(time.TimeOnly), last.From, last.Text).
			Do("look at its console, then try again")
	}

	return inventory.Errorf(inventory.KindUnavailable, "it has asked nothing on the boot network").
		Do("see that its firmware boots from the network by the port that is registered, and that this port is on " +
			"the network of boot.interfaces")
}
