// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// reprobeAfter is when a probe that was not possible is repeated at the earliest.
const reprobeAfter = 10 * time.Minute

// probed is the result of a probe of ansible-playbook for the evaluation of templates.
type probed struct {
	id  string // ansible.ProgramID; empty: none yet
	at  time.Time
	err error // nil: it is safe; KindRefused: it is vulnerable; other: the probe was not possible
}

func (p probed) isVulnerable() bool { return inventory.KindOf(p.err) == inventory.KindRefused }

// holds reports whether the result counts for the program.
func (p probed) holds(id string) bool {
	isResult := p.err == nil || p.isVulnerable()
	return p.id == id && (isResult || time.Since(p.at) < reprobeAfter)
}

// checkTemplates refuses an ansible-playbook that evaluates text of hosts as templates,
// unless the configuration accepts it. The first call for a program probes it for
// seconds; others wait for the result. A program that cannot be probed is not
// refused: the health names the reason.
func (r *Runner) checkTemplates(ctx context.Context) error {
	select {
	case r.probing <- struct{}{}:
		defer func() { <-r.probing }()
	case <-ctx.Done():
		return ctx.Err()
	}

	c := r.config()

	id, err := ansible.ProgramID(c.Ansible)
	if err != nil {
		return err
	}

	p := r.lastProbe()
	if !p.holds(id) {
		p = r.probe(ctx, id)
		if ctx.Err() != nil {
			return ctx.Err()
		}

		r.mu.Lock()
		r.probed = p
		r.mu.Unlock()
	}

	if p.isVulnerable() && !c.AcceptVulnerable {
		return p.err
	}

	return nil
}

// probe probes ansible-playbook. The file of the last safe program spares the probe
// at the next start.
func (r *Runner) probe(ctx context.Context, id string) probed {
	file := filepath.Join(filepath.Dir(r.temp), "ansible-probe")
	if known, err := os.ReadFile(file); err == nil && string(known) == id {
		return probed{id: id, at: time.Now()}
	}

	err := ansible.ProbeTemplates(ctx, r.config().Ansible, r.temp)
	p := probed{id: id, at: time.Now(), err: err}

	switch {
	case ctx.Err() != nil:
	case p.isVulnerable() && r.config().AcceptVulnerable:
		r.log.WithError(err).Warn("jobs run all the same, because of accept_vulnerable_ansible")
	case err != nil:
		r.log.WithError(err).Warn("ansible-playbook has not passed the probe for the evaluation of templates")
	default:
		if err := localfile.Replace(file, []byte(id)); err != nil {
			r.log.WithError(err).Warn("cannot store the result of the probe of ansible-playbook")
		}
	}

	return p
}

func (r *Runner) lastProbe() probed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.probed
}

// Health returns a warning, or the reason why no job can run. It may run ansible-playbook for its version; it does not
// probe it.
func (r *Runner) Health(ctx context.Context) (warnings []string, problem error) {
	version := r.CheckVersion(ctx)
	p := r.lastProbe()

	switch {
	case p.err == nil:
		return nil, version
	case !p.isVulnerable():
		return []string{p.err.Error()}, version
	case r.config().AcceptVulnerable:
		return []string{fmt.Sprintf("accept_vulnerable_ansible is set: %v", p.err)}, version
	}

	return nil, errors.Join(version, p.err)
}
