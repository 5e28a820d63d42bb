// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
)

// Snapshot is the state that decisions about jobs depend on, at one revision of
// the store. It is immutable.
type Snapshot struct {
	// View has the records of the kinds.
	record.View

	// Unreadable are the reasons why records cannot be read, by their key in the
	// store: v/nodes/NAME, v/jobs/ID and others.
	Unreadable map[string]string
}

// Nodes returns the nodes, by name. The list is shared and must not be changed.
func (s Snapshot) Nodes() []*inventory.Node { return record.List(s.View, &Nodes) }

// SetNodes replaces the nodes by others.
func (s *Snapshot) SetNodes(nodes ...*inventory.Node) {
	s.View = record.WithList(s.View, &Nodes, nodes...)
}

// PutNode adds a node, or replaces the one of its name.
func (s *Snapshot) PutNode(n *inventory.Node) { s.View = record.Set(s.View, &Nodes, n.Name, n) }

// Find returns the node of that name, or nil.
func (s Snapshot) Find(name string) *inventory.Node { return record.Get(s.View, &Nodes, name) }

// Jobs returns the jobs, by number. The list is shared and must not be changed.
func (s Snapshot) Jobs() []*Job { return record.List(s.View, &Kind) }

// SetJobs replaces the jobs by others.
func (s *Snapshot) SetJobs(jobs ...*Job) { s.View = record.WithList(s.View, &Kind, jobs...) }

// PutJob adds a job, or replaces the one with its id.
func (s *Snapshot) PutJob(j *Job) { s.View = record.Set(s.View, &Kind, j.ID, j) }

// Newest returns the number of the newest job ever accepted, or 0.
func (s Snapshot) Newest() uint64 {
	if n := record.Get(s.View, &Newest, ""); n != nil {
		return *n
	}
	return 0
}

// NextID returns the id of the job that is accepted next.
func (s Snapshot) NextID() string { return strconv.FormatUint(s.Newest()+1, 10) }

// Node returns the node of that name, or KindNotFound.
func (s Snapshot) Node(name string) (inventory.Node, error) {
	if n := s.Find(name); n != nil {
		return *n, nil
	}

	if err := s.UnreadableNode(name); err != nil {
		return inventory.Node{}, err
	}

	return inventory.Node{}, inventory.Errorf(inventory.KindNotFound, "there is no node %q", name).
		Do("check the name").With(inventory.ListNodes()).About(name)
}

// UnreadableNode returns an error if the record of the node cannot be read. The node
// exists then, or did, but nothing else is known about it.
func (s Snapshot) UnreadableNode(name string) error {
	return cmp.Or(s.unreadable("v/nodes/"+name), s.unreadable("v/tombstones/"+name))
}

// Damaged returns an error if the record under a key, or a part of it, cannot be read. A job holds its
// nodes then, because its playbook may still run.
func (s Snapshot) Damaged(k record.Any, key string) error {
	path := "v/" + k.Path(key)
	return cmp.Or(s.unreadable(path), s.unreadableOf([]string{path + "/"}))
}

// inputKinds are the beginnings of the keys of records that every job depends on. A
// job must not run with a part of its variables.
var inputKinds = []string{"v/vars/", "v/connections/", "v/overlay", "v/seq"}

// unreadableInputs returns an error if a record that jobs depend on cannot be read.
func (s Snapshot) unreadableInputs() error { return s.unreadableOf(inputKinds) }

// fileKinds are the beginnings of the keys of records that name runs, and copies of
// playbooks.
var fileKinds = []string{"v/nodes/", "v/jobs/", "v/plans/", "v/rollouts/", "v/tombstones/"}

// UnreadableFiles returns an error if a record that names runs or copies of playbooks
// cannot be read: any of them may be in use.
func (s Snapshot) UnreadableFiles() error { return s.unreadableOf(fileKinds) }

// unreadableOf returns an error if a record of one of the kinds cannot be read.
func (s Snapshot) unreadableOf(kinds []string) error {
	for _, key := range slices.Sorted(maps.Keys(s.Unreadable)) {
		if slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(key, kind) }) {
			return s.unreadable(key)
		}
	}

	return nil
}

func (s Snapshot) unreadable(key string) error {
	reason, ok := s.Unreadable[key]
	if !ok {
		return nil
	}
	return UnreadableRecord(key, reason)
}

// UnreadableRecord returns the error for a request that needs a record that cannot
// be read.
func UnreadableRecord(key, reason string) error {
	err := inventory.Errorf(inventory.KindInternal, "the record %s in the store cannot be read: %s", key, reason).
		Do("restore the data directory from a backup, or remove the record: clusterm store remove %s", key)
	err.Shown = true
	return err
}

