// SPDX-License-Identifier: Apache-2.0

// Package install has the executor of steps that write an image to the disks of machines. They boot from the network
// for it, and the step ends once the installed system has called the manager.
package install

import (
	"cmp"
	"context"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/netboot"
)

const (
	// atOnce is how many machines are installed at a time, unless the job says another number.
	atOnce = 20
	// patience bounds the installation of a machine. The time limit of the job ends it earlier.
	patience = 4 * time.Hour
	// starts is how often a machine is started: again if it was silent, as after a loss of power.
	starts = 3

	// variable has the configuration of the first start that a site wants, in the form of cloud-init.
	variable = "cloud_config"
)

// Installer serves machines that boot: a boot.Service.
type Installer interface {
	// Installs returns why an image cannot be installed on a node.
	Installs(r record.Reader, node, image string) error
}

// Options are the dependencies of an Executor.
type Options struct {
	Booter    netboot.Booter
	Installer Installer
	Settings  func() step.Settings
	// PublicKey returns the public half of a private key of ssh.
	PublicKey func(file string) (string, error)
}

// Executor implements step.Executor.
type Executor struct {
	step.Plain

	o Options
}

var _ step.Executor = Executor{}

// New returns the executor.
func New(o Options) Executor { return Executor{o: o} }

// imageOf is the image for a node: that of the job, or else of its registration.
func imageOf(r record.Reader, j job.Job, node string) (string, error) {
	image := j.Image
	if m := record.Get(r, &state.Machines, node); m != nil {
		image = cmp.Or(image, m.Image)
	}

	if image == "" {
		return "", inventory.Errorf(inventory.KindRefused, "no image is named for %s, nor in its registration", node).
			Do("name an image, or configure one for the node").
			About(node)
	}

	return image, nil
}

// Prepare refuses machines that cannot boot from the network, or that no image fits.
func (x Executor) Prepare(_ context.Context, r step.Request) (step.Pin, error) {
	if err := x.o.Booter.Prepare(r); err != nil {
		return nil, err
	}

	for _, t := range r.Job.Targets {
		image, err := imageOf(r.View, r.Job, t.Name)
		if err == nil {
			err = x.o.Installer.Installs(r.View, t.Name, image)
		}
		if err == nil {
			connection := x.o.Settings().Connect(r.View, "", t.Name)
			_, err = x.configured(image, connection, x.o.Settings().Merge(r.View, "", t.Name)[variable].Value)
		}
		if err != nil {
			return nil, err
		}
	}

	return nil, nil
}

// configured returns the installation of an image, with the configuration of its first start.
func (x Executor) configured(image string, c configuration.Connection, site any) (boot.Install, error) {
	key, err := x.o.PublicKey(c.KeyFile)
	if err != nil {
		return boot.Install{}, err
	}

	if hidden, ok := site.(configuration.Secret); ok {
		if site, err = hidden.Reveal(); err != nil {
			return boot.Install{}, inventory.Errorf(inventory.KindRefused, "the variable %s %w", variable, err).
				Do("set it as a value, or as a secret of the manager")
		}
	}

	values, ok := site.(map[string]any)
	if site != nil && !ok {
		return boot.Install{}, inventory.Errorf(inventory.KindInvalid, "the variable %s is no object", variable).
			Do("write it as cloud-init's cloud-config, such as packages: [chrony]")
	}

	return boot.Install{Image: image}.Configure(cmp.Or(c.User, "root"), key, values)
}

// Run installs the nodes of the step.
func (x Executor) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	inputs, err := s.Inputs(ctx)
	if err != nil {
		return step.Result{}, err
	}

	hosts := map[string]configuration.Host{}
	for i, name := range s.Run().Hosts {
		hosts[name] = x.o.Settings().Target(s.View(), s.Job, s.Run(), i, inputs)
	}

	limit := cmp.Or(s.Job.Concurrency, atOnce)

	return step.Each(ctx, s, out, limit, "install", func(ctx context.Context, node string) error {
		// An earlier owner of the job may have had it installed, and have died before it recorded that.
		if boot.StageOf(s.View(), node, s.Job.ID) == api.BootRunning {
			return nil
		}

		err := x.install(ctx, s, out, hosts[node])
		x.o.Booter.End(ctx, s, node, "the system runs", err)

		// After its end a boot comes no further. Its record also has what an earlier owner of the job had written.
		if boot.StageOf(s.View(), node, s.Job.ID) == "" {
			return step.Untouched(err)
		}
		return err
	})
}

// install has a machine installed.
func (x Executor) install(ctx context.Context, s step.Step, out step.Events, host configuration.Host) error {
	image, err := imageOf(s.View(), s.Job, host.Name)
	if err != nil {
		return err
	}

	what, err := x.configured(image, host.Connection, host.Vars[variable].Value)
	if err != nil {
		return err
	}
	if m := record.Get(s.View(), &state.Machines, host.Name); m != nil {
		what.Root = m.RootDevice
	}

	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	_, err = x.o.Booter.Run(limited, netboot.Boot{
		Step: s, Out: out, Node: host.Name, Starts: starts, Late: late,
		Order: boot.Order{Purpose: "install", Install: &what, Then: restart},
		// Once the image is there, a restart would not help.
		Silent: func(b api.Boot) bool { return b.Stage == "" || b.Stage == api.BootWriting },
	})

	return err
}

// restart is what the machine does once the image is on its disk.
func restart(context.Context) (string, error) { return boot.Restart, nil }

// late is why a machine is not installed in time.
func late(p boot.Progress) string {
	switch p.Stage {
	case "":
		return "it has booted from the network, and writes nothing"
	case api.BootWriting:
		return "the image was not written whole"
	default:
		return "the image is on its disk, and its system does not call the manager: see that it has cloud-init"
	}
}
