// SPDX-License-Identifier: Apache-2.0

package rollout

// CommandsAtOnce is for the tests.
const CommandsAtOnce = commandsAtOnce

// Checks returns the number of results of checks that are kept.
func (l *Loop) Checks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.checked)
}
