// SPDX-License-Identifier: Apache-2.0

// Package control runs the loops of the manager.
//
// A loop is a value: a name, a duty, and a round that decides on the newest view and acts. What
// all loops need is written here once: an owned goroutine, waking by a newer view, a time or a
// kick, the duty, backing off, one line of log for a failure that repeats, and the state for
// metrics. A round may return acts, which are carried out apart from the rounds, and a loop may have
// a memory: a record that is stored before the acts begin.
//
// A round that is woken twice runs once, and rounds of a loop never overlap. The context of a
// round ends within a second after the duty is lost; what the loop remembers is read anew when
// it is gained again. A panic in a round is not caught: it ends the process.
package control
