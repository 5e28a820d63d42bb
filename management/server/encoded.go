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

// few is up to how many records of a part of the nodes are encoded for one
// answer only, instead of bringing all that is kept up to date.
const few = 32

// of returns the nodes, which are some or all of the view's, in encoded form.
func (c *encoded[E]) of(v *management.View, nodes []*inventory.Node, by E) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := by.alike(c.by)
	if same == nil && sameList(c.nodes, nodes) {
		return c.texts, nil
	}
	if !sameList(nodes, v.Nodes) {
		texts, missing := c.kept(nodes, same)
		if len(missing) <= few {
			return texts, encodeAll(nodes, missing, texts, by)
		}
	}
	texts, missing := c.kept(v.Nodes, same)
	if err := encodeAll(v.Nodes, missing, texts, by); err != nil {
		return nil, err
	}
	if v.Revision >= c.revision { // not where a slow reader comes with an older view
		c.revision, c.by, c.nodes, c.texts = v.Revision, by, v.Nodes, texts
	}
	if sameList(nodes, v.Nodes) {
		return texts, nil
	}
	all := encoded[E]{nodes: v.Nodes, texts: texts}
	texts, _ = all.kept(nodes, nil)
	return texts, nil
}

// kept returns what is kept of the nodes, and the indexes of those of which
// nothing is. Mostly they come in the order in which they are kept.
func (c *encoded[E]) kept(nodes []*inventory.Node, same func(*inventory.Node) bool) (texts [][]byte, missing []int) {
	texts = make([][]byte, len(nodes))
	next := 0
	for i, n := range nodes {
		for skip := 0; next < len(c.nodes) && c.nodes[next] != n && c.nodes[next].Name < n.Name && skip < 8; skip++ {
			next++
		}
		if next == len(c.nodes) || c.nodes[next].Name != n.Name {
			next, _ = slices.BinarySearchFunc(c.nodes, n.Name, func(n *inventory.Node, name string) int { return strings.Compare(n.Name, name) })
		}
		if next < len(c.nodes) && c.nodes[next] == n && (same == nil || same(n)) {
			texts[i] = c.texts[next]
			next++
		} else {
			missing = append(missing, i)
		}
	}
	return texts, missing
}

// sameList tells whether both are the very same list.
func sameList(a, b []*inventory.Node) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
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
