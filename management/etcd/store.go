// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// Store is management's Store. Close it after use.
type Store struct {
	client *etcd.Client
	view   view
	token  atomic.Int64 // the fencing token of the session; 0: there was none
	stop   context.CancelFunc
	done   sync.WaitGroup
}

var (
	_ engine.Store   = (*Store)(nil)
	_ node.Store     = (*Store)(nil)
	_ variable.Store = (*Store)(nil)
	_ state.Reader   = (*Store)(nil)
)

// Open reads what is stored and returns when the view is complete. The view is
// stale when the store has said nothing for staleAfter, mostly StaleAfter; it is
// asked three times as often.
func Open(ctx context.Context, client *etcd.Client, log logrus.FieldLogger, staleAfter time.Duration) (*Store, error) {
	s := &Store{client: client}
	s.view.empty(client, log, staleAfter)

	if err := s.start(ctx); err != nil {
		return nil, err
	}

	return s, nil
}

// start fills the view and keeps it up to date until Close.
func (s *Store) start(ctx context.Context) error {
	revision, err := s.view.load(ctx)
	if err != nil {
		return err
	}

	var within context.Context
	within, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(func() { s.view.follow(within, revision) })
	s.done.Go(func() { s.view.listen(within) })

	return nil
}

// OnAsk has f told, from now on, of every question to etcd on how far it is, one
// a second: how long the answer took, or why there was none. f must return at once.
func (s *Store) OnAsk(f func(took time.Duration, err error)) {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	s.view.asked = f
}

// Silence is since when etcd has not said that the view is up to date.
func (s *Store) Silence() time.Duration {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()

	return time.Since(s.view.heard)
}

// Size is how large the database of an endpoint is, in bytes.
type Size struct {
	File  int64
	InUse int64 // of File, what holds data
	Quota int64 // where it refuses to write; 0: it does not say (etcd before 3.6)
	Err   error // it did not answer
}

// Sizes asks every endpoint, all at once, until ctx ends.
func (s *Store) Sizes(ctx context.Context) map[string]Size {
	var asking sync.WaitGroup
	var mu sync.Mutex

	out := map[string]Size{}
	for _, endpoint := range s.client.Endpoints() {
		asking.Go(func() {
			resp, err := s.client.Status(ctx, endpoint)

			size := Size{Err: etcd.Error(err)}
			if err == nil {
				size = Size{File: resp.DbSize, InUse: resp.DbSizeInUse, Quota: resp.DbSizeQuota}
			}

			mu.Lock()
			defer mu.Unlock()
			out[endpoint] = size
		})
	}

	asking.Wait()

	return out
}

// Close ends the watch.
func (s *Store) Close() {
	s.stop()
	s.done.Wait()
}

// View is the newest view, never nil.
func (s *Store) View() *state.View { return s.view.current() }

// Changed is closed when a view newer than the current one exists.
func (s *Store) Changed() <-chan struct{} {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()

	return s.view.changed
}

// Wait returns when the view has reached the revision.
func (s *Store) Wait(ctx context.Context, revision int64) error { return s.view.wait(ctx, revision) }

// Sync asks etcd, by quorum, what the newest change is, and waits until the
// view has reached it.
func (s *Store) Sync(ctx context.Context) error {
	bounded, cancel := etcd.Bounded(ctx)
	defer cancel()

	head, err := s.view.head(bounded)
	if err != nil {
		return err
	}

	return s.view.wait(bounded, head)
}

func (s *Store) key(parts string, args ...any) string {
	return s.client.Prefix + fmt.Sprintf(parts, args...)
}

func (s *Store) jobKey(id string) string { return s.key("/v/jobs/%s", id) }
func (s *Store) groundKey() string       { return s.key("/v/ground") }

// commit carries the operations out if all guards hold, and waits for the view.
func (s *Store) commit(ctx context.Context, ops etcd.Ops) (int64, error) {
	bounded, cancel := etcd.Bounded(ctx)
	defer cancel()
	then := append(slices.Clip(ops.Then), clientv3.OpPut(headKey(s.client.Prefix), ""))

	resp, err := s.client.Txn(bounded).If(ops.If...).Then(then...).Commit()
	if err != nil {
		return 0, etcd.Error(err)
	}

	if !resp.Succeeded {
		return 0, inventory.Errorf(inventory.KindConflict, "it was changed by somebody else meanwhile").
			Do("read it again and repeat")
	}

	return resp.Header.Revision, s.view.wait(bounded, resp.Header.Revision)
}

