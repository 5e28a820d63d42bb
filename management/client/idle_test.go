// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// TestClosedIdleConnection: a daemon ends idle connections. The next request, whatever
// its method, goes over a new one and reaches the daemon once.
func TestClosedIdleConnection(t *testing.T) {
	t.Parallel()

	served, closed := 0, make(chan struct{}, 1)

	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		served++
		w.Header().Set("Content-Type", api.TypeJSON)
		_, _ = fmt.Fprint(w, `{}`)
	}))
	srv.Config.IdleTimeout = time.Millisecond
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}

	srv.Start()
	defer srv.Close()

	c, err := New(Options{URL: srv.URL, Patience: -1})
	errtest.None(t, err)

	ctx := t.Context()
	rack := "r1"

	for i := range 60 {
		switch i % 4 {
		case 0:
			_, err = c.PatchNode(ctx, "a-1", api.NodePatch{Labels: map[string]*string{"rack": &rack}})
		case 1:
			_, err = c.SetVars(ctx, ScopeGlobal, api.Vars{"a": "1"})
		case 2:
			_, err = c.RevokeToken(ctx, "ci")
		default:
			_, err = c.Node(ctx, "a-1")
		}

		if err != nil {
			t.Fatalf("request %d, after the end of the connection before: %v", i, err)
		}

		// The client may or may not have noticed the end when the next request begins.
		<-closed
	}

	if served != 60 {
		t.Errorf("%d requests were served, not 60", served)
	}

	// Our client lets go of a connection before a daemon does.
	if idle := transport("", nil, false).IdleConnTimeout; idle <= 0 || idle >= 45*time.Second {
		t.Errorf("an idle connection is kept for %s", idle)
	}
}
