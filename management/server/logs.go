// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"strconv"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
)

// getLog serves one of the two logs of a job.
func (s *Server) getLog(stream job.Stream, contentType string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, q, ref, err := s.readOne(w, r, "id")
		if err != nil {
			return err
		}

		offset, _, err := number(q, "offset")
		if err != nil {
			return err
		}

		follow, err := truth(q, "follow", false)
		if err != nil {
			return err
		}

		j, err := v.Job(ref)
		if err != nil {
			return err
		}

		w.Header().Set(api.HeaderJob, j.ID)
		w.Header().Set("Content-Type", contentType)

		if r.Method == http.MethodHead {
			size, err := s.Logs.LogSize(r.Context(), j.ID, stream)
			if err != nil {
				return err
			}

			w.Header().Set(api.HeaderNextOffset, strconv.FormatInt(size, 10))

			return nil
		}

		return s.stream(w, r, j.ID, stream, offset, follow)
	}
}

// stream copies a log to the client, each piece as it comes. The header goes
// out at once, so that a client knows that it is connected before there is any
// output. The end of the answer is the end of the log; whatever else ends it
// breaks the connection, so that nobody takes a part for the whole. A client
// that does not read delays its own connection only: the manager is asked for
// the next piece when this one is gone, and a piece that is not gone in time
// ends the stream (recorder).
func (s *Server) stream(
	w http.ResponseWriter,
	r *http.Request,
	job string,
	stream job.Stream,
	offset int64,
	follow bool,
) error {
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()

	rc := http.NewResponseController(w)
	// The deadline of the last piece stays on the connection.
	w.Header().Set("Connection", "close")
	w.Header().Set("Trailer", api.HeaderNextOffset)
	w.WriteHeader(http.StatusOK)

	if err := rc.Flush(); err != nil {
		return err
	}

	next := offset

	err := s.Logs.Log(ctx, job, stream, offset, follow, func(at int64, data []byte) error {
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
