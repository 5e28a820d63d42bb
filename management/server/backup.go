// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) backupRoutes() []rest.Route {
	return []rest.Route{{
		Method: http.MethodGet, Path: api.PathBackup, Allow: access.Admins, Serve: s.getBackup, Streams: true,
		Doc: &openapi.Doc{
			ID: "getBackup", Summary: "Back up all records",
			Text: "Returns all records of the store as they are at one revision, for `clusterm restore`. The secret " +
				"variables in it are encrypted, and the key that opens them is not in it; variables, host keys, " +
				"output of jobs and the audit trail can be read. Two lines of text come first, the version of the " +
				"format and a header in JSON, and one comes last, with the number of the records and the SHA-256 of " +
				"everything before it. An answer that is cut off has no such line, and is refused by a restore. A " +
				"backup is recorded in the audit trail, after it is in.",
			Answer: "", Type: api.TypeBackup, Success: "The backup.",
		},
	}}
}

// getBackup streams a backup. Unlike other reads it leaves an audit record: the file has everything but the keys.
func (s *Server) getBackup(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", api.TypeBackup)
		return nil
	}

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()

	write := func(ctx context.Context, _ *access.Record) error {
		_, err := s.Backup(ctx, s.Version(ctx).Version, &backupAnswer{ResponseWriter: w})
		return err
	}

	if s.Audit == nil {
		return write(ctx, nil)
	}

	return access.Audited(ctx, s.Audit, caller(r), access.Record{Action: "backup.read"}, write)
}

// backupAnswer sets the headers with the first byte: an error before it is an answer of its own.
type backupAnswer struct {
	http.ResponseWriter

	begun bool
}

func (a *backupAnswer) Write(p []byte) (int, error) {
	if !a.begun {
		a.begun = true
		// The deadline of the last piece remains on the connection, so no further request may use it.
		a.Header().Set("Connection", "close")
		a.Header().Set("Content-Type", api.TypeBackup)
		a.Header().Set("Content-Disposition", `attachment; filename="clusterm.backup"`)
	}

	return a.ResponseWriter.Write(p)
}
