// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/contiv/cluster/inventory"
)

const (
	// maxAnswer bounds the part of an answer that is read, in bytes.
	maxAnswer = 4 << 10
	// dialTime bounds the connection to a receiver.
	dialTime = 10 * time.Second
)

// Webhook posts events to a URL.
type Webhook struct {
	name   string
	url    string
	format string
	signer *webhooks.Webhook // nil: not signed
	client *http.Client
}

// WebhookOptions are the parameters of a Webhook.
type WebhookOptions struct {
	// URL is http or https. It may be a secret itself.
	URL    string
	Format string // see Formats
	// Secret signs each request; empty: none. It is the text of the file that both sides
	// have, of at least MinSecret bytes.
	Secret []byte
	TLS    *tls.Config // nil: the CAs of the host
	// AllowLocal allows a receiver on this host, or at a link-local address or that of a
	// cloud's metadata. Otherwise it is refused, by its name or at the connection.
	AllowLocal bool
	Resolver   *net.Resolver // nil: that of the host
}

// MinSecret is the least length of a secret that signs webhooks, in bytes.
const MinSecret = 24

// NewWebhook returns a sender. It is KindInvalid for a URL that is none, and a secret
// that is too short, and for a host that is refused. The error names no secret.
func NewWebhook(o WebhookOptions) (*Webhook, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, inventory.Errorf(inventory.KindInvalid, "it is not a URL such as https://chat.example.com/hooks/1").
			Do("write an http or https URL, without an account in it")
	}

	// The URL is in no error, because its path may be a secret.
	if err := CheckFormat(o.Format); err != nil {
		return nil, err
	}

	if !o.AllowLocal {
		if err := checkHost(u.Hostname()); err != nil {
			return nil, err
		}
	}

	w := &Webhook{name: u.Scheme + "://" + u.Host, url: o.URL, format: o.Format}

	if len(o.Secret) > 0 {
		if len(o.Secret) < MinSecret {
			return nil, inventory.Errorf(inventory.KindInvalid, "the secret has %d bytes", len(o.Secret)).
				Do("use one of at least %d bytes, for example from: openssl rand -base64 32", MinSecret)
		}

		if w.signer, err = webhooks.NewWebhookRaw(o.Secret); err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "the secret cannot be used: %w", err)
		}
	}

	dialer := &net.Dialer{Timeout: dialTime, Resolver: o.Resolver}

	// A proxy may be on this host. It resolves the name itself.
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the proxy of the environment is no URL").
			Do("correct HTTPS_PROXY and HTTP_PROXY in the environment of clusterm")
	}

	if !o.AllowLocal && proxy == nil {
		dialer.Control = RefuseLocal(allowRemedy)
	}

	// A client of its own: another one follows redirects.
	w.client = &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyURL(proxy), DialContext: dialer.DialContext, TLSClientConfig: o.TLS, MaxIdleConns: 2,
			IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxAnswer * 4,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	return w, nil
}

// Describe returns scheme and host; the path of a chat's URL is a secret.
func (w *Webhook) Describe() string { return w.name }

// Send posts the event, and returns when the receiver has answered.
func (w *Webhook) Send(ctx context.Context, e Event, attempt time.Time) error {
	body, err := render(w.format, e)
	if err != nil {
		return Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return Permanent(errors.New("the URL cannot be used"))
	}

	// The receiver recognizes a repetition by the id.
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "clusterm")
	req.Header.Set(webhooks.HeaderWebhookID, e.ID)
	req.Header.Set(webhooks.HeaderWebhookTimestamp, fmt.Sprint(attempt.Unix()))

	// The time is signed as well, against a replay.
	if w.signer != nil {
		signature, err := w.signer.Sign(e.ID, attempt, body)
		if err != nil {
			return Permanent(err)
		}
		req.Header.Set(webhooks.HeaderWebhookSignature, signature)
	}

	resp, err := w.client.Do(req)
	if err != nil {
		return w.withoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }()

	// An answer that is read to its end lets the connection be used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))

	return w.judge(resp.StatusCode)
}

// withoutURL returns an error of the client without the URL.
func (w *Webhook) withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}

	if errors.Is(err, context.DeadlineExceeded) {
		return &silentError{name: w.name}
	}
	return fmt.Errorf("%s: %w", w.name, err)
}

// silentError is that of a receiver that did not answer in time.
type silentError struct{ name string }

func (e *silentError) Error() string { return e.name + " did not answer in time" }

func (*silentError) Unwrap() error { return context.DeadlineExceeded }

// judge returns the meaning of a status. A receiver that is being deployed, or has a
// proxy that is, answers nearly everything for a while. Only an answer about the message
// itself, or that the receiver is gone, will be the same later.
func (w *Webhook) judge(status int) error {
	said := fmt.Errorf("%s answered %d %s", w.name, status, http.StatusText(status))

	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return fmt.Errorf("%w; redirects are not followed: configure the final URL", said)
	}

	switch status {
	case http.StatusBadRequest, http.StatusGone, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return Permanent(said)
	}

	return said
}
