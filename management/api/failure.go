// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// DaemonFailure is the reason why a daemon did not start, or ended by itself. While it
// does not run, it cannot answer; so it leaves the reason in a file beside its
// socket, and removes the file when it serves.
type DaemonFailure struct {
	Time    time.Time `json:"time"`
	Message string    `json:"message"`
	Remedy  string    `json:"remedy,omitempty"`
}

// MaxFailureText bounds the message and the remedy of a DaemonFailure, in bytes each.
const MaxFailureText = 4 << 10

// FailurePath returns the path of the failure of the daemon with the socket.
func FailurePath(socket string) string { return socket + ".failure" }

// NoteFailure writes the reason of a failure of the daemon with the socket. It is a help, so a file that cannot be
// written is no error.
func NoteFailure(socket string, err error) {
	f := DaemonFailure{Time: time.Now().UTC(), Message: err.Error()}
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		f.Message, f.Remedy = e.Message, e.Remedy
	}
	f.Message = inventory.Shorten(f.Message, MaxFailureText)
	f.Remedy = inventory.Shorten(f.Remedy, MaxFailureText)

	if text, err := json.Marshal(f); err == nil {
		_ = localfile.Replace(FailurePath(socket), append(text, '\n'))
	}
}

// ReadFailure reads the failure of the daemon with the socket. The error is
// fs.ErrNotExist if there is none.
func ReadFailure(socket string) (DaemonFailure, error) {
	file, err := os.Open(FailurePath(socket))
	if err != nil {
		return DaemonFailure{}, err
	}
	defer file.Close()

	// JSON escapes a byte as six at most.
	text, err := io.ReadAll(io.LimitReader(file, 16*MaxFailureText))
	if err != nil {
		return DaemonFailure{}, err
	}

	var f DaemonFailure

	return f, json.Unmarshal(text, &f)
}
