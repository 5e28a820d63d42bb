// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/state"
)

// secretsRecord names the key that encrypts the secrets of this store. Every instance
// needs that key.
type secretsRecord struct {
	Key      string `json:"key"`
	Rotating bool   `json:"rotating,omitempty"` // former keys go once nothing needs them
	// Everything that is secret by these patterns, or by the marks up to a revision, is
	// encrypted with Key.
	Patterns string `json:"patterns,omitempty"` // their checksum
	Marks    int64  `json:"marks,omitempty"`
}

func (s *Store) secretsKey() string { return s.key("/x/secrets") }

// SecretsKey returns the id of the key that encrypts the secrets of the store, "" if it
// has none yet, and whether a rotation to it is under way. It reads by quorum.
func (s *Store) SecretsKey(ctx context.Context) (id string, rotating bool, err error) {
	record, _, err := s.secretsRecord(ctx)
	return record.Key, record.Rotating, err
}

// secretsRecord returns the record and its revision; both are zero without one.
func (s *Store) secretsRecord(ctx context.Context) (secretsRecord, int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.secretsKey())
	if err != nil || len(resp.Kvs) == 0 {
		return secretsRecord{}, 0, s.failure(ctx, err)
	}
	record, err := decode[secretsRecord](resp.Kvs[0].Value)

	return record, resp.Kvs[0].ModRevision, err
}

// NoteSecretsKey stores the id of the key that encrypts the secrets from now on. It is
// KindConflict unless the store names the key before, or none if that is empty.
func (s *Store) NoteSecretsKey(ctx context.Context, before, id string, rotating bool) error {
	key := s.secretsKey()

	old, revision, err := s.secretsRecord(ctx)
	if err != nil {
		return err
	}

	if old.Key != before {
		return inventory.Errorf(inventory.KindConflict, "another instance has changed the key of the secrets to %s",
			old.Key).Do("copy its key file to this host, and restart clusterm")
	}

	write, err := put(key, secretsRecord{Key: id, Rotating: rotating})
	if err != nil {
		return err
	}
	_, err = s.commit(ctx, etcd.Ops{If: []clientv3.Cmp{atRevision(key, revision)}, Then: []clientv3.Op{write}})

	return err
}

// EncryptOnce calls EncryptSecrets, unless an earlier call was complete for the same key,
// patterns and marks. Since then every write has encrypted its secrets. A change of the
// patterns, or a mark, requires another call.
func (s *Store) EncryptOnce(ctx context.Context) (written int, err error) {
	// Writes under way may have used other patterns.
	s.secrets.Use(s.secrets.Ring(), s.secrets.Problem())

	marks, err := s.markedSince(ctx)
	if err != nil {
		return 0, err
	}

	record, revision, err := s.secretsRecord(ctx)
	if err != nil {
		return 0, err
	}
	before := record
	record.Key, record.Patterns, record.Marks = s.secrets.Ring().Active(), s.secrets.patternsID(), marks

	if record == before && !record.Rotating {
		return 0, nil
	}

	written, err = s.EncryptSecrets(ctx)
	if err != nil || record.Key != before.Key || s.secrets.patternsID() != record.Patterns {
		return written, err
	}

	write, err := put(s.secretsKey(), record)
	if err != nil {
		return written, err
	}
	_, err = s.commit(ctx, etcd.Ops{
		If: []clientv3.Cmp{atRevision(s.secretsKey(), revision)}, Then: []clientv3.Op{write},
	})

	return written, err
}

// patternsID identifies the patterns of secret names.
func (s *Secrets) patternsID() string {
	patterns := *s.patterns.Load()
	sum := sha256.Sum256([]byte(strings.Join(patterns(), "\n")))
	return hex.EncodeToString(sum[:8])
}

// Secrets returns the encryption of this store.
func (s *Store) Secrets() *Secrets { return s.secrets }

// Ring returns the keys in use.
func (s *Secrets) Ring() secret.Ring { return *s.ring.Load() }

// Use replaces the keys, and the reason why they cannot encrypt. It waits until no
// write is under way whose secrets the former keys have encrypted.
func (s *Secrets) Use(ring secret.Ring, problem error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.ring.Store(&ring)
	s.setProblem(problem)
}

// StoredSecrets counts the secrets in the store.
type StoredSecrets struct {
	Boxes      map[string]int // that can be read, by the id of their key
	Plain      int            // values that are to be encrypted, and are not
	Unreadable []string       // what cannot be decrypted: variables with their scope, and jobs; sorted
	Damaged    []string       // the keys of records that cannot be decoded; also in Unreadable; sorted
}

// outdated reports whether a secret that can be read is not encrypted with the key that
// encrypts now.
func (c StoredSecrets) outdated(ring secret.Ring) bool {
	for id, count := range c.Boxes {
		if count > 0 && id != ring.Active() {
			return true
		}
	}

	return c.Plain > 0
}

