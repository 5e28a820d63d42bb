// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// WatchOptions say what to watch. The zero value is everything.
type WatchOptions struct {
	Kinds []api.WatchKind // empty: all, or only nodes where one of the next chooses among them
	// Names, Groups and Selector choose nodes: those that match each that is not
	// empty. One that matches no longer comes as ChangeDelete.
	Names, Groups []string
	Selector      string
	// Since resumes after a revision: the caller knows what was then. 0: begin
	// with the present state.
	Since int64
	// Lost is called, where it is not nil, when the daemon has gone and is about
	// to be looked for again. What the watch yields next says that it is back.
	Lost func(error)
}

// Watch yields what there is, as ChangePut, then ChangeSync, and then every
// change as it happens. A change may come twice.
//
// When the connection breaks, or the daemon is started again, the watch goes on
// where it was, for as long as Options.Patience since the daemon's last word.
// Where the daemon no longer knows what has changed meanwhile, what there is
// comes once more, then ChangeDelete for what is gone, and ChangeSync. So
// whoever puts and deletes as told has, at every ChangeSync and from there on,
// exactly what the daemon has.
//
// With Since, nobody but the caller knows what was; so where the daemon no
// longer reaches back that far, the watch ends with KindExpired.
//
// The watch ends with an error, that of the context included, or when the
// caller ends the loop.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[api.Change, error] {
	return func(yield func(api.Change, error) bool) {
		w := &watch{c: c, o: o, after: o.Since, known: map[subject]bool{}}

		p := c.patience()
		for {
			err := w.once(ctx, func(change api.Change) bool {
				if w.synced {
					p.reset()
				}

				return yield(change, nil)
			})
			switch {
			case errors.Is(err, errEnded):
				return
			case ctx.Err() != nil:
				yield(api.Change{}, ctx.Err())
				return
			case inventory.KindOf(err) == inventory.KindExpired && w.after > 0 && o.Since == 0:
				w.after = 0
				continue
			case inventory.KindOf(err) == inventory.KindUnavailable && o.Lost != nil:
				o.Lost(err)
			}

			if err = p.wait(ctx, err); err != nil {
				yield(api.Change{}, err)
				return
			}
		}
	}
}

// errEnded: the caller wants no more.
var errEnded = errors.New("ended")

// maxEvent is the size of the largest line of a watch, in bytes.
const maxEvent = 64 << 20

// subject is what a change is about.
type subject struct {
	kind api.WatchKind
	name string
}

// watch is where a Watch is.
type watch struct {
	c      *Client
	o      WatchOptions
	after  int64            // to resume after; 0: begin anew
	known  map[subject]bool // what the caller knows to be there
	synced bool             // since this connection was made
}

// once watches until the connection ends.
func (w *watch) once(ctx context.Context, yield func(api.Change) bool) error {
	w.synced = false
	fresh := map[subject]bool(nil) // what is there, of a watch that begins anew

	q := url.Values{"name": w.o.Names, "group": w.o.Groups}
	for _, kind := range w.o.Kinds {
		q.Add("kinds", string(kind))
	}

	if w.o.Selector != "" {
		q.Set("selector", w.o.Selector)
	}

	if w.after > 0 {
		q.Set("since", strconv.FormatInt(w.after, 10))
	} else {
		fresh = map[subject]bool{}
	}

	res, err := w.c.open(ctx, call{method: http.MethodGet, path: api.PathWatch, query: q})
	if err != nil {
		return err
	}

	if !isType(res, api.TypeEventStream) {
		return w.c.notAStream(res)
	}

	// A daemon that has nothing to tell says so more often than this.
	idle := time.AfterFunc(w.c.opt.Timeout, func() { _ = res.Body.Close() })
	defer func() {
		idle.Stop()
		_ = res.Body.Close()
	}()
	events := bufio.NewScanner(res.Body)
	events.Buffer(make([]byte, 0, 64<<10), maxEvent)

	for {
		idle.Reset(w.c.opt.Timeout)

		data, id, err := nextEvent(events)
		if !idle.Stop() {
			err = context.DeadlineExceeded
		}

		if err != nil {
			return w.c.explain(ctx, err)
		}

		var change api.Change
		if err := json.Unmarshal(data, &change); err != nil {
			return inventory.Errorf(inventory.KindUnavailable, "%s has told something that is no change: %w", w.c.where, err).
				Do("clusterm and its client should be of the same version")
		}

		if err := w.take(change, &fresh, yield); err != nil {
			return err
		}

		if id > 0 {
			w.after = id
		}
	}
}

// take passes a change on.
func (w *watch) take(change api.Change, fresh *map[subject]bool, yield func(api.Change) bool) error {
	s := subject{change.Kind, change.Name}
	switch change.Type {
	case api.ChangePut:
		w.known[s] = true
		if *fresh != nil {
			(*fresh)[s] = true
		}
	case api.ChangeDelete:
		if !w.known[s] && w.o.Since == 0 {
			return nil // told before
		}

		delete(w.known, s)
	case api.ChangeSync:
		if *fresh != nil {
			for gone := range w.known {
				if (*fresh)[gone] {
					continue
				}

				delete(w.known, gone)

				if !yield(
					api.Change{Type: api.ChangeDelete, Kind: gone.kind, Name: gone.name, Revision: change.Revision},
				) {
					return errEnded
				}
			}

			*fresh = nil
		}

		w.synced = true
	case api.ChangeDropped:
		return nil // the connection ends, and the next goes on
	}

	if !yield(change) {
		return errEnded
	}

	return nil
}

// nextEvent reads a server-sent event: its data, and its id where it has one.
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
		err = io.ErrUnexpectedEOF // a watch has no end
	}

	return nil, 0, err
}
