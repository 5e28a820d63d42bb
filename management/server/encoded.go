// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management"
	"github.com/contiv/cluster/management/api"
)

// encoder encodes nodes, as one view and whatever else it depends on has them.
type encoder[E any] interface {
	encode(n *inventory.Node) ([]byte, error)
	// alike returns what tells whether an older encoder gives the same bytes for
	// a record; nil where it does for every one.
	alike(older E) func(n *inventory.Node) bool
}

// encoded keeps the nodes of the newest view in encoded form: a list is written
// by joining them. Between two views only the records that changed are encoded.
type encoded[E encoder[E]] struct {
	mu       sync.Mutex
	revision int64
	by       E
	nodes    []*inventory.Node
	texts    [][]byte // parallel to nodes; never changed
}

// of returns the nodes, which are some or all of the view's, in encoded form.
func (c *encoded[E]) of(v *management.View, nodes []*inventory.Node, by E) ([][]byte, error) {
	all, err := c.whole(v, by)
	if err != nil || len(nodes) == len(v.Nodes) && slices.Equal(nodes, v.Nodes) {
		return all, err
	}
	texts := make([][]byte, len(nodes))
	next := 0
	for i, n := range nodes {
		// Mostly they are in the view's order.
		if next >= len(v.Nodes) || v.Nodes[next] != n {
			next, _ = slices.BinarySearchFunc(v.Nodes, n.Name, func(n *inventory.Node, name string) int { return strings.Compare(n.Name, name) })
		}
		texts[i] = all[next]
		next++
	}
	return texts, nil
}

// whole returns all of the view's nodes in encoded form.
func (c *encoded[E]) whole(v *management.View, by E) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := by.alike(c.by)
	if same == nil && len(c.nodes) == len(v.Nodes) && (len(c.nodes) == 0 || &c.nodes[0] == &v.Nodes[0]) {
		return c.texts, nil
	}
	texts := make([][]byte, len(v.Nodes))
	var missing []int
	old := 0
	for i, n := range v.Nodes {
		for old < len(c.nodes) && c.nodes[old] != n && c.nodes[old].Name < n.Name {
			old++
		}
		if old < len(c.nodes) && c.nodes[old] == n && (same == nil || same(n)) {
			texts[i] = c.texts[old]
			old++
		} else {
			missing = append(missing, i)
		}
	}
	if err := encodeAll(v.Nodes, missing, texts, by); err != nil {
		return nil, err
	}
	if v.Revision >= c.revision { // not where a slow reader comes with an older view
		c.revision, c.by, c.nodes, c.texts = v.Revision, by, v.Nodes, texts
	}
	return texts, nil
}

// encodeAll encodes the nodes of these indexes, many of them on all processors.
func encodeAll[E encoder[E]](nodes []*inventory.Node, missing []int, texts [][]byte, by E) error {
	const share = 256
	errs := make([]error, (len(missing)+share-1)/share)
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for k, part := range slices.Collect(slices.Chunk(missing, share)) {
		work := func() {
			for _, i := range part {
				if texts[i], errs[k] = by.encode(nodes[i]); errs[k] != nil {
					return
				}
			}
		}
		if len(errs) == 1 {
			work()
			continue
		}
		free <- struct{}{}
		all.Go(func() { work(); <-free })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// nodeEncoder encodes nodes as /v1 shows them.
type nodeEncoder struct{ view *management.View }

func (e nodeEncoder) encode(n *inventory.Node) ([]byte, error) {
	b, err := encodeJSON(nodeOf(e.view, *n))
	return bytes.TrimSuffix(b, []byte("\n")), err
}

func (e nodeEncoder) alike(older nodeEncoder) func(*inventory.Node) bool {
	switch {
	case older.view == nil:
		return func(*inventory.Node) bool { return false }
	case management.SameMap(e.view.Connections, older.view.Connections):
		return nil
	}
	return func(n *inventory.Node) bool {
		a, b := e.view.Connection(n.Name), older.view.Connection(n.Name)
		return a == nil && b == nil || a != nil && b != nil && *a == *b
	}
}

// writeNodes answers with a list of nodes, which are some or all of the view's:
// with the given one, which has no items yet, and these.
func (s *Server) writeNodes(w http.ResponseWriter, v *management.View, nodes []*inventory.Node, list api.List[api.Node]) error {
	texts, err := s.nodes.of(v, nodes, nodeEncoder{v})
	if err != nil {
		return err
	}
	frame, err := encodeJSON(list)
	if err != nil {
		return err
	}
	const items = `"items":[`
	at := bytes.Index(frame, []byte(items)) + len(items)
	writeTexts(w, frame[:at], texts, frame[at:])
	return nil
}

// writeTexts answers with texts, separated by commas, between two others. They
// are collected into pieces, so that the whole is in memory only once.
func writeTexts(w http.ResponseWriter, before []byte, texts [][]byte, after []byte) {
	size := len(before) + max(0, len(texts)-1) + len(after)
	for _, t := range texts {
		size += len(t)
	}
	w.Header().Set("Content-Type", api.TypeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(size))
	piece := pieces.Get().(*[]byte)
	defer pieces.Put(piece)
	b := append((*piece)[:0], before...)
	for i, t := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		if len(b)+len(t) > cap(b) {
			if _, err := w.Write(b); err != nil {
				return // that it does not arrive is the client's business
			}
			b = b[:0]
		}
		b = append(b, t...)
	}
	b = append(b, after...)
	_, _ = w.Write(b)
}

var pieces = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}
