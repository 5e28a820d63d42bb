// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
)

// batchLimit bounds what is written to a log at once, in bytes. etcd takes a request of 1.5 MiB.
const batchLimit = 256 << 10

// collector writes entries of a log, in the order of add. Whatever is added during a write is written together by the
// next one, because each write waits for a disk.
type collector struct {
	write func(data []byte) error

	mu      sync.Mutex
	waiting []*batch // that are not being written yet

	writing chan struct{} // is full during a write
}

func newCollector(write func(data []byte) error) *collector {
	return &collector{write: write, writing: make(chan struct{}, 1)}
}

// batch are entries that are written together.
type batch struct {
	data    []byte
	written bool
	err     error // of the write
}

// add returns once the entry is written. If ctx has ended, it is not.
func (c *collector) add(ctx context.Context, entry []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	b := c.join(entry)

	c.writing <- struct{}{}
	defer func() { <-c.writing }()

	for !b.written {
		next := c.next()
		next.err = c.write(next.data)
		next.written = true
	}

	return b.err
}

// join adds the entry to the last batch, or begins another one.
func (c *collector) join(entry []byte) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()

	if n := len(c.waiting); n == 0 || len(c.waiting[n-1].data)+len(entry) > batchLimit {
		c.waiting = append(c.waiting, &batch{})
	}

	b := c.waiting[len(c.waiting)-1]
	b.data = append(b.data, entry...)

	return b
}

// next takes the batch that is to be written next.
func (c *collector) next() *batch {
	c.mu.Lock()
	defer c.mu.Unlock()

	b := c.waiting[0]
	c.waiting = c.waiting[1:]

	return b
}
