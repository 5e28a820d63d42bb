// SPDX-License-Identifier: Apache-2.0

// Package power has the executor of steps that switch machines by their BMCs, or set what they boot from.
package power

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// atOnce is how many machines of a job are switched at a time. A job with the option serial takes fewer.
const atOnce = 50

// BMCs reaches the BMCs of nodes.
type BMCs interface {
	// Of returns the BMC of a node, or why it cannot be reached.
	Of(v *state.View, node string) (machine.BMC, error)
	// Act, Boot and SetPassword are those of bmc.Pool.
	Act(ctx context.Context, b machine.BMC, a bmc.Action) error
	Boot(ctx context.Context, b machine.BMC, boot bmc.Boot) error
	SetPassword(ctx context.Context, b machine.BMC) error
}

// Registered reaches the BMCs of registered machines.
type Registered struct{ *bmc.Pool }

// ErrNone is returned for a node of which no BMC is known.
var ErrNone = errors.New("no BMC is known of it")

// Of returns the BMC of the machine that is registered for the node.
func (Registered) Of(v *state.View, node string) (machine.BMC, error) {
	return bmcOf(record.Get(v, &state.Machines, node))
}

// Find returns the BMC of the machine that is registered for the node; nil: it has none.
func (r Registered) Find(v *state.View, node string) (*machine.BMC, error) {
	b, err := r.Of(v, node)

	switch {
	case errors.Is(err, ErrNone):
		return nil, nil //nolint:nilnil // not all machines have one
	case err != nil:
		return nil, Locked(err)
	}

	return &b, nil
}

// bmcOf returns the BMC of a machine, with its passwords.
func bmcOf(m *state.Machine) (machine.BMC, error) {
	if !m.HasBMC() {
		return machine.BMC{}, ErrNone
	}

	b := *m.BMC
	b.Given = m.Given

	var errs [2]error
	b.Password, errs[0] = m.Password()
	b.Next, errs[1] = m.Secret(state.SecretBMCNext)

	return b, cmp.Or(errs[0], errs[1])
}

// Locked returns the error of Registered.Of for a password that cannot be read, with its remedy.
func Locked(err error) error {
	return inventory.Errorf(inventory.KindRefused, "%w", err).
		Do("restore the key of the secrets, or import the machine again with its password")
}

// Executor implements step.Executor.
type Executor struct {
	step.Plain

	bmcs      BMCs
	record    Record
	passwords Passwords
}

var _ step.Executor = Executor{}

// New returns the executor, which records the power of the machines that it has switched.
func New(b BMCs, r Record, p Passwords) Executor { return Executor{bmcs: b, record: r, passwords: p} }

// order is what a job is to do: its variables.
type order struct {
	boot    bmc.Boot   // without a device: leave it
	to      bmc.Action // "": leave the power
	rotate  bool       // replace the password of the BMC
	ramp    int        // machines a minute; 0: no limit
	perRack int        // machines of a rack at a time; 0: no limit
}

const (
	// labelRack is the label of nodes with their rack. Those without it count as one rack.
	labelRack = "rack"
	// maxRamp and maxPerRack bound what a request may ask for.
	maxRamp, maxPerRack = 10_000, 1000
)

// The variables of a request.
const (
	varTo      = "to"
	varBoot    = "boot"
	varMode    = "mode"
	varLasting = "lasting"
	varRamp    = "ramp"
	varPerRack = "per_rack"
	varRotate  = "rotate_password"
)

// parse reads the variables of a request.
func parse(vars configuration.Vars) (order, error) {
	var (
		o                order
		actions, devices []string
	)

	for _, a := range bmc.Actions {
		actions = append(actions, string(a.Action))
	}
	for _, d := range bmc.Devices {
		devices = append(devices, string(d.Device))
	}

	for _, name := range slices.Sorted(maps.Keys(vars)) {
		text, isText := vars[name].(string)
		yes, isBool := vars[name].(bool)

		good, want := false, ""

		switch name {
		case varTo:
			o.to, good, want = bmc.Action(text), isText && slices.Contains(actions, text), strings.Join(actions, ", ")
		case varBoot:
			o.boot.Device, good = bmc.Device(text), isText && slices.Contains(devices, text)
			want = strings.Join(devices, ", ")
		case varMode:
			o.boot.Mode, want = bmc.Mode(text), "bios, uefi"
			good = o.boot.Mode == bmc.BIOS || o.boot.Mode == bmc.UEFI
		case varLasting:
			o.boot.Lasting, good, want = yes, isBool, "true, false"
		case varRotate:
			o.rotate, good, want = yes, yes, "true"
		case varRamp:
			rate, perMinute := strings.CutSuffix(text, "/min")
			o.ramp, good = number(rate, maxRamp)
			good, want = good && perMinute, fmt.Sprintf("1/min to %d/min", maxRamp)
		case varPerRack:
			o.perRack, good = number(fmt.Sprint(vars[name]), maxPerRack)
			want = fmt.Sprintf("1 to %d", maxPerRack)
		default:
			return order{}, inventory.Errorf(inventory.KindInvalid, "power takes no variable %s", name).
				Do("it takes to, boot, mode, lasting, rotate_password, ramp and per_rack")
		}

		if !good {
			return order{}, inventory.Errorf(inventory.KindInvalid, "the variable %s is %v", name, vars[name]).
				Do("it may be %s", want)
		}
	}

	switch {
	case o.rotate && (o.to != "" || o.boot != bmc.Boot{}):
		return order{}, inventory.Errorf(inventory.KindInvalid, "rotate_password goes alone").
			Do("leave out to and boot, or rotate the passwords by a request of their own")
	case !o.rotate && o.to == "" && o.boot.Device == "":
		return order{}, inventory.Errorf(inventory.KindInvalid, "the request does not say what to do").
			Do("set the variable to (%s), boot (%s), or rotate_password (true)", strings.Join(actions, ", "),
				strings.Join(devices, ", "))
	case o.boot.Device == "" && o.boot != bmc.Boot{}:
		return order{}, inventory.Errorf(inventory.KindInvalid, "mode and lasting say how to boot, but not from what").
			Do("set the variable boot (%s)", strings.Join(devices, ", "))
	}

	return o, nil
}

