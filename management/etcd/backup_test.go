// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/management/backup"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// backedUp returns the header and the records of a backup.
func backedUp(t *testing.T, s *Store) (h backup.Header, records map[string]string) {
	t.Helper()

	var file bytes.Buffer

	made, err := s.Backup(within(t, patience), "v1", &file)
	must(t, err)

	records = map[string]string{}
	end, err := backup.Scan(&file, func(found backup.Header) error { h = found; return nil }, func(part []byte) error {
		plain, err := record.Expand(part)
		must(t, err)

		return backup.Records(plain, func(key string, value []byte) error {
			records[key] = string(value)
			return nil
		})
	})
	must(t, err)

	if end != made || end.Records != int64(len(records)) {
		t.Errorf("written %+v, read %+v, %d records", made, end, len(records))
	}

	return h, records
}

// storedAt returns all keys below the prefix of a store as etcd has them at a revision, in one request, and apart those
// under a lease.
func storedAt(t *testing.T, s *Store, revision int64) (records map[string]string, leased []string) {
	t.Helper()

	resp, err := s.client.Get(within(t, patience), s.client.Prefix+"/", clientv3.WithPrefix(),
		clientv3.WithRev(revision))
	must(t, err)

	records = map[string]string{}

	for _, kv := range resp.Kvs {
		key := strings.TrimPrefix(string(kv.Key), s.client.Prefix+"/")

		switch {
		case kv.Lease != 0:
			leased = append(leased, key)
		case key != "schema":
			records[key] = string(kv.Value)
		}
	}

	return records, leased
}

// TestBackup compares a backup with what etcd has at its revision: all but the version of the data, and what is under a
// lease.
func TestBackup(t *testing.T) {
	t.Parallel()

	s := store(t)
	must(t, s.client.Initialize(t.Context()))

	id, err := s.Identity(within(t, patience), "00112233445566ff")
	must(t, err)

	accepted(t, s, seen(t, s, 300))

	// Pages are bounded by bytes as well as by records.
	for i := range 20 {
		key := fmt.Sprintf("%s/x/log/1/%02d", s.client.Prefix, i)
		must(t, second(s.client.Put(t.Context(), key, strings.Repeat(strconv.Itoa(i%10), 1<<20))))
	}

	session, err := s.Enter(within(t, patience), SessionOptions{
		Self: state.Instance{Identity: cluster.Identity{ID: "0011223344556677", Node: "host1"}},
		TTL:  SessionTTL, Log: silent(), Lost: func(error) {},
	})
	must(t, err)
	t.Cleanup(session.Close)

	h, got := backedUp(t, s)

	want, leased := storedAt(t, s, h.Revision)
	if !maps.Equal(got, want) {
		t.Errorf("the backup has %d records, and the store %d", len(got), len(want))
	}

	if len(leased) != 2 || len(want) < 620 {
		t.Errorf("%d records, and under a lease %q; want those of an instance and of the lead", len(want), leased)
	}

	if h.Manager != id || h.Schema != "3" || h.Version != "v1" || h.Epoch != state.EpochOf(s.View()) || h.Epoch == 0 {
		t.Errorf("%+v", h)
	}
}

// TestBackupIsOneRevision: records that change together while they are backed up are as they were together, however
// many pages are between them.
func TestBackupIsOneRevision(t *testing.T) {
	t.Parallel()

	s := store(t)
	must(t, s.client.Initialize(t.Context()))
	seen(t, s, 1000)

	at := func(key string) string { return s.client.Prefix + "/" + key }
	keys := []string{"a-first", "v/nodes/n-0500-a", "x/middle", "z-last"}

	write := func(n int) {
		var puts []clientv3.Op
		for _, key := range keys {
			puts = append(puts, clientv3.OpPut(at(key), strconv.Itoa(n)))
		}

		must(t, second(s.client.Txn(t.Context()).Then(puts...).Commit()))
	}
	write(0)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			write(n)
		}
	})

	first, last := "", ""

	for range 5 {
		h, got := backedUp(t, s)

		for _, key := range keys {
			if got[key] != got[keys[0]] || got[key] == "" {
				t.Errorf("%s is %q, and %s is %q", key, got[key], keys[0], got[keys[0]])
			}
		}

		if want, _ := storedAt(t, s, h.Revision); !maps.Equal(got, want) {
			t.Errorf("%d records instead of the %d of revision %d", len(got), len(want), h.Revision)
		}

		first, last = cmp.Or(first, got[keys[0]]), got[keys[0]]
	}

	stop()
	writer.Wait()

	if first == last {
		t.Error("nothing was written between the backups")
	}
}
