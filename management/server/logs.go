// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) logRoutes() []rest.Route {
	query := []openapi.Param{
		{Name: "offset", Type: openapi.Number, Default: "0", Help: "Where to start reading, in bytes."},
		{
			Name: "follow", Type: openapi.Flag,
			Help: "Whether to stream new output until the job ends. By default the answer ends at the current end " +
				"of the log.",
		},
	}
	text, events := s.getLog(job.StreamText, api.TypeText), s.getLog(job.StreamEvents, api.TypeLines)

	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathLog,
			Allow: access.Readers.Scoped(), Serve: text, Streams: true, Query: query,
			Doc: &openapi.Doc{
				ID: "getLog", Tag: aboutJobs, Summary: "Read or follow the output of a job",
				Text: "Returns the output of ansible-playbook and of the job itself, byte for byte, from an offset " +
					"on. A complete answer ends at the end of the log; if the connection breaks earlier, continue " +
					"at your current offset. The bytes never change. HEAD returns the size in " +
					"`X-Clusterm-Next-Offset`.",
				Path: []openapi.Param{jobID}, Answer: "", Type: api.TypeText,
				Success: "The bytes from `offset` on. The trailer `X-Clusterm-Next-Offset` is the offset for the " +
					"next request.",
				Job: true,
			},
		},
		{
			Method: http.MethodGet, Path: api.PathEvents,
			Allow: access.Readers.Scoped(), Serve: events, Streams: true, Query: query,
			Doc: &openapi.Doc{
				ID: "getEvents", Tag: aboutJobs, Summary: "Read or follow the events of a job",
				Text: "Returns the results per host and task, one JSON object (`Event`) per line. Offsets and the " +
					"end of the answer work as for the output.",
				Path: []openapi.Param{jobID}, Type: api.TypeLines, Item: api.Event{},
				Success: "The lines from `offset` on. The trailer `X-Clusterm-Next-Offset` is the offset for the " +
					"next request.",
				Job: true,
			},
		},
	}
}

// getLog serves the text or the events of a job.
func (s *Server) getLog(stream job.Stream, contentType string) rest.Handler {
	return s.reading(func(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
		q, ref := rest.Query(r), rest.Param(r, "id")

		offset, follow := q.Number("offset"), q.Flag("follow")

		j, err := v.Job(ref)
		if err != nil {
			return err
		}
		w.Header().Set(api.HeaderJob, j.ID)
		w.Header().Set("Content-Type", contentType)

		// HEAD returns the size, so that a client can read the end of a long log.
		if r.Method == http.MethodHead {
			size, err := s.Logs.LogSize(r.Context(), j.ID, stream)
			if err != nil {
				return err
			}
			w.Header().Set(api.HeaderNextOffset, strconv.FormatInt(size, 10))
			return nil
		}

		return s.streamLog(w, r, j.ID, stream, offset, follow)
	})
}

// streamLog copies a log to the client as it grows. It sends the header at once,
// to distinguish a connected stream without output from a slow server. A complete
// answer is a complete log; every failure breaks the connection instead. A client
// that does not read delays its own connection only, until package rest ends the
// stalled write.
func (s *Server) streamLog(
	w http.ResponseWriter, r *http.Request, id string, stream job.Stream, offset int64, follow bool,
) error {
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()

	rc := http.NewResponseController(w)
	// The deadline of the last piece remains on the connection, so no further
	// request may use it.
	w.Header().Set("Connection", "close")
	// The next offset is final only after the last piece.
	w.Header().Set("Trailer", api.HeaderNextOffset)
	w.WriteHeader(http.StatusOK)

	if err := rc.Flush(); err != nil {
		return err
	}

	next := offset

	err := s.Logs.Log(ctx, id, stream, offset, follow, func(at int64, data []byte) error {
		if _, err := w.Write(data); err != nil {
			return err
		}

		next = at + int64(len(data))
		return rc.Flush()
	})
	if err != nil {
		return err
	}

	w.Header().Set(api.HeaderNextOffset, strconv.FormatInt(next, 10))

	return nil
}

// tail returns the end of the text of a job so far, of at most limit bytes, from the beginning of a line.
func (s *Server) tail(ctx context.Context, id string, limit int64) (string, error) {
	size, err := s.Logs.LogSize(ctx, id, job.StreamText)
	if err != nil {
		return "", err
	}

	var text strings.Builder

	from := max(size-limit, 0)
	err = s.Logs.Log(ctx, id, job.StreamText, from, false, func(_ int64, data []byte) error {
		_, err := text.Write(data)
		return err
	})

	if _, whole, cut := strings.Cut(text.String(), "\n"); cut && from > 0 {
		return whole, err
	}

	return text.String(), err
}
