// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

const newField = `"from_a_newer_version":{"kept":[1,2]}`

// withNewField adds a field that this build does not know to a record.
func withNewField(t *testing.T, value []byte) []byte {
	t.Helper()

	changed := []byte("{" + newField + "," + text(t, value)[1:])
	if value[0] != '{' {
		changed = record.Compress(changed)
	}

	return changed
}

// hasNewField reports whether the record has the field in the store.
func hasNewField(t *testing.T, s *Store, path string) bool {
	t.Helper()

	resp, err := s.client.Get(within(t, patience), s.key("/v/%s", path))
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", path, resp, err)
	}

	return strings.Contains(text(t, resp.Kvs[0].Value), newField)
}

// TestUnknownFieldsStay: an instance of a newer version has added a field to every record, before this one starts or
// while it runs. It writes them again, and the field stays.
func TestUnknownFieldsStay(t *testing.T) {
	t.Parallel()

	s := store(t)
	paths := map[string][]byte{}

	for key, value := range formerRecords(t) {
		path, shown := strings.CutPrefix(key, "v/")
		known := slices.ContainsFunc(testKinds, func(k record.Any) bool { return k.KindName() == record.KindOf(path) })

		if shown && known && text(t, value)[0] == '{' {
			paths[path] = withNewField(t, value)
		}
	}

	var revision int64

	for path, value := range paths {
		resp, err := s.client.Put(within(t, patience), s.key("/v/%s", path), string(value))
		must(t, err)

		revision = resp.Header.Revision
	}

	for name, s := range map[string]*Store{"while it runs": s, "before its start": open(t, s.client)} {
		must(t, s.Wait(within(t, patience), revision))
		rewriteAll(t, s, paths)

		for path := range paths {
			if !hasNewField(t, s, path) {
				t.Errorf("%s: the field of %s is lost", name, path)
			}
		}
	}

	changeSome(t, s)

	if len(paths) < 20 {
		t.Errorf("only %d records were written", len(paths))
	}
}

func text(t *testing.T, value []byte) string {
	t.Helper()

	if value[0] < ' ' {
		value = expanded(t, value)
	}
	return string(value)
}

// rewriteAll writes all records as this build would.
func rewriteAll(t *testing.T, s *Store, records map[string][]byte) {
	t.Helper()

	for path, value := range records {
		kind, rest, _ := strings.Cut(path, "/")
		at := slices.IndexFunc(testKinds, func(k record.Any) bool { return k.KindName() == kind })

		again, err := testKinds[at].Rewrite(rest, value, nil)
		must(t, err)

		_, err = s.commit(within(t, patience), etcd.Ops{
			Then: []clientv3.Op{clientv3.OpPut(s.key("/v/%s", path), string(again))},
		})
		must(t, err)
	}
}

// changeSome changes records by each way in which they are written.
func changeSome(t *testing.T, s *Store) {
	t.Helper()

	n := s.View().Nodes()[0]
	n.LastError += "x"
	conflicts, err := s.PutNodes(within(t, patience), []state.NodeWrite{{Node: *n}})
	must(t, err)

	if len(conflicts) > 0 || !hasNewField(t, s, job.Nodes.PathOf(n)) {
		t.Errorf("PutNodes loses the field of %s: %v", n.Name, conflicts)
	}

	r := record.List(s.View(), &rollout.Kind)[0]
	_, _, err = record.Decide(within(t, patience), s, func(tx *record.Tx) (any, error) {
		changed := *record.Get(tx, &rollout.Kind, r.ID)
		changed.Reason += "x"
		record.Put(tx, &rollout.Kind, &changed)

		return nil, nil
	})
	must(t, err)

	if !hasNewField(t, s, rollout.Kind.PathOf(r)) {
		t.Errorf("a decision loses the field of rollout %s", r.ID)
	}

	// A record that is gone leaves nothing to the next one of its name.
	must(t, forgetNode(t, s, *n))
	fresh := inventory.Node{Name: n.Name, Status: inventory.Unallocated, State: inventory.Discovered}
	conflicts, err = s.PutNodes(within(t, patience), []state.NodeWrite{{Node: fresh}})
	must(t, err)

	if len(conflicts) > 0 || hasNewField(t, s, job.Nodes.PathOf(&fresh)) {
		t.Errorf("a new node has the field of a former one: %v", conflicts)
	}
}

func forgetNode(t *testing.T, s *Store, n inventory.Node) error {
	t.Helper()

	now := *record.Get(s.View(), &job.Nodes, n.Name)
	_, err := s.Forget(within(t, patience), s.View().Revision, nil, []state.NodeWrite{
		{Node: now, Tombstone: &inventory.Tombstone{Name: n.Name}},
	}, nil)

	return err
}
