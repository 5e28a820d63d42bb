// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/record"
)

// Checksum has the key of the checksums of variables, which all instances share, as its only variable. It is
// encrypted as every secret.
type Checksum struct {
	Vars configuration.Vars `json:"vars"`
}

// Checksums is the one Checksum of a store.
var Checksums = record.Kind[Checksum]{
	Name: "checksum", Single: true,
	Secret: func(c *Checksum, convert record.Convert) (*Checksum, error) {
		vars, err := convert([]string{"checksum"}, c.Vars)
		return &Checksum{vars}, err
	},
	// It can be replaced.
	Damaged: func(string, *Checksum) *Checksum { return &Checksum{} },
}

const checksumName = "key"

// NewChecksum returns the Checksum with that key.
func NewChecksum(key configuration.ChecksumKey) *Checksum {
	return &Checksum{configuration.Vars{checksumName: configuration.NewSecret(key.Reveal())}}
}

// ChecksumKey returns the key of the checksums of variables; zero: none can be made, because there
// is none, or it cannot be decrypted.
func ChecksumKey(r record.Reader) configuration.ChecksumKey {
	value := record.One(r, &Checksums).Vars[checksumName]

	if hidden, ok := value.(configuration.Secret); ok {
		value, _ = hidden.Reveal()
	}

	text, _ := value.(string)
	key, _ := configuration.ParseChecksumKey(text)

	return key
}
