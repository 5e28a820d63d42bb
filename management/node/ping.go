// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

const (
	// MaxPing is the number of nodes in one Ping: so many logins, none of which is
	// answered, end within pingTime.
	MaxPing = 64

	// pingTime bounds one Ping.
	pingTime = 90 * time.Second
)

// Prober tries to reach hosts by ssh, and changes nothing on them.
type Prober interface {
	// Probe returns a result for each host, in order. It blocks until every host
	// has answered or run into a timeout of some seconds, or ctx ends.
	Probe(ctx context.Context, hosts []configuration.Host) []configuration.Reach
	// HostKeys returns the ssh host keys that a host shows, the preferred one first. It
	// offers no credential. It blocks as Probe does.
	HostKeys(ctx context.Context, h configuration.Host) ([]string, error)
}

// PingResult is the answer of one node, or the reason why there is none.
type PingResult struct {
	Node     string
	Addr     string
	Answered bool
	// HostKeyVerified: the host has the recorded key, or a certificate of the site's CA.
	// Otherwise any host at the address may have answered.
	HostKeyVerified bool
	Took            time.Duration
	Message         string // why the node did not answer
	Remedy          string // may be empty
	Actions         []inventory.Action
}

// failed returns the result with the reason why the node did not answer.
func (r PingResult) failed(err *inventory.Error) PingResult {
	r.Message, r.Remedy, r.Actions = err.Message, err.Remedy, err.Actions
	return r
}

// Ping tries a login on each node with its connection settings and its recorded host
// key, and returns the results in the order of the names. It changes nothing, on the
// nodes or in their records, and jobs do not prevent it.
func (ns *Nodes) Ping(ctx context.Context, c access.Caller, names []string) ([]PingResult, error) {
	if err := job.CheckNames("node", names, inventory.CheckName); err != nil {
		return nil, err
	}

	if len(names) > MaxPing {
		return nil, inventory.Errorf(inventory.KindInvalid, "%d nodes are too many for one ping", len(names)).
			Do("name at most %d at a time", MaxPing)
	}

	settings := ns.settings()

	v, err := c.Check(ctx, ns.state, ns.state.View(), access.Nodes(names...))
	if err != nil {
		return nil, err
	}

	results := make([]PingResult, len(names))

	var (
		hosts []configuration.Host
		asked []int // the indices of hosts in results
		taken = v.HostKeys()
	)

	for i, name := range names {
		n, _ := v.Lookup(name)
		h := configuration.Host{
			Name: n.Name, Addr: n.Addr, Label: n.Label, Serial: n.Serial, Role: configuration.RoleTarget,
			Connection: settings.Connect(v, n.Group, n.Name), HostKeys: n.HostKeys,
			HostCAs: settings.HostCAs, Taken: taken,
		}
		results[i] = PingResult{Node: n.Name, Addr: n.Addr}

		// The address comes from the network, and becomes an argument of ssh.
		err := configuration.CheckHosts([]configuration.Host{h})
		if e, refused := errors.AsType[*inventory.Error](err); refused {
			results[i] = results[i].failed(e)
			continue
		}

		hosts, asked = append(hosts, h), append(asked, i)
	}

	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()

	for i, reach := range ns.prober(c.Principal).Probe(ctx, hosts) {
		r := &results[asked[i]]
		r.Took, r.Answered = reach.Took, reach.OK()
		r.HostKeyVerified = r.Answered && len(hosts[i].HostKeys)+len(hosts[i].HostCAs) > 0

		if !r.Answered {
			*r = r.failed(silence(v, hosts[i], reach))
		}
	}

	return results, nil
}

// silence returns the cause why a host did not answer, with its remedy.
func silence(v *state.View, h configuration.Host, r configuration.Reach) *inventory.Error {
	reason := r.Reason()
	err := inventory.Errorf(inventory.KindUnavailable, "%s", reason).About(h.Name)

	// An explained reason has the remedy in words.
	switch {
	case configuration.AboutRecordedKey(reason):
		return err.With(inventory.TrustHostKey(h.Name))
	case configuration.AboutTakenKey(reason):
		return err
	case configuration.AboutHostKey(reason): // of a jump host
		return err.With(inventory.SetConnection(h.Name))
	case configuration.AboutAccess(reason):
		return err.With(inventory.SetConnection(h.Name))
	case !r.Silent && h.Connection.Jump != "":
		return err.Do("on the host of the manager, try ssh to the jump host, and from there to %s; see the logs of "+
			"both sshd", h.Addr).With(inventory.SetConnection(h.Name))
	case !r.Silent:
		return err.Do("try ssh to %s on the host of the manager, and see the log of its sshd", h.Addr)
	}

	seen := "the monitor does not see the node either"
	if n, _ := v.Lookup(h.Name); n.State == inventory.Discovered {
		seen = "the monitor sees the node alive"
	}
	return err.Do("%s; check the host, its address and the port of its sshd", seen).
		With(inventory.SetConnection(h.Name))
}
