// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Unknown are the fields of a stored record that this build does not know, because an instance of a newer version wrote
// them. A decoded record lacks them, so whoever writes it again adds them with Keep.
type Unknown struct {
	stored, known any // the record as JSON, and the part of it that this build reads
}

// FindUnknown returns the unknown fields of a record, or nil if it has none, or cannot be decoded. rest is the part of
// its key in the store after the name of the kind.
func FindUnknown(k Any, rest string, value []byte) *Unknown {
	again, err := k.Rewrite(rest, value, nil)
	if err != nil || bytes.Equal(value, again) {
		return nil
	}

	stored, compressed, err := parse(value)
	if err != nil {
		return nil
	}
	known, _, err := parse(again)
	if err != nil {
		return nil
	}

	without, found := strip(stored, known)
	if !found {
		return nil
	}

	// A field that is read although it is written under another name is known: kept, it would be read again.
	text, err := unparse(without, compressed)
	if err != nil {
		return nil
	}
	if same, err := k.Rewrite(rest, text, nil); err != nil || !bytes.Equal(same, again) {
		return nil
	}

	return &Unknown{stored, known}
}

// Keep returns the stored form of a newer version of the record with the unknown fields. In a list they stay with
// the elements that are as they were, and, if it is as long as it was, with those in the same place.
func (u *Unknown) Keep(value []byte) []byte {
	now, compressed, err := parse(value)
	if err != nil {
		return value
	}

	text, err := unparse(keep(u.stored, u.known, now), compressed)
	if err != nil {
		return value
	}

	return text
}

// parse parses the stored form of a record.
func parse(value []byte) (parsed any, compressed bool, err error) {
	// A compressed record starts with its length: its first byte begins no JSON.
	if compressed = len(value) > 0 && value[0] < ' '; compressed {
		if value, err = Expand(value); err != nil {
			return nil, true, err
		}
	}

	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber() // every digit stays

	return parsed, compressed, dec.Decode(&parsed)
}

func unparse(parsed any, compress bool) ([]byte, error) {
	text, err := json.Marshal(parsed)
	if err == nil && compress {
		text = Compress(text)
	}
	return text, err
}

// strip returns a record without its unknown fields, and whether it has any.
func strip(stored, known any) (without any, found bool) {
	switch stored := stored.(type) {
	case map[string]any:
		known, ok := known.(map[string]any)
		if !ok {
			return stored, false
		}

		rest := map[string]any{}

		for name, value := range stored {
			of, is := known[name]
			if !is {
				found = true
				continue
			}

			value, below := strip(value, of)
			rest[name], found = value, found || below
		}

		return rest, found
	case []any:
		known, ok := known.([]any)
		if !ok || len(known) != len(stored) {
			return stored, false
		}

		rest := make([]any, len(stored))

		for i, value := range stored {
			value, below := strip(value, known[i])
			rest[i], found = value, found || below
		}

		return rest, found
	default:
		return stored, false
	}
}

// keep returns now with the fields of stored that are not in known.
func keep(stored, known, now any) any {
	switch now := now.(type) {
	case map[string]any:
		stored, _ := stored.(map[string]any)
		known, _ := known.(map[string]any)

		for name, value := range stored {
			of, is := known[name]
			at, written := now[name]

			switch {
			case !is && !written:
				now[name] = value
			case is && written:
				now[name] = keep(value, of, at)
			}
		}
	case []any:
		stored, _ := stored.([]any)
		known, _ := known.([]any)

		if len(stored) != len(known) {
			return now
		}

		for i, element := range now {
			if at := placeOf(element, i, known, len(now)); at >= 0 {
				now[i] = keep(stored[at], known[at], element)
			}
		}
	}

	return now
}

// placeOf returns the place that an element of a list had before; -1: none.
func placeOf(element any, at int, before []any, length int) int {
	for i, e := range before {
		if reflect.DeepEqual(e, element) {
			return i
		}
	}

	if len(before) == length {
		return at
	}

	return -1
}
