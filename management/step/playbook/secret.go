// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/step"
)

// Sources has the values of secret variables from outside.
type Sources interface {
	// Secret returns the value of the variable. It may run a program and block until
	// that ends, for a minute at most. Errors do not contain the value.
	Secret(ctx context.Context, name string) (string, error)
}

// resolveSecrets replaces the secrets in a run that come from outside by their values.
// Each source is asked once. A secret that is not available fails the run, unless only
// the variables of a peer have it: those lose it.
func (x *Executor) resolveSecrets(ctx context.Context, spec *RunSpec) error {
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
			text, err := x.askSource(ctx, name)
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
func (x *Executor) askSource(ctx context.Context, name string) (string, error) {
	if x.o.Sources == nil {
		return "", fmt.Errorf("the secret variable %q has no source", name)
	}

	text, err := x.o.Sources.Secret(ctx, name)
	if err != nil {
		return "", fmt.Errorf("the secret variable %q is not available: %w", name, err)
	}
	return text, nil
}

// formerSecrets returns the texts of the secrets that the hosts of a run may have from earlier jobs: a difference
// shows the present content of a file. These are the job that configured a host whole, and those since. Those of a job
// that is no longer kept are unknown.
func (x *Executor) formerSecrets(
	ctx context.Context, j job.Job, run job.Run, secrets configuration.Secrets,
) (texts []string) {
	open := map[string]bool{}
	for _, name := range run.Hosts {
		open[name] = true
	}

	for _, old := range slices.Backward(x.o.State.View().Jobs()) {
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
			texts = append(texts, x.secretsOfJob(ctx, old.ID, hosts, secrets)...)
		}

		maps.DeleteFunc(open, func(name string, _ bool) bool { return hosts[name] })
	}

	return texts
}

// secretsOfJob returns the texts of the secrets that a job had for hosts; none, if its inputs are gone.
func (x *Executor) secretsOfJob(
	ctx context.Context, id string, hosts map[string]bool, secrets configuration.Secrets,
) []string {
	in, err := step.InputsOf(ctx, x.o.Inputs, id)
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
