// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Hidden stands for the value of a secret variable wherever values are shown.
// Given as such a value it means: keep what is set.
const Hidden = "(hidden)"

// Secrets are patterns of the names of variables whose values are never shown,
// in the syntax of path.Match (* for any text), upper and lower case alike. They
// count at every depth: a name that matches hides all that is below it.
type Secrets []string

// DefaultSecrets are the names that are secret unless the configuration says
// otherwise.
func DefaultSecrets() Secrets {
	return Secrets{
		"*password*",
		"*passwd*",
		"*passphrase*",
		"*secret*",
		"*token*",
		"*credential*",
		"*private_key*",
		"*api_key*",
	}
}

// Check refuses what is not a pattern of names.
func (s Secrets) Check() error {
	for _, pattern := range s {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" || strings.Contains(pattern, "/") {
			return inventory.Errorf(inventory.KindInvalid, "%q is not a pattern of names", pattern).
				Do(`write it like db_password or *_token`)
		}
	}

	return nil
}

// hides tells whether values of variables of that name are never shown.
func (s Secrets) hides(name string) bool {
	name = strings.ToLower(name)

	return slices.ContainsFunc(s, func(pattern string) bool {
		ok, err := path.Match(strings.ToLower(pattern), name)
		return ok && err == nil
	})
}

// hide returns a copy of the value with what is secret in it hidden.
func (s Secrets) hide(value any) any {
	switch value := value.(type) {
	case Vars:
		return Vars(s.hideMap(value))
	case map[string]any:
		return s.hideMap(value)
	case []any:
		out := make([]any, len(value))
		for i, e := range value {
			out[i] = s.hide(e)
		}

		return out
	}

	return value
}

func (s Secrets) hideMap(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for name, e := range m {
		out[name] = s.hideOne(name, e)
	}

	return out
}

func (s Secrets) hideOne(name string, value any) any {
	if s.hides(name) {
		return Hidden
	}

	return s.hide(value)
}

// HideVars returns a copy of the variables with what is secret in them hidden.
func (s Secrets) HideVars(v Vars) Vars { return s.hideMap(v) }

// HideMerged does the same with merged variables.
func (s Secrets) HideMerged(vars map[string]Var) map[string]Var {
	out := make(map[string]Var, len(vars))
	for name, v := range vars {
		v.Value = s.hideOne(name, v.Value)
		out[name] = v
	}

	return out
}

// Restore puts what is set in the place of values that were shown hidden, so
// that what was read can be written back. A hidden value that has nothing to
// stand for is refused: taken as it is, it would be the secret.
func (s Secrets) Restore(given, set Vars) (Vars, error) {
	out := make(Vars, len(given))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		old, is := set[name]

		value, err := s.restore(name, name, given[name], old, is)
		if err != nil {
			return nil, err
		}

		out[name] = value
	}

	return out, nil
}

func (s Secrets) restore(at, name string, given, set any, is bool) (any, error) {
	if s.hides(name) && given == any(Hidden) {
		if !is {
			return nil, inventory.Errorf(inventory.KindInvalid, "the value of %s is %q, which stands for a secret that is set, and none is", at, Hidden).
				Do("give the value itself")
		}

		return set, nil
	}

	switch given := given.(type) {
	case map[string]any:
		old, _ := set.(map[string]any)

		out := make(map[string]any, len(given))
		for _, k := range slices.Sorted(maps.Keys(given)) {
			o, is := old[k]

			value, err := s.restore(at+"."+k, k, given[k], o, is)
			if err != nil {
				return nil, err
			}

			out[k] = value
		}

		return out, nil
	case []any:
		old, _ := set.([]any)

		out := make([]any, len(given))
		for i, e := range given {
			// An element has no name: it is the one that was shown where the rest of
			// it is as it was.
			var o any
			if len(old) == len(given) && reflect.DeepEqual(s.hide(e), s.hide(old[i])) {
				o = old[i]
			}

			value, err := s.restore(fmt.Sprintf("%s[%d]", at, i), "", e, o, o != nil)
			if err != nil {
				return nil, err
			}

			out[i] = value
		}

		return out, nil
	}

	return given, nil
}
