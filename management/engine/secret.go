// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
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
