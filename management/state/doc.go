// SPDX-License-Identifier: Apache-2.0

// Package state is the view of everything the manager stores, and its changes.
//
// A View is an immutable copy of the store at one revision, fed by a watch. Use
// cases decide on a View and write with a guard, so a decision on an old view
// fails with KindConflict and is taken again (see RetryConflict). The stores
// behind the view are narrow interfaces, written by the packages that use them.
package state
