// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// ChecksumKey is the key of the checksums of variables. Without it, a checksum does not
// show whether a guess of a secret is right. It never prints its bytes. The zero key has
// no checksums. It is immutable.
type ChecksumKey struct{ bytes string }

// checksumKeyBytes is the size of a key.
const checksumKeyBytes = 32

// NewChecksumKey returns a random key.
func NewChecksumKey() ChecksumKey {
	b := make([]byte, checksumKeyBytes)

	// crypto/rand.Read never fails: it ends the process instead.
	_, _ = rand.Read(b)
	return ChecksumKey{string(b)}
}

// ParseChecksumKey reads the text of a key. Errors do not contain it.
func ParseChecksumKey(text string) (ChecksumKey, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != checksumKeyBytes {
		return ChecksumKey{}, errors.New("it is not a key of checksums")
	}
	return ChecksumKey{string(b)}, nil
}

// Reveal returns the text of the key.
func (k ChecksumKey) Reveal() string { return base64.StdEncoding.EncodeToString([]byte(k.bytes)) }

// IsZero reports whether there is no key.
func (k ChecksumKey) IsZero() bool { return k.bytes == "" }

// Format implements fmt.Formatter: every verb prints Hidden.
func (k ChecksumKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, Hidden) }

// hash returns the keyed hash of the parts. No other parts have the same.
func (k ChecksumKey) hash(parts ...string) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, []byte(k.bytes))
	for _, part := range parts {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}

	mac.Sum(sum[:0])

	return sum
}

// ErrNoChecksum is the error for variables without a checksum: there is no key, or a
// secret cannot be read.
var ErrNoChecksum = errors.New("the variables have no checksum")

// Sums are the keyed hashes of merged variables by name. Variables over them change the
// checksum at the cost of these variables alone. Sums are immutable.
type Sums struct {
	key    ChecksumKey
	byName map[string][sha256.Size]byte
	// total is the XOR of all hashes: names are unique, so none cancels another.
	total  [sha256.Size]byte
	locked map[string]bool // names of secrets that cannot be read
}

// Sums returns the hashes of merged variables.
func (k ChecksumKey) Sums(vars map[string]Var) Sums {
	s := Sums{key: k, byName: make(map[string][sha256.Size]byte, len(vars)), locked: map[string]bool{}}
	for name, v := range vars {
		sum, ok := k.sumOf(name, v)
		if !ok {
			s.locked[name] = true
			continue
		}

		s.byName[name] = sum
		s.toggle(sum)
	}

	return s
}

func (s *Sums) toggle(sum [sha256.Size]byte) { subtle.XORBytes(s.total[:], s.total[:], sum[:]) }

// sumOf returns the hash of a variable. ok is false for a secret that cannot be read. A
// value from a source outside counts by its name: it is asked only when a run begins.
// Neither the origin nor a mark as secret counts, because neither reaches the host.
func (k ChecksumKey) sumOf(name string, v Var) (sum [sha256.Size]byte, ok bool) {
	if s, secret := v.Value.(Secret); secret {
		if s.Sourced() {
			return k.hash("source", name), true
		}

		plain, err := s.Reveal()
		if err != nil {
			return sum, false
		}
		v.Value = plain
	}

	value, err := normal(v.Value)
	if err != nil {
		return sum, false
	}

	// Maps have the order of their keys.
	text, err := json.Marshal(value)
	if err != nil {
		return sum, false
	}

	// A template is evaluated in a trusted value, and is text in another.
	kind := "data"
	if v.Trusted && len(LooksLikeTemplate(Vars{name: value})) > 0 {
		kind = "template"
	}
	return k.hash(kind, name, string(text)), true
}

// With returns the checksum of the variables with others over them, which replace those
// of the same name; or ErrNoChecksum.
func (s Sums) With(over map[string]Var) (string, error) {
	if s.key.IsZero() {
		return "", ErrNoChecksum
	}

	locked := len(s.locked)

	for name, v := range over {
		sum, ok := s.key.sumOf(name, v)
		if !ok {
			return "", ErrNoChecksum
		}

		if old, known := s.byName[name]; known {
			s.toggle(old)
		}

		if s.locked[name] {
			locked--
		}

		s.toggle(sum)
	}

	if locked > 0 {
		return "", ErrNoChecksum
	}

	// The id of the key shows that checksums of two keys cannot be compared.
	id, total := s.key.hash("id"), s.key.hash("total", string(s.total[:]))

	return hex.EncodeToString(id[:4]) + "-" + hex.EncodeToString(total[:16]), nil
}

// ChecksumOf returns the checksum of one of the variables, or "" if it has none.
func (k ChecksumKey) ChecksumOf(name string, vars map[string]Var) string {
	v, set := vars[name]
	if !set {
		return ""
	}
	sum, _ := k.Checksum(map[string]Var{name: v}, nil)

	return sum
}

// Checksum returns the checksum of merged variables with those of a request over them,
// or ErrNoChecksum.
func (k ChecksumKey) Checksum(vars map[string]Var, request Vars) (string, error) {
	merged := maps.Clone(vars)
	if merged == nil {
		merged = map[string]Var{}
	}
	for name, value := range request {
		merged[name] = Var{Value: value, Origin: OriginRequest}
	}

	return k.Sums(merged).With(nil)
}
