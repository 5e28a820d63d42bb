// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// maxProblems is the number of problems that an error lists.
const maxProblems = 20

// Problem is an error in a file, with its position.
type Problem struct {
	At      Place
	Message string
}

func (p Problem) String() string { return p.At.String() + ": " + p.Message }

// problems returns the error that lists the problems in the order of the files, or
// nil if there are none. It is of KindInvalid.
func asError(all []Problem) error {
	if len(all) == 0 {
		return nil
	}

	// The order of the files: the sort is stable, and keeps the order of one position.
	files := map[string]int{}
	for _, p := range all {
		if _, known := files[p.At.File]; !known {
			files[p.At.File] = len(files)
		}
	}

	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(files[a.At.File]-files[b.At.File], a.At.Line-b.At.Line, a.At.Column-b.At.Column)
	})

	var lines []string
	for _, p := range all[:min(len(all), maxProblems)] {
		lines = append(lines, p.String())
	}

	if more := len(all) - maxProblems; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}

	return inventory.Errorf(inventory.KindInvalid, "%s", strings.Join(lines, "\n")).
		Do("correct the file; nothing was changed")
}

// nearest returns a suggestion to append to a message, or "".
func nearest(word string, known []string) string {
	if near := inventory.Closest(word, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}
