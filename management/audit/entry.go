// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// The verbs of entries about the trail itself.
const (
	VerbLost    = "audit.lost"    // entries were dropped; Reason has their number
	VerbDropped = "audit.dropped" // the retention removed entries; Count is their number
)

// Done is the Result of a mutation that was made.
const Done = "done"

// self is the Who of entries about the trail itself.
const self = "clusterm"

// Entry is one mutation, decision or refusal. Its JSON is stored, and only grows.
type Entry struct {
	Seq        uint64    `json:"seq"` // from 1, without gaps
	Time       time.Time `json:"time"`
	Instance   string    `json:"instance"`
	Who        string    `json:"who"`                  // the principal
	Credential string    `json:"credential,omitempty"` // its proof; empty for the manager itself
	From       string    `json:"from,omitempty"`       // the other end of the connection
	Via        string    `json:"via,omitempty"`        // the listener; empty for the manager itself
	Request    string    `json:"request,omitempty"`    // the id of the request
	Verb       string    `json:"verb"`                 // e.g. jobs.submit.commission
	Targets    []string  `json:"targets,omitempty"`
	Job        string    `json:"job,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Replayed   bool      `json:"replayed,omitempty"`
	Result     string    `json:"result"` // Done, or the kind of the error
	Error      string    `json:"error,omitempty"`
	// Count is the number of similar refusals or changes that the entry stands for, of which
	// it shows the last; 0: it stands for itself.
	Count uint64 `json:"count,omitempty"`
	Prev  string `json:"prev"` // hash of the entry before; empty for the first of all

	text []byte // as stored; nil before
}

// Hash returns the hash of a stored entry.
func (e Entry) Hash() string { return hashOf(e.text) }

// Export returns a stored entry as one line of JSON without its end: the entry with
// its hash. VerifyExport checks such lines.
func (e Entry) Export() []byte {
	return fmt.Appendf(nil, `{"hash":%q,%s`, e.Hash(), bytes.TrimPrefix(e.text, []byte("{")))
}

// clean replaces bytes that are not UTF-8, control characters and changes of the direction
// of writing: a reader may print the entry to a terminal.
func (e Entry) clean() Entry {
	e.Time = e.Time.UTC()

	for _, s := range []*string{
		&e.Who, &e.Credential, &e.From, &e.Via, &e.Request, &e.Verb, &e.Job, &e.Reason, &e.Result, &e.Error,
	} {
		*s = cleanText(*s)
	}

	targets := make([]string, len(e.Targets))
	for i, t := range e.Targets {
		targets[i] = cleanText(t)
	}

	e.Targets = targets

	return e
}

func cleanText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// line returns the stored line of an entry, and the entry with its text.
func (e Entry) line() ([]byte, Entry, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, e, err
	}
	e.text = text
	return append(append([]byte(e.Hash()+" "), text...), '\n'), e, nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

var errDamaged = errors.New("it is damaged: its hash is not that of its text")

// parseLine parses a stored line without its end.
func parseLine(line []byte) (e Entry, hash string, err error) {
	hash, text, ok := strings.Cut(string(line), " ")
	if !ok {
		return Entry{}, hash, errDamaged
	}
	e, err = parseText([]byte(text), hash)
	return e, hash, err
}

// parseText parses the text of an entry with the hash.
func parseText(text []byte, hash string) (e Entry, err error) {
	if hashOf(text) != hash {
		return Entry{}, errDamaged
	}

	err = json.Unmarshal(text, &e)
	e.text = text

	return e, err
}

const exportPrefix, exportMiddle = `{"hash":"`, `",`

// parseExport parses a line of Export.
func parseExport(line []byte) (e Entry, hash string, err error) {
	rest, begins := strings.CutPrefix(string(line), exportPrefix)
	hash, text, ok := strings.Cut(rest, exportMiddle)

	if !begins || !ok {
		return Entry{}, "", errDamaged
	}

	e, err = parseText([]byte("{"+text), hash)

	return e, hash, err
}
