// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// This file holds the whole reservation protocol; README.md explains why it is safe.
//
// A claim writes a reservation for each node, in chunks: the node in its new status,
// with the job's id in Job and the replaced fields in Before. The last chunk also
// writes the job as Running. That is the commit point. A reservation whose job is not
// Running counts as absent: the view shows the node from Before. A job with an
// unreadable record may be Running, so its reservations count.

// jobOps is the number of conditions that commitJob adds to a chunk: the job, and up to
// two of the fence. Finish adds up to four operations.
const jobOps = 5

// Claim reserves the nodes and makes the job Running, or does neither. It is
// KindConflict if a node, the job or the generation of a group that the claim uses
// changed since the decision.
func (s *Store) Claim(ctx context.Context, c state.Claim) (job.Job, error) {
	parts, err := s.nodeOps(c.Writes)
	if err != nil {
		return c.Job, err
	}

	groups := s.generations(c.Revision, c.Uses, c.Job.Groups())
	chunks := pack(parts, jobOps+groups.Size())
	last := len(chunks) - 1

	reserved, err := s.commitChunks(ctx, chunks[:last])

	j := c.Job
	if err == nil {
		commitPoint := chunks[last]
		commitPoint.Add(groups)
		j, err = s.commitJob(ctx, j, commitPoint)
	}

	if err != nil && reserved {
		s.withdraw(ctx, c.Writes)
	}

	return j, err
}

// Finish releases the nodes of a job in chunks and writes the end of the job with the
// last of them. With the first of several chunks it stores the outcomes, so that a
// repetition has the same for the remaining nodes: a failure leaves the job Running with
// them. Under the context of an owned job, the last chunk ends the ownership
// too: every later write under that context is KindConflict, also a repetition of a
// Finish with a lost answer.
func (s *Store) Finish(ctx context.Context, j job.Job, writes []state.NodeWrite) (job.Job, error) {
	parts, err := s.nodeOps(writes)
	if err != nil {
		return j, err
	}

	// A job that ends in the queue leaves every node as it is.
	var groups etcd.Ops
	if len(writes) > 0 {
		groups = s.generations(0, nil, j.Groups())
	}

	unmark := s.unmarkOps(writes)
	chunks := pack(parts, jobOps+groups.Size()+len(unmark))

	last := len(chunks) - 1

	for i := range chunks {
		chunks[i].Add(groups)
		chunks[i].Then = append(chunks[i].Then, unmark...)
	}

	first := 0
	if last > 0 && !s.decided(j) {
		decided := j
		decided.Status, decided.Ended = job.Running, time.Time{}

		if decided, err = s.commitJob(ctx, decided, chunks[0]); err != nil {
			return j, err
		}

		j.Revision, first = decided.Revision, 1
	}

	if _, err := s.commitChunks(ctx, chunks[first:last]); err != nil {
		return j, err
	}

	token := tokenOf(ctx)
	if token != nil {
		chunks[last].Then = append(chunks[last].Then, clientv3.OpDelete(token.key))
	}

	ended, err := s.commitJob(ctx, j, chunks[last])
	if token != nil && err == nil {
		token.ended.Store(true)
	}
	return ended, err
}

// decided reports whether the outcomes of a job that is about to end are stored, or it has
// none.
func (s *Store) decided(j job.Job) bool {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	stored := s.view.job(j.ID)
	return j.Outcomes == nil || stored.Revision == j.Revision && stored.Outcomes != nil
}

// commitChunks writes the chunks before the last one of a job, in order, under the fencing
// token. It reports whether some may have been written. One at a time: more in flight make
// a claim no faster, and every other request slower.
func (s *Store) commitChunks(ctx context.Context, chunks []etcd.Ops) (written bool, err error) {
	for i, ops := range chunks {
		ops.If = append(ops.If, s.fence(ctx)...)
		if _, err := s.commit(ctx, ops); err != nil {
			return i > 0 || inventory.KindOf(err) != inventory.KindConflict, err
		}
	}

	return len(chunks) > 0, nil
}

// commitJob writes the job together with the operations, under the fencing token. It
// returns the job at its new revision.
func (s *Store) commitJob(ctx context.Context, j job.Job, ops etcd.Ops) (job.Job, error) {
	record, err := s.putJob(j)
	if err != nil {
		return j, err
	}

	ops.Add(etcd.Ops{
		If:   append(s.fence(ctx), atRevision(s.jobKey(j.ID), j.Revision)),
		Then: []clientv3.Op{record},
	})

	revision, err := s.commit(ctx, ops)
	if err == nil {
		j.Revision = revision
	}

	return j, err
}

