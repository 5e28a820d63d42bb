// SPDX-License-Identifier: Apache-2.0

// Package leader carries out the decisions of the policies, on the instance that leads. It
// records each decision before it acts, and acts as the principal policy:NAME through
// the same path as people. A decision may be carried out twice without harm: its id is
// the idempotency key.
package leader
