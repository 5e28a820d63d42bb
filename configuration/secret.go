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

// Hidden replaces the value of a secret variable in output. As input for such a
// variable it keeps the current value.
const Hidden = inventory.Hidden

// Secrets are patterns for the names of secret variables, in the syntax of
// path.Match, without regard to case. They apply at every depth: a name that
// matches hides everything below it. A pattern after "!" is an exception to all
// others.
type Secrets []string

// DefaultSecrets returns the patterns that apply unless the configuration sets
// others.
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
		"*apikey*",
		"*pass",
		"*_pw",
		"*pwd",
		"*psk",
		"*dsn",
		"*community",
		"*_key",
		"!*public_key",
	}
}

// Check refuses malformed patterns with an error of kind invalid.
func (s Secrets) Check() error {
	for _, pattern := range s {
		name := strings.TrimPrefix(pattern, "!")
		if _, err := path.Match(name, ""); err != nil || name == "" || strings.Contains(name, "/") {
			return inventory.Errorf(inventory.KindInvalid, "%q is not a pattern of names", pattern).
				Do(`write it like db_password or *_token, and an exception like !*public_key`)
		}
	}

	return nil
}

// hides reports whether variables of that name are secret.
func (s Secrets) hides(name string) bool {
	name = strings.ToLower(name)
	secret := false

	for _, pattern := range s {
		pattern, except := strings.CutPrefix(strings.ToLower(pattern), "!")

		// Check has refused malformed patterns.
		if ok, err := path.Match(pattern, name); !ok || err != nil {
			continue
		}

		if except {
			return false
		}

		secret = true
	}

	return secret
}

// hide returns a copy of a value without its secrets.
func (s Secrets) hide(value any) any {
	switch value := value.(type) {
	case Secret:
		return Hidden
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

// HideVars returns a copy of variables without their secrets.
func (s Secrets) HideVars(v Vars) Vars { return s.hideMap(v) }

// HideMerged returns a copy of merged variables without their secrets.
func (s Secrets) HideMerged(vars map[string]Var) map[string]Var {
	out := make(map[string]Var, len(vars))
	for name, v := range vars {
		v.Value = s.hideOne(name, v.Value)
		out[name] = v
	}

	return out
}

// OmitMerged returns merged variables without their secrets, and the sorted paths
// of the secrets, such as db.password or users[0].token.
func (s Secrets) OmitMerged(vars map[string]Var) (kept map[string]Var, omitted []string) {
	kept = make(map[string]Var, len(vars))

	for name, v := range vars {
		if s.omits(name, v.Value) {
			omitted = append(omitted, name)
			continue
		}

		v.Value = s.omit(name, v.Value, &omitted)
		kept[name] = v
	}

	slices.Sort(omitted)

	return kept, omitted
}

// omits reports whether a variable is secret, by its name or because it is marked.
func (s Secrets) omits(name string, value any) bool {
	_, marked := value.(Secret)
	return marked || s.hides(name)
}

// omit returns a value without its secrets and adds their paths to omitted. It
// copies lists and maps only. path is that of the value.
func (s Secrets) omit(path string, value any, omitted *[]string) any {
	switch value := value.(type) {
	case Vars:
		return s.omit(path, map[string]any(value), omitted)
	case map[string]any:
		out := make(map[string]any, len(value))

		for name, e := range value {
			if at := path + "." + name; s.omits(name, e) {
				*omitted = append(*omitted, at)
			} else {
				out[name] = s.omit(at, e, omitted)
			}
		}

		return out
	case []any:
		out := make([]any, len(value))
		for i, e := range value {
			out[i] = s.omit(fmt.Sprintf("%s[%d]", path, i), e, omitted)
		}

		return out
	}

	return value
}

// HasHidden reports whether a value contains Hidden: it was read, and is not complete.
func HasHidden(value any) bool {
	switch value := value.(type) {
	case string:
		return value == Hidden
	case Secret:
		return HasHidden(value.value)
	case map[string]any:
		for _, v := range value {
			if HasHidden(v) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, HasHidden)
	}

	return false
}

// Restore replaces Hidden in given by the values in set, so that a client can
// write back the variables that it has read. Hidden without a value in set is
// refused with an error of kind invalid; stored, it would become the secret.
func (s Secrets) Restore(given, set Vars) (Vars, error) {
	out := make(Vars, len(given))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		old, isSet := set[name]

		value, err := s.restore(name, name, given[name], old, isSet)
		if err != nil {
			return nil, err
		}
		out[name] = value
	}

	return out, nil
}

// restoreMark returns the value that a request marks as secret: that of the request, or
// with Hidden the one that is set.
func (s Secrets) restoreMark(at string, mark Secret, set any, isSet bool) (any, error) {
	switch {
	case mark.value != any(Hidden):
		return mark, nil
	case isSet:
		return NewSecret(set), nil
	}

	return nil, inventory.Errorf(inventory.KindInvalid, "%s is not set, so it cannot become secret", at).
		Do("give its value")
}

// restore restores one value. at is its path, for errors; isSet reports whether
// set is a value, which may be nil.
func (s Secrets) restore(at, name string, given, set any, isSet bool) (any, error) {
	if mark, ok := given.(Secret); ok {
		return s.restoreMark(at, mark, set, isSet)
	}

	_, marked := set.(Secret)
	if (marked || s.hides(name)) && given == any(Hidden) {
		if !isSet {
			return nil, inventory.Errorf(inventory.KindInvalid,
				"the value of %s is %q, which stands for the current secret, but none is set", at, Hidden).
				Do("give the value itself")
		}

		return set, nil
	}

	switch given := given.(type) {
	case map[string]any:
		old, _ := set.(map[string]any)

		out := make(map[string]any, len(given))
		for _, k := range slices.Sorted(maps.Keys(given)) {
			o, isSet := old[k]

			value, err := s.restore(at+"."+k, k, given[k], o, isSet)
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
			// An element has no name. It is the same one if everything except its
			// secrets is unchanged.
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

// SecretSource is where the value of a secret variable comes from when a run begins:
// the output of a command, or a file.
type SecretSource struct {
	Command []string `yaml:"command" json:"command,omitempty"` // a program with its arguments
	File    string   `yaml:"file"    json:"file,omitempty"`
}

// Path returns the file, or the program.
func (s SecretSource) Path() string {
	if len(s.Command) > 0 {
		return s.Command[0]
	}
	return s.File
}