// withdraw removes the uncommitted reservations of a failed claim, with their history
// entries. A failure does no harm, because they count as absent.
func (s *Store) withdraw(ctx context.Context, writes []state.NodeWrite) {
	// One transaction a node: a conflict on one must not keep the others reserved.
	for _, w := range writes {
		reserved, jobRevision, ok := s.view.reservation(w.Node.Name, w.Node.Job)
		if !ok {
			continue
		}
		ops, err := s.putNodeOps(reserved.Unreserved(), nil)
		if err != nil {
			return
		}

		// The job's revision protects a commit with a lost answer. The fencing token
		// protects the reservations of another instance for the same job.
		ops.If = append(ops.If, atRevision(s.jobKey(reserved.Job), jobRevision))
		ops.If = append(ops.If, s.fence(ctx)...)

		for _, e := range w.Entries {
			ops.Then = append(ops.Then, clientv3.OpDelete(s.historyKey(w.Node.Name, e.Seq)))
		}

		if _, err := s.commit(ctx, ops); err != nil && inventory.KindOf(err) != inventory.KindConflict {
			return
		}
	}
}

// keepReservation returns the record to write for a changed node. The caller decided
// on the node without its uncommitted reservation. If the job may still commit, the
// reservation stays and takes over the fields that a job does not change.
func (s *Store) keepReservation(n inventory.Node) inventory.Node {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()

	// The caller saw another record, or (with Before) a reservation that is committed.
	stored, ok := s.view.reserved[n.Name]
	if !ok || stored.Revision != n.Revision || n.Before != nil {
		return n
	}
	mayCommit := !s.view.holds(stored.Job) && !s.view.job(stored.Job).Status.Ended()
	if !mayCommit {
		return n
	}

	m := stored.Clone()
	m.Addr, m.State, m.PrevState, m.Seen, m.Duplicates = n.Addr, n.State, n.PrevState, n.Seen, n.Duplicates
	m.AnnouncedFrom, m.Sightings, m.SetAside = n.AnnouncedFrom, n.Sightings, n.SetAside
	m.HostKeys, m.Labels, m.Alerts, m.Entries = n.HostKeys, n.Labels, n.Alerts, n.Entries
	m.Updated, m.Actor = n.Updated, n.Actor
	m.Presence = n.Clone().Presence

	// The reservation does not take over a new status, so the decision on it is still open.
	if n.Status != m.Before.Status {
		m.Presence.Handled, m.Presence.Fenced = stored.Presence.Handled, stored.Presence.Fenced
	}

	return m
}

// holds reports whether the job holds the nodes that it reserved: it is Running, or
// may be, because its record cannot be read. Like all methods of view below, it needs
// the lock unless it takes it.
func (v *view) holds(id string) bool {
	_, unreadable := v.unreadable.m["v/jobs/"+id]
	return unreadable || v.job(id).Status == job.Running
}

// job returns the job, or a zero one.
func (v *view) job(id string) *job.Job {
	j, _ := v.tables.Get(record.Ref{Kind: job.Kind.Name, Key: id}).(*job.Job)
	return cmp.Or(j, &job.Job{})
}

// node returns the node as it counts, without an uncommitted reservation, or nil.
func (v *view) node(name string) *inventory.Node {
	n, _ := v.tables.Get(record.Ref{Kind: job.Nodes.Name, Key: name}).(*inventory.Node)
	return n
}

// reservation returns the uncommitted reservation of a node by the job, and the
// revision of the job's record. It takes the lock.
func (v *view) reservation(name, id string) (n *inventory.Node, jobRevision int64, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()

	n, ok = v.reserved[name]
	if !ok || n.Job != id || v.holds(id) {
		return nil, 0, false
	}
	return n, v.job(id).Revision, true
}

// reserve takes the reservation of a node that was read, if it has one, out of what counts,
// unless its job holds the node.
func (v *view) reserve(name string) {
	delete(v.reserved, name)

	if n := v.node(name); n != nil && n.Before != nil {
		v.reserved[name] = n
		v.tables.Replace(record.Ref{Kind: job.Nodes.Name, Key: name}, n.As(v.holds(n.Job)))
	}
}

// decide lets the reservations of a job count if its new record commits them, else no more.
func (v *view) decide(id string) {
	for name, n := range v.reserved {
		if n.Job == id {
			v.tables.Replace(record.Ref{Kind: job.Nodes.Name, Key: name}, n.As(v.holds(id)))
		}
	}
}

// dropUncommitted removes the entries of claims that were never committed from a
// history, newest first. A job claims a node once and, unless it still runs, releases
// it once; any other entry of a claim is left over from a failed attempt.
func dropUncommitted(v *state.View, entries []inventory.HistoryEntry) []inventory.HistoryEntry {
	claimed, released := map[string]bool{}, map[string]bool{} // by job
	kept := entries[:0]

	for _, e := range entries {
		// A release proves the commit even when the job's record is gone.
		if e.To.InProgress() && !released[e.Job] {
			// The job holds its nodes while its record cannot be read.
			j, err := v.Job(e.Job)
			if v.Damaged(&job.Kind, e.Job) == nil && (err != nil || j.Started.IsZero()) {
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

		kept = append(kept, e)
	}

	return kept
}
