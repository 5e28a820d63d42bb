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
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/state"
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
//
// The texts lie in blocks, with commas between them, so that mostly a long run
// of them is written as it is.
type encoded[E encoder[E]] struct {
	mu       sync.Mutex
	revision int64
	by       E
	nodes    []*inventory.Node
	texts    [][]byte                   // parallel to nodes; never changed
	fresh    map[*inventory.Node][]byte // of newer nodes, by the same encoder
}

const (
	block    = 1024 // nodes
	maxRuns  = 4    // of a block, until it is made anew
	maxFresh = 256
)

// of returns the nodes, which are some or all of the view's, in encoded form.
func (c *encoded[E]) of(v *state.View, nodes []*inventory.Node, by E) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	same := by.alike(c.by)
	if same == nil && sameList(c.nodes, nodes) {
		return c.texts, nil
	}

	if same == nil && !sameList(nodes, v.Nodes) {
		// A part, such as a page: what is new is kept aside.
		texts, missing := c.kept(nodes, nil)
		if len(c.fresh)+len(missing) <= maxFresh {
			if err := encodeAll(nodes, missing, texts, by); err != nil {
				return nil, err
			}

			for _, i := range missing {
				c.fresh[nodes[i]] = texts[i]
			}

			return texts, nil
		}
	}

	texts, missing := c.kept(v.Nodes, same)
	if err := encodeAll(v.Nodes, missing, texts, by); err != nil {
		return nil, err
	}

	for part := range slices.Chunk(texts, block) {
		gather(part)
	}

	now := c
	if v.Revision < c.revision { // a slow reader comes with an older view
		now = &encoded[E]{}
	}

	now.revision, now.by, now.nodes, now.texts, now.fresh = v.Revision, by, v.Nodes, texts, map[*inventory.Node][]byte{}
	if sameList(nodes, v.Nodes) {
		return texts, nil
	}

	texts, _ = now.kept(nodes, nil)

	return texts, nil
}

// kept returns what is kept of the nodes, and the indexes of those of which
// nothing is. Mostly they come in the order in which they are kept.
func (c *encoded[E]) kept(nodes []*inventory.Node, same func(*inventory.Node) bool) (texts [][]byte, missing []int) {
	texts = make([][]byte, len(nodes))

	next := 0
	for i, n := range nodes {
		if next >= len(c.nodes) || c.nodes[next] != n {
			next = c.find(n, next)
		}

		switch {
		case next < len(c.nodes) && c.nodes[next] == n && (same == nil || same(n)):
			texts[i] = c.texts[next]
			next++
		case same == nil && c.fresh[n] != nil:
			texts[i] = c.fresh[n]
		default:
			missing = append(missing, i)
		}
	}

	return texts, missing
}

// find is where a node of that name is kept, or would be; it is looked for near
// the hint first.
func (c *encoded[E]) find(n *inventory.Node, hint int) int {
	for range 3 {
		if hint >= len(c.nodes) || c.nodes[hint].Name >= n.Name {
			break
		}

		hint++
	}

	if hint < len(c.nodes) && c.nodes[hint].Name >= n.Name && (hint == 0 || c.nodes[hint-1].Name < n.Name) {
		return hint
	}

	i, _ := slices.BinarySearchFunc(
		c.nodes,
		n.Name,
		func(n *inventory.Node, name string) int { return strings.Compare(n.Name, name) },
	)

	return i
}

// gather puts texts behind each other in memory, with commas between them,
// unless they mostly are.
func gather(texts [][]byte) {
	runs, size := 1, 0
	for i, t := range texts {
		size += len(t) + 1
		if i > 0 && !adjacent(texts[i-1], t) {
			runs++
		}
	}

	if runs <= maxRuns && runs < len(texts) {
		return
	}

	b := make([]byte, 0, size)
	for i, t := range texts {
		if i > 0 {
			b = append(b, ',')
		}

		at := len(b)
		b = append(b, t...)
		texts[i] = b[at:]
	}
}

// adjacent tells whether next lies behind t in memory, with one byte between
// them, which is a comma then.
func adjacent(t, next []byte) bool {
	return len(next) > 0 && cap(t) > len(t)+1 && &t[:cap(t)][len(t)+1] == &next[0]
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
type nodeEncoder struct{ view *state.View }

func (e nodeEncoder) encode(n *inventory.Node) ([]byte, error) {
	b, err := encodeJSON(nodeOf(e.view, *n))
	return bytes.TrimSuffix(b, []byte("\n")), err
}

func (e nodeEncoder) alike(older nodeEncoder) func(*inventory.Node) bool {
	switch {
	case older.view == nil:
		return func(*inventory.Node) bool { return false }
	case state.SameMap(e.view.Connections, older.view.Connections):
		return nil
	}

	return func(n *inventory.Node) bool {
		a, b := e.view.Connection(n.Name), older.view.Connection(n.Name)
		return a == nil && b == nil || a != nil && b != nil && *a == *b
	}
}

// writeNodes answers with a list of nodes, which are some or all of the view's:
// with the given one, which has no items yet, and these.
func (s *Server) writeNodes(
	w http.ResponseWriter,
	v *state.View,
	nodes []*inventory.Node,
	list api.List[api.Node],
) error {
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

// writeTexts answers with texts, separated by commas, between two others. Long
// runs are written from where they are, and what is short is collected.
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
	for i := 0; i < len(texts); {
		run := texts[i]
		for i++; i < len(texts) && adjacent(run, texts[i]); i++ {
			run = run[:len(run)+1+len(texts[i])]
		}

		if len(b)+len(run)+1 > cap(b) {
			for _, part := range [][]byte{b, run} { // the order is that of the texts
				if len(part) == 0 {
					continue
				}

				if _, err := w.Write(part); err != nil {
					return // that it does not arrive is the client's business
				}
			}

			b = b[:0]
		} else {
			b = append(b, run...)
		}

		if i < len(texts) {
			b = append(b, ',')
		}
	}

	b = append(b, after...)
	_, _ = w.Write(b)
}

var pieces = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}
