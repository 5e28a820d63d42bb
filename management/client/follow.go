// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// errEnded marks the end of the caller's loop.
var errEnded = errors.New("ended")

// maxEvent is the maximum length of a line of a stream of events, in bytes.
const maxEvent = 64 << 20

// reconnect calls connect, which returns at the end of a connection, for as long as the
// patience allows. lost, unless nil, is called with the error before each further
// connection. reconnect returns nil after errEnded, else the error of the context or of
// the last connection.
func (c *Client) reconnect(ctx context.Context, p *patience, lost func(error), connect func() error) error {
	for {
		err := connect()

		switch {
		case errors.Is(err, errEnded):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case inventory.KindOf(err) == inventory.KindUnavailable && lost != nil:
			lost(err)
		}

		if err = p.wait(ctx, err); err != nil {
			return err
		}
	}
}

// readEvents calls take with the data and the id of each server-sent event, until take
// returns an error or the connection ends, and returns that error. found, unless nil, is
// called first.
func (c *Client) readEvents(
	ctx context.Context, path string, query url.Values, found func(), take func(data []byte, id int64) error,
) error {
	res, e, err := c.open(ctx, call{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return err
	}
	if !isType(res, api.TypeEventStream) {
		return e.notStream(res)
	}

	if found != nil {
		found()
	}

	// Signs of life arrive more often than this, even on an idle stream.
	idle := time.AfterFunc(c.opt.Timeout, func() { _ = res.Body.Close() })
	defer func() {
		idle.Stop()
		_ = res.Body.Close()
	}()

	events := bufio.NewScanner(res.Body)
	events.Buffer(make([]byte, 0, 64<<10), maxEvent)

	for {
		idle.Reset(c.opt.Timeout)

		data, id, err := nextEvent(events)
		if !idle.Stop() {
			err = context.DeadlineExceeded
		}

		if err != nil {
			c.route.avoid(e)
			return e.explain(ctx, err)
		}

		if err := take(data, id); err != nil {
			return err
		}
	}
}

// decodeEvent decodes the data of an event.
func decodeEvent[T any](c *Client, data []byte) (event T, err error) {
	if err := json.Unmarshal(data, &event); err != nil {
		return event, inventory.Errorf(inventory.KindUnavailable, "%s sent a malformed event: %w", c.Where(), err).
			Do("use the same version of clusterm and its client")
	}

	return event, nil
}

// nextEvent reads a server-sent event: its data, and its id or 0.
func nextEvent(lines *bufio.Scanner) (data []byte, id int64, err error) {
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 && data != nil {
			return data, id, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))

		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if data != nil {
				data = append(data, '\n')
			}

			data = append(data, value...)
		case "id":
			id, _ = strconv.ParseInt(string(value), 10, 64)
		}
	}

	if err = lines.Err(); err == nil {
		err = io.ErrUnexpectedEOF // a watch never ends by itself
	}

	return nil, 0, err
}
