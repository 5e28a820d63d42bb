// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"sync"
	"time"
)

// pieceSize is the number of bytes that are written under one deadline.
const pieceSize = 256 << 10

// recorder records the status and sets a deadline for each piece of an answer:
// a client that does not read holds up its own connection only, and not for long.
type recorder struct {
	http.ResponseWriter
	stall  time.Duration
	grace  time.Duration
	body   *arrival // of the request; nil if it has none
	status int

	mu    sync.Mutex
	final bool // the current deadline must not be extended
}

// Unwrap returns the connection's writer for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader records the first final status and sends it.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
		w.body.giveUp(w.Header())
	}

	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write writes p piece by piece. It blocks for at most the stall time per piece.
func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}

	written := 0
	for {
		w.extend()

		end := min(len(p), written+pieceSize)
		n, err := w.ResponseWriter.Write(p[written:end])

		written += n
		if err != nil || written >= len(p) {
			return written, err
		}
	}
}

// extend moves the write deadline ahead, unless the stream is ending.
func (w *recorder) extend() {
	w.mu.Lock()
	defer w.mu.Unlock()

	if !w.final {
		// The writers of tests have no deadlines; the error is of no consequence.
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.stall))
	}
}

// EndStream limits the write in progress to the grace period of the router. It
// may be called while another goroutine writes to w.
func EndStream(w http.ResponseWriter) {
	rec, ok := w.(*recorder)
	if !ok {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()

	rec.final = true
	_ = http.NewResponseController(rec.ResponseWriter).SetWriteDeadline(time.Now().Add(rec.grace))
}
