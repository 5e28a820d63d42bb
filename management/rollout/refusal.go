// SPDX-License-Identifier: Apache-2.0

package rollout

// NotNowError is the refusal of a rollout because none of its nodes could begin now, such as
// while jobs hold them. The same rollout may be accepted later. Err is the reason for one node.
type NotNowError struct{ Err error }

// Error returns the reason.
func (e *NotNowError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *NotNowError) Unwrap() error { return e.Err }
