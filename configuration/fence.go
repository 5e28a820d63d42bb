// SPDX-License-Identifier: Apache-2.0

package configuration

import "fmt"

// Fence is what a run shows to the hosts that it acts on. A host keeps the highest token of the manager, refuses a
// run with a lower one, and ends what still runs with a lower one before it admits a run with a higher one. The zero
// value is no fence.
type Fence struct {
	Token   FenceToken
	Manager string // identity of the manager; empty: not known
	Job     string // its number
	// Claim: the run takes hosts over from other managers.
	Claim bool
}

// FenceToken orders the runs of a manager on a host. Its numbers are compared in this order, and are not negative.
type FenceToken struct {
	Epoch    int64 // of the store: a restored one has a higher epoch
	Revision int64 // at which the job of the run got its owner; 0: no token
	Run      int   // index of the run in its job
}

func (t FenceToken) String() string { return fmt.Sprintf("%d.%d.%d", t.Epoch, t.Revision, t.Run) }
