// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// Kind is the kind of rollouts, the oldest first. A rollout is written twice per node and may have
// thousands, so its nodes are stored in chunks.
var Kind = record.Kind[Record]{
	Name:    "rollouts",
	Key:     func(r *Record) string { return r.ID },
	At:      func(r *Record, revision int64) { r.Revision = revision },
	Compare: func(a, b *Record) int { return a.Created.Compare(b.Created) },
	Codec:   headCodec{},
	Chunks:  &chunks,
	Show: func(r *Record, s record.Scope) *Record {
		if !r.in(s) {
			return nil
		}

		shown := r.Within(s)
		return &shown
	},
}

// head is the stored form of a rollout without its nodes.
type head struct {
	Record

	Nodes int `json:"nodes"` // their number
}

// headCodec is the codec of heads.
type headCodec struct{}

func (headCodec) Encode(r *Record) ([]byte, error) {
	return record.Compressed[head]{}.Encode(&head{*r, len(r.Nodes)})
}

func (headCodec) Decode(key string, value []byte) (*Record, error) {
	h, err := record.Compressed[head]{}.Decode(key, value)
	if err != nil {
		return nil, err
	}
	if h.Nodes < 0 || h.Nodes > MaxNodes {
		return nil, fmt.Errorf("the record names %d nodes", h.Nodes)
	}

	h.Record.Nodes = make([]Node, h.Nodes)

	return &h.Record, nil
}

// chunk is the stored form of a run of consecutive nodes.
type chunk struct {
	Rollout string `json:"rollout"`
	Chunk   int    `json:"chunk"`
	Nodes   []Node `json:"nodes"`
}

var chunks = record.Chunks[Record, Node, chunk]{
	List: func(r *Record) *[]Node { return &r.Nodes },
	Same: sameNode, Least: 16, Most: 64,
	Chunk:    func(id string, number int, nodes []Node) chunk { return chunk{id, number, nodes} },
	Elements: func(c chunk) (string, int, []Node) { return c.Rollout, c.Chunk, c.Nodes },
}

// sameNode reports whether two node records have the same stored form.
func sameNode(a, b Node) bool {
	if !a.Since.Equal(b.Since) || !a.Begun.Equal(b.Begun) {
		return false
	}

	// Times may differ in monotonic reading or zone.
	b.Since, b.Begun = a.Since, a.Begun

	return a == b
}

// fields is Spec without its methods.
type fields Spec

// stored is the stored form of a Spec. Tags are in a nested object, as in the stored form of a job.
type stored struct {
	fields // without the tags

	Ansible inventory.Selection `json:"ansible,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (s Spec) MarshalJSON() ([]byte, error) {
	ansible := s.Selection()
	s.Tags, s.SkipTags = nil, nil
	return json.Marshal(stored{fields(s), ansible})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Spec) UnmarshalJSON(text []byte) error {
	var from stored
	if err := json.Unmarshal(text, &from); err != nil {
		return err
	}

	*s = Spec(from.fields)
	s.Tags, s.SkipTags = from.Ansible.Tags, from.Ansible.SkipTags

	return nil
}

// InputsOf returns the name under which a rollout's extra variables are stored.
func InputsOf(id string) string { return job.InputsName(Kind.Name, id) }

// in reports whether all nodes of the rollout belong to the scope, or did at its start.
func (r *Record) in(s record.Scope) bool {
	outside := func(n Node) bool {
		// Commissioned nodes had no group before: the record holds the group they join.
		if n.Group == r.Spec.Group {
			n.Group = ""
		}
		return !s.HadNode(n.Name, n.Group)
	}

	return len(r.Nodes) > 0 && !slices.ContainsFunc(r.Nodes, outside)
}

// Within returns the rollout as a caller of that scope sees it: its texts hide the names of other nodes.
func (r Record) Within(s record.Scope) Record {
	r.Reason, r.Waits = s.Text(r.Reason), s.Text(r.Waits)

	r.Nodes = slices.Clone(r.Nodes)
	for i := range r.Nodes {
		r.Nodes[i].Reason = s.Text(r.Nodes[i].Reason)
	}

	r.Events = slices.Clone(r.Events)
	for i := range r.Events {
		r.Events[i].Text = s.Text(r.Events[i].Text)
	}

	return r
}
