// SPDX-License-Identifier: Apache-2.0

// Package nodelist encodes lists of nodes. It keeps the encoded nodes of the
// newest view: a list is written by joining them, and between two views only the
// changed records are encoded again.
package nodelist

import (
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

// Encoder encodes the nodes of one view.
type Encoder[E any] interface {
	Encode(n *inventory.Node) ([]byte, error)
	// Alike returns a function that reports whether an older encoder gives the
	// same bytes for a record, or nil if it does for every record.
	Alike(older E) func(n *inventory.Node) bool
}

// Cache keeps the nodes of the newest view in encoded form. The zero value is
// empty. Its methods may be called concurrently.
//
// The texts lie in blocks of memory, with commas between them, so that most of a
// list is written in long runs without copying.
type Cache[E Encoder[E]] struct {
	mu       sync.Mutex
	revision int64
	by       E
	nodes    []*inventory.Node
	texts    [][]byte                   // parallel to nodes; never modified
	fresh    map[*inventory.Node][]byte // newer nodes, by the same encoder
}

const (
	block    = 1024 // nodes
	maxRuns  = 4    // per block, before the block is copied into one run
	maxFresh = 256
)

// Of returns nodes, a part of the view's, in encoded form. The caller must not
// modify the result.
func (c *Cache[E]) Of(v *state.View, nodes []*inventory.Node, by E) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	same := by.Alike(c.by)
	if same == nil && sameList(c.nodes, nodes) {
		return c.texts, nil
	}

	if same == nil && !sameList(nodes, v.Nodes()) {
		// A page or a selection does not justify encoding the whole view: keep
		// its changed nodes aside.
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

	texts, missing := c.kept(v.Nodes(), same)
	if err := encodeAll(v.Nodes(), missing, texts, by); err != nil {
		return nil, err
	}
	for part := range slices.Chunk(texts, block) {
		gather(part)
	}

	newest := c
	if v.Revision < c.revision { // a slow request with an older view must not replace the newer one
		newest = &Cache[E]{}
	}
	newest.revision, newest.by, newest.nodes, newest.texts = v.Revision, by, v.Nodes(), texts
	newest.fresh = map[*inventory.Node][]byte{}

	if sameList(nodes, v.Nodes()) {
		return texts, nil
	}

	texts, _ = newest.kept(nodes, nil)

	return texts, nil
}

// kept returns the kept texts of the nodes, and the indexes of the nodes without
// one. Nodes in the order of the view are found fastest.
func (c *Cache[E]) kept(nodes []*inventory.Node, same func(*inventory.Node) bool) (texts [][]byte, missing []int) {
	texts = make([][]byte, len(nodes))

	// Nodes mostly come in the order of the view, so walk both lists together.
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

// find returns the index at which a node of that name is kept, or would be. It
// searches near the hint first.
func (c *Cache[E]) find(n *inventory.Node, hint int) int {
	for range 3 {
		if hint >= len(c.nodes) || c.nodes[hint].Name >= n.Name {
			break
		}

		hint++
	}

	// The hint is right unless nodes were skipped or reordered.
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

// gather copies texts into one run of memory, with commas between them, unless
// they are few runs already.
func gather(texts [][]byte) {
	// A copied block for each changed node would cost more than an extra write.
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

// adjacent reports whether next follows t in memory, with one byte, the comma of
// gather, between them.
func adjacent(t, next []byte) bool {
	return len(next) > 0 && cap(t) > len(t)+1 && &t[:cap(t)][len(t)+1] == &next[0]
}

// sameList reports whether both slices share their elements.
func sameList(a, b []*inventory.Node) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// encodeAll encodes the nodes at the missing indexes into texts, many of them on
// all processors.
func encodeAll[E Encoder[E]](nodes []*inventory.Node, missing []int, texts [][]byte, by E) error {
	// Small shares keep all processors busy to the end.
	const share = 256
	errs := make([]error, (len(missing)+share-1)/share)
	free := make(chan struct{}, runtime.GOMAXPROCS(0))

	var all sync.WaitGroup
	for k, part := range slices.Collect(slices.Chunk(missing, share)) {
		work := func() {
			for _, i := range part {
				if texts[i], errs[k] = by.Encode(nodes[i]); errs[k] != nil {
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

// Write answers with before, the texts separated by commas, and after. Long runs
// are written from their own memory; short ones are collected in a buffer first.
func Write(w http.ResponseWriter, before []byte, texts [][]byte, after []byte) {
	size := len(before) + max(0, len(texts)-1) + len(after)
	for _, t := range texts {
		size += len(t)
	}

	w.Header().Set("Content-Type", api.TypeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(size))

	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)

	b := append((*buffer)[:0], before...)
	for i := 0; i < len(texts); {
		run := texts[i]
		for i++; i < len(texts) && adjacent(run, texts[i]); i++ {
			run = run[:len(run)+1+len(texts[i])]
		}

		if len(b)+len(run)+1 > cap(b) {
			for _, part := range [][]byte{b, run} { // in the order of the list
				if len(part) == 0 {
					continue
				}

				if _, err := w.Write(part); err != nil {
					return // the client is gone
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

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}
