// SPDX-License-Identifier: Apache-2.0

// Package inspect has the executor of steps that find the hardware facts of nodes: over ssh and without an agent, and
// out of band by their BMCs.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/facts/program"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/hardware"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/netboot"
	"github.com/contiv/cluster/management/step/power"
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

// BMCs reaches the BMCs of nodes: power.Registered.
type BMCs interface {
	// Of returns the BMC of a node, or why it cannot be reached; power.ErrNone: it has none.
	Of(v *state.View, node string) (machine.BMC, error)
	// Facts is that of bmc.Pool.
	Facts(ctx context.Context, b machine.BMC) (facts.Facts, error)
}

// Options are the dependencies of an Executor.
type Options struct {
	Hosts    Hosts
	BMCs     BMCs
	Keep     Keep
	Booter   netboot.Booter
	Settings func() step.Settings
	Retry    time.Duration // the first delay before a host is tried again; 0: 2 s
}

// Keep keeps the facts of a node that a job has found, and returns what has changed since the inspection before, and
// what follows from them. The facts are kept also if a rule of the site fails the node, which is the error then.
type Keep func(ctx context.Context, node, job string, found facts.Found) (changes []string, err error)

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

// Prepare refuses nodes that nothing tells the facts of.
func (x Executor) Prepare(_ context.Context, r step.Request) (step.Pin, error) {
	if r.Job.Boot != "" {
		return nil, x.o.Booter.Prepare(r)
	}

	var without []string

	for _, t := range r.Job.Targets {
		if n, known := r.View.Lookup(t.Name); known && n.Addr == "" && x.console(r.View, t.Name) == nil {
			without = append(without, t.Name)
		}
	}

	if len(without) > 0 {
		return nil, inventory.Errorf(inventory.KindRefused,
			"neither an address for ssh nor a BMC with Redfish is known of %s",
			strings.Join(inventory.ShortenAll(without, maxNames, maxName), ", ")).
			Do("register one of the two by another import, wait for its agent, which tells its address, or boot it " +
				"from the network for its inspection; IPMI tells no facts. A provide offers it without an inspection").
			With(inventory.Submit(inventory.VerbProvide, without[:min(len(without), maxNames)]...)).
			About(without...)
	}

	return nil, nil
}

// console returns what asks the BMC of a node; nil: it has none that tells facts.
func (x Executor) console(v *state.View, node string) func(context.Context) (facts.Facts, error) {
	b, err := x.o.BMCs.Of(v, node)

	switch {
	case errors.Is(err, power.ErrNone), err == nil && !b.Driver.SpeaksRedfish():
		return nil
	case err != nil:
		return func(context.Context) (facts.Facts, error) { return facts.Facts{}, power.Locked(err) }
	}

	return func(ctx context.Context) (facts.Facts, error) {
		found, err := x.o.BMCs.Facts(ctx, b)
		if errors.Is(err, context.DeadlineExceeded) {
			err = inventory.Errorf(inventory.KindUnavailable, "the BMC at %s has not told the facts within %s",
				b.Address, patience).Do("try again; other programs may use it")
		}

		return found, err
	}
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
		if s.Job.Boot == "" {
			return x.inspect(ctx, s, out, node)
		}

		// What the machine has reported is in its boot until it is kept.
		err := x.inspect(ctx, s, out, node)
		x.o.Booter.End(ctx, s, node, "the facts of the machine have come", err)

		return err
	})
}

// inspect finds the facts of a node, and keeps them.
func (x Executor) inspect(ctx context.Context, s step.Step, out step.Events, node string) error {
	found, err := x.find(ctx, s, out, node)
	if err != nil {
		return err
	}

	var changes []string

	err = step.Retry(ctx, func() (err error) {
		changes, err = x.o.Keep(ctx, node, s.Job.ID, found)
		return err
	})

	for _, line := range append(found.Merged().Problems, changes...) {
		if err := out.Line(ctx, node+": "+line); err != nil {
			return err
		}
	}

	return err
}

// find returns the facts of a node, in the way of the job.
func (x Executor) find(ctx context.Context, s step.Step, out step.Events, node string) (facts.Found, error) {
	if s.Job.Boot != "" {
		limited, cancel := context.WithTimeout(ctx, networkPatience)
		defer cancel()

		return x.bootAndLook(limited, s, out, node)
	}

	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	return x.look(limited, s, node)
}

// look returns what the node and its BMC say, at the same time. A BMC that fails is a problem among the facts of the
// node, and the failure only of a node that has no other source.
func (x Executor) look(ctx context.Context, s step.Step, node string) (facts.Found, error) {
	v := s.View()

	n, known := v.Lookup(node)
	if !known {
		return facts.Found{}, inventory.Errorf(inventory.KindNotFound, "it is no longer known")
	}

	ask := x.console(v, node)

	switch {
	case n.Addr == "" && ask == nil:
		return facts.Found{}, inventory.Errorf(inventory.KindRefused,
			"neither an address for ssh nor a BMC with Redfish is known of it")
	case n.Addr == "":
		found, err := ask(ctx)
		return facts.Found{Facts: found}, err
	case ask == nil:
		found, err := x.login(ctx, v, n)
		return facts.Found{Facts: found}, err
	}

	// Without the machine the answer of the BMC is of no use.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var (
		asking    sync.WaitGroup
		outOfBand facts.Facts
		silent    error
	)

	asking.Go(func() { outOfBand, silent = ask(ctx) })

	inBand, err := x.login(ctx, v, n)
	if err != nil {
		cancel()
	}

	asking.Wait()

	switch {
	case err != nil:
		return facts.Found{}, err
	case silent != nil:
		inBand.Problems = append(inBand.Problems, "BMC: "+silent.Error())
		return facts.Found{Facts: inBand}, nil
	}

	return facts.Found{Facts: inBand, OutOfBand: &outOfBand}, nil
}

// login returns the facts that a node tells itself. A host without a connection is tried again.
func (x Executor) login(ctx context.Context, v *state.View, n inventory.Node) (facts.Facts, error) {
	h := x.o.Settings().Login(v, n)

	// The address may come from the network, and becomes an argument of ssh.
	if err := configuration.CheckHosts([]configuration.Host{h}); err != nil {
		return facts.Facts{}, err
	}

	collector := configuration.Program{For: program.For, Arch: archOf(n), Limit: facts.MaxOutput}

	for attempt := 1; ; attempt++ {
		output, r, err := x.o.Hosts.RunProgram(ctx, h, collector)
		if err == nil {
			found, err := facts.Parse(output)
			found.Sources = []string{facts.SSH}

			return found, err
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

	return func(ctx context.Context, node, job string, found facts.Found) ([]string, error) {
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

			last, merged := len(next.All)-1, found.Merged()
			n.Hardware = state.HardwareOf(merged, next.All[last])
			v := site().Judge(tx, n, merged, job, time.Now())
			tx.Attach(state.NodeWrite{Node: v.Node, Entries: v.Entries})

			changes, err := next.Changes(last)

			if root := state.RootDevice(tx, node, merged.Disks); root != "" {
				changes = append(changes, "root device: "+root)
			}

			return result{append(changes, v.Notes...), v.Failure}, err
		})
		if err != nil {
			return nil, err
		}

		return kept.lines, kept.failure
	}
}
