// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"testing"
	"time"
)

// TestGroupSettings checks the settings of a group, and the text of a strategy.
func TestGroupSettings(t *testing.T) {
	t.Parallel()

	none, negative := 0, -1

	for _, tt := range []struct {
		group Group
		says  string // "": valid
	}{
		{Group{OnReturn: ReactionRepair}, ""},
		{Group{Strategy: Strategy{MaxUnavailable: "2", MaxFailures: &none, Soak: "0"}}, ""},
		{Group{OnReturn: "reboot"},
			`on_return of group a: "reboot" is no reaction; write record, verify, verify-and-repair or repair`},
		{Group{Strategy: Strategy{MaxUnavailable: "0"}}, `the strategy of group a: max_unavailable is "0"`},
		{Group{Strategy: Strategy{MaxUnavailable: "101%"}}, `max_unavailable is "101%"`},
		{Group{Strategy: Strategy{MaxFailures: &negative}}, "max_failures is -1"},
		{Group{Strategy: Strategy{Soak: "5"}}, `soak is "5"`},
		{Group{Strategy: Strategy{Soak: "-1s"}}, `soak is "-1s"`},
		{Group{Strategy: Strategy{Soak: "169h"}}, `soak is "169h"`},
	} {
		tt.group.Name = "a"

		err := Groups{tt.group}.Check()
		if tt.says == "" && err != nil || tt.says != "" && (KindOf(err) != KindInvalid ||
			!strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%+v: got %v, want %q", tt.group, err, tt.says)
		}
	}

	s := Strategy{MaxUnavailable: "10%", MaxFailures: &none, Soak: "5m"}
	if got := s.String(); got != "max_unavailable 10%, max_failures 0, soak 5m" {
		t.Error(got)
	}
	if d, err := s.SoakTime(); err != nil || *d != 5*time.Minute {
		t.Errorf("%v, %v", d, err)
	}
}

// TestReaction checks that a group without a reaction, and no group, have the default.
func TestReaction(t *testing.T) {
	t.Parallel()

	gs := Groups{{Name: "a", OnReturn: ReactionRepair}, {Name: "b"}}
	for group, want := range map[string]Reaction{"a": ReactionRepair, "b": ReactionVerify, "": ReactionVerify} {
		if got := gs.Reaction(group); got != want {
			t.Errorf("%q: got %s, want %s", group, got, want)
		}
	}
}
