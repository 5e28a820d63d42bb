// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// Secret is the value of a variable that is secret whatever its name. It is known, or
// it is locked: stored, but not readable at present; or it comes from a source outside,
// which is asked when a run begins. Every encoder and formatter writes Hidden for it;
// Reveal is the only way to the value.
//
// A Secret is the whole value of a variable, never a part of one. It is immutable.
type Secret struct {
	value  any
	locked *lock
	source bool
}

// lock is the state of a secret that cannot be read.
type lock struct{ place, box, problem string }

// NewSecret returns a secret with a known value. A Secret stays as it is.
func NewSecret(value any) Secret {
	if s, ok := value.(Secret); ok {
		return s
	}
	return Secret{value: value}
}

// LockedSecret returns a secret that is stored as box at the place, and cannot be read
// for the reason given. An empty box: its value is lost.
func LockedSecret(place, box, problem string) Secret {
	return Secret{locked: &lock{place, box, problem}}
}

// SourcedSecret returns a secret with a value from the source with the name of
// the variable.
func SourcedSecret() Secret { return Secret{source: true} }

// Sourced reports whether the value comes from a source outside.
func (s Secret) Sourced() bool { return s.source }

// Locked returns the place and the box of a secret that cannot be read.
func (s Secret) Locked() (place, box string, locked bool) {
	if s.locked == nil {
		return "", "", false
	}
	return s.locked.place, s.locked.box, true
}

// Problem is the reason why a secret is locked, or "".
func (s Secret) Problem() string {
	if s.locked == nil {
		return ""
	}
	return s.locked.problem
}

// errSourced is the error for the value of a secret that is not resolved.
var errSourced = errors.New("comes from a source outside, which was not asked")

// Reveal returns the value. For a secret without a known value it is an error without
// the name of the variable.
func (s Secret) Reveal() (any, error) {
	switch {
	case s.locked != nil:
		return nil, fmt.Errorf("cannot be read: %s", s.locked.problem)
	case s.source:
		return nil, errSourced
	}

	return s.value, nil
}

// MarshalJSON writes Hidden.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + Hidden + `"`), nil }

// MarshalYAML writes Hidden.
func (s Secret) MarshalYAML() (any, error) { return Hidden, nil }

// Format implements fmt.Formatter: every verb prints Hidden.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, Hidden) }

// plainOf returns the value of a secret, and any other value as it is.
func plainOf(value any) (any, error) {
	if s, ok := value.(Secret); ok {
		return s.Reveal()
	}
	return value, nil
}

// Protects reports whether a variable is to be encrypted where it is stored: it is a
// Secret, or its name or that of a part of it matches a pattern.
func (s Secrets) Protects(name string, value any) bool {
	return s.hides(name) || s.within(value)
}

// Protector returns Protects for many values of few names: it matches each name once. It
// is not safe for concurrent use.
func (s Secrets) Protector() func(name string, value any) bool {
	hidden := map[string]bool{}

	return func(name string, value any) bool {
		hides, known := hidden[name]
		if !known {
			hides = s.hides(name)
			hidden[name] = hides
		}

		return hides || s.within(value)
	}
}

// within reports whether a part of the value is secret.
func (s Secrets) within(value any) bool {
	switch value := value.(type) {
	case Secret:
		return true
	case Vars:
		return s.within(map[string]any(value))
	case map[string]any:
		for name, e := range value {
			if s.Protects(name, e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, s.within)
	}

	return false
}

// Mark returns a copy of the variables in which the named ones are secret, if they are
// among them.
func (v Vars) Mark(secret func(name string) bool) Vars {
	out := maps.Clone(v)
	for name, value := range v {
		if value != nil && secret(name) {
			out[name] = NewSecret(value)
		}
	}

	return out
}

// CheckReadable refuses merged variables with a locked secret: a run would miss it. It
// is KindRefused and names every one.
func CheckReadable(vars map[string]Var) error {
	for _, name := range Names(vars) {
		if s, ok := vars[name].Value.(Secret); ok && s.locked != nil {
			return inventory.Errorf(inventory.KindRefused, "the secret variable %q (%s) cannot be read: %s",
				name, vars[name].Origin, s.locked.problem).Do("restore its key, or set the variable anew")
		}
	}

	return nil
}