func (c *StoredSecrets) add(more StoredSecrets) {
	for id, count := range more.Boxes {
		c.Boxes[id] += count
	}

	c.Plain += more.Plain
	c.Unreadable = append(c.Unreadable, more.Unreadable...)
}

// addBox counts a secret. err is the result of its decryption, name its variable or job.
func (c *StoredSecrets) addBox(box secret.Box, err error, name string) {
	if err != nil {
		c.Unreadable = append(c.Unreadable, name)
		return
	}

	c.Boxes[box.KeyID()]++
}

// protectedRecord is a kind of record with secrets.
type protectedRecord struct {
	prefix string // below the prefix of the store
	// count counts the secrets of a record. name is its key after the prefix.
	count func(s marking, name string, kv *mvccpb.KeyValue) (StoredSecrets, error)
	// encrypt returns the record anew, with the marked variables secret.
	encrypt func(s marking, name string, kv *mvccpb.KeyValue) ([]byte, error)
}

// marking is the encryption of a store where some variables are marked as secret.
type marking struct {
	*Secrets

	marked func(name string) bool
}

func (s *Store) marking() marking { return marking{s.secrets, state.Marked(s.View())} }

// protected returns the kinds of record with secrets.
func (s *Store) protected() []protectedRecord {
	list := []protectedRecord{
		{"/x/vars/", countHistory, encryptHistory},
		{"/x/inputs/", countInputs, encryptInputs},
	}

	for _, k := range s.view.tables.Kinds() {
		if k.HasSecrets() {
			list = append(list, protectedKind(k))
		}
	}

	return list
}

func protectedKind(k record.Any) protectedRecord {
	return protectedRecord{
		prefix: "/v/" + k.Path(""),
		count: func(s marking, key string, kv *mvccpb.KeyValue) (StoredSecrets, error) {
			found := StoredSecrets{Boxes: map[string]int{}}
			_, err := k.Rewrite(key, kv.Value, func(at []string, stored map[string]any) (map[string]any, error) {
				found.add(s.countVars(at, whereOf(at), stored))
				return stored, nil
			})

			return found, err
		},
		encrypt: func(s marking, key string, kv *mvccpb.KeyValue) ([]byte, error) {
			return k.Rewrite(key, kv.Value, func(at []string, stored map[string]any) (map[string]any, error) {
				return s.sealVars(at, s.openVars(at, stored).Mark(s.marked), false)
			})
		},
	}
}

// whereOf names a place in the report of secrets that cannot be read.
func whereOf(at []string) string {
	switch at[0] {
	case state.Variables.Name:
		return at[1]
	case state.Overlays.Name:
		return "config"
	case state.Checksums.Name:
		return "of the checksums"
	default:
		return "record " + at[0]
	}
}

// scanPage is the number of records that are read at a time. Those of large jobs have
// about a megabyte.
const scanPage = 16

// CountSecrets counts the secrets in the store. It reads all records that may have some.
func (s *Store) CountSecrets(ctx context.Context) (StoredSecrets, error) {
	total := StoredSecrets{Boxes: map[string]int{}}

	secrets := s.marking()
	err := s.eachProtected(ctx, func(kind protectedRecord, name string, kv *mvccpb.KeyValue) error {
		found, err := kind.count(secrets, name, kv)
		total.add(found)

		// The health names records that cannot be decoded.
		if err != nil {
			total.Unreadable = append(total.Unreadable, s.below(string(kv.Key)))
			total.Damaged = append(total.Damaged, s.below(string(kv.Key)))
		}

		return nil
	})

	slices.Sort(total.Damaged)
	slices.Sort(total.Unreadable)
	total.Unreadable = slices.Compact(total.Unreadable)

	return total, err
}

// eachProtected calls visit for every record that may have secrets.
func (s *Store) eachProtected(
	ctx context.Context, visit func(kind protectedRecord, name string, kv *mvccpb.KeyValue) error,
) error {
	for _, kind := range s.protected() {
		prefix := s.key("%s", kind.prefix)
		from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)

		for from != "" {
			resp, err := s.page(ctx, from, end)
			if err != nil {
				return err
			}

			for _, kv := range resp.Kvs {
				if err := visit(kind, strings.TrimPrefix(string(kv.Key), prefix), kv); err != nil {
					return err
				}
			}

			if from = ""; resp.More {
				from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
			}
		}
	}

	return nil
}

func (s *Store) page(ctx context.Context, from, end string) (*clientv3.GetResponse, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(bounded, from, clientv3.WithRange(end), clientv3.WithLimit(scanPage))
	return resp, s.failure(bounded, err)
}

// maxPasses bounds the attempts to encrypt records that others change meanwhile.
const maxPasses = 20

