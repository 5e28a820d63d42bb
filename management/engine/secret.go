// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// resolveSecrets replaces the secrets in a run that come from outside by their values.
// Each source is asked once. A secret that is not available fails the run, unless only
// the variables of a peer have it: those lose it.
func (e *Engine) resolveSecrets(ctx context.Context, spec *RunSpec) error {
	type answer struct {
		secret configuration.Secret
		err    error
	}

	known := map[string]answer{}

	resolve := func(name string, value any) (any, error) {
		secret, ok := value.(configuration.Secret)
		if !ok || !secret.Sourced() {
			return value, checkKnown(name, value)
		}

		a, asked := known[name]
		if !asked {
			text, err := e.askSource(ctx, name)
			a = answer{configuration.NewSecret(text), err}
			known[name] = a
		}

		return a.secret, a.err
	}

	for i, h := range spec.Hosts {
		vars := maps.Clone(h.Vars)

		for _, name := range configuration.Names(h.Vars) {
			v := h.Vars[name]

			value, err := resolve(name, v.Value)
			if err != nil && h.Role == configuration.RolePeer {
				delete(vars, name)
				continue
			}

			if err != nil {
				return err
			}

			v.Value = value
			vars[name] = v
		}

		spec.Hosts[i].Vars = vars
	}

	for _, name := range slices.Sorted(maps.Keys(spec.Extra)) {
		if err := checkKnown(name, spec.Extra[name]); err != nil {
			return err
		}
	}

	return nil
}

// checkKnown refuses a secret without a known value.
func checkKnown(name string, value any) error {
	secret, ok := value.(configuration.Secret)
	if !ok {
		return nil
	}

	if _, err := secret.Reveal(); err != nil {
		return inventory.Errorf(inventory.KindRefused, "the secret variable %q %w", name, err).
			Do("restore its key, or set the variable anew, and submit a new job")
	}

	return nil
}

// askSource returns the value of a secret from outside.
func (e *Engine) askSource(ctx context.Context, name string) (string, error) {
	if e.sources == nil {
		return "", fmt.Errorf("the secret variable %q has no source", name)
	}

	text, err := e.sources.Secret(ctx, name)
	if err != nil {
		return "", fmt.Errorf("the secret variable %q is not available: %w", name, err)
	}

	return text, nil
}

// formerSecrets returns the texts of the secrets that the hosts of a run may have from earlier jobs: a difference
// shows the present content of a file. These are the job that configured a host whole, and those since. Those of a job
// that is no longer kept are unknown.
func (e *Engine) formerSecrets(
	ctx context.Context, j job.Job, run job.Run, secrets configuration.Secrets,
) (texts []string) {
	open := map[string]bool{}
	for _, name := range run.Hosts {
		open[name] = true
	}

	for _, old := range slices.Backward(e.state.View().Jobs) {
		if len(open) == 0 {
			break
		}

		hosts := map[string]bool{} // on which it ran, and whether it configured them whole

		for i := range old.Runs {
			r := &old.Runs[i]
			if old.Seq() >= j.Seq() || r.NotBegun || !r.Phase.Configures() {
				continue
			}

			whole := r.Phase != job.PhaseUpgrade && !old.Check && !old.Partial()
			for _, name := range r.Hosts {
				if open[name] {
					hosts[name] = hosts[name] || whole && r.Results[name].Done
				}
			}
		}

		if len(hosts) > 0 {
			texts = append(texts, e.secretsOfJob(ctx, old.ID, hosts, secrets)...)
		}

		maps.DeleteFunc(open, func(name string, _ bool) bool { return hosts[name] })
	}

	return texts
}

// secretsOfJob returns the texts of the secrets that a job had for hosts; none, if its inputs are gone.
func (e *Engine) secretsOfJob(
	ctx context.Context, id string, hosts map[string]bool, secrets configuration.Secrets,
) []string {
	var in job.Inputs

	err := e.retryUnavailable(ctx, func() (err error) {
		in, err = e.store.Inputs(ctx, id)
		return err
	})
	if err != nil {
		return nil
	}

	texts := secrets.Values(in.Extra)

	in.EachVars(func(name string, vars map[string]configuration.Var) {
		if _, ran := hosts[name]; !ran {
			return
		}

		for variable, v := range vars {
			texts = append(texts, secrets.Values(map[string]any{variable: v.Value})...)
		}
	})

	return texts
}
