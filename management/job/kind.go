// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
)

// Kind are the jobs, by number. A job that cannot be read may still run, so the last form that was read
// stays. Watches show each of its steps.
var Kind = record.Kind[Job]{
	Name:        "jobs",
	Key:         func(j *Job) string { return j.ID },
	CompareKeys: compareIDs,
	At:          func(j *Job, revision int64) { j.Revision = revision },
	Codec:       codec{},
	Damaged:     func(_ string, last *Job) *Job { return last },
	Every:       true,
	Show: func(j *Job, s record.Scope) *Job {
		if !j.In(s) {
			return nil
		}

		shown := j.Within(s)
		return &shown
	},
}

// Nodes are the nodes, by name. In a view, a reservation that is not committed counts as absent. Watches
// show each of their steps.
var Nodes = record.Kind[inventory.Node]{
	Name:    "nodes",
	Key:     func(n *inventory.Node) string { return n.Name },
	At:      func(n *inventory.Node, revision int64) { n.Revision = revision },
	Damaged: func(_ string, last *inventory.Node) *inventory.Node { return last },
	Every:   true,
	Former:  true, // a scope, and a watch, select by more than the name
	ByNode:  true,
	Show: func(n *inventory.Node, s record.Scope) *inventory.Node {
		if !s.HasNode(n.Name) {
			return nil
		}
		return NodeWithin(n, s)
	},
}

// Newest is the number of the newest job ever accepted. A scope has none: a job outside of it is like one that never
// was.
var Newest = record.Kind[uint64]{Name: "seq", Single: true}

// NodeWithin returns a node of the scope without the names of other nodes in its texts.
func NodeWithin(n *inventory.Node, s record.Scope) *inventory.Node {
	text := s.Text(n.LastError)
	verdict := n.Verification.Reworded(s.Text)

	if text == n.LastError && verdict == n.Verification && n.Before == nil && len(n.Alerts) == 0 {
		return n
	}

	shown := *n
	shown.LastError, shown.Verification = text, verdict
	shown.Alerts = slices.Clone(n.Alerts)

	for i, a := range shown.Alerts {
		shown.Alerts[i].Reason, shown.Alerts[i].Source = s.Text(a.Reason), s.Text(a.Source)
	}

	if n.Before != nil {
		before := *n.Before
		before.LastError = s.Text(before.LastError)
		shown.Before = &before
	}

	return &shown
}

// compareIDs orders the ids of jobs by number.
func compareIDs(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// compressAt is the size of a job's record, in bytes, above which it is stored
// compressed. With thousands of nodes it would exceed etcd's limit of a request.
const compressAt = 64 << 10

// codec is the codec of jobs.
type codec struct{}

func (codec) Encode(j *Job) ([]byte, error) {
	b, err := json.Marshal(j)
	if len(b) > compressAt {
		b = record.Compress(b)
	}
	return b, err
}

func (codec) Decode(key string, value []byte) (*Job, error) {
	// A compressed record starts with its length. Below record.MaxExpanded, the first byte of a
	// length is never '{'.
	if len(value) > 0 && value[0] != '{' {
		return record.Compressed[Job]{}.Decode(key, value)
	}

	j := new(Job)
	return j, json.Unmarshal(value, j)
}
