// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/contiv/cluster/inventory"
)

var (
	hostKey     = lazy(`^[a-z0-9][a-z0-9@.-]{2,63} [A-Za-z0-9+/]{16,}={0,2}$`)
	fingerprint = lazy(`^SHA256:[A-Za-z0-9+/]{43}$`)
)

// maxHostKey bounds a host key in bytes. An RSA key of 16384 bits has less.
const maxHostKey = 4096

// ParseHostKey returns an ssh public key in the form of Host.HostKeys: its type and
// its base64, without a comment. Errors are of kind invalid.
func ParseHostKey(text string) (string, error) {
	words := strings.Fields(text)
	if len(text) > maxHostKey || len(words) < 2 {
		return "", errHostKey(text)
	}
	key := words[0] + " " + words[1]
	if !hostKey().MatchString(key) || strings.Contains(words[0], "-cert-") {
		return "", errHostKey(text)
	}

	// The blob begins with the length of its type, and the type.
	blob, err := base64.StdEncoding.DecodeString(words[1])
	if err != nil || len(blob) < 4 {
		return "", errHostKey(text)
	}
	kind, rest := []byte(words[0]), blob[4:]
	if int64(binary.BigEndian.Uint32(blob)) != int64(len(kind)) || !bytes.HasPrefix(rest, kind) {
		return "", errHostKey(text)
	}

	return key, nil
}

func errHostKey(text string) error {
	return inventory.Errorf(inventory.KindInvalid, "%q is not an ssh public key", inventory.Shorten(text, 100)).
		Do("give the line of the host's /etc/ssh/ssh_host_ed25519_key.pub, as in \"ssh-ed25519 AAAA…\"")
}

// CheckFingerprint refuses a text that is not the SHA256 fingerprint of a key, as
// ssh-keygen -l prints it. Its error is of kind invalid.
func CheckFingerprint(text string) error {
	if fingerprint().MatchString(text) {
		return nil
	}

	return inventory.Errorf(inventory.KindInvalid, "%q is not the fingerprint of an ssh key",
		inventory.Shorten(text, 100)).Do("give it as ssh-keygen -l prints it: SHA256: and 43 characters")
}

// Fingerprint returns the SHA256 fingerprint of a key in the form of Host.HostKeys, as
// ssh-keygen -l prints it, or "" for a malformed key.
func Fingerprint(key string) string {
	_, text, _ := strings.Cut(key, " ")

	blob, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(blob) == 0 {
		return ""
	}
	sum := sha256.Sum256(blob)

	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Fingerprints returns the type and the fingerprint of each key, in order.
func Fingerprints(keys []string) []string {
	all := make([]string, len(keys))
	for i, key := range keys {
		kind, _, _ := strings.Cut(key, " ")
		all[i] = kind + " " + Fingerprint(key)
	}

	return all
}

// ErrTaken returns the refusal of a host key that is recorded with another node. Of the key
// only the fingerprint is known; taken is as Host.Taken.
func ErrTaken(host, fingerprint string, taken map[string]string) *inventory.Error {
	owner := "another node"

	for key, name := range taken {
		if Fingerprint(key) == fingerprint {
			owner = name
		}
	}

	return inventory.Errorf(inventory.KindRefused, "%s%s, %s, %s%s: its machine answers under this address, or both "+
		"were made of one image", theHostKey, host, fingerprint, isThatOf, owner).
		Do("give each host a key of its own (ssh-keygen -A), or forget %s if it is gone", owner).About(host)
}
