// SPDX-License-Identifier: Apache-2.0

package inventory

// Path returns the fewest verbs that bring a node from one status to another if all of them succeed; none if it has the
// status already. Of several ways of one length, the one whose verbs come first in the lifecycle table is taken. The
// error is of KindRefused if no verbs lead there.
func Path(from, to Status) ([]Verb, error) {
	type way struct {
		at    Status
		verbs []Verb
	}

	if from.InProgress() {
		return nil, Errorf(KindRefused, "a job holds nodes that are %s", from).Do("wait for the job, or cancel it")
	}

	reached := map[Status]bool{from: true}

	for ways := []way{{at: from}}; len(ways) > 0; ways = ways[1:] {
		w := ways[0]
		if w.at == to {
			return w.verbs, nil
		}

		for _, row := range Lifecycle {
			next := row.After(w.at)
			if row.Replaces || !row.Takes(Node{Status: w.at}) || next == "" || reached[next] {
				continue
			}

			reached[next] = true

			// Each way has verbs of its own.
			ways = append(ways, way{next, append(w.verbs[:len(w.verbs):len(w.verbs)], row.Verb)})
		}
	}

	return nil, Errorf(KindRefused, "no verbs lead from %s to %s", from, to).
		Do("name another status")
}
