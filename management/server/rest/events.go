// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/contiv/cluster/management/api"
)

// eventBuffer is the number of bytes at which buffered events are written.
const eventBuffer = 64 << 10

// EventWriter writes server-sent events. It buffers them until Flush, or until
// the buffer is full; then Write blocks while the client does not read.
type EventWriter struct {
	w   http.ResponseWriter
	buf bytes.Buffer
}

// NewEventWriter sends the header of an event stream.
func NewEventWriter(w http.ResponseWriter) *EventWriter {
	w.Header().Set("Content-Type", api.TypeEventStream)
	// The deadline of the last piece remains on the connection, so no further
	// request may use it.
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusOK)
	return &EventWriter{w: w}
}

// Write buffers an event with v as its data. A stream can be resumed after the
// event unless id is 0.
func (e *EventWriter) Write(event string, id int64, v any) error {
	data, err := EncodeJSON(v)
	if err != nil {
		return err
	}

	if id > 0 {
		fmt.Fprintf(&e.buf, "id: %d\n", id)
	}

	fmt.Fprintf(&e.buf, "event: %s\ndata: %s\n", event, data) // data ends with a newline

	if e.buf.Len() >= eventBuffer {
		_, err = e.buf.WriteTo(e.w)
	}

	return err
}

// Buffered reports whether events wait for Flush.
func (e *EventWriter) Buffered() bool { return e.buf.Len() > 0 }

// Flush sends the buffered events.
func (e *EventWriter) Flush() error {
	if _, err := e.buf.WriteTo(e.w); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}