func put(key string, value any) (clientv3.Op, error) {
	b, err := json.Marshal(value)
	return clientv3.OpPut(key, string(b)), err
}

// largeJob is the size, in bytes, from which on the record of a job is stored
// compressed: with thousands of nodes it would be more than the store takes.
const largeJob = 64 << 10

func (s *Store) putJob(j job.Job) (clientv3.Op, error) {
	b, err := json.Marshal(j)
	if len(b) > largeJob {
		b = compress(b)
	}

	return clientv3.OpPut(s.jobKey(j.ID), string(b)), err
}

// readJob reads what putJob has written. What is compressed begins with its
// length, and no length begins as an object does.
func readJob(b []byte) (j job.Job, err error) {
	if len(b) > 0 && b[0] != '{' {
		if b, err = expand(b); err != nil {
			return j, err
		}
	}

	return j, json.Unmarshal(b, &j)
}

// pack distributes what belongs together over as few transactions as etcd takes.
func pack(parts []etcd.Ops, spare int) []etcd.Ops {
	var out []etcd.Ops
	var open etcd.Ops
	spare++ // for the head

	bytes := 0
	for _, p := range parts {
		size := p.Bytes()

		bytes += size
		if len(open.Then) > 0 && (open.Size()+p.Size() > etcd.MaxOps-spare || bytes > etcd.MaxBytes) {
			bytes = size
			out = append(out, open)
			open = etcd.Ops{}
		}

		open.Add(p)
	}

	return append(out, open)
}

// stored is the record to write for a node that was changed as the view shows
// it: a reservation that nobody has committed to yet stays in place.
func (s *Store) stored(n inventory.Node) inventory.Node {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()

	raw, ok := s.view.nodes[n.Name]
	if !ok || raw.Revision != n.Revision || n.Before != nil || !s.view.uncommitted(raw) ||
		s.view.jobs[raw.Job].Status.Ended() {
		return n
	}

	m := raw.Clone()
	m.Addr, m.State, m.PrevState, m.Seen, m.Duplicates = n.Addr, n.State, n.PrevState, n.Seen, n.Duplicates
	m.HostKeys, m.Labels, m.Entries, m.Updated = n.HostKeys, n.Labels, n.Entries, n.Updated

	return m
}

// inFlight is how many chunks are on their way to etcd at a time. They depend
// on nothing of each other, and etcd makes them durable together.
const inFlight = 4

// PutNodes writes nodes in chunks. A chunk in which something conflicts is
// written node by node, so that one conflict does not keep the others back.
func (s *Store) PutNodes(ctx context.Context, writes []state.NodeWrite) (conflicts []string, err error) {
	var parts []etcd.Ops
	for _, w := range writes {
		part, err := s.client.PutNode(s.stored(w.Node), w.Entries)
		if err != nil {
			return nil, err
		}

		if w.Connection != nil {
			key := s.key("/v/connections/%s", w.Node.Name)

			connection := clientv3.OpDelete(key)
			if *w.Connection != (configuration.Connection{}) {
				if connection, err = put(key, w.Connection); err != nil {
					return nil, err
				}
			}

			part.Then = append(part.Then, connection)
		}

		parts = append(parts, part)
	}

	chunks := pack(parts, 0)
	found, errs := make([][]string, len(chunks)), make([]error, len(chunks))
	free := make(chan struct{}, inFlight)
	var all sync.WaitGroup

	var failed atomic.Bool
	for i, ops := range chunks {
		chunk := writes[:len(ops.If)] // each has one guard
		writes = writes[len(ops.If):]
		free <- struct{}{}

		if failed.Load() {
			break
		}

		all.Go(func() {
			found[i], errs[i] = s.putChunk(ctx, chunk, ops)
			failed.CompareAndSwap(false, errs[i] != nil)
			<-free
		})
	}

	all.Wait()

	for _, err := range errs {
		if err != nil {
			return slices.Concat(found...), err
		}
	}

	return slices.Concat(found...), nil
}

