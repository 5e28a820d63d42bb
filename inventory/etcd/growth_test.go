// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestGrow writes members as letters: V and v are voters that do and do not answer, L is
// a learner that has caught up, l one that does not answer, b one that lacks data.
func TestGrow(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		members string
		promote int
		want    []WarningCode
	}{
		{"V", 0, nil},
		{"VL", 0, []WarningCode{WarnNotAvailable}},
		{"Vb", 0, []WarningCode{WarnNotAvailable, WarnBehind}},
		{"Vl", 0, []WarningCode{WarnSilent, WarnNotAvailable}},
		{"VLL", 2, nil},
		{"VLb", 0, []WarningCode{WarnBehind, WarnSpare}},
		{"VLl", 0, []WarningCode{WarnSilent, WarnSpare}},
		{"VV", 0, []WarningCode{WarnNotAvailable}},
		{"VVL", 1, nil},
		{"VvL", 0, []WarningCode{WarnSilent, WarnEven, WarnSpare}},
		{"VVV", 0, nil},
		{"VVVL", 0, []WarningCode{WarnSpare}},
		{"VVVLL", 2, nil},
		{"VVvLL", 2, []WarningCode{WarnSilent}},
		{"VvvLL", 0, []WarningCode{WarnSilent, WarnSpare}},
		{"VVVV", 0, []WarningCode{WarnEven}},
		{"VVVVL", 1, nil},
		{"VVVVV", 0, nil},
		{"VVVVVLL", 0, []WarningCode{WarnSpare}},
		{"VVVLLL", 2, nil},
	} {
		g := Grow(membersOf(tt.members))

		var codes []WarningCode
		for _, w := range g.Warnings {
			codes = append(codes, w.Code)

			if w.Message == "" || strings.Contains(w.Message, "%!") {
				t.Errorf("%s: the warning %s reads %q", tt.members, w.Code, w.Message)
			}
		}

		if len(g.Promote) != tt.promote || !slices.Equal(codes, tt.want) {
			t.Errorf("%s: promotes %v and warns %v, want %d and %v", tt.members, titles(g.Promote), codes,
				tt.promote, tt.want)
		}

		for _, m := range g.Promote {
			if !strings.HasPrefix(m.Name, "L") {
				t.Errorf("%s: promotes %s", tt.members, m.Name)
			}
		}
	}
}

// membersOf returns members by letters; see TestGrow.
func membersOf(letters string) []ClusterMember {
	var members []ClusterMember
	for i, c := range letters {
		m := ClusterMember{
			ID: uint64(i) + 1, Name: fmt.Sprintf("%c%d", c, i), Applied: 10 * caughtUp,
			Learner: strings.ContainsRune("Llb", c), Healthy: strings.ContainsRune("VLb", c), Leader: i == 0,
		}
		if c == 'b' {
			m.Applied = caughtUp
		}

		members = append(members, m)
	}

	return members
}

// TestMayRemove: what is left has to have a quorum of members that answer.
func TestMayRemove(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		members string
		gone    int
		want    bool
	}{
		{"V", 0, false},
		{"VL", 0, false},
		{"VL", 1, true},
		{"VV", 0, true},
		{"Vv", 0, false},
		{"Vv", 1, true},
		{"VVV", 0, true},
		{"VVv", 2, true},
		{"VVv", 0, false},
		{"VVVv", 0, true},
		{"VVvv", 0, false},
		{"VVvv", 3, true},
		{"VVVvv", 0, false},
	} {
		members := membersOf(tt.members)
		if err := mayRemove(members, members[tt.gone]); (err == nil) != tt.want {
			t.Errorf("%s without %s: %v, want allowed %t", tt.members, members[tt.gone].Name, err, tt.want)
		}
	}
}
