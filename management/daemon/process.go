// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"os"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/setting"
)

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

	file, err := setting.Load(o.Path(), adapters{})
	if err == nil {
		err = o.host(file).Run(ctx, func() error {
			d, err := New(o)
			if err != nil {
				return err
			}
			return d.Run(ctx, reload)
		})
	}

	switch {
	case err != nil:
		status(line(err.Error()))
		api.NoteFailure(socket, err)
	case served:
		_ = os.Remove(failure) // of another daemon that this one kept from starting
	}

	return err
}

// line returns a text as one line of at most 500 bytes.
func line(text string) string {
	return inventory.Shorten(strings.Join(strings.Fields(text), " "), 500)
}
