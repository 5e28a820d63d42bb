// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/state"
)

// Settings is the part of the configuration that executors depend on. It may change at any time.
type Settings struct {
	merge.Settings

	Appear time.Duration // discover: how long a host may take to appear
	Lease  time.Duration // how long a runner goes on without the daemon
	// AgentVars are the variables for hosts that are being prepared, or nil if
	// hosts cannot be prepared, for the reason NoAgents.
	AgentVars map[string]any
	NoAgents  error
	Manager   string // identity of the manager; empty: not known
	// HostCAs are the keys of the CAs for host certificates, see configuration.Host.
	HostCAs []string
}

// Archive has the inputs that jobs were accepted with.
type Archive interface {
	// Inputs returns them, or KindNotFound.
	Inputs(ctx context.Context, id string) (job.Inputs, error)
}

// retryEvery is the first delay before an access is repeated while the store is unavailable.
const retryEvery = 100 * time.Millisecond

// Retry repeats an access to the store while that is unavailable.
func Retry(ctx context.Context, access func() error) error {
	return state.RetryUnavailable(ctx, retryEvery, func(error) {}, access)
}

// InputsOf reads the inputs of a job, and repeats that while the store is unavailable.
func InputsOf(ctx context.Context, a Archive, id string) (in job.Inputs, err error) {
	err = Retry(ctx, func() (err error) {
		in, err = a.Inputs(ctx, id)
		return err
	})

	return in, err
}

// Login returns the host of a node as ssh reaches it now, without variables. A caller must check it, because the
// address may come from the network.
func (s Settings) Login(v *state.View, n inventory.Node) configuration.Host {
	h := configuration.Host{
		Name: n.Name, Addr: n.Addr, Label: n.Label, Serial: n.Serial, Role: configuration.RoleTarget,
		Connection: s.Connect(v, n.Group, n.Name), HostKeys: n.HostKeys, HostCAs: s.HostCAs, Taken: v.HostKeys(),
	}

	// A registered machine is a node before its agent has told its label.
	if h.Label == "" {
		h.Label = n.Name
	}

	return h
}

// Target returns the host of the run at the index of its list, as ssh reaches it now, with the variables that the job
// was accepted with.
func (s Settings) Target(v *state.View, j job.Job, run job.Run, i int, in job.Inputs) configuration.Host {
	t, _ := j.Target(run.Hosts[i])
	vars, connection := s.InputsOf(v, j, run, i, in)
	h := configuration.Host{
		Name: t.Name, Addr: t.Addr, Label: t.Label, Serial: t.Serial, Group: run.Groups[i],
		Role: configuration.RoleTarget, Vars: vars, Connection: connection,
		Commissioned: t.From == inventory.Allocated && run.Phase != job.PhaseConfigure,
		HostKeys:     t.HostKeys, HostCAs: s.HostCAs,
	}

	// The key is that of today: nodes no longer accept one that was rotated meanwhile.
	now := s.Connect(v, inputGroup(j, run, i), t.Node())
	h.Connection.KeyFile, h.Connection.FormerKeyFile = now.KeyFile, now.FormerKeyFile

	n, known := v.Lookup(t.Node())
	if !known {
		return h
	}

	// The address of a node may have changed since the job was accepted.
	h.Labels, h.Hardware = n.Labels, n.Hardware
	if len(n.HostKeys) > 0 {
		h.HostKeys = n.HostKeys
	}

	if !j.TakesAddrs() {
		h.Addr = n.Addr
	}

	return h
}

// InputsOf returns the variables and the ssh parameters of a host of the run: those of the group that the run
// configures or cleans. A node that was not expected to carry the group when the job was accepted gets those of now.
func (s Settings) InputsOf(
	v *state.View, j job.Job, run job.Run, i int, in job.Inputs,
) (map[string]configuration.Var, configuration.Connection) {
	t, _ := j.Target(run.Hosts[i])
	group := inputGroup(j, run, i)

	vars, connection, known := in.Of(t, group)
	if !known {
		return s.Merge(v, group, t.Node()), s.Connect(v, group, t.Node())
	}
	return vars, connection
}

// inputGroup returns the group of the variables of a host of the run. Hosts that are being prepared have none.
func inputGroup(j job.Job, run job.Run, i int) string {
	if j.TakesAddrs() {
		return ""
	}
	return run.Groups[i]
}
