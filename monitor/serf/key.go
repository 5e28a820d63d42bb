// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// GenerateKey makes a gossip key: 32 random bytes in base64, the format of a key
// file and of `serf agent -encrypt`.
func GenerateKey() string {
	key := make([]byte, 32)
	rand.Read(key) // never fails, see crypto/rand
	return base64.StdEncoding.EncodeToString(key)
}

// CheckKey refuses a malformed gossip key.
func CheckKey(s string) error {
	_, err := parseKey(s)
	return err
}

func parseKey(s string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
	if err != nil {
		return nil, errors.New("the gossip key is not base64; make one with `openssl rand -base64 32`")
	}

	switch len(key) {
	case 16, 24, 32:
		return key, nil
	}

	return nil, fmt.Errorf(
		"the gossip key has %s; make one of 32 with `openssl rand -base64 32`",
		inventory.Count(len(key), "byte", "bytes"),
	)
}

// keys reads the gossip keys from their file.
func (o *Options) keys() ([]string, error) {
	if o.KeyFile == "" {
		return nil, errors.New(
			"no gossip key is configured, and the gossip requires one: name the file that holds it",
		)
	}

	f, err := os.Open(o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the gossip key: %w", err)
	}
	defer f.Close()

	b, err := io.ReadAll(io.LimitReader(f, maxKeyring))
	if err != nil {
		return nil, fmt.Errorf("cannot read the gossip key: %w", err)
	}
	keys, err := ParseKeys(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.KeyFile, err)
	}

	if isOpen(f) {
		o.Log.Warnf("the gossip key %s is readable by other users; set its mode to 0600", o.KeyFile)
	}

	return keys, nil
}

// isOpen reports whether users other than the owner may read a file.
func isOpen(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode().Perm()&0o077 != 0
}
