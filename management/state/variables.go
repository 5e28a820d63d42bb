// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/record"
)

// Scope is the range of a set of variables: "global", "group/NAME" or "node/NAME".
type Scope string

// ScopeGlobal is the scope of the globals.
const ScopeGlobal Scope = "global"

// ScopeGroup returns the scope of a group's variables.
func ScopeGroup(name string) Scope { return Scope("group/" + name) }

// ScopeNode returns the scope of a node's variables.
func ScopeNode(name string) Scope { return Scope("node/" + name) }

// Split returns the kind of the scope, "global", "group" or "node", and the name.
func (s Scope) Split() (kind, name string) {
	kind, name, _ = strings.Cut(string(s), "/")
	return kind, name
}

// In reports whether the variables belong to the scope of a caller. The globals do not.
func (s Scope) In(caller record.Scope) bool {
	switch kind, name := s.Split(); kind {
	case "node":
		return caller.HasNode(name)
	case "group":
		return caller.OwnsGroup(name)
	default:
		return false
	}
}

// ScopeVars are the variables of a scope, which has at least one.
type ScopeVars struct {
	Scope Scope              `json:"-"`
	Vars  configuration.Vars `json:"vars"`
}

// Variables are the variables of each scope that has any, by the scope.
var Variables = record.Kind[ScopeVars]{
	Name:  "vars",
	Key:   func(v *ScopeVars) string { return string(v.Scope) },
	Every: true,
	Codec: varsCodec{},
	Secret: func(v *ScopeVars, convert record.Convert) (*ScopeVars, error) {
		vars, err := convert(PlaceOf(v.Scope), v.Vars)
		return &ScopeVars{v.Scope, vars}, err
	},
	// A scope with a damaged record keeps its last values.
	Damaged: func(key string, last *ScopeVars) *ScopeVars { return cmp.Or(last, &ScopeVars{Scope: Scope(key)}) },
	Show: func(v *ScopeVars, s record.Scope) *ScopeVars {
		if v.Scope.In(s) {
			return v
		}
		return nil
	},
}

// PlaceOf returns the place of the variables of a scope, see record.Convert.
func PlaceOf(s Scope) []string { return []string{"vars", string(s)} }

// varsCodec is JSON. The key has the scope.
type varsCodec struct{}

func (varsCodec) Encode(v *ScopeVars) ([]byte, error) { return json.Marshal(v) }

func (varsCodec) Decode(key string, value []byte) (*ScopeVars, error) {
	v := &ScopeVars{Scope: Scope(key)}
	return v, json.Unmarshal(value, v)
}

// VarsOf returns the variables of the scope, or nil.
func VarsOf(r record.Reader, s Scope) configuration.Vars {
	if v := record.Get(r, &Variables, string(s)); v != nil {
		return v.Vars
	}
	return nil
}

// Marked returns a function that reports whether a variable of that name is marked as
// secret in a scope. It remains secret there and in all others until it is removed.
func Marked(r record.Reader) func(name string) bool {
	marked := map[string]bool{}

	for _, v := range record.All(r, &Variables) {
		for name, value := range v.Vars {
			if _, secret := value.(configuration.Secret); secret {
				marked[name] = true
			}
		}
	}

	return func(name string) bool { return marked[name] }
}
