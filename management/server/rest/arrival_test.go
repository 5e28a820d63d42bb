// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/server/rest"
)

// deadlines is a connection that counts the deadlines of its reads.
type deadlines struct {
	*httptest.ResponseRecorder

	set int
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		d.set++
	}

	return nil
}

type noMeter struct{}

func (noMeter) Begin() {}

func (noMeter) End(*http.Request, rest.Route, int, time.Duration) {}

// TestUploadDeadlines: each piece of an upload has a deadline, and the body of another request has one in all.
func TestUploadDeadlines(t *testing.T) {
	t.Parallel()

	log := logrus.New()
	log.SetOutput(io.Discard)

	for _, c := range []struct {
		uploads     bool
		least, most int
	}{{true, 8, 10}, {false, 1, 1}} {
		read := int64(0)
		router := rest.NewRouter(rest.Options{
			Admit: func(r *http.Request, _ rest.Route) (context.Context, string, error) {
				return r.Context(), "ann", nil
			},
			Failed: func(*http.Request, rest.Route, *inventory.Error) {},
			Remote: func(*http.Request) string { return "" },
			Meter:  noMeter{}, Logger: log, BodyTime: time.Minute, BodyLimit: 1 << 10,
		}, []rest.Route{{
			Method: http.MethodPut, Path: "/x", Family: rest.Plain, Uploads: c.uploads,
			Serve: func(_ http.ResponseWriter, r *http.Request) (err error) {
				read, err = io.Copy(io.Discard, r.Body)
				return err
			},
		}})

		body := strings.NewReader(strings.Repeat("x", 2<<20))
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		router.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/x", body))

		if read != 2<<20 || w.set < c.least || w.set > c.most {
			t.Errorf("uploads: %t: %d bytes with %d deadlines", c.uploads, read, w.set)
		}
	}
}
