// SPDX-License-Identifier: Apache-2.0

// Package credentials has the executor of steps that check the credentials of nodes: the ssh login, and the BMC.
package credentials

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/power"
)

const (
	// atOnce is how many nodes are checked at a time.
	atOnce = 100
	// patience bounds the check of a node, the wait for a turn at ssh and at the BMC included.
	patience = 2 * time.Minute
)

// SSH logs in on hosts.
type SSH interface {
	// Credentials logs in, and becomes the account of the plays. keys are the host keys of a first contact. The
	// error has the cause and a remedy.
	Credentials(ctx context.Context, h configuration.Host) (keys []string, err error)
}

// BMCs reaches the BMCs of nodes: power.Registered.
type BMCs interface {
	// Of returns the BMC of a node, or why it cannot be reached; power.ErrNone: it has none.
	Of(v *state.View, node string) (machine.BMC, error)
	// Power and Retry are those of bmc.Pool.
	Power(ctx context.Context, b machine.BMC) (bmc.Power, error)
	Retry(ctx context.Context, b machine.BMC) error
}

// Executor implements step.Executor.
type Executor struct {
	step.Plain

	ssh      SSH
	bmcs     BMCs
	record   power.Record
	settings func() step.Settings
}

var _ step.Executor = Executor{}

// New returns the executor, which records what the BMCs say.
func New(s SSH, b BMCs, r power.Record, settings func() step.Settings) Executor {
	return Executor{ssh: s, bmcs: b, record: r, settings: settings}
}

// Run checks the nodes of the step, with their settings of now. It may run again after a crash, because it changes
// nothing.
func (x Executor) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	var (
		mu   sync.Mutex
		keys = map[string][]string{}
	)

	r, err := step.Each(ctx, s, out, atOnce, "check credentials", func(ctx context.Context, node string) error {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()

		found := x.check(limited, s.View(), node, s.Job.Force)

		mu.Lock()
		if len(found.keys) > 0 {
			keys[node] = found.keys
		}
		mu.Unlock()

		for _, line := range found.works {
			if err := out.Line(ctx, node+": "+line); err != nil {
				return err
			}
		}

		return found.problem()
	})
	r.Keys = keys

	return r, err
}

// found is the result of the check of a node.
type found struct {
	works    []string // what works, in words
	problems []string // each with its remedy
	keys     []string // ssh host keys of a first contact
}

func (f *found) failed(err error) { f.problems = append(f.problems, err.Error()) }

// problem returns all that failed, or nil.
func (f *found) problem() error {
	if len(f.problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(f.problems, "; "))
}

// check checks all that is known of a node: the address for ssh, and the BMC. again: also if it has refused the login.
func (x Executor) check(ctx context.Context, v *state.View, node string, again bool) *found {
	n, known := v.Lookup(node)
	if !known {
		return &found{problems: []string{"it is no longer known"}}
	}

	var (
		login, console found
		tasks          sync.WaitGroup
	)

	b, err := x.bmcs.Of(v, node)
	hasBMC := !errors.Is(err, power.ErrNone)

	if n.Addr == "" && !hasBMC {
		return &found{problems: []string{
			"neither an address for ssh nor a BMC is known of it; register one of the two, by another import",
		}}
	}

	if n.Addr != "" {
		tasks.Go(func() { x.login(ctx, v, n, &login) })
	}

	switch {
	case !hasBMC:
	case err != nil:
		console.failed(power.Locked(err))
	default:
		tasks.Go(func() { x.console(ctx, node, b, again, &console) })
	}

	tasks.Wait()

	return &found{
		works: append(login.works, console.works...), problems: append(login.problems, console.problems...),
		keys: login.keys,
	}
}

// login checks the ssh login of a node.
func (x Executor) login(ctx context.Context, v *state.View, n inventory.Node, f *found) {
	h := x.settings().Login(v, n)

	// The address may come from the network, and becomes an argument of ssh.
	if err := configuration.CheckHosts([]configuration.Host{h}); err != nil {
		f.failed(err)
		return
	}

	keys, err := x.ssh.Credentials(ctx, h)
	if err != nil {
		f.failed(err)
		return
	}

	f.keys = keys

	text := "ssh to " + n.Addr + " works"
	if c := h.Connection; c.Become != nil && *c.Become {
		text += ", and so does sudo"
	}

	f.works = append(f.works, text)
}

// console checks the login at a BMC, and that it tells the power of the machine.
func (x Executor) console(ctx context.Context, node string, b machine.BMC, again bool, f *found) {
	if again {
		if err := x.bmcs.Retry(ctx, b); err != nil {
			f.failed(err)
			return
		}
	}

	is, err := x.bmcs.Power(ctx, b)

	// Otherwise the observed power would have the problem of before for minutes.
	kept := step.Retry(ctx, func() error { return x.record(ctx, power.Seen{Node: node, Power: is, Err: err}) })

	if err = cmp.Or(err, kept); err != nil {
		f.failed(err)
		return
	}

	f.works = append(f.works, "the BMC at "+b.Address+" takes the login; the power is "+string(is))
}
