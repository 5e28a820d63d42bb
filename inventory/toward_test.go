// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"testing"
)

// TestToward follows the advice from every status: each action is legal there.
func TestToward(t *testing.T) {
	t.Parallel()

	first := map[Status]Verb{
		Enrolled: VerbManage, Unallocated: VerbManage, Decommissioned: VerbManage, Manageable: VerbInspect,
	}

	for _, row := range Statuses {
		n := Node{Name: "a-1", Status: row.Status}
		if row.InProgress {
			n.Job = "7"
		}

		text, actions := Toward(VerbInspect, n)

		switch want := first[row.Status]; {
		case row.InProgress:
			if len(actions) != 1 || actions[0].Job != "7" {
				t.Errorf("%s: %s %v", row.Status, text, actions)
			}
		case want == "":
			if len(actions) > 0 || !strings.Contains(text, string(row.Status)) {
				t.Errorf("%s: %s %v", row.Status, text, actions)
			}
		default:
			if len(actions) != 1 || actions[0].Verb != want || !strings.Contains(text, string(want)) {
				t.Errorf("%s: %s %v", row.Status, text, actions)
				continue
			}

			if legal, _ := TransitionOf(actions[0].Verb); legal.Check(n) != nil {
				t.Errorf("%s: the advice is refused: %v", row.Status, legal.Check(n))
			}
		}
	}
}
