// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"

	"github.com/contiv/cluster/management/record"
)

// Decision is what a loop with a memory decides at a time.
type Decision[M any] struct {
	Memory *M // what it remembers from now on; nil: the same as before
	// Attach are parts of the transaction that stores Memory, such as audit records, see record.Tx.
	Attach []any
	// Recorded is called once Memory is in the store. It may be nil.
	Recorded func()
	// Next has the acts. They are carried out only after the memory is in the store.
	Next
}

// Remember returns the round of a loop whose memory is the only record of a kind. decide is given
// the newest records and the memory. It has no other effect, because it is called again if the
// memory was changed meanwhile.
func Remember[M any](
	s record.Store, k *record.Kind[M], decide func(r record.Reader, memory M) Decision[M],
) func(context.Context) (Next, error) {
	return func(ctx context.Context) (Next, error) {
		d, _, err := record.Decide(ctx, s, func(tx *record.Tx) (Decision[M], error) {
			d := decide(tx.Base(), record.One(tx, k))
			if d.Memory != nil {
				record.Put(tx, k, d.Memory)
				for _, part := range d.Attach {
					tx.Attach(part)
				}
			}
			return d, nil
		})
		if err != nil {
			return Next{}, err
		}
		if d.Memory != nil && d.Recorded != nil {
			d.Recorded()
		}

		return d.Next, nil
	}
}