func (s *Store) putChunk(
	ctx context.Context,
	chunk []state.NodeWrite,
	ops etcd.Ops,
) (conflicts []string, err error) {
	_, err = s.commit(ctx, ops)
	switch {
	case inventory.KindOf(err) != inventory.KindConflict:
		return nil, err
	case len(chunk) == 1:
		return []string{chunk[0].Node.Name}, nil
	}

	for _, w := range chunk {
		more, err := s.PutNodes(ctx, []state.NodeWrite{w})
		if err != nil {
			return conflicts, err
		}

		conflicts = append(conflicts, more...)
	}

	return conflicts, nil
}

// Accept stores a Queued job under the next number.
func (s *Store) Accept(
	ctx context.Context,
	seq uint64,
	j job.Job,
	in job.Inputs,
	key *access.Key,
) (job.Job, error) {
	j.ID = strconv.FormatUint(seq+1, 10)

	job, err := s.putJob(j)
	if err != nil {
		return j, err
	}

	inputs, err := json.Marshal(in)
	if err != nil {
		return j, err
	}

	seqKey := s.key("/v/seq")

	guard := clientv3.Compare(clientv3.Value(seqKey), "=", strconv.FormatUint(seq, 10))
	if seq == 0 {
		guard = clientv3.Compare(clientv3.CreateRevision(seqKey), "=", 0)
	}

	ops := etcd.Ops{
		If: []clientv3.Cmp{guard},
		Then: []clientv3.Op{
			clientv3.OpPut(seqKey, j.ID),
			job,
			clientv3.OpPut(s.key("/x/inputs/%s", j.ID), string(compress(inputs))),
		},
	}
	if err := s.storeResult(&ops, key, j.ID); err != nil {
		return j, err
	}

	j.Revision, err = s.commit(ctx, ops)

	return j, err
}

// fence guards writes of jobs: another instance may have the right to run them
// by now, without this one having noticed.
func (s *Store) fence() []clientv3.Cmp {
	if token := s.token.Load(); token != 0 {
		return []clientv3.Cmp{atRevision(s.holderKey(), token)}
	}

	return nil
}

