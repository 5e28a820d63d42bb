// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/contiv/cluster/inventory"
)

// Handover is what an instance that joins gets beside its certificate. It crosses the network and the API as a sealed
// text that only the key of the request opens.
type Handover struct {
	CA    []byte `json:"ca"` // of the instances, with its key
	Files []File `json:"files"`
}

// File is a file that all instances have in common.
type File struct {
	Path    string `json:"path"` // below the data directory, or absolute
	Content []byte `json:"content"`
}

// In returns the path of the file on a host with the data directory.
func (f File) In(dataDir string) string {
	if filepath.IsAbs(f.Path) {
		return filepath.Clean(f.Path)
	}
	return filepath.Join(dataDir, filepath.Clean("/"+f.Path))
}

// PeersDir is the folder with the certificates of an instance, in its data directory.
func PeersDir(dataDir string) string { return filepath.Join(dataDir, "instance") }

// sealInfo binds a sealed text to its purpose.
var sealInfo = []byte("clusterm handover 1")

// Key opens what is sealed for it.
type Key struct{ key hpke.PrivateKey }

// NewKey returns a key, and its public half.
func NewKey() (Key, []byte, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, nil, err
	}

	key, err := hpke.NewDHKEMPrivateKey(private)
	return Key{key}, private.PublicKey().Bytes(), err
}

// seal encrypts a handover for the holder of the key (RFC 9180: X25519, HKDF-SHA256, AES-256-GCM).
func (h Handover) seal(public []byte) ([]byte, error) {
	point, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the key of the request cannot be used: %w", err).
			Do("join with a clusterm of the same version")
	}
	key, err := hpke.NewDHKEMPublicKey(point)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return hpke.Seal(key, hpke.HKDFSHA256(), hpke.AES256GCM(), sealInfo, text)
}

// Open decrypts a handover.
func (k Key) Open(sealed []byte) (Handover, error) {
	text, err := hpke.Open(k.key, hpke.HKDFSHA256(), hpke.AES256GCM(), sealInfo, sealed)
	if err != nil {
		return Handover{}, fmt.Errorf("the keys of the manager cannot be opened: %w", err)
	}

	var h Handover

	err = json.Unmarshal(text, &h)
	return h, err
}
