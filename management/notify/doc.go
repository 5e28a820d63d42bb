// SPDX-License-Identifier: Apache-2.0

// Package notify tells people and programs outside of the manager of events: nodes
// that enter or leave a status, appear, disappear or drift, jobs that end, and the
// health of the manager.
//
// A Notifier follows the records of the store from a stored revision on, turns changes
// into events, and stores a delivery for each target that wants one, together with the
// revision. So an event is neither lost nor told twice by a restart or by another
// instance taking over. Each delivery is tried until the target accepts it, refuses it
// for good, or a day has passed; it is then kept for some days, as the log.
//
// A receiver can get a delivery twice, because an answer can be lost. Both carry the
// same id. Webhooks are signed as in the specification Standard Webhooks 1.0,
// https://www.standardwebhooks.com.
//
// Only the targets of the configuration file are contacted. No redirect is followed.
package notify
