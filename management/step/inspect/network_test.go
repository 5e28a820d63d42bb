// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/netboot"
	"github.com/contiv/cluster/management/step/power"
)

// still is a view that never changes.
type still struct{ state.Reader }

func (still) View() *state.View        { return &state.View{} }
func (still) Changed() <-chan struct{} { return nil }

// lines keeps what a step tells.
type lines struct {
	step.Events

	mu  sync.Mutex
	all []string
}

func (l *lines) Line(_ context.Context, text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, text)

	return nil
}

func (*lines) Event(context.Context, step.Event) error                  { return nil }
func (*lines) Results(context.Context, map[string]job.HostResult) error { return nil }

// rig is a machine with a BMC, and a boot service. It does what a test says.
type rig struct {
	noBMC  bool
	power  bmc.Power
	open   api.Boot
	after  time.Duration // until the machine has reported its facts
	speaks time.Duration // until it is heard of; 0: with the facts

	mu   sync.Mutex
	done []string
}

func (r *rig) did(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, fmt.Sprintf(format, args...))
}

func (r *rig) Of(*state.View, string) (machine.BMC, error) {
	if r.noBMC {
		return machine.BMC{}, power.ErrNone
	}
	return machine.BMC{Driver: machine.IPMI}, nil
}

func (r *rig) Find(v *state.View, node string) (*machine.BMC, error) {
	if r.noBMC {
		return nil, nil //nolint:nilnil // it has none
	}
	b, err := r.Of(v, node)

	return &b, err
}

func (r *rig) Facts(context.Context, machine.BMC) (facts.Facts, error) {
	return facts.Facts{}, errors.New("IPMI tells none")
}

func (r *rig) Power(context.Context, machine.BMC) (bmc.Power, error) { return r.power, nil }

func (r *rig) Boot(_ context.Context, _ machine.BMC, b bmc.Boot) error {
	r.did("boot %s, lasting %t", b.Device, b.Lasting)
	return nil
}

func (r *rig) Act(_ context.Context, _ machine.BMC, a bmc.Action) error {
	r.did("%s", a)
	return nil
}

func (r *rig) Ready(record.Reader, string) error { return nil }

func (r *rig) Begin(ctx context.Context, o boot.Order) (api.Boot, error) {
	if r.open.Started != nil {
		r.did("go on")
		return r.open, nil
	}

	then, err := o.Then(ctx)
	r.did("begin, then %s", then)

	return r.open, err
}

func (r *rig) Started(context.Context, string, string, string) error {
	r.did("started")
	return nil
}

func (r *rig) End(_ context.Context, _, _, result string) error {
	r.did("end: %s", result)
	return nil
}

func (r *rig) keep(_ context.Context, _, _ string, f facts.Found) ([]string, error) {
	r.did("keep")
	if f.Arch != "x86_64" || !slices.Equal(f.Sources, []string{facts.Network}) {
		r.did("wrong facts: %+v", f)
	}

	return nil, nil
}

// Await tells what the machine has done by now.
func (r *rig) Await(ctx context.Context, _, _ string, seen int) (p boot.Progress, err error) {
	p.Events = []api.BootEvent{{From: boot.FromManager, Text: "it was switched on"}}

	wait := r.after
	if r.speaks > 0 && seen < 2 {
		wait = r.speaks
	}
	if seen == 2 {
		p.Events = append(p.Events, api.BootEvent{From: boot.FromHTTP, Text: "asked for its script"})
	}
	if seen == 0 {
		return p, nil
	}

	timer := time.NewTimer(wait)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return p, ctx.Err()
	case <-timer.C:
	}

	if r.speaks > 0 && seen < 2 {
		p.Events = append(p.Events, api.BootEvent{From: boot.FromHTTP, Text: "asked for its script"})
		return p, nil
	}

	p.Facts, p.Over = &facts.Facts{Schema: facts.Schema, Arch: "x86_64"}, true

	return p, nil
}

// TestBootAndLook goes over machines that answer soon, late, and never.
func TestBootAndLook(t *testing.T) {
	t.Parallel()

	const once = "boot pxe, lasting false"

	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	for name, c := range map[string]*struct {
		rig  rig
		want []string
		err  string
	}{
		"soon": {
			rig{power: bmc.Off, after: time.Minute}, []string{"begin, then off", "started", once, "cycle", "keep"}, "",
		},
		"it runs": {
			rig{power: bmc.On, after: time.Minute},
			[]string{"begin, then restart", "started", once, "cycle", "keep"}, "",
		},
		"by hand": {
			rig{noBMC: true, after: 20 * time.Minute}, []string{"begin, then restart", "started", "keep"}, "",
		},
		"it goes on": {
			rig{power: bmc.On, open: api.Boot{Started: &at}, after: time.Minute},
			[]string{"go on", "keep"}, "",
		},
		"never heard": {
			rig{power: bmc.On, after: time.Hour},
			[]string{"begin, then restart", "started", once, "cycle", "started", once, "cycle"},
			"it has asked nothing on the boot network",
		},
		"heard, and no facts": {
			rig{power: bmc.On, speaks: time.Minute, after: time.Hour},
			[]string{"begin, then restart", "started", once, "cycle"}, "was http: asked for its script",
		},
		"slow": {
			rig{power: bmc.On, speaks: time.Minute, after: 25 * time.Minute},
			[]string{"begin, then restart", "started", once, "cycle", "keep"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &c.rig
				result, told, err := r.inspect(t.Context())
				done, last := r.done[:len(r.done)-1], r.done[len(r.done)-1]

				switch {
				case err != nil:
					t.Error(err)
				case c.err == "" && (!result.Done || last != "end: the facts of the machine have come"):
					t.Errorf("the result is %+v; %s", result, last)
				case c.err != "" && (result.Failed != 1 || !strings.Contains(result.Message, c.err) ||
					!strings.HasPrefix(last, "end: ") || !strings.Contains(last, c.err)):
					t.Errorf("the result is %+v; %s; want %s", result, last, c.err)
				}

				if !slices.Equal(done, c.want) {
					t.Errorf("did %q\nwant %q", done, c.want)
				}
				if tells := strings.Contains(told, "http: asked for its script"); tells != (r.speaks > 0) {
					t.Errorf("the job tells %s", told)
				}
			})
		})
	}
}

// TestBootGoesOn: a step whose instance stops leaves the boot open for the next owner.
func TestBootGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{power: bmc.On, after: time.Hour}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)

		if _, _, err := r.inspect(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if slices.ContainsFunc(r.done, func(s string) bool { return strings.HasPrefix(s, "end") }) {
			t.Errorf("did %q", r.done)
		}
	})
}

// inspect runs a step on one machine, and returns what it tells the job.
func (r *rig) inspect(ctx context.Context) (job.HostResult, string, error) {
	j := job.Job{ID: "7", Status: job.Running, Deadline: time.Now().Add(2 * time.Hour)}
	j.Runs, j.Boot = []job.Run{{Hosts: []string{"r1"}}}, inventory.BootNetwork
	out := &lines{}

	x := New(Options{BMCs: r, Booter: netboot.Booter{Service: r, Switch: r, BMCs: r}, Keep: r.keep})
	result, err := x.Run(ctx, step.New(still{}, nil, j, 0), out)

	return result.Hosts["r1"], strings.Join(out.all, "\n"), err
}
