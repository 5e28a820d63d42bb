// SPDX-License-Identifier: Apache-2.0

// Package gate makes the checks of a rollout's gate: it asks nodes over HTTP, and runs the commands
// of the operator.
package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/contiv/cluster/configuration/repository"
	outside "github.com/contiv/cluster/configuration/source"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// askTime bounds one request.
const askTime = 5 * time.Second

// Command returns what runs a program of the settings by its name.
func Command(
	program func(name string) (command []string, err error),
) func(ctx context.Context, name string, n rollout.CommandNode, within time.Duration) error {
	return func(ctx context.Context, name string, n rollout.CommandNode, within time.Duration) error {
		command, err := program(name)
		if err != nil {
			return err
		}
		return Run(ctx, command, n, within)
	}
}

// Run runs a command for a node, at most that long, and returns why it failed, or nil.
func Run(ctx context.Context, command []string, n rollout.CommandNode, within time.Duration) error {
	// An account that can change the program has the rights of the manager.
	path, err := repository.CheckOwnedFile(command[0])
	if err != nil {
		return err
	}

	return outside.Check(ctx, within, []string{
		"CLUSTERM_NODE=" + n.Name, "CLUSTERM_ADDR=" + n.Addr, "CLUSTERM_GROUP=" + n.Group,
		"CLUSTERM_ROLLOUT=" + n.Rollout,
	}, path, command[1:]...)
}

// client returns a client that asks nodes. It follows no redirect, uses no proxy, and keeps no
// connection. refuse, unless nil, refuses addresses to connect to.
func client(refuse func(network, address string, _ syscall.RawConn) error) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       (&net.Dialer{Timeout: askTime, Control: refuse}).DialContext,
			DisableKeepAlives: true,
			//nolint:gosec // the request has no secret, and only the status of the answer counts
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Ask sends a GET request, and returns the status of the answer. It reads no body. A node reports its address
// itself, so none is asked behind which services trust this host, unless it is that of an instance.
func Ask(ctx context.Context, v *state.View, target string) (int, error) {
	var own []string
	for _, i := range record.All(v, &state.Instances) {
		own = append(own, i.Addr)
	}

	const remedy = "the check asks only the node itself; correct the address that the node reports"

	return ask(ctx, client(notify.RefuseLocal(remedy, own...)), target)
}

func ask(ctx context.Context, c *http.Client, target string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return 0, e.Err // without the URL, which the rollout has
	}

	if err != nil {
		return 0, err
	}

	return resp.StatusCode, resp.Body.Close()
}
