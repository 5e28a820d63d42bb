// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Chunks stores a list of each record in chunks of successive elements, each in a key of its own
// below that of the record: for a list of thousands of which a few elements change at a time. The key
// of the record has the rest, the head. T is the record, E an element, and C the stored form of a
// chunk, which is compressed.
//
// A write has the head and the chunks that differ. So the revision of the head is that of the record,
// the chunks are never newer, and a write on an older record conflicts. A record is whole, or, if a
// chunk is missing or unreadable, cannot be read.
//
// The codec of the kind stores the length of the list with the head, and decodes it to a list of that
// length.
type Chunks[T, E, C any] struct {
	List func(*T) *[]E
	// Same reports whether two elements are stored the same.
	Same func(a, b E) bool
	// Least is the number of elements in a chunk, the last one excepted, unless the list would have
	// more than Most chunks. Most bounds the operations of a write.
	Least, Most int
	// Chunk returns the stored form of a chunk, and Elements what that has.
	Chunk    func(key string, number int, list []E) C
	Elements func(C) (key string, number int, list []E)
}

// Split is *Chunks of records of a type.
type Split[T any] interface {
	table(plain[T]) table
	// writes returns the writes of the chunks of a record that differ from the record before. nil:
	// there is none.
	writes(k *Kind[T], key string, before, after *T) ([]Write, error)
	// check returns the reason for which a chunk cannot be decoded, or nil.
	check(rest string, value []byte) error
	// rewrite returns a chunk as this build encodes it.
	rewrite(rest string, value []byte) ([]byte, error)
}

// size returns the number of elements in each chunk, the last one excepted.
func (c *Chunks[T, E, C]) size(elements int) int { return max(c.Least, (elements+c.Most-1)/c.Most) }

// count returns the number of chunks.
func (c *Chunks[T, E, C]) count(elements int) int {
	return (elements + c.size(elements) - 1) / c.size(elements)
}

// chunkName returns the key of a chunk below its kind.
func chunkName(key string, number int) string { return fmt.Sprintf("%s/%02d", key, number) }

func (c *Chunks[T, E, C]) listOf(r *T) []E {
	if r == nil {
		return nil
	}
	return *c.List(r)
}

func (c *Chunks[T, E, C]) writes(k *Kind[T], key string, before, after *T) (writes []Write, err error) {
	stored, list := c.listOf(before), c.listOf(after)
	size := c.size(len(list))

	for number := range c.count(len(list)) {
		first, end := number*size, min((number+1)*size, len(list))
		if len(stored) == len(list) && slices.EqualFunc(list[first:end], stored[first:end], c.Same) {
			continue
		}
		chunk := c.Chunk(key, number, list[first:end])

		b, err := Compressed[C]{}.Encode(&chunk)
		if err != nil {
			return nil, err
		}

		writes = append(writes, Write{k.Path(chunkName(key, number)), b})
	}

	for number := c.count(len(list)); number < c.count(len(stored)); number++ {
		writes = append(writes, Write{Path: k.Path(chunkName(key, number))})
	}

	return writes, nil
}

// decode parses a chunk. rest is its key below the kind.
func (c *Chunks[T, E, C]) decode(rest string, value []byte) (number int, list []E, err error) {
	chunk, err := Compressed[C]{}.Decode(rest, value)
	if err != nil {
		return 0, nil, err
	}
	key, number, list := c.Elements(*chunk)
	if chunkName(key, number) != rest {
		return 0, nil, fmt.Errorf("the record names chunk %d of %q", number, key)
	}
	return number, list, nil
}

func (c *Chunks[T, E, C]) check(rest string, value []byte) error {
	_, _, err := c.decode(rest, value)
	return err
}

func (c *Chunks[T, E, C]) rewrite(rest string, value []byte) ([]byte, error) {
	key, _, _ := strings.Cut(rest, "/")

	number, list, err := c.decode(rest, value)
	if err != nil {
		return nil, err
	}
	chunk := c.Chunk(key, number, list)

	return Compressed[C]{}.Encode(&chunk)
}

