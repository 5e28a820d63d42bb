// SPDX-License-Identifier: Apache-2.0

// Package doctest keeps the tables of a document equal to data. It is for tests.
package doctest

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of the documents")

// Check compares the text between the markers of each name in a document with the
// table of that name. The flag -update rewrites the document.
func Check(t testing.TB, document string, tables map[string]string) {
	t.Helper()

	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)

	for _, name := range slices.Sorted(maps.Keys(tables)) {
		begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
		head, rest, hasBegin := strings.Cut(text, begin)

		old, tail, hasEnd := strings.Cut(rest, end)
		if !hasBegin || !hasEnd {
			t.Fatalf("%s lacks the marker %s or %s", document, strings.TrimSpace(begin), end)
		}
		if old != tables[name] && !*update {
			t.Errorf("the table %q in %s is out of date; rewrite it: make docs", name, document)
		}

		text = head + begin + tables[name] + end + tail
	}

	if *update && text != string(data) {
		if err := os.WriteFile(document, []byte(text), 0o600); err != nil { // #nosec G703 -- a document of this tree
			t.Fatal(err)
		}
	}
}
