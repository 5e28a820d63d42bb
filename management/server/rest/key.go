// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Key is the Idempotency-Key of a request as digests.
type Key struct {
	ID      string // of the client, method, path, query and key
	Request string // of the key and the decoded body
}

// IdempotencyKey returns the key of a request, or nil if the request has none.
// Keys of different clients and paths are distinct. Two bodies that decode to
// the same value are the same request.
func IdempotencyKey(r *http.Request, client string, body any) (*Key, error) {
	keys := r.Header.Values(api.HeaderIdempotencyKey)
	if len(keys) == 0 {
		return nil, nil
	}
	key := keys[0]
	printable := !strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' })

	if len(keys) > 1 || key == "" || len(key) > api.MaxIdempotencyKey || !printable {
		return nil, inventory.Errorf(inventory.KindInvalid, "the header %s is no key", api.HeaderIdempotencyKey).
			Do("give one key of at most %d printable characters without spaces, e.g. a UUID", api.MaxIdempotencyKey)
	}

	// A retry may spell the same body differently.
	request, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}

	return &Key{
		ID: digest(client, r.Method, r.URL.RequestURI(), key),
		// The key, which is not stored, keeps others from guessing secrets in the body.
		Request: digest(key, string(request)),
	}, nil
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}
