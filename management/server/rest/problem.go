// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// withStatus is an error with a status that differs from that of its kind.
type withStatus struct {
	status int
	err    error
}

func (e withStatus) Error() string { return e.err.Error() }
func (e withStatus) Unwrap() error { return e.err }

// showable converts err to an error that clients may see. An error without a
// known kind may contain secrets: the log receives it in full under an incident
// number, and the client receives the number only.
func (router *Router) showable(r *http.Request, err error) *inventory.Error {
	e, ok := errors.AsType[*inventory.Error](err)
	if ok && e.Kind != inventory.KindInternal && slices.Contains(inventory.Kinds, e.Kind) {
		return e
	}

	if ok && e.Shown {
		router.options.Logger.WithFields(logrus.Fields{"path": loggablePath(r), "request": RequestID(r)}).
			WithError(err).Error("request failed")

		return e
	}

	switch {
	case router.options.Stopping.Err() != nil:
		return inventory.Errorf(inventory.KindUnavailable, "the manager is stopping").
			Do("repeat the request after the restart")
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		return inventory.Errorf(inventory.KindUnavailable, "the client cancelled the request")
	case errors.Is(err, context.DeadlineExceeded):
		return inventory.Errorf(inventory.KindUnavailable, "the request timed out").
			Do("repeat the request; if it times out again, check the manager and its log").
			With(inventory.ShowVersion(), inventory.ShowHealth())
	}

	var random [4]byte

	_, _ = rand.Read(random[:])
	incident := hex.EncodeToString(random[:])

	router.options.Logger.
		WithFields(logrus.Fields{
			"incident": incident, "method": loggable(r.Method), "path": loggablePath(r), "request": RequestID(r),
		}).
		WithField("error", inventory.Shorten(err.Error(), maxIncident)).
		Error("request failed with an internal error")

	return inventory.Errorf(inventory.KindInternal, "internal error, incident %s", incident).
		Do("find the details in the log: journalctl -u clusterm | grep %s", incident)
}

// Bounds of a problem, which may quote the largest body.
const (
	maxDetail       = 8 << 10 // bytes; of the remedy, too
	maxProblemNodes = 1000
	maxProblemNode  = 256 // bytes
)

// presentable bounds a problem, and replaces what could move a terminal: a problem may
// quote a request of another program.
func presentable(p api.Problem) api.Problem {
	p.Detail = inventory.Printable(inventory.Shorten(p.Detail, maxDetail))
	p.Remedy = inventory.Printable(inventory.Shorten(p.Remedy, maxDetail))

	nodes := make([]string, 0, min(len(p.Nodes), maxProblemNodes))
	for _, name := range p.Nodes[:cap(nodes)] {
		nodes = append(nodes, inventory.Printable(inventory.Shorten(name, maxProblemNode)))
	}

	p.Nodes = nodes

	return p
}

// writeProblem answers with an RFC 9457 problem.
func writeProblem(w http.ResponseWriter, f Failure) {
	if f.Problem.Status == http.StatusServiceUnavailable || f.Problem.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}

	// The status remains useful even if the problem cannot be encoded.
	body, err := json.Marshal(f.Problem)
	if err != nil {
		body = []byte("{}")
	}

	w.Header().Set("Content-Type", api.TypeProblem)
	Write(w, f.Problem.Status, append(body, '\n'))
}

// WriteTextError answers with the error and its remedy as one line of text.
func WriteTextError(w http.ResponseWriter, f Failure) {
	if f.Problem.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}

	w.Header().Set("Content-Type", api.TypeText)
	Write(w, f.Problem.Status, []byte(plainText(f.Problem)+"\n"))
}

// plainText returns the problem as text. Text has no field for actions, so it
// contains their commands.
func plainText(p api.Problem) string {
	remedy := strings.Join(api.CommandsOf("clusterctl", api.RestoreActions(p.Actions)), " or ")

	switch {
	case p.Remedy == "" && remedy == "":
		return p.Detail
	case remedy == "":
		remedy = p.Remedy
	case p.Remedy != "":
		remedy = p.Remedy + ": " + remedy
	}

	return p.Detail + "; " + remedy
}
