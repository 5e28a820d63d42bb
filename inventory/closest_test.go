// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"testing"
)

func TestClosest(t *testing.T) {
	t.Parallel()

	commands := []string{
		"commission", "decommission", "discover", "maintenance", "forget", "get", "update", "w", "version",
	}
	for text, want := range map[string]string{
		"comission":      "commission",
		"decomission":    "decommission",
		"Comission":      "commission",
		"dsicover":       "discover",
		"forgte":         "forget",
		"mantainance":    "maintenance",
		"gte":            "get",
		"UPDATE":         "update",
		"updaet":         "update",
		"":               "",
		"w":              "", // a single letter matches nothing
		"x":              "",
		"something":      "",
		"reboot":         "",
		"commissionings": "commission",
		"reason":         "", // three edits from version
		"versionn":       "version",
		"vresoin":        "version",
		"gott":           "", // two edits in four letters
	} {
		if got := Closest(text, commands); got != want {
			t.Errorf("Closest(%q) = %q, want %q", text, got, want)
		}
	}

	if got := Closest("ab", []string{"ac", "ad"}); got != "ac" {
		t.Errorf("of two equally close candidates Closest returns %q, want the first", got)
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"node", "node", 0},
		{"", "node", 4},
		{"node", "nodes", 1},
		{"node", "nod", 1},
		{"node", "mode", 1},
		{"node", "onde", 1}, // two neighbours swapped
		{"größe", "grösse", 2},
		{"kitten", "sitting", 3},
		{"ca", "abc", 3}, // no edit within a swapped pair
	} {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}

		if got := Distance(tt.b, tt.a); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}

	long := strings.Repeat("a", maxCompared)
	if got := Distance(long, long); got != 0 {
		t.Errorf("two equal strings of %d letters have distance %d", maxCompared, got)
	}
	if got := Distance(long+"a", long+"a"); got != maxCompared+1 {
		t.Errorf("strings over the limit have distance %d, want %d", got, maxCompared+1)
	}
}