// atRevision guards a key by the revision of its last change; 0: it must not exist.
func atRevision(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// Claim reserves the nodes, in as many transactions as it takes, under the job's
// name; the write that makes the job Running is the commit point and the last of
// them. Where anything fails before it, the reservations count as absent, and
// are withdrawn as far as the store lets.
func (s *Store) Claim(
	ctx context.Context,
	ground int64,
	j job.Job,
	writes []state.NodeWrite,
) (job.Job, error) {
	parts, err := s.parts(writes)
	if err != nil {
		return j, err
	}

	chunks := pack(parts, jobOps)
	for i, ops := range chunks[:len(chunks)-1] {
		ops.If = append(ops.If, s.fence()...)
		if _, err := s.commit(ctx, ops); err != nil {
			s.withdraw(ctx, writes, i)
			return j, err
		}
	}

	claimed, err := s.commitJob(ctx, j, chunks[len(chunks)-1], &ground)
	if err != nil {
		s.withdraw(ctx, writes, len(chunks)-1)
	}

	return claimed, err
}

func (s *Store) parts(writes []state.NodeWrite) ([]etcd.Ops, error) {
	parts := make([]etcd.Ops, len(writes))

	var err error
	for i, w := range writes {
		if w.Tombstone != nil {
			parts[i], err = s.removal(w)
		} else {
			parts[i], err = s.client.PutNode(w.Node, w.Entries)
		}

		if err != nil {
			return nil, err
		}
	}

	return parts, nil
}

// removal is what takes a node out of the store and leaves its tombstone.
func (s *Store) removal(w state.NodeWrite) (etcd.Ops, error) {
	grave, err := put(s.client.TombstoneKey(w.Node.Name), w.Tombstone)
	ops := s.client.DeleteNode(w.Node)
	ops.Then = append(ops.Then, grave,
		clientv3.OpDelete(s.key("/v/vars/%s", state.ScopeNode(w.Node.Name))),
		clientv3.OpDelete(s.key("/v/connections/%s", w.Node.Name)))

	return ops, err
}

// jobOps is how many operations commitJob adds.
const jobOps = 3

// commitJob writes the job, and moves the ground, together with the operations.
func (s *Store) commitJob(ctx context.Context, j job.Job, ops etcd.Ops, ground *int64) (job.Job, error) {
	job, err := s.putJob(j)
	if err != nil {
		return j, err
	}

	ops.Add(etcd.Ops{
		If:   append(s.fence(), atRevision(s.jobKey(j.ID), j.Revision)),
		Then: []clientv3.Op{job, clientv3.OpPut(s.groundKey(), j.ID)},
	})

	if ground != nil {
		ops.If = append(ops.If, atRevision(s.groundKey(), *ground))
	}

	revision, err := s.commit(ctx, ops)
	if err == nil {
		j.Revision = revision
	}

	return j, err
}

// withdraw takes reservations back that were not committed to. A failure is no
// harm: they count as absent. The job's record guards them: a commit whose
// answer was lost stands. An instance that has lost the right to run jobs leaves
// them: they may be another one's by now, for the same job.
func (s *Store) withdraw(ctx context.Context, writes []state.NodeWrite, chunks int) {
	if chunks == 0 {
		return
	}

	for _, w := range writes {
		s.view.mu.Lock()
		raw, ok := s.view.nodes[w.Node.Name]
		mine := ok && raw.Before != nil && raw.Job == w.Node.Job && s.view.uncommitted(raw)
		job := s.view.jobs[raw.Job].Revision
		s.view.mu.Unlock()

		if !mine {
			continue
		}

		ops, err := s.client.PutNode(raw.Unreserved(), nil)
		if err != nil {
			return
		}

		ops.If = append(append(ops.If, atRevision(s.jobKey(raw.Job), job)), s.fence()...)
		for _, e := range w.Entries {
			ops.Then = append(ops.Then, clientv3.OpDelete(s.client.HistoryKey(w.Node.Name, e.Seq)))
		}

		if _, err := s.commit(ctx, ops); err != nil && inventory.KindOf(err) != inventory.KindConflict {
			return
		}
	}
}

// PutJob stores the job if it is still at its revision.
func (s *Store) PutJob(ctx context.Context, j job.Job) (job.Job, error) {
	job, err := s.putJob(j)
	if err != nil {
		return j, err
	}

	revision, err := s.commit(
		ctx,
		etcd.Ops{If: append(s.fence(), atRevision(s.jobKey(j.ID), j.Revision)), Then: []clientv3.Op{job}},
	)
	if err == nil {
		j.Revision = revision
	}

	return j, err
}

// Cancel stores a job that is to be cancelled, or was.
func (s *Store) Cancel(ctx context.Context, j job.Job, key *access.Key) (job.Job, error) {
	var ops etcd.Ops
	if err := s.storeResult(&ops, key, j.ID); err != nil {
		return j, err
	}

	return s.commitJob(ctx, j, ops, nil)
}

// Finish releases nodes in chunks; the job's end goes with the last of them.
func (s *Store) Finish(ctx context.Context, j job.Job, writes []state.NodeWrite) (job.Job, error) {
	parts, err := s.parts(writes)
	if err != nil {
		return j, err
	}

	chunks := pack(parts, jobOps)
	for _, ops := range chunks[:len(chunks)-1] {
		ops.If = append(ops.If, s.fence()...)
		if _, err := s.commit(ctx, ops); err != nil {
			return j, err
		}
	}

	return s.commitJob(ctx, j, chunks[len(chunks)-1], nil)
}

// Inputs returns what a job was accepted with.
func (s *Store) Inputs(ctx context.Context, id string) (in job.Inputs, err error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.key("/x/inputs/%s", id))
	if err != nil {
		return in, etcd.Error(err)
	}

	if len(resp.Kvs) == 0 {
		return in, inventory.Errorf(inventory.KindNotFound, "the inputs of job %s are not kept", id)
	}

	b, err := expand(resp.Kvs[0].Value)
	if err != nil {
		return in, err
	}

	return in, json.Unmarshal(b, &in)
}

