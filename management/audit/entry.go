// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode"
)

// The actions of entries about the trail itself.
const (
	ActionLost      = "audit.lost"      // entries were dropped; Reason has their number
	ActionRecovered = "audit.recovered" // an incomplete line was removed at the start
)

// Entry is one mutation or refusal. Its JSON is stored, and only grows.
type Entry struct {
	Seq        uint64    `json:"seq"` // from 1, without gaps
	Time       time.Time `json:"time"`
	Instance   string    `json:"instance"`
	Principal  string    `json:"principal"`
	Credential string    `json:"credential,omitempty"` // its proof; empty for the manager itself
	Action     string    `json:"action"`
	Targets    []string  `json:"targets,omitempty"`
	Job        string    `json:"job,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Replayed   bool      `json:"replayed,omitempty"`
	Kind       string    `json:"kind,omitempty"` // of the error; empty: the mutation was made
	Error      string    `json:"error,omitempty"`
	Prev       string    `json:"prev"` // hash of the entry before; empty for the first of all
}

// clean replaces bytes that are not UTF-8, control characters and changes of the direction
// of writing: a reader may print the entry to a terminal.
func (e Entry) clean() Entry {
	e.Time = e.Time.UTC()

	for _, s := range []*string{&e.Principal, &e.Credential, &e.Action, &e.Job, &e.Reason, &e.Kind, &e.Error} {
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

// line returns the stored line of an entry, and its hash.
func (e Entry) line() (line []byte, hash string, err error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, "", err
	}

	hash = hashOf(text)

	return append(append([]byte(hash+" "), text...), '\n'), hash, nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

var errDamaged = errors.New("it is damaged: its hash is not that of its text")

// parseLine parses a stored line without its end.
func parseLine(line []byte) (e Entry, hash string, err error) {
	hash, text, ok := strings.Cut(string(line), " ")
	if !ok || hashOf([]byte(text)) != hash {
		return Entry{}, hash, errDamaged
	}

	return e, hash, json.Unmarshal([]byte(text), &e)
}
