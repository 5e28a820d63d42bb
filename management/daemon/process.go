// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/setting"
)

// maxStatus bounds a status line, in bytes.
const maxStatus = 500

// Main runs a daemon until ctx ends or a part fails for good. Each value on reload
// makes it read its configuration file again. The reason of a failed start, or of
// an end by itself, reaches the supervisor as the status, and clients as the file
// at api.FailurePath.
func Main(ctx context.Context, o Options, reload <-chan os.Signal) error {
	socket := setting.Socket(o.Path())
	failure := api.FailurePath(socket)
	status := func(text string) {
		if o.Status != nil {
			o.Status(text)
		}
	}

	// A supervisor clears the status at each start, and a start may take a while.
	if last, err := api.ReadFailure(socket); err == nil {
		status("starting; the last start failed: " + line(last.Message))
	}

	served := false
	ready := o.Ready
	o.Ready = func() {
		served = true
		_ = os.Remove(failure)

		if ready != nil {
			ready()
		}
	}

	d, err := New(o)
	if err == nil {
		err = d.Run(ctx, reload)
	}

	switch {
	case err != nil:
		status(oneLine(err))
		noteFailure(failure, err)
	case served:
		_ = os.Remove(failure) // of another daemon that this one kept from starting
	}

	return err
}

// noteFailure writes the reason of a failure for clients. It is a help, so a file
// that cannot be written is no error.
func noteFailure(path string, err error) {
	f := api.DaemonFailure{Time: time.Now().UTC(), Message: err.Error()}
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		f.Message, f.Remedy = e.Message, e.Remedy
	}
	f.Message, f.Remedy = shorten(f.Message, api.MaxFailureText), shorten(f.Remedy, api.MaxFailureText)

	if text, err := json.Marshal(f); err == nil {
		_ = localfile.Replace(path, append(text, '\n'))
	}
}

// oneLine returns an error as one line of bounded length.
func oneLine(err error) string { return line(err.Error()) }

func line(text string) string { return shorten(strings.Join(strings.Fields(text), " "), maxStatus) }

// shorten cuts a text to a number of bytes.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
