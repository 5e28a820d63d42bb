// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	diagnoseTimeout = 3 * time.Second
	alertTimeout    = 500 * time.Millisecond // for the server's verdict on a certificate, after the handshake
)

// remoteError is the Op of the net.OpError in which crypto/tls reports an alert of
// the server. The alert itself is of an unexported type.
const remoteError = "remote error"

// diagnose finds the reason why no endpoint of an existing etcd responds, because
// the etcd client only reports a timeout. The reason is "" if there is none to
// find; permanent means that retrying is useless.
func diagnose(ctx context.Context, c clientv3.Config) (reason string, permanent bool) {
	if !strings.HasPrefix(c.Endpoints[0], "http") {
		return "", false
	}

	// The caller's time may be up, and then the reason matters most.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnoseTimeout)
	defer cancel()

	failures := make([]error, len(c.Endpoints))
	final := make([]bool, len(c.Endpoints))

	var probes sync.WaitGroup
	for i, endpoint := range c.Endpoints {
		probes.Go(func() { final[i], failures[i] = probe(ctx, endpoint, c.TLS) })
	}

	probes.Wait()

	permanent = true

	var reasons []string
	for i, err := range failures {
		if err == nil {
			return "", false // at least one endpoint is reachable
		}

		permanent = permanent && final[i]
		reasons = append(reasons, c.Endpoints[i]+": "+probeReason(err))
	}

	return strings.Join(reasons, ", "), permanent
}

// probeReason returns the reason of a failed probe without the address, which
// diagnose puts first.
func probeReason(err error) string {
	op, ok := errors.AsType[*net.OpError](err)

	switch {
	case !ok:
		return err.Error()
	case op.Op == remoteError:
		return fmt.Sprintf("it rejects the certificate of clusterm, or requires one: %v", op.Err)
	default:
		return op.Err.Error()
	}
}

// probe connects to the endpoint and exchanges certificates. permanent is set for
// failures that involve certificates.
func probe(ctx context.Context, endpoint string, config *tls.Config) (permanent bool, err error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return true, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil || config == nil {
		return false, err
	}
	defer conn.Close()

	config = config.Clone()
	config.ServerName, config.NextProtos = u.Hostname(), []string{"h2"}

	secure := tls.Client(conn, config)
	if err = secure.HandshakeContext(ctx); err == nil {
		// In TLS 1.3 the handshake of a client succeeds before the server has verified
		// the client's certificate. Its alert arrives with the first read.
		_ = secure.SetReadDeadline(time.Now().Add(alertTimeout))
		_, err = secure.Read(make([]byte, 1))

		if timeout, ok := errors.AsType[net.Error](err); err == nil || ok && timeout.Timeout() {
			return false, nil
		}
	}

	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	op, ok := errors.AsType[*net.OpError](err)
	alert := ok && op.Op == remoteError

	return unverified || notTLS || alert, err
}
