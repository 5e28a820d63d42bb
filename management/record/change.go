// SPDX-License-Identifier: Apache-2.0

package record

import "strings"

// RawChange is the write of one key of the store, with the values before and after; nil: the key is
// not there.
type RawChange struct {
	Path     string // as of Kind.Path
	Revision int64
	Is, Was  []byte
}

// Sides decodes both sides of a change of a record; nil: it is not there. The record before has the
// revision 0. known is false for a change of another kind, and of a part of a record in several keys.
func (k *Kind[T]) Sides(c RawChange) (is, was *T, known bool, err error) {
	key, below := strings.CutPrefix(c.Path, k.Name+"/")
	if k.Single && c.Path != k.Name || !k.Single && !below || k.Chunks != nil && strings.Contains(key, "/") {
		return nil, nil, false, nil
	}
	if k.Single {
		key = ""
	}

	if c.Is != nil {
		if is, err = k.Decode(key, c.Is, c.Revision); err != nil {
			return nil, nil, true, err
		}
	}

	if c.Was != nil {
		was, err = k.Decode(key, c.Was, 0)
	}

	return is, was, true, err
}
