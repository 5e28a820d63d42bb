// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
)

// busy takes all flights of the group commit, so that later writes wait for each other. The
// returned function lets them fly.
func busy(t *testing.T, s *Store) (land func()) {
	t.Helper()

	f := s.group.enter(s)
	if f == nil {
		t.Fatal("a flight is taken already")
	}
	f.timer.Stop() // it never counts as slow

	return f.land
}

// queued waits until so many writes wait for a flight.
func queued(ctx context.Context, t *testing.T, s *Store, count int) {
	t.Helper()

	for ctx.Err() == nil {
		s.group.mu.Lock()
		n := len(s.group.queue)
		s.group.mu.Unlock()

		if n == count {
			return
		}

		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}

	t.Fatalf("%d writes do not wait: %v", count, ctx.Err())
}

// TestGroupCommit: writes that are independent share a revision, and each is visible when it
// returns.
func TestGroupCommit(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	fly := busy(t, s)

	const writes = 20

	revisions := make([]int64, writes)
	errs := make([]error, writes)

	var all sync.WaitGroup
	for i := range writes {
		all.Go(func() {
			revisions[i], errs[i] = s.commit(ctx, etcd.Ops{
				If:   []clientv3.Cmp{atRevision(s.key("/x/test/%d", i), 0)},
				Then: []clientv3.Op{clientv3.OpPut(s.key("/x/test/%d", i), "value")},
			})
		})
	}

	queued(ctx, t, s, writes)
	fly()
	all.Wait()

	for i := range writes {
		must(t, errs[i])

		if revisions[i] != revisions[0] || s.View().Revision < revisions[i] {
			t.Errorf("write %d is at %d, the first at %d, the view at %d",
				i, revisions[i], revisions[0], s.View().Revision)
		}
	}
}

// TestGroupCommitConflict: a write whose condition fails takes no other one with it.
func TestGroupCommitConflict(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	fly := busy(t, s)

	errs := make([]error, 3)

	var all sync.WaitGroup
	for i, revision := range []int64{0, 1, 0} { // no key exists
		all.Go(func() {
			key := s.key("/x/test/%d", i)
			_, errs[i] = s.commit(ctx, etcd.Ops{
				If: []clientv3.Cmp{atRevision(key, revision)}, Then: []clientv3.Op{clientv3.OpPut(key, "value")},
			})
		})
	}

	queued(ctx, t, s, 3)
	fly()
	all.Wait()

	must(t, errs[0])
	conflict(t, errs[1])
	must(t, errs[2])
}

