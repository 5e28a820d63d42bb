// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/contiv/cluster/management/record"
)

// Store keeps the records of the trail. Its methods may be called at once.
type Store interface {
	// AuditRecords returns the records whose keys begin with the prefix, in the order of the query.
	AuditRecords(ctx context.Context, q Query) ([]Stored, error)
	// WriteAudit carries out a write as a whole, and returns its revision. It is KindConflict if the guard fails.
	WriteAudit(ctx context.Context, w Write) (int64, error)
}

// Query selects records.
type Query struct {
	Prefix string
	Limit  int  // 0: all
	Oldest bool // in the order of their revisions, else of their keys
	Keys   bool // without values
}

// Stored is a stored record.
type Stored struct {
	Key      string
	Value    []byte
	Revision int64
}

// Write is a write of records, all or none.
type Write struct {
	Put  map[string][]byte
	Drop []string
	// Guarded: the head of the trail must have the revision Head still; 0: it must not exist.
	Guarded bool
	Head    int64
}

// The keys of the records.
const (
	HeadKey = "head" // of what continues the chain
	// NewPrefix begins the keys of entries that are not sealed. A value has one entry in a line, or several, and
	// the keys have no order.
	NewPrefix  = "new/"
	logPrefix  = "log/"  // of segments: the number of the first entry follows
	heldPrefix = "held/" // of an earlier version: the refusals of an instance that wait for their shared entry
)

// Check returns the reason for which a record cannot be read, or nil.
func Check(key string, value []byte) error {
	if !strings.HasPrefix(key, NewPrefix) {
		_, err := record.Expand(value)
		return err
	}

	for line := range bytes.Lines(value) {
		if !json.Valid(line) {
			return errors.New("it is no entry")
		}
	}

	return nil
}
