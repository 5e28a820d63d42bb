// SPDX-License-Identifier: Apache-2.0

// Package policy decides for the manager without a person. A policy is a pure function
// from the view, its memory and a time to judgements of nodes, which have the decisions with
// their evidence. It reads no clock, store or host. Loop asks hosts, records the decisions, and
// carries them out on the instance that leads, as the principal policy:NAME and through the same
// path as people. A decision may be carried out twice without harm: its id is the idempotency
// key. See README.md.
package policy
