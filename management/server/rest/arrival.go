// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// linger is how long the server discards the rest of a body after its answer.
// Closing at once would reset the connection, and a client that still sends could
// lose the answer.
const linger = 500 * time.Millisecond

// arrival is the body of a request on its way. The server has no read timeout,
// because answers may stream, so each body has a deadline of its own.
type arrival struct {
	io.ReadCloser
	conn *http.ResponseController

	limit time.Duration // of a piece; 0: the whole body has one deadline
	left  int           // bytes of the piece that have not come yet
}

// awaitBody gives the body of r until the deadline to arrive, or each piece of an upload, from the read that waits for
// it. It returns nil for a request without a body.
func awaitBody(w http.ResponseWriter, r *http.Request, limit time.Duration, uploads bool) *arrival {
	if r.ContentLength == 0 || r.Body == nil {
		return nil
	}

	a := &arrival{ReadCloser: r.Body, conn: http.NewResponseController(w)}
	r.Body = a

	if uploads {
		a.limit = limit
	}
	// The writers of tests have no deadlines; the error is of no consequence.
	_ = a.conn.SetReadDeadline(time.Now().Add(limit))

	return a
}

// Read ends the deadline with the body: the connection may be idle afterwards.
func (a *arrival) Read(p []byte) (int, error) {
	// A client that sends a byte now and then does not hold the connection for ever.
	if a.limit > 0 && a.left <= 0 && a.conn != nil {
		a.left = pieceSize
		_ = a.conn.SetReadDeadline(time.Now().Add(a.limit))
	}

	n, err := a.ReadCloser.Read(p)
	a.left -= n

	if errors.Is(err, io.EOF) && a.conn != nil {
		_ = a.conn.SetReadDeadline(time.Time{})
		a.conn = nil
	}

	return n, err
}

// giveUp prepares the end of a connection with a body that is not read to its
// end. The rest of the body must not be awaited, nor read as the next request.
func (a *arrival) giveUp(answer http.Header) {
	if a == nil || a.conn == nil {
		return
	}

	answer.Set("Connection", "close")

	_ = a.conn.SetReadDeadline(time.Now().Add(linger))
}
