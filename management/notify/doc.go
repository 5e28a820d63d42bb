// SPDX-License-Identifier: Apache-2.0

// Package notify tells people and programs outside of the manager of events: nodes
// that enter or leave a status, appear, disappear or drift, jobs that end, and the
// health of the manager.
//
// Deliveries are a durable stream: a delivery is a record of an event on its way to one
// target. A Notifier is two loops of the leader. The one reads the changes of records
// after a stored position, turns them into events, and stores a delivery for each target
// that wants one, together with the new position. So an event is neither lost nor told
// twice by a restart or by another instance taking over. Then it decides on all deliveries
// (see decide), and sends what is due: an act for each target, in the order of creation.
// Each delivery is tried until the target accepts it, refuses it for good, or a day has
// passed; it is then kept for some days, as the log. The other loop makes events of the
// health of the manager.
//
// A receiver can get a delivery twice, because an answer can be lost. Both carry the
// same id. Webhooks are signed as in the specification Standard Webhooks 1.0,
// https://www.standardwebhooks.com.
//
// Only the targets of the configuration file are contacted. No redirect is followed.
package notify
