// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"github.com/contiv/cluster/inventory"
)

// ListenTLS listens for HTTPS on ADDR:PORT, with a bounded number of connections. A
// handshake has the time of a request's header.
func ListenTLS(addr string, config *tls.Config) (net.Listener, error) {
	l, err := listenPort(addr)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(bounded(l, maxConns, maxConnsPerAddr), config), nil
}

// ListenMetrics listens on ADDR:PORT for the metrics and the health, over plain
// HTTP and without authentication. Serve serves nothing else on it.
func ListenMetrics(addr string) (net.Listener, error) {
	l, err := listenPort(addr)
	if err != nil {
		return nil, err
	}
	return metricsListener{bounded(l, maxConns, maxConnsPerAddr)}, nil
}

// metricsListener marks a listener for the metrics and the health.
type metricsListener struct{ net.Listener }

func listenPort(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)

	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, inventory.Errorf(inventory.KindRefused, "another process listens on %s: %w", addr, err).
			Do("choose another port, or stop that process: ss -ltnp")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, inventory.Errorf(inventory.KindInvalid, "cannot listen on %s: this host has no such address", addr).
			Do("write an address of this host (ip address), or 0.0.0.0:PORT for all of them")
	case err != nil:
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot listen on %s: %w", addr, err)
	}

	return l, nil
}