// number reads a number from 1 to most.
func number(text string, most int) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1 && n <= most
}

// pause is the time from one machine to the next.
func (o order) pause() time.Duration {
	if o.ramp == 0 {
		return 0
	}
	return time.Minute / time.Duration(o.ramp)
}

// String describes the order in a few words.
func (o order) String() string {
	var parts []string

	if o.boot.Device != "" {
		text := "boot from " + string(o.boot.Device)
		if o.boot.Mode != "" {
			text += " by " + string(o.boot.Mode)
		}
		if !o.boot.Lasting {
			text += ", once"
		}
		parts = append(parts, text)
	}

	if o.to != "" {
		parts = append(parts, "power "+string(o.to))
	}

	if o.rotate {
		parts = append(parts, "new password of the BMC")
	}

	return strings.Join(parts, "; ")
}

// note is the order with its limits.
func (o order) note() string {
	text := o.String()

	if o.ramp > 0 {
		text += fmt.Sprintf("; at most %d a minute", o.ramp)
	}
	if o.perRack > 0 {
		text += fmt.Sprintf("; at most %d of a rack at a time", o.perRack)
	}

	return text
}

// interrupts reports whether the machines do not serve afterwards, or not for a while.
func (o order) interrupts() bool { return o.to != "" && o.to != bmc.TurnOn }

// Prepare refuses unknown orders, nodes without a BMC, and nodes in service that would stop without force.
func (x Executor) Prepare(_ context.Context, r step.Request) (step.Pin, error) {
	o, err := parse(r.Extra)
	if err != nil {
		return nil, err
	}

	var without, locked, serving []string

	for _, t := range r.Job.Targets {
		switch _, err := x.bmcs.Of(r.View, t.Name); {
		case errors.Is(err, ErrNone):
			without = append(without, t.Name)
		case err != nil:
			locked = append(locked, t.Name+": "+err.Error())
		}
		if t.From == inventory.Allocated {
			serving = append(serving, t.Name)
		}
	}

	switch {
	case len(without) > 0:
		return nil, inventory.Errorf(inventory.KindRefused, "no BMC is known of %s", job.ShortList(without)).
			Do("register it, or switch them by hand").About(without...)
	case len(locked) > 0:
		return nil, inventory.Errorf(inventory.KindRefused, "%s", job.ShortList(locked)).
			Do("restore the key of the secrets, or import the machines anew with their passwords")
	case o.interrupts() && len(serving) > 0 && !r.Job.Force:
		return nil, inventory.Errorf(inventory.KindRefused, "in service: %s; power %s would interrupt that",
			job.ShortList(serving), o.to).
			Do("decommission them first, or force it with a reason").About(serving...)
	}

	if o.rotate {
		if err := checkShared(r.View, r.Job.Names()); err != nil {
			return nil, err
		}
	}

	if takes := o.pause() * time.Duration(len(r.Job.Targets)-1); takes > r.Job.Timeout {
		return nil, inventory.Errorf(inventory.KindInvalid, "with %d a minute, %s take %s, and the job has %s", o.ramp,
			inventory.Count(len(r.Job.Targets), "node", "nodes"), takes.Round(time.Minute), r.Job.Timeout).
			Do("give the job more time (timeout), or more nodes a minute (ramp)")
	}

	return func(_ context.Context, _ *state.View, j *job.Job) error {
		j.Note = o.note()
		return nil
	}, nil
}

// repeats reports whether the order does more if it is carried out twice: nothing shows that a machine was restarted.
func (o order) repeats() bool { return o.to == bmc.Cycle || o.to == bmc.Reset }

// Run carries the order out on every machine of the step. After a restart of the manager the machines without a result
// have their turn again, unless that could restart them twice.
func (x Executor) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	in, err := s.Inputs(ctx)
	if err != nil {
		return step.Result{}, err
	}
	o, err := parse(in.Extra)
	if err != nil {
		return step.Result{}, err
	}

	v := s.View()
	each := step.Task{
		Name: o.String(), Limit: atOnce, Once: o.repeats(), Pause: o.pause(), PerPart: o.perRack,
		Part: func(host string) string {
			n, _ := v.Lookup(host)
			return n.Labels[labelRack]
		},
	}
	each.Do = func(ctx context.Context, host string) error {
		b, err := x.bmcs.Of(s.View(), host)
		if err != nil {
			return err
		}

		if o.rotate {
			return x.rotate(ctx, host)
		}

		if o.boot.Device != "" {
			if err := x.bmcs.Boot(ctx, b, o.boot); err != nil {
				return err
			}
		}
		if o.to == "" {
			return nil
		}

		if err := x.bmcs.Act(ctx, b, o.to); err != nil {
			return err
		}

		now := bmc.On
		if o.to == bmc.TurnOff || o.to == bmc.Soft {
			now = bmc.Off
		}

		return step.Retry(ctx, func() error { return x.record(ctx, Seen{Node: host, Power: now}) })
	}

	return each.Each(ctx, s, out)
}
