// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
)

// caller returns the caller of a request, without precondition or key.
func caller(r *http.Request) access.Caller { return access.Caller{Principal: noteIn(r).actor} }

// idempotencyKey returns the key of a request with a digest of its body, or nil
// if the request has none. Keys of different principals and paths are distinct.
func idempotencyKey(r *http.Request, body any) (*access.Key, error) {
	keys := r.Header.Values(api.HeaderIdempotencyKey)
	if len(keys) == 0 {
		return nil, nil
	}

	key := keys[0]
	if len(keys) > 1 || key == "" || len(key) > api.MaxIdempotencyKey ||
		strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, inventory.Errorf(inventory.KindInvalid, "the header %s is no key", api.HeaderIdempotencyKey).
			Do("give one key of at most %d printable characters without spaces, e.g. a UUID", api.MaxIdempotencyKey)
	}

	request, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}

	who := noteIn(r).actor
	if p := peerIn(r); !p.unix {
		// The port is the connection's, not the client's.
		if host, _, err := net.SplitHostPort(p.name); err == nil {
			who = "http:" + host
		}
	}

	return &access.Key{
		ID:      digest(who, r.Method, r.URL.EscapedPath(), key),
		Request: digest(string(request)),
	}, nil
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// showReplayed marks the answer as the stored result of an earlier request.
func showReplayed(w http.ResponseWriter, r *http.Request, c access.Caller) {
	if c.Replayed() {
		w.Header().Set(api.HeaderReplayed, "true")
		mention(r, "replayed", true)
	}
}
