// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/secret"
)

// The key of the checksums of variables is the only variable of its record, encrypted
// as every secret.
const checksumName = "key"

func placeChecksum() secret.Place { return secret.Place{"checksum"} }

func (s *Store) checksumKey() string { return s.key("/v/checksum") }

// EnsureChecksumKey makes the key of the checksums of variables, which all instances
// share, unless there is one. A key that no key of the secrets opens is replaced: then
// former checksums cannot be compared any more. It writes nothing while secrets are
// locked, and returns why.
func (s *Store) EnsureChecksumKey(ctx context.Context) error {
	if problem := s.secrets.Problem(); problem != nil {
		return problem
	}

	revision, err := s.readableChecksumKey(ctx)
	if err != nil || revision < 0 {
		return err
	}

	defer s.secrets.hold()()

	key := configuration.NewSecret(configuration.NewChecksumKey().Reveal())

	stored, err := s.secrets.sealVars(placeChecksum(), configuration.Vars{checksumName: key}, false)
	if err != nil {
		return err
	}

	op, err := put(s.checksumKey(), newVariablesRecord(stored))
	if err != nil {
		return err
	}

	_, err = s.commit(ctx, etcd.Ops{
		If: []clientv3.Cmp{atRevision(s.checksumKey(), revision)}, Then: []clientv3.Op{op},
	})
	if inventory.KindOf(err) == inventory.KindConflict {
		return nil // another instance was faster
	}

	return err
}

// readableChecksumKey returns -1 if the store has a key that can be read, and otherwise
// the revision of its record, 0 without one. It reads by quorum.
func (s *Store) readableChecksumKey(ctx context.Context) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.checksumKey())
	if err != nil || len(resp.Kvs) == 0 {
		return 0, s.failure(ctx, err)
	}

	if _, err := s.secrets.openChecksumKey(resp.Kvs[0]); err != nil {
		return resp.Kvs[0].ModRevision, nil
	}

	return -1, nil
}

// openChecksumKey decrypts the key in a record.
func (s *Secrets) openChecksumKey(kv *mvccpb.KeyValue) (configuration.ChecksumKey, error) {
	record, err := decode[variablesRecord](kv.Value)
	if err != nil {
		return configuration.ChecksumKey{}, err
	}

	value := s.openVars(placeChecksum(), record.Vars)[checksumName]
	if hidden, ok := value.(configuration.Secret); ok {
		if value, err = hidden.Reveal(); err != nil {
			return configuration.ChecksumKey{}, err
		}
	}

	text, _ := value.(string)

	return configuration.ParseChecksumKey(text)
}

// applyChecksumKey takes the key of a record. The caller holds the lock.
func (v *view) applyChecksumKey(deleted bool, kv *mvccpb.KeyValue) error {
	v.checksumKey = configuration.ChecksumKey{}

	if deleted {
		return nil
	}

	// The health shows a key of the secrets that is missing.
	v.checksumKey, _ = v.secrets.openChecksumKey(kv)

	return errorOf(decode[variablesRecord](kv.Value))
}

func countChecksumKey(s marking, _ string, kv *mvccpb.KeyValue) (StoredSecrets, error) {
	record, err := decode[variablesRecord](kv.Value)
	return s.countVars(placeChecksum(), "of the checksums", record.Vars), err
}

func encryptChecksumKey(s marking, _ string, kv *mvccpb.KeyValue) ([]byte, error) {
	record, err := decode[variablesRecord](kv.Value)
	if err != nil {
		return nil, err
	}

	record.Vars, err = s.sealVars(placeChecksum(), s.openVars(placeChecksum(), record.Vars), false)
	if err != nil {
		return nil, err
	}

	return json.Marshal(record)
}
