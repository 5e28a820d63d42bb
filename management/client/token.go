// SPDX-License-Identifier: Apache-2.0

package client

import (
	"io"
	"os"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// MaxToken bounds a token, in bytes.
const MaxToken = 16 << 10

// ReadToken reads a bearer token from a file that only its owner may read, or from a pipe,
// which has no other readers. Its errors are of inventory.KindInvalid, and do not contain
// the token.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the token cannot be read: %w", err)
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the token cannot be read: %w", err)
	}

	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return "", inventory.Errorf(inventory.KindInvalid, "others than the owner may read the token in %s", path).
			Do("chmod 600 %s; if others had access to it, replace the token", path)
	}

	text, err := io.ReadAll(io.LimitReader(f, MaxToken+1))
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the token cannot be read: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > MaxToken {
		return "", inventory.Errorf(inventory.KindInvalid, "%s is empty, or larger than %d bytes", path, MaxToken).
			Do("write one token into the file")
	}

	return token, nil
}
