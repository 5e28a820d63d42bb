// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"

	"github.com/contiv/cluster/inventory"
)

// Store keeps records. Its methods may be called at once.
type Store interface {
	// Latest returns the newest records and their revision.
	Latest() (Reader, int64)
	// Changed returns a channel that is closed when there are newer records.
	Changed() <-chan struct{}
	// Sync blocks until Latest has every write that was acknowledged before the call.
	Sync(ctx context.Context) error
	// Commit carries out all writes of a transaction, if everything that it is guarded by is
	// as it was read, and returns the revision once Latest has them. Else it changes nothing
	// and returns KindConflict.
	Commit(ctx context.Context, tx *Tx) (revision int64, err error)
}

// Tx is a transaction: it collects what a decision reads and what it writes. Everything that is
// read through it is a guard of its commit: a record by its revision, and all records of a kind
// by the revision of the view. What it writes is guarded by the revision that it replaces. Reads
// do not see the writes. A Tx belongs to one goroutine.
type Tx struct {
	base     Reader
	revision int64
	guards   map[string]int64 // the revisions of records by their key in the store
	kinds    map[string]bool  // kinds that were read as a whole
	writes   []func(seal Convert) (Write, error)
	parts    []any
}

// Write is the write of one key in the store.
type Write struct {
	Path  string
	Value []byte // nil: the key is removed
}

// NewTx returns a transaction on the newest records of a store.
func NewTx(s Store) *Tx {
	tx := &Tx{guards: map[string]int64{}, kinds: map[string]bool{}}
	tx.base, tx.revision = s.Latest()
	return tx
}

// Records implements Reader.
func (tx *Tx) Records() View { return tx.base.Records() }

// Base returns the records as the store returned them. What is read of them is no guard.
func (tx *Tx) Base() Reader { return tx.base }

// Revision returns the revision of the records that the transaction reads.
func (tx *Tx) Revision() int64 { return tx.revision }

// Guards returns the revisions that records must have at the commit, by their key in the store
// (0: it must not exist), and the kinds of which no record may be newer than Revision.
func (tx *Tx) Guards() (records map[string]int64, kinds map[string]bool) { return tx.guards, tx.kinds }

// Writes returns the writes, in their order. seal, unless nil, encrypts the secrets.
func (tx *Tx) Writes(seal Convert) ([]Write, error) {
	writes := make([]Write, len(tx.writes))

	for i, encode := range tx.writes {
		var err error
		if writes[i], err = encode(seal); err != nil {
			return nil, err
		}
	}

	return writes, nil
}

// DependOn guards the commit by all records of the kinds. It is for a decision that reads many of them of Base.
func (tx *Tx) DependOn(kinds ...Any) {
	for _, k := range kinds {
		k.guard(tx)
	}
}

// Attach adds a part to the transaction that is no record of a kind, such as the inputs of a job. The
// store knows the types of such parts.
func (tx *Tx) Attach(part any) { tx.parts = append(tx.parts, part) }

// Parts returns the parts of Attach, in their order.
func (tx *Tx) Parts() []any { return tx.parts }

func (tx *Tx) guard(path string, revision int64) { tx.guards[path] = revision }

func (tx *Tx) guardKind(kind string) { tx.kinds[kind] = true }

// Put writes a record that carries its key, or the only one of its kind.
func Put[T any](tx *Tx, k *Kind[T], r *T) {
	key := ""
	if !k.Single {
		key = k.Key(r)
	}
	PutAt(tx, k, key, r)
}

// PutAt writes a record under a key.
func PutAt[T any](tx *Tx, k *Kind[T], key string, r *T) {
	before := Get(tx, k, key)

	if k.Chunks != nil {
		tx.addChunks(k.Chunks.writes(k, key, before, r))
	}

	// Encoded at the commit, because a key of the secrets may change until then.
	tx.writes = append(tx.writes, func(seal Convert) (Write, error) {
		value, err := k.seal(key, r, seal)
		return Write{k.Path(key), value}, err
	})
}

// Remove removes the record under a key, if there is one.
func Remove[T any](tx *Tx, k *Kind[T], key string) {
	before := Get(tx, k, key)
	if before == nil {
		return
	}
	if k.Chunks != nil {
		tx.addChunks(k.Chunks.writes(k, key, before, new(T)))
	}

	tx.add(Write{Path: k.Path(key)}, nil)
}

func (tx *Tx) add(w Write, err error) {
	tx.writes = append(tx.writes, func(Convert) (Write, error) { return w, err })
}

func (tx *Tx) addChunks(writes []Write, err error) {
	for _, w := range writes {
		tx.add(w, nil)
	}

	if err != nil {
		tx.add(Write{}, err)
	}
}

// attempts limits how often a decision is taken again. Of three instances that accept jobs without a pause, the one
// that is farthest from the store loses two of three attempts, and has to win one before it gives up.
const attempts = 100

// Decide is the way to change records: decide reads and writes through a transaction, which is
// committed if decide returns no error. After a conflict, in decide or at the commit, it is called
// again, on newer records, so it must have no other effect. It returns the result of the last call,
// and the revision of the commit; 0: nothing was written.
func Decide[R any](
	ctx context.Context, s Store, decide func(*Tx) (R, error),
) (result R, revision int64, err error) {
	for range attempts {
		tx := NewTx(s)

		result, err = decide(tx)
		if err == nil && len(tx.writes)+len(tx.parts) > 0 {
			revision, err = s.Commit(ctx, tx)
		}
		if inventory.KindOf(err) != inventory.KindConflict {
			return result, revision, err
		}

		// The view lags behind the write that conflicted.
		if err := s.Sync(ctx); err != nil {
			return result, 0, err
		}
	}

	return result, 0, err
}

// Replace writes the record under a key, if the store has it at the revision still (0: if there
// is none), and the parts, see Attach. Else it changes nothing and returns KindConflict.
func Replace[T any](
	ctx context.Context, s Store, k *Kind[T], key string, revision int64, r *T, parts ...any,
) (int64, error) {
	tx := NewTx(s)
	tx.parts = parts
	PutAt(tx, k, key, r)
	tx.guard(k.Path(key), revision)
	return s.Commit(ctx, tx)
}
