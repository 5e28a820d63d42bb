// SPDX-License-Identifier: Apache-2.0

// Package inspect has the executor of steps that find the hardware facts of nodes, over ssh and without an agent.
package inspect

import (
	"cmp"
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/facts/program"
	"github.com/contiv/cluster/management/hardware"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

const (
	// atOnce is how many nodes are inspected at a time, unless the job says another number.
	atOnce = 20
	// patience bounds the inspection of a node, its retries included.
	patience = 3 * time.Minute
	// attempts is how often a node without a connection is tried, and retryAfter the first delay between two. Each
	// further one is twice as long.
	attempts   = 3
	retryAfter = 2 * time.Second
)

// Hosts run programs of the manager.
type Hosts interface {
	// RunProgram returns what a program prints on a host. r says why the host could not be reached.
	RunProgram(
		ctx context.Context, h configuration.Host, p configuration.Program,
	) (output []byte, r configuration.Reach, err error)
}

// Options are the dependencies of an Executor.
type Options struct {
	Hosts    Hosts
	Keep     Keep
	Settings func() step.Settings
	Retry    time.Duration // the first delay before a host is tried again; 0: 2 s
}

// Keep keeps the facts of a node that a job has found, and returns what has changed since the inspection before. The
// facts are kept also if a rule of the site fails the node, which is the error then.
type Keep func(ctx context.Context, node, job string, found facts.Facts) (changes []string, err error)

// Executor implements step.Executor.
type Executor struct {
	step.Plain

	o Options
}

var _ step.Executor = Executor{}

// New returns the executor.
func New(o Options) Executor {
	if o.Retry == 0 {
		o.Retry = retryAfter
	}
	return Executor{o: o}
}

// Prepare refuses nodes without an address.
func (Executor) Prepare(_ context.Context, r step.Request) (step.Pin, error) {
	var without []string

	for _, t := range r.Job.Targets {
		if n, known := r.View.Lookup(t.Name); known && n.Addr == "" {
			without = append(without, t.Name)
		}
	}

	if len(without) > 0 {
		return nil, inventory.Errorf(inventory.KindRefused, "no address for ssh is known of %s",
			strings.Join(inventory.ShortenAll(without, maxNames, maxName), ", ")).
			Do("register one, by another import").About(without...)
	}

	return nil, nil
}

// The bounds of the names in a refusal.
const (
	maxNames = 20
	maxName  = 100
)

// Run inspects the nodes of the step. What is found of a node is recorded at once. After a restart of the manager all
// nodes are inspected again, which replaces what the job has found before.
func (x Executor) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	limit := cmp.Or(s.Job.Concurrency, atOnce)

	return step.Each(ctx, s, out, limit, "inspect", func(ctx context.Context, node string) error {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()

		found, err := x.look(limited, s, node)
		if err != nil {
			return err
		}

		var changes []string

		err = step.Retry(ctx, func() (err error) {
			changes, err = x.o.Keep(ctx, node, s.Job.ID, found)
			return err
		})

		for _, line := range append(found.Problems, changes...) {
			if err := out.Line(ctx, node+": "+line); err != nil {
				return err
			}
		}

		return err
	})
}

// look returns the facts of a node. A host without a connection is tried again.
func (x Executor) look(ctx context.Context, s step.Step, node string) (facts.Facts, error) {
	n, known := s.View().Lookup(node)
	if !known {
		return facts.Facts{}, inventory.Errorf(inventory.KindNotFound, "it is no longer known")
	}

	h := x.o.Settings().Login(s.View(), n)

	// The address may come from the network, and becomes an argument of ssh.
	if err := configuration.CheckHosts([]configuration.Host{h}); err != nil {
		return facts.Facts{}, err
	}

	collector := configuration.Program{For: program.For, Arch: archOf(n), Limit: facts.MaxOutput}

	for attempt := 1; ; attempt++ {
		output, r, err := x.o.Hosts.RunProgram(ctx, h, collector)
		if err == nil {
			return facts.Parse(output)
		}

		if attempt == attempts || !mayPass(r) || !wait(ctx, x.o.Retry<<(attempt-1)) {
			return facts.Facts{}, err
		}
	}
}

// mayPass reports whether a failed connection may work a moment later. A refused login is not tried again.
func mayPass(r configuration.Reach) bool {
	return r.Silent || r.NoAnswer || strings.Contains(r.Login, "Connection reset") ||
		strings.Contains(r.Login, "Connection closed") || strings.Contains(r.Login, "closed by remote host")
}

// wait waits for a time, and reports whether the context went on.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// archOf returns the architecture of a node, or else that of the manager.
func archOf(n inventory.Node) string {
	switch {
	case n.Hardware != nil && n.Hardware.Arch != "":
		return n.Hardware.Arch
	case runtime.GOARCH == "arm64":
		return "aarch64"
	default:
		return "x86_64"
	}
}

// KeepIn returns a Keep that has the facts as snapshots in a store, and in short in the record of the node. site says
// what follows from them; nil: nothing.
func KeepIn(store record.Store, site func() hardware.Site) Keep {
	if site == nil {
		site = func() hardware.Site { return hardware.Site{} }
	}

	return func(ctx context.Context, node, job string, found facts.Facts) ([]string, error) {
		type result struct {
			lines   []string
			failure error
		}

		kept, _, err := record.Decide(ctx, store, func(tx *record.Tx) (result, error) {
			n, known := state.ViewOf(tx).Lookup(node)
			if !known {
				return result{}, inventory.Errorf(inventory.KindNotFound, "it is no longer known")
			}

			next, err := record.Get(tx, &state.Facts, node).With(node, job, found, time.Now())
			if err != nil {
				return result{}, err
			}
			record.Put(tx, &state.Facts, next)

			n.Hardware = state.HardwareOf(found, next.All[len(next.All)-1])
			v := site().Judge(tx, n, found, job, time.Now())
			tx.Attach(state.NodeWrite{Node: v.Node, Entries: v.Entries})

			return result{append(changesOf(next), v.Notes...), v.Failure}, nil
		})
		if err != nil {
			return nil, err
		}

		return kept.lines, kept.failure
	}
}

// changesOf returns what the newest inspection has found to differ from the one before.
func changesOf(i *state.Inspections) []string {
	all, err := i.Facts()
	if err != nil || len(all) < 2 {
		return nil
	}
	return facts.Diff(all[len(all)-2], all[len(all)-1])
}
