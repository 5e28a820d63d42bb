// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// EnsureChecksumKey makes the key of the checksums of variables, which all instances
// share, unless there is one. A key that no key of the secrets opens is replaced: then
// former checksums cannot be compared any more. It writes nothing while secrets are
// locked, and returns why.
func (s *Store) EnsureChecksumKey(ctx context.Context) error {
	if problem := s.secrets.Problem(); problem != nil {
		return problem
	}

	_, _, err := record.Decide(ctx, s, func(tx *record.Tx) (struct{}, error) {
		if state.ChecksumKey(tx).IsZero() {
			record.Put(tx, &state.Checksums, state.NewChecksum(configuration.NewChecksumKey()))
		}
		return struct{}{}, nil
	})

	return err
}
