// SPDX-License-Identifier: Apache-2.0

// Package statetest changes views, for tests of what reads them.
package statetest

import (
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// SetVars sets the variables of a scope at the revision of the view; without any it removes them.
func SetVars(v *state.View, s state.Scope, vars configuration.Vars) {
	var r *state.ScopeVars
	if len(vars) > 0 {
		r = &state.ScopeVars{Scope: s, Vars: vars}
	}

	v.View = record.SetAt(v.View, &state.Variables, string(s), r, v.Revision)
}

// SetChecksumKey sets the key of the checksums of variables.
func SetChecksumKey(v *state.View, key configuration.ChecksumKey) {
	v.View = record.WithOne(v.View, &state.Checksums, *state.NewChecksum(key))
}

// SetConfigAt sets the revision of the configuration.
func SetConfigAt(v *state.View, revision int64) {
	v.View = record.SetAt(v.View, &state.Overlays, "", &state.Overlay{}, revision)
}