// TestGroupCommitGivenUp: a write whose caller has given up is not written, and does not
// hold up those behind it.
func TestGroupCommitGivenUp(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	fly := busy(t, s)

	given, giveUp := context.WithCancel(ctx)
	put := func(ctx context.Context, name string) error {
		return second(s.commit(ctx, etcd.Ops{Then: []clientv3.Op{clientv3.OpPut(s.key("/x/test/%s", name), "")}}))
	}

	errs := make(chan error, 2)

	go func() { errs <- put(given, "given-up") }()

	queued(ctx, t, s, 1)
	giveUp()

	if err := <-errs; err == nil {
		t.Error("a write that was given up succeeded")
	}

	go func() { errs <- put(ctx, "kept") }()

	queued(ctx, t, s, 1)
	fly()
	must(t, <-errs)

	resp := must2(s.client.Get(ctx, s.key("/x/test/"), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if len(resp.Kvs) != 1 || string(resp.Kvs[0].Key) != s.key("/x/test/kept") {
		t.Errorf("got %v", resp.Kvs)
	}
}

// TestGroupCommitTaken: a write that is under way is not given up, because it can still take
// effect, and one that tests the head does not wait for others.
func TestGroupCommitTaken(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	fly := busy(t, s)

	given, giveUp := context.WithCancel(ctx)
	key := s.key("/x/test/taken")
	done := make(chan writeResult, 1)

	go func() { done <- s.write(given, etcd.Ops{Then: []clientv3.Op{clientv3.OpPut(key, "")}}) }()

	queued(ctx, t, s, 1)

	s.group.mu.Lock()
	writes := s.group.take(s)
	s.group.mu.Unlock()
	giveUp()

	head := etcd.Ops{If: []clientv3.Cmp{clientv3.Compare(clientv3.Version(headKey(s.client.Prefix)), ">", -1)}}
	if result := s.write(ctx, head); result.err != nil || !result.succeeded {
		t.Errorf("a write that tests the head: %+v", result)
	}

	select {
	case result := <-done:
		t.Errorf("it was given up: %+v", result)
	default:
	}

	writes[0].end(writeResult{revision: 7, succeeded: true})

	if result := <-done; result.revision != 7 {
		t.Errorf("got %+v", result)
	}

	fly()
}

// TestGroupCommitIsSerial lets writers move units between random accounts, each guarded by
// what it has read: nothing is lost, as if they went one after the other.
func TestGroupCommitIsSerial(t *testing.T) {
	t.Parallel()

	const (
		accounts = 12
		writers  = 8
		each     = 15
		start    = 100
	)

	s := store(t)
	ctx := within(t, patience)
	key := func(i int) string { return s.key("/x/test/account/%02d", i) }

	for i := range accounts {
		must(t, second(s.client.Put(ctx, key(i), strconv.Itoa(start))))
	}

	errs := make([]error, writers)

	var all sync.WaitGroup
	for w := range writers {
		r := rand.New(rand.NewPCG(uint64(w), 4))

		all.Go(func() {
			for range each {
				if errs[w] = move(ctx, s, key(r.IntN(accounts)), key(r.IntN(accounts))); errs[w] != nil {
					return
				}
			}
		})
	}

	all.Wait()

	for _, err := range errs {
		must(t, err)
	}

	resp := must2(s.client.Get(ctx, s.key("/x/test/account/"), clientv3.WithPrefix()))
	sum := 0

	for _, kv := range resp.Kvs {
		n, err := strconv.Atoi(string(kv.Value))
		must(t, err)
		sum += n
	}

	if sum != accounts*start {
		t.Errorf("the sum is %d, want %d", sum, accounts*start)
	}
}

// move takes a unit from one key to another one, on condition that neither has changed.
func move(ctx context.Context, s *Store, from, to string) error {
	for from != to {
		var (
			ops    etcd.Ops
			values [2]int
		)

		for i, key := range []string{from, to} {
			resp, err := s.client.Get(ctx, key)
			if err != nil || len(resp.Kvs) != 1 {
				return fmt.Errorf("%s: %d keys, %w", key, len(resp.Kvs), err)
			}
			if values[i], err = strconv.Atoi(string(resp.Kvs[0].Value)); err != nil {
				return err
			}

			ops.If = append(ops.If, atRevision(key, resp.Kvs[0].ModRevision))
		}

		ops.Then = []clientv3.Op{
			clientv3.OpPut(from, strconv.Itoa(values[0]-1)), clientv3.OpPut(to, strconv.Itoa(values[1]+1)),
		}

		_, err := s.commit(ctx, ops)
		if inventory.KindOf(err) != inventory.KindConflict {
			return err
		}
	}

	return nil
}

// TestGroupKeys: writes share a transaction if none of them tests or changes what another
// one writes.
func TestGroupKeys(t *testing.T) {
	t.Parallel()

	put := func(key, value string) etcd.Ops { return etcd.Ops{Then: []clientv3.Op{clientv3.OpPut(key, value)}} }
	tested := func(key string, more etcd.Ops) etcd.Ops {
		more.If = append(more.If, atRevision(key, 1))
		return more
	}
	deleted := etcd.Ops{Then: []clientv3.Op{clientv3.OpDelete("a")}}

	for _, tt := range []struct {
		name          string
		first, second etcd.Ops
		together      bool
	}{
		{"other keys", put("a", "1"), put("b", "1"), true},
		{"the same value", put("a", ""), put("a", ""), true},
		{"another value", put("a", "1"), put("a", "2"), false},
		{"a put and a deletion", put("a", ""), deleted, false},
		{"two deletions", deleted, deleted, true},
		{"the second tests what the first writes", put("a", ""), tested("a", put("b", "")), false},
		{"the first tests what the second writes", tested("a", put("b", "")), put("a", ""), false},
		{"both test the same", tested("a", put("b", "")), tested("a", put("c", "")), true},
		{"each tests what both write", tested("a", put("a", "")), tested("a", put("a", "")), false},
	} {
		var keys groupKeys
		if !keys.add(keysOf(tt.first)) {
			t.Errorf("%s: the first is refused", tt.name)
		}

		if got := keys.add(keysOf(tt.second)); got != tt.together {
			t.Errorf("%s: together %v, want %v", tt.name, got, tt.together)
		}
	}

	for name, ops := range map[string]etcd.Ops{
		"a deleted range": {Then: []clientv3.Op{clientv3.OpDelete("a", clientv3.WithPrefix())}},
		"a tested range":  {If: []clientv3.Cmp{clientv3.Compare(clientv3.Version("a"), "=", 0).WithPrefix()}},
	} {
		if keysOf(ops).exact {
			t.Errorf("%s passes for single keys", name)
		}
	}
}

// hangingKV holds the transactions that write a key until they may go on.
type hangingKV struct {
	clientv3.KV
	key  string
	free <-chan struct{}
}

type hangingTxn struct {
	clientv3.Txn
	kv    hangingKV
	ctx   context.Context
	hangs bool
}

func (k hangingKV) Txn(ctx context.Context) clientv3.Txn {
	return &hangingTxn{Txn: k.KV.Txn(ctx), kv: k, ctx: ctx}
}

func (x *hangingTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	x.Txn = x.Txn.If(conditions...)
	return x
}

func (x *hangingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		x.hangs = x.hangs || string(op.KeyBytes()) == x.kv.key
	}

	x.Txn = x.Txn.Then(ops...)
	return x
}

func (x *hangingTxn) Commit() (*clientv3.TxnResponse, error) {
	if x.hangs {
		select {
		case <-x.kv.free:
		case <-x.ctx.Done():
			return nil, x.ctx.Err()
		}
	}

	return x.Txn.Commit()
}

// TestGroupCommitBesideASlowWrite: a write without an answer does not hold up the others.
func TestGroupCommitBesideASlowWrite(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	free := make(chan struct{})
	s.client.KV = hangingKV{s.client.KV, s.key("/x/test/slow"), free}

	write := func(name string) error {
		_, err := s.commit(ctx, etcd.Ops{Then: []clientv3.Op{clientv3.OpPut(s.key("/x/test/%s", name), "value")}})
		return err
	}

	var slow error

	var all sync.WaitGroup
	all.Go(func() { slow = write("slow") })

	inFlight := func() bool {
		s.group.mu.Lock()
		defer s.group.mu.Unlock()
		return s.group.flights > 0
	}

	for !inFlight() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}

	for i := range 5 {
		must(t, write(fmt.Sprint(i)))
	}

	close(free)
	all.Wait()
	must(t, slow)
}
