// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

// Box is an encrypted value as text: a version, the id of its key, and nonce and
// ciphertext in base64.
type Box string

// Place is where a box belongs, such as {"vars", "global", "db_password"}. It is the
// associated data of the encryption.
type Place []string

// With returns the place below p with more parts.
func (p Place) With(parts ...string) Place { return append(slices.Clip(p), parts...) }

// String returns a text that no other valid place has.
func (p Place) String() string { return strings.Join(p, "\x00") }

// bytes returns an encoding that no other place has: no part contains a zero byte.
func (p Place) bytes() ([]byte, error) {
	joined := p.String()
	if strings.Count(joined, "\x00") != len(p)-1 {
		return nil, errors.New("a part of the place of a secret contains a zero byte")
	}
	return []byte("clusterm\x00" + joined), nil
}

// version begins every box.
const version = "v1"

// padding is the step of the length of plaintexts, in bytes, which hides the length
// of passwords.
const padding = 64

// ErrNoKey is the error for an operation without any key.
var ErrNoKey = errors.New("there is no key")

// MissingKeyError is the error for a box of a key that the ring lacks.
type MissingKeyError struct{ ID string }

func (e *MissingKeyError) Error() string {
	return "it is encrypted with key " + e.ID + ", which is missing"
}

// ErrDamaged is the error for a box that does not open although its key is there: it
// was changed, or it belongs to another place.
var ErrDamaged = errors.New("its encrypted value is damaged, or was moved here from another place")

// Seal encrypts a JSON document for its place. Spaces that pad its length are added
// to its end.
func (r Ring) Seal(at Place, document []byte) (Box, error) {
	if len(r.keys) == 0 {
		return "", ErrNoKey
	}

	data, err := at.bytes()
	if err != nil {
		return "", err
	}

	aead, err := chacha20poly1305.NewX(r.keys[0].bytes[:])
	if err != nil {
		return "", err
	}

	padded := make([]byte, 0, len(document)+padding)
	padded = append(padded, document...)

	for len(padded)%padding != 0 {
		padded = append(padded, ' ')
	}

	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(padded)+aead.Overhead())
	_, _ = rand.Read(nonce)

	sealed := aead.Seal(nonce, nonce, padded, data)

	return Box(version + "." + r.keys[0].ID() + "." + base64.StdEncoding.EncodeToString(sealed)), nil
}

// Open decrypts a box at its place. The error is a *MissingKeyError or wraps
// ErrDamaged.
func (r Ring) Open(at Place, b Box) ([]byte, error) {
	id, sealed, err := b.parse()
	if err != nil {
		return nil, err
	}

	data, err := at.bytes()
	if err != nil {
		return nil, err
	}

	for _, k := range r.keys {
		if k.ID() != id {
			continue
		}

		aead, err := chacha20poly1305.NewX(k.bytes[:])
		if err != nil {
			return nil, err
		}
		if len(sealed) < aead.NonceSize() {
			return nil, ErrDamaged
		}

		plain, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], data)
		if err != nil {
			return nil, ErrDamaged
		}
		return plain, nil
	}

	return nil, &MissingKeyError{id}
}

// KeyID returns the id of the key of a box, or "" if it is damaged.
func (b Box) KeyID() string {
	id, _, err := b.parse()
	if err != nil {
		return ""
	}
	return id
}

func (b Box) parse() (id string, sealed []byte, err error) {
	parts := strings.Split(string(b), ".")
	if len(parts) != 3 || parts[0] != version {
		return "", nil, fmt.Errorf("%w: it is not of the version %s", ErrDamaged, version)
	}
	sealed, err = base64.StdEncoding.Strict().DecodeString(parts[2])
	if err != nil {
		return "", nil, ErrDamaged
	}
	return parts[1], sealed, nil
}
