// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// bootMode is the capability of that name, as in TripleO.
const bootMode = "boot_mode"

// Configure changes what is registered of nodes that are Manageable: of all of them, or of none. It returns once all
// are changed. mayReach is why the caller may not change connections, or nil.
func (s *Service) Configure(
	ctx context.Context, c access.Caller, mayReach error, r api.Configure, connection configuration.Connection,
) (api.Imported, error) {
	if err := job.CheckNames("node", r.Nodes, inventory.CheckName); err != nil {
		return api.Imported{}, err
	}

	if err := checkConfigure(r, connection); err != nil {
		return api.Imported{}, err
	}

	if connection != (configuration.Connection{}) && mayReach != nil {
		return api.Imported{}, mayReach
	}

	decide := func(v *state.View) (planned, error) { return configured(v, r, connection) }
	out := api.Imported{DryRun: r.DryRun}

	if r.DryRun {
		return s.preview(ctx, c, out, decide)
	}

	return s.apply(ctx, c, access.Record{Action: "nodes.configure", Targets: r.Nodes}, out, decide)
}

// checkConfigure returns every mistake of a request by itself.
func checkConfigure(r api.Configure, connection configuration.Connection) error {
	var errs []error

	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !slices.Contains([]string{"", facts.BIOS, facts.UEFI}, r.BootMode) {
		wrong("boot_mode: %.60q is neither bios nor uefi", r.BootMode)
	}

	if s := r.RootDeviceStrategy; s != "" && !slices.Contains(facts.Strategies, s) {
		wrong("root_device_strategy: %.60q is no strategy; use %s", s, inventory.Choices(facts.Strategies))
	}

	if r.RootDeviceStrategy != "" && len(r.RootDevice) > 0 {
		wrong("root_device and root_device_strategy exclude each other")
	}

	if err := facts.CheckHints(r.RootDevice); err != nil {
		wrong("root_device: %w", err)
	}

	for name, text := range map[string]string{"image": r.Image, "kernel_args": r.KernelArgs} {
		if len(text) > machine.MaxText || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' }) {
			wrong("%s: it is longer than %d bytes, or has control characters", name, machine.MaxText)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		if err := cmp.Or(inventory.CheckLabelKey(key), inventory.CheckLabelValue(r.Labels[key])); err != nil {
			wrong("labels: %w", err)
		}
	}

	if err := connection.Check(); err != nil {
		errs = append(errs, err)
	}

	changes := r.BootMode != "" || r.RootDeviceStrategy != "" || len(r.RootDevice) > 0 || r.Image != "" ||
		r.KernelArgs != "" || len(r.Labels) > 0 || connection != configuration.Connection{}
	if !changes {
		wrong("it changes nothing")
	}

	if len(errs) == 0 {
		return nil
	}

	return inventory.Errorf(inventory.KindInvalid, "%s", strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; ")).
		Do("correct the request; nothing was changed")
}

// configured decides on a request, or returns every reason against it.
func configured(v *state.View, r api.Configure, connection configuration.Connection) (planned, error) {
	var (
		p        planned
		unknown  []string
		refused  []string // lines
		about    []string
		toManage []string // a verb makes them Manageable
	)

	for _, name := range r.Nodes {
		c := currentOf(v, name)
		if c.node == nil {
			unknown = append(unknown, name)
			continue
		}

		g := Registration{
			Machine:    machine.Machine{Node: name, Image: r.Image, KernelArgs: r.KernelArgs},
			Connection: connection, Labels: r.Labels, Configures: true,
		}

		if r.BootMode != "" {
			g.Capabilities = maps.Clone(c.machine.Capabilities)
			if g.Capabilities == nil {
				g.Capabilities = map[string]string{}
			}

			g.Capabilities[bootMode] = r.BootMode
		}

		reason := cmp.Or(c.refuses(g), c.after(g).tooLarge())
		if manage, _ := inventory.TransitionOf(inventory.VerbManage); reason != "" && manage.Takes(*c.node) {
			toManage = append(toManage, name)
		}

		if reason == "" {
			var err error
			if g.RootDevice, err = rootDevice(v, r, name); errors.Is(err, errNoFacts) && r.RootDeviceStrategy == "" {
				p.warnings = append(p.warnings, name+": the hints are not checked, because it was not inspected yet")
			} else if err != nil {
				reason = err.Error()
			}
		}

		if reason != "" {
			about, refused = append(about, name), append(refused, name+": "+reason)
			continue
		}

		m := api.ImportedMachine{Node: name, Action: api.ImportSame, Changes: c.changes(c.after(g))}
		if len(m.Changes) > 0 {
			m.Action = api.ImportChanged
			p.registrations = append(p.registrations, g)
		}

		p.machines = append(p.machines, m)
	}

	switch {
	case len(unknown) > 0:
		return planned{}, inventory.Errorf(inventory.KindNotFound, "there is no node %s",
			strings.Join(inventory.ShortenAll(unknown, maxNamed, maxName), ", ")).
			Do("list the nodes").With(inventory.ListNodes())
	case len(refused) > 0:
		err := inventory.Errorf(inventory.KindRefused, "%s: nothing was changed\n%s",
			inventory.Count(len(refused), "node cannot be configured", "nodes cannot be configured"),
			strings.Join(inventory.ShortenAll(refused, maxNamed, maxReason), "\n")).About(about...)

		if len(toManage) > 0 {
			return planned{}, err.Do("check their credentials, which makes them Manageable, or leave them out").
				With(inventory.Submit(inventory.VerbManage, toManage[:min(len(toManage), maxNamed)]...))
		}

		return planned{}, err.Do("leave them out, or mend the cause")
	}

	p.warnings = inventory.ShortenAll(p.warnings, maxNamed, maxReason)

	return p, nil
}

// The bounds of a refusal.
const (
	maxNamed  = 100
	maxName   = 100
	maxReason = 2000
)

// errNoFacts is the error for a node without an inspection.
var errNoFacts = errors.New("it was not inspected yet, so its disks are not known; inspect it first")

// rootDevice returns the hints for the root device of a node, as the request has them.
func rootDevice(v *state.View, r api.Configure, name string) (map[string]any, error) {
	if len(r.RootDevice) == 0 && r.RootDeviceStrategy == "" {
		return nil, nil
	}

	found, inspected, err := state.Newest(v, name)
	disks := found.Disks

	switch {
	case err != nil:
		return nil, err
	case !inspected:
		return r.RootDevice, errNoFacts
	}

	if r.RootDeviceStrategy == "" {
		_, err := facts.RootDevice(r.RootDevice, disks)
		return r.RootDevice, err
	}

	chosen, err := r.RootDeviceStrategy.Choose(disks)
	if err != nil {
		return nil, err
	}

	hints := facts.HintsFor(chosen, disks)
	if hints == nil {
		return nil, fmt.Errorf("the disk %s has neither a WWN nor a serial number to find it again; name hints instead",
			chosen)
	}

	return hints, nil
}
