// SPDX-License-Identifier: Apache-2.0

package inventory

import "fmt"

// Toward returns what to do now for a verb to take the node in the end: in words, and as the action that works from its
// status.
func Toward(v Verb, n Node) (string, []Action) {
	row, _ := TransitionOf(v)

	if n.Status.InProgress() {
		if n.Job == "" {
			return "wait until its job has ended", nil
		}

		return "wait until its job has ended", []Action{WaitForJob(n.Job)}
	}

	if row.Takes(n) {
		return fmt.Sprintf("%s it first", v), []Action{Submit(v, n.Name)}
	}

	takes := joinWords(row.From, " or ")

	for _, t := range Lifecycle {
		// Nobody is told to take a node out of service for it, or to lose its data.
		if !t.Replaces && t.Takes(n) && t.Success != AsBefore && n.Status != Allocated &&
			row.Takes(Node{Status: t.Success}) {
			return fmt.Sprintf(
					"%s it first, which makes it %s, then %s it",
					t.Verb,
					takes,
					v,
				), []Action{
					Submit(t.Verb, n.Name),
				}
		}
	}

	return fmt.Sprintf("it is %s, and %s takes nodes that are %s", n.Status, v, takes), nil
}
