// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"sync/atomic"
)

// Origin is where a request came from. Its fields are set before the request is
// carried out, and only read from then on.
type Origin struct {
	Request string // its id
	From    string // the other end: ADDRESS:PORT, or "uid NUMBER" on the Unix socket
	Via     string // the listener: ViaSocket, ViaPlainHTTP or ViaHTTPS

	recorded atomic.Bool
}

// The listeners of requests.
const (
	ViaSocket    = "socket"
	ViaPlainHTTP = "plain_http"
	ViaHTTPS     = "https"
)

// Recorded reports whether the request has an audit record.
func (o *Origin) Recorded() bool { return o.recorded.Load() }

type originKey struct{}

// WithOrigin returns a context that carries the origin of a request.
func WithOrigin(ctx context.Context, o *Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf returns the origin that ctx carries, or an empty one, as for a decision
// of the manager itself. It is never nil.
func OriginOf(ctx context.Context) *Origin {
	if o, ok := ctx.Value(originKey{}).(*Origin); ok {
		return o
	}
	return &Origin{}
}
