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
	diagnoseTime = 3 * time.Second
	alertTime    = 500 * time.Millisecond // for a server to refuse a certificate after the handshake
)

// remoteError is the Op of an alert that the server sends, in crypto/tls.
const remoteError = "remote error"

// diagnose finds out why no endpoint of an etcd outside answers: its client
// only says that time has passed. "": it did not find out. never: waiting
// changes nothing.
func diagnose(ctx context.Context, c clientv3.Config) (why string, never bool) {
	if !strings.HasPrefix(c.Endpoints[0], "http") {
		return "", false
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnoseTime)
	defer cancel()
	reasons, final := make([]error, len(c.Endpoints)), make([]bool, len(c.Endpoints))

	var tasks sync.WaitGroup
	for i, endpoint := range c.Endpoints {
		tasks.Go(func() { reasons[i], final[i] = probe(ctx, endpoint, c.TLS) })
	}

	tasks.Wait()
	never = true

	var words []string
	for i, err := range reasons {
		if err == nil {
			return "", false // somebody is there
		}

		never = never && final[i]

		word := err.Error()
		if op, ok := errors.AsType[*net.OpError](err); ok {
			word = op.Err.Error() // the address is said already
			if op.Op == remoteError {
				word = "it refuses the certificate of clusterm, or that it shows none: " + word
			}
		}

		words = append(words, fmt.Sprintf("%s: %s", c.Endpoints[i], word))
	}

	return strings.Join(words, ", "), never
}

// probe connects, and shows and checks certificates. final tells whether the
// failure is one of certificates.
func probe(ctx context.Context, endpoint string, config *tls.Config) (err error, final bool) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err, true
	}

	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil || config == nil {
		return err, false
	}

	defer conn.Close()
	config = config.Clone()
	config.ServerName, config.NextProtos = u.Hostname(), []string{"h2"}

	secure := tls.Client(conn, config)
	if err = secure.HandshakeContext(ctx); err == nil {
		_ = secure.SetReadDeadline(time.Now().Add(alertTime))

		_, err = secure.Read(make([]byte, 1))
		if timeout, ok := errors.AsType[net.Error](err); err == nil || ok && timeout.Timeout() {
			return nil, false
		}
	}

	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, nonsense := errors.AsType[tls.RecordHeaderError](err)
	op, ok := errors.AsType[*net.OpError](err)

	return err, unverified || nonsense || ok && op.Op == remoteError
}