// chunked is the table of a kind with chunks. A record is put together when it is asked for.
type chunked[T, E, C any] struct {
	plain[T] // the whole records

	chunks  *Chunks[T, E, C]
	parts   map[string]*parts[T, E] // by the key of the record
	changed map[string]bool         // keys of records with newer parts
	joins   map[string]error        // see Tables.Joined
}

// parts are those of one record.
type parts[T, E any] struct {
	head     *T // its list has the right length; nil: missing or unreadable
	shared   bool
	revision int64
	chunks   map[int][]E
}

func (c *Chunks[T, E, C]) table(whole plain[T]) table {
	return &chunked[T, E, C]{
		plain:   whole,
		chunks:  c,
		parts:   map[string]*parts[T, E]{},
		changed: map[string]bool{},
		joins:   map[string]error{},
	}
}

func (c *chunked[T, E, C]) subject(rest string) string {
	key, _, _ := strings.Cut(rest, "/")
	return key
}

func (c *chunked[T, E, C]) apply(rest string, value []byte, revision int64, _ Convert) (err error) {
	key, name, isChunk := strings.Cut(rest, "/")
	c.changed[key] = true

	c.written(key, c.plain.get(key), 0)

	p := c.parts[key]
	if p == nil {
		p = &parts[T, E]{chunks: map[int][]E{}}
		c.parts[key] = p
	}

	switch {
	case isChunk:
		// Without a number it is no chunk, and decode refuses it.
		if number, err := strconv.Atoi(name); err == nil {
			delete(p.chunks, number)
		}

		if value != nil {
			var (
				number int
				list   []E
			)

			if number, list, err = c.chunks.decode(rest, value); err == nil {
				p.chunks[number] = list
			}
		}
	case value == nil:
		p.head = nil
	default:
		p.shared, p.revision = false, revision
		if p.head, err = c.kind.Decode(key, value, revision); err != nil {
			p.head = nil
		}
	}

	if p.head == nil && len(p.chunks) == 0 {
		delete(c.parts, key)
	}

	return err
}

func (c *chunked[T, E, C]) get(key string) any {
	c.join(key)
	return c.plain.get(key)
}

func (c *chunked[T, E, C]) share() any {
	for key := range c.changed {
		c.join(key)
	}

	return c.plain.share()
}

// join puts a record together, if a part of it has changed.
func (c *chunked[T, E, C]) join(key string) {
	if !c.changed[key] {
		return
	}

	delete(c.changed, key)

	p := c.parts[key]
	if p == nil || p.head == nil {
		delete(c.joins, c.kind.Path(key)) // of parts that are gone
		c.set(entry[T]{key: key})
		return
	}

	err := c.fill(key, p)
	if c.joins[c.kind.Path(key)] = err; err != nil {
		c.set(entry[T]{key: key})
		return
	}

	p.shared = true
	c.set(entry[T]{key, p.head, p.revision})
}

// fill fills the list of the head.
func (c *chunked[T, E, C]) fill(key string, p *parts[T, E]) error {
	list := *c.chunks.List(p.head)

	// Views have the head that was filled before.
	if p.shared {
		head := *p.head
		list = make([]E, len(list))
		*c.chunks.List(&head), p.head, p.shared = list, &head, false
	}

	size := c.chunks.size(len(list))

	for number := range c.chunks.count(len(list)) {
		first, end := number*size, min((number+1)*size, len(list))
		if len(p.chunks[number]) != end-first {
			return fmt.Errorf("its part %q is missing or damaged", chunkName(key, number))
		}
		copy(list[first:], p.chunks[number])
	}

	return nil
}

func (c *chunked[T, E, C]) joined() map[string]error {
	joins := c.joins
	c.joins = map[string]error{}
	return joins
}
