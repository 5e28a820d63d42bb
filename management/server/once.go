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
	"github.com/contiv/cluster/management"
	"github.com/contiv/cluster/management/api"
)

// onceIn is the wish of a request to be carried out once, with a digest of its
// body; nil where it has none. Keys are a client's own: those of different
// actors, and of different paths, have nothing to do with each other.
func onceIn(r *http.Request, body any) (*management.IdempotencyKey, error) {
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

	return &management.IdempotencyKey{
		Key:     digest(who, r.Method, r.URL.EscapedPath(), key),
		Request: digest(string(request)),
	}, nil
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// showReplayed says that the answer is to a request that was carried out before.
func showReplayed(w http.ResponseWriter, r *http.Request, once *management.IdempotencyKey) {
	if once != nil && once.Replayed {
		w.Header().Set(api.HeaderReplayed, "true")
		mention(r, "replayed", true)
	}
}
