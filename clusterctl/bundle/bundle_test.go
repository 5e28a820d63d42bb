// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/client"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestFullDiskEndsTheRequests requires that a bundle that cannot be written asks the manager for nothing more.
func TestFullDiskEndsTheRequests(t *testing.T) {
	var requests atomic.Int32
	manager := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(manager.Close)

	m, err := client.New(client.Options{URL: manager.URL})
	errtest.None(t, err)

	ctx, stop := context.WithCancel(t.Context())
	b := &archive{
		options: Options{Manager: m, Say: func(string, ...any) {}},
		tar:     tar.NewWriter(fullDisk{}), flush: func() error { return nil }, stop: stop,
	}

	if err := b.collect(ctx); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("the error is %v", err)
	}

	if n := requests.Load(); n > 0 {
		t.Errorf("%d requests after the failure", n)
	}
}
