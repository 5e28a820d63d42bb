// SPDX-License-Identifier: Apache-2.0

package job

// Hold returns why a Queued job may not begin yet, in words, or "". A job that is held
// keeps its place in the queue, and jobs behind it that are not held go first.
type Hold func(Job) string

// holdReason returns the first reason of the holds. A nil hold holds nothing.
func holdReason(holds []Hold, j Job) string {
	for _, hold := range holds {
		if hold == nil {
			continue
		}

		if reason := hold(j); reason != "" {
			return reason
		}
	}

	return ""
}

// ChangesHosts reports whether the job may change a host. Some verbs and a check
// only look, and a forced job skips its cleanup.
func (j Job) ChangesHosts() bool {
	return !j.verb().Row.Looks && !j.Check && !(j.Force && j.verb().Cleans)
}

// Unless returns the hold of all jobs while the settings are not those that the operator chose,
// for the reason err, or h if it is nil. Under other groups a job could end for good, or break a
// budget.
func (h Hold) Unless(err error) Hold {
	if err == nil {
		return h
	}

	reason := "no job begins: " + Message(err)
	return func(Job) string { return reason }
}