// EncryptSecrets encrypts with the key in use every secret that is stored in the clear
// or with another key of the ring. It returns the number of records that it has written.
// It leaves alone what it cannot read. It may be interrupted and repeated at any time.
func (s *Store) EncryptSecrets(ctx context.Context) (written int, err error) {
	if problem := s.secrets.Problem(); problem != nil {
		return 0, problem
	}

	for range maxPasses {
		count, conflicts, err := s.encryptPass(ctx)
		written += count

		if err != nil || conflicts == 0 {
			return written, err
		}
	}

	return written, inventory.Errorf(inventory.KindConflict,
		"variables changed faster than they could be encrypted").Do("try again")
}

func (s *Store) encryptPass(ctx context.Context) (written, conflicts int, err error) {
	secrets := s.marking()
	err = s.eachProtected(ctx, func(kind protectedRecord, name string, kv *mvccpb.KeyValue) error {
		done, err := s.encryptRecord(ctx, secrets, kind, name, kv)
		if done {
			written++
		}

		if inventory.KindOf(err) == inventory.KindConflict {
			conflicts++
			return nil
		}

		return err
	})

	return written, conflicts, err
}

// encryptRecord writes a record anew, if its secrets need that.
func (s *Store) encryptRecord(
	ctx context.Context, secrets marking, kind protectedRecord, name string, kv *mvccpb.KeyValue,
) (written bool, err error) {
	defer s.secrets.hold()()

	found, err := kind.count(secrets, name, kv)
	if err != nil || !found.outdated(s.secrets.Ring()) {
		return false, nil
	}

	value, err := kind.encrypt(secrets, name, kv)
	if err != nil {
		return false, fmt.Errorf("encrypt the secrets in %s: %w", s.below(string(kv.Key)), err)
	}

	_, err = s.commit(ctx, etcd.Ops{
		If:   []clientv3.Cmp{atRevision(string(kv.Key), kv.ModRevision)},
		Then: []clientv3.Op{clientv3.OpPut(string(kv.Key), string(value))},
	})

	return err == nil, err
}

// countVars counts the secrets among stored variables. where names their place.
func (s marking) countVars(at secret.Place, where string, stored configuration.Vars) StoredSecrets {
	found := StoredSecrets{Boxes: map[string]int{}}

	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if place, box := boxOf(at.With(name), stored[name]); box != "" {
			found.addBox(box, s.open(place, box, &document{}), name+" ("+where+")")
			continue
		}

		switch form, _ := formOf(stored[name]); form {
		case formSealed, formFormer, formSource, formShared, formLost:
		default:
			if s.marked(name) || s.protects(name, stored[name]) {
				found.Plain++
			}
		}
	}

	return found
}

// historyScope returns the scope in the name of a history entry, SCOPE/SEQ.
func historyScope(name string) state.Scope {
	return state.Scope(name[:max(0, strings.LastIndexByte(name, '/'))])
}

func countHistory(s marking, name string, kv *mvccpb.KeyValue) (StoredSecrets, error) {
	record, err := decode[variablesChangeRecord](kv.Value)
	if err != nil {
		return StoredSecrets{}, err
	}

	scope := historyScope(name)
	at, where := placeHistory(scope, record.Seq), "history of "+string(scope)

	found := s.countVars(at.With("before"), where, record.Before)
	found.add(s.countVars(at.With("after"), where, record.After))

	return found, nil
}

func encryptHistory(s marking, name string, kv *mvccpb.KeyValue) ([]byte, error) {
	record, err := decode[variablesChangeRecord](kv.Value)
	if err != nil {
		return nil, err
	}

	scope := historyScope(name)

	change, _ := s.openChange(scope, record.change(0)).Mark(s.marked)
	if change, err = s.sealChange(scope, change); err != nil {
		return nil, err
	}
	return json.Marshal(newVariablesChangeRecord(change))
}

func countInputs(s marking, id string, kv *mvccpb.KeyValue) (StoredSecrets, error) {
	record, err := decodeInputs(kv)
	if err != nil {
		return StoredSecrets{}, err
	}

	found := StoredSecrets{Boxes: map[string]int{}}

	if record.Sealed != "" {
		err := s.open(placeInputs(id), record.Sealed, &[]document{})
		found.addBox(record.Sealed, err, ownerOfInputs(id))

		// A job without its secrets is left as it is.
		if err != nil {
			return found, nil
		}
	}

	found.add(s.countVars(nil, "", record.Extra))

	protects := (*s.patterns.Load())().Protector()

	record.inputs().EachVars(func(_ string, vars map[string]configuration.Var) {
		for name, v := range vars {
			if form, _ := formOf(v.Value); form == "" && (s.marked(name) || protects(name, v.Value)) {
				found.Plain++
			}
		}
	})

	return found, nil
}

func encryptInputs(s marking, id string, kv *mvccpb.KeyValue) ([]byte, error) {
	in, err := decodeInputs(kv)
	if err != nil {
		return nil, err
	}
	opened := s.openInputs(id, in.inputs(), in.Sealed)

	stored, box, err := s.sealInputs(id, markedInputs(opened, s.marked))
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(sealedInputs{newInputsRecord(stored), box})

	return record.Compress(b), err
}
