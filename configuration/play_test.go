// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"strings"
	"testing"
)

func TestPlayMatches(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		hosts string // patterns, separated by spaces
		want  Match
	}{
		{"all", Yes},
		{"*", Yes},
		{"job_targets", Yes},
		{"web", Yes},
		{"web-1", Yes},
		{"db", No},
		{"web-2", No},
		{"localhost", No},
		{"job_helpers", No},
		{"ungrouped", No},
		{"cluster-node", No},
		{"db:web", Yes},
		{"db,web", Yes},
		{"db web", Yes},
		{"db:&job_targets", No},
		{"web:&job_targets", Yes},
		{"web:&db", No},
		{"all:!web", No},
		{"all:!db", Yes},
		{"job_targets:!cluster-node", Yes},
		{"job_helpers:!job_targets", No},
		{"!db", Yes},
		{"&web", Yes},
		{"we*", Yes},
		{"d?", No},
		{"~w[aeiou]b", Yes},
		{"~(db|dns)", No},
		{"~(?<=x)", Maybe},
		{"web[0]", Maybe},
		{"db[0]", No},
		{"we[a-c]", Maybe},
		{"{{group}}", Maybe},
		{"{{group}}:&job_targets", Maybe},
		{"db {{group}}", Maybe},
		{"web {{group}}", Yes},
		{"all:!{{group}}", Maybe},
	} {
		if got := (Play{Hosts: strings.Split(tt.hosts, " ")}).Matches("web-1", "web"); got != tt.want {
			t.Errorf("%q: got %d, want %d", tt.hosts, got, tt.want)
		}
	}

	if got := (Play{Unknown: true}).Matches("web-1", "web"); got != Maybe {
		t.Errorf("an unknown play: %d", got)
	}
}