// DropJobs removes ended jobs with their inputs and logs.
func (s *Store) DropJobs(ctx context.Context, ids []string) error {
	for _, id := range ids {
		_, err := s.commit(ctx, etcd.Ops{Then: []clientv3.Op{
			clientv3.OpDelete(s.key("/x/log/%s/", id), clientv3.WithPrefix()),
			clientv3.OpDelete(s.key("/x/tail/%s/", id), clientv3.WithPrefix()),
			clientv3.OpDelete(s.key("/x/inputs/%s", id)),
			clientv3.OpDelete(s.jobKey(id)),
		}})
		if err != nil {
			return err
		}
	}

	return nil
}

// replace writes, or removes, a value that was last changed no later than the revision.
func (s *Store) replace(ctx context.Context, key string, revision int64, value any, remove bool) (int64, error) {
	op := clientv3.OpDelete(key)
	if !remove {
		var err error
		if op, err = put(key, value); err != nil {
			return 0, err
		}
	}

	ops := etcd.Ops{Then: []clientv3.Op{op}}
	if revision > 0 {
		ops.If = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "<", revision+1)}
	}

	return s.commit(ctx, ops)
}

// PutVars replaces the variables of a scope.
func (s *Store) PutVars(
	ctx context.Context,
	revision int64,
	scope state.Scope,
	vars configuration.Vars,
) (int64, error) {
	return s.replace(ctx, s.key("/v/vars/%s", scope), revision, vars, len(vars) == 0)
}

// PutOverlay replaces the configuration's overlay. An empty one is kept as well:
// by its revision it is known that something was taken away.
func (s *Store) PutOverlay(ctx context.Context, revision int64, overlay map[string]any) (int64, error) {
	if overlay == nil {
		overlay = map[string]any{}
	}

	return s.replace(ctx, s.key("/v/overlay"), revision, overlay, false)
}

// NoteFile keeps a digest of what an instance has read from its configuration
// file. Another one than before is a change of the configuration, as a change of
// the overlay is.
func (s *Store) NoteFile(ctx context.Context, instance, digest string) error {
	s.view.mu.Lock()
	known := s.view.files[instance]
	s.view.mu.Unlock()

	if known == digest {
		return nil
	}

	op, err := put(s.key("/v/files/%s", instance), digest)
	if err != nil {
		return err
	}

	_, err = s.commit(ctx, etcd.Ops{Then: []clientv3.Op{op}})

	return err
}

// Forget removes nodes; all of them in one transaction where etcd takes it,
// else in chunks.
func (s *Store) Forget(
	ctx context.Context,
	ground int64,
	writes []state.NodeWrite,
	key *access.Key,
) (int64, error) {
	parts, err := s.parts(writes)
	if err != nil {
		return 0, err
	}

	var revision int64

	chunks := pack(parts, jobOps)
	if err := s.storeResult(&chunks[len(chunks)-1], key, ""); err != nil {
		return 0, err
	}

	for i, ops := range chunks {
		if i == 0 {
			ops.If = append(ops.If, atRevision(s.groundKey(), ground))
		}

		ops.Then = append(ops.Then, clientv3.OpPut(s.groundKey(), "forget"))
		if revision, err = s.commit(ctx, ops); err != nil {
			return 0, err
		}
	}

	return revision, nil
}

// History returns the newest entries of a node, oldest first. A job claims a node
// once, and releases it unless it still runs; what it has reserved besides, without
// committing to it, is left out.
func (s *Store) History(ctx context.Context, node string, limit int) ([]inventory.HistoryEntry, error) {
	bounded, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(bounded, s.client.HistoryPrefix(node), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, etcd.Error(err)
	}

	v := s.View()
	entries := make([]inventory.HistoryEntry, 0, len(resp.Kvs))

	claimed, released := map[string]bool{}, map[string]bool{} // by job
	for _, kv := range resp.Kvs {
		var e inventory.HistoryEntry
		if err := json.Unmarshal(kv.Value, &e); err != nil {
			return nil, err
		}

		if e.To.InProgress() && !released[e.Job] {
			if j, err := v.Job(e.Job); err != nil || j.Started.IsZero() {
				continue
			}
		}

		switch from, to := e.From.InProgress(), e.To.InProgress(); {
		case from && !to:
			released[e.Job] = true
		case !from && to:
			if claimed[e.Job] {
				continue
			}

			claimed[e.Job] = true
		}

		entries = append(entries, e)
	}

	slices.Reverse(entries)

	return entries, nil
}
