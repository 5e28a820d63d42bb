// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"
	"time"

	"github.com/contiv/cluster/management/record"
)

// Epoch is the number of the present life of the store. A restored store begins a new life, and so does an empty one
// that takes the place of a lost one: the revisions in etcd may begin anew then. The pair of epoch and revision only
// ever grows, so it is what orders fencing tokens.
type Epoch struct {
	Number int64 `json:"number"` // 0: the first life
	// Restored is the restore that began this life; nil: none did.
	Restored *Restored `json:"restored,omitempty"`
	// Recovered is how this life began without most of the instances; nil: it did not.
	Recovered *Recovered `json:"recovered,omitempty"`
	// Removed are the ids of the instances that an operator removed last. They have no say any more.
	Removed []string `json:"removed,omitempty"`
}

// Recovered says which instance went on alone, and without which others.
type Recovered struct {
	By        string    `json:"by"` // its id
	At        time.Time `json:"at"`
	Automatic bool      `json:"automatic,omitempty"` // no operator decided it
	// Lost has each instance that was lost so, in earlier lives too, with the number of the last entry in the audit
	// trail that both sides have.
	Lost map[string]uint64 `json:"lost"`
	// Former are the URLs at which the etcds of those were.
	Former []string `json:"former,omitempty"`
}

// maxRemoved is the number of removed instances that an epoch remembers.
const maxRemoved = 64

// Remove returns the epoch after an operator removed an instance.
func (e Epoch) Remove(id string) Epoch {
	e.Removed = append(slices.Clone(e.Removed), id)
	e.Removed = e.Removed[max(0, len(e.Removed)-maxRemoved):]
	return e
}

// Later reports whether the life of e goes on if it meets that of another store: of two, the one with the higher
// number does, and then the one whose instance has the higher id.
func (e Epoch) Later(other Epoch) bool {
	if e.Number != other.Number {
		return e.Number > other.Number
	}
	return e.by() > other.by()
}

func (e Epoch) by() string {
	if e.Recovered == nil {
		return ""
	}
	return e.Recovered.By
}

// Restored says from which backup a store was restored.
type Restored struct {
	At       time.Time `json:"at"`
	Backup   time.Time `json:"backup"`   // when the backup was made
	Revision int64     `json:"revision"` // of the store that was backed up
	// Paused: automation was paused because of the restore, so it is up to people to let it go on.
	Paused bool `json:"paused,omitempty"`
}

// Epochs has the epoch of the store.
var Epochs = record.Kind[Epoch]{Name: "epoch", Single: true}

// EpochOf returns the number of the epoch, 0 in the first life of a store.
func EpochOf(r record.Reader) int64 { return record.One(r, &Epochs).Number }

// NextEpoch returns the number of a life that begins now, after those with the former numbers. It is the time in
// seconds since 1970, so that it grows even if the same backup is restored twice, and the numbers of the life in
// between are lost with its store; by a clock that went back, it is one more than the highest former one.
func NextEpoch(now time.Time, former ...int64) int64 {
	return max(now.Unix(), slices.Max(append(former, 0))+1)
}
