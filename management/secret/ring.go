// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

// keyBytes is the size of a key.
const keyBytes = chacha20poly1305.KeySize

// maxKeys bounds the keys of a ring. A rotation needs two.
const maxKeys = 16

// Key is a secret key. It never prints its bytes.
type Key struct{ bytes [keyBytes]byte }

// NewKey returns a random key.
func NewKey() Key {
	var k Key

	// crypto/rand.Read never fails: it ends the process instead.
	_, _ = rand.Read(k.bytes[:])
	return k
}

// ID identifies the key without revealing it: 16 hexadecimal digits, derived from the
// key, so that a damaged key has another one.
func (k Key) ID() string {
	mac := hmac.New(sha256.New, k.bytes[:])
	mac.Write([]byte("clusterm key id"))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Format implements fmt.Formatter: every verb prints the id.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "key %s", k.ID()) }

// Ring holds keys. The first one encrypts; all of them decrypt. The zero Ring has no
// key. A Ring is immutable.
type Ring struct{ keys []Key }

// NewRing returns a ring of keys, the one that encrypts first.
func NewRing(keys ...Key) Ring { return Ring{slices.Clone(keys)} }

// header begins a key file.
const header = `# The keys of clusterm's secrets, one a line: the first encrypts, all of them decrypt.
# Keep a copy apart from the backups of the store.
`

// Parse reads a key file: a key a line in base64, the one that encrypts first. It skips
// empty lines and those that begin with #. Errors never contain a line.
func Parse(file []byte) (Ring, error) {
	var r Ring

	number := 0
	for line := range strings.Lines(string(file)) {
		number++

		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		raw, err := base64.StdEncoding.Strict().DecodeString(line)
		if err != nil || len(raw) != keyBytes {
			return Ring{}, fmt.Errorf("line %d is not a key: write %d random bytes in base64", number, keyBytes)
		}
		k := Key{[keyBytes]byte(raw)}
		if r.Has(k.ID()) {
			return Ring{}, fmt.Errorf("line %d repeats a key", number)
		}
		if r.keys = append(r.keys, k); len(r.keys) > maxKeys {
			return Ring{}, fmt.Errorf("it has more than %d keys", maxKeys)
		}
	}

	if len(r.keys) == 0 {
		return Ring{}, errors.New("it has no key")
	}

	return r, nil
}

// Encode returns the content of a key file, see Parse.
func (r Ring) Encode() []byte {
	var b bytes.Buffer
	b.WriteString(header)

	for _, k := range r.keys {
		b.WriteString(base64.StdEncoding.EncodeToString(k.bytes[:]) + "\n")
	}

	return b.Bytes()
}

// Active returns the id of the key that encrypts, or "" without a key.
func (r Ring) Active() string {
	if len(r.keys) == 0 {
		return ""
	}
	return r.keys[0].ID()
}

// IDs returns the ids of all keys, the one that encrypts first.
func (r Ring) IDs() []string {
	ids := make([]string, len(r.keys))
	for i, k := range r.keys {
		ids[i] = k.ID()
	}

	return ids
}

// Has reports whether the ring has the key.
func (r Ring) Has(id string) bool { return slices.Contains(r.IDs(), id) }

// With returns a ring that encrypts with k and decrypts with the keys of r as well.
func (r Ring) With(k Key) Ring { return Ring{append([]Key{k}, r.keys...)} }

// OnlyActive returns a ring without the keys that only decrypt.
func (r Ring) OnlyActive() Ring { return Ring{slices.Clone(r.keys[:min(1, len(r.keys))])} }