// MissingNodes returns the error for names without a node.
func (s Snapshot) MissingNodes(missing []string) error {
	for _, name := range missing {
		if err := s.UnreadableNode(name); err != nil {
			return err
		}
	}

	return inventory.Errorf(inventory.KindNotFound, "no such node: %s", join(missing)).
		Do("check the name").With(inventory.ListNodes()).About(missing...)
}

// Lookup returns the node of that name and whether it exists.
func (s Snapshot) Lookup(name string) (inventory.Node, bool) {
	if n := s.Find(name); n != nil {
		return *n, true
	}
	return inventory.Node{}, false
}

// Find returns the node of that name among nodes sorted by name, or nil.
func Find(nodes []*inventory.Node, name string) *inventory.Node {
	if i, ok := search(nodes, name); ok {
		return nodes[i]
	}
	return nil
}

// search returns the place of the node of that name among nodes sorted by name.
func search(nodes []*inventory.Node, name string) (int, bool) {
	return slices.BinarySearchFunc(nodes, name, func(n *inventory.Node, name string) int {
		return strings.Compare(n.Name, name)
	})
}

// Missing returns the names without a node.
func (s Snapshot) Missing(names []string) []string {
	var missing []string
	for _, name := range names {
		if s.Find(name) == nil {
			missing = append(missing, name)
		}
	}

	return missing
}

// Job returns the job with that id, or KindNotFound. The reference "active"
// selects the Running job started last, "last" the job that ended last.
func (s Snapshot) Job(ref string) (Job, error) {
	switch ref {
	case "active":
		return s.active()
	case "last":
		return s.last()
	}

	if j := record.Get(s.View, &Kind, ref); j != nil {
		return *j, nil
	}

	if err := s.Damaged(&Kind, ref); err != nil {
		return Job{}, err
	}

	// A number up to the newest was a job once: it has expired.
	if n := (Job{ID: ref}).Seq(); n > 0 && n <= s.Newest() {
		return Job{}, inventory.Errorf(
			inventory.KindNotFound, "job %s is no longer kept, nor are its inputs and its output", ref).
			Do("see how many jobs are kept").With(inventory.ShowSettings("jobs"))
	}

	return Job{}, inventory.Errorf(inventory.KindNotFound, "there is no job %q", ref).
		Do("check the id").With(inventory.ListJobs())
}

func (s Snapshot) active() (Job, error) {
	var found *Job
	for _, j := range s.Jobs() {
		if j.Status == Running && (found == nil || !j.Started.Before(found.Started)) {
			found = j
		}
	}

	if found == nil {
		return Job{}, inventory.Errorf(inventory.KindNotFound, "no job is running").
			Do("ask for the job %q, or list the jobs", "last").With(inventory.ListJobs())
	}

	return *found, nil
}

func (s Snapshot) last() (Job, error) {
	var found *Job
	for _, j := range s.Jobs() {
		if j.Status.Ended() && (found == nil || !j.Ended.Before(found.Ended)) {
			found = j
		}
	}

	if found == nil {
		return Job{}, inventory.Errorf(inventory.KindNotFound, "no job has ended yet").
			Do("list the jobs").With(inventory.ListJobs())
	}

	return *found, nil
}

// Queued returns the number of Queued jobs.
func (s Snapshot) Queued() int {
	n := 0
	for _, j := range s.Jobs() {
		if j.Status == Queued {
			n++
		}
	}

	return n
}

// Position returns the place of a Queued job in the queue, counted from 1, or 0
// for any other job.
func (s Snapshot) Position(j Job) int {
	if j.Status != Queued {
		return 0
	}

	place := 1
	for _, other := range s.Jobs() {
		if other.Status == Queued && other.Seq() < j.Seq() {
			place++
		}
	}

	return place
}

// Took returns the number of kept jobs that have done the same as j with success, and the time within which 99 % of
// them did.
func (s Snapshot) Took(j Job) (runs int, p99 time.Duration) {
	var took []time.Duration
	for _, k := range s.Jobs() {
		if k.Verb == j.Verb && k.Check == j.Check && k.Status == Complete && !k.Started.IsZero() {
			took = append(took, k.Ended.Sub(k.Started))
		}
	}

	if len(took) == 0 {
		return 0, 0
	}

	slices.Sort(took)

	return len(took), took[(99*len(took)+99)/100-1]
}
