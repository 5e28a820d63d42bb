// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// endpoint is the API at one URL.
type endpoint struct {
	http     *http.Client
	base     string // without a trailing slash
	socket   string // empty: TCP
	where    string // the URL or socket, for messages
	certFile string // the client certificate; empty: none
}

// route is the way to a manager: the URLs of its instances. The copies of a client share
// it.
type route struct {
	endpoints []*endpoint // at least one

	mu       sync.Mutex
	last     int       // index of the endpoint that answered last
	revision int64     // the newest one that an answer showed
	shown    *endpoint // the first that showed it
}

// URLs returns the URLs in a list with commas, each once.
func URLs(list string) []string {
	var all []string

	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "" && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}

	return all
}

func newRoute(o Options) (*route, error) {
	urls := URLs(o.URL)
	if len(urls) == 0 {
		urls = []string{o.URL}
	}

	r := &route{}

	for _, u := range urls {
		e, err := newEndpoint(o, u, len(urls) > 1)
		if err != nil {
			return nil, err
		}
		r.endpoints = append(r.endpoints, e)
	}

	return r, nil
}

// newEndpoint returns the API at a URL of the options; "": at their socket. several: there are other URLs.
func newEndpoint(o Options, at string, several bool) (*endpoint, error) {
	socket, base, err := parse(at)
	if err != nil {
		return nil, err
	}

	if at == "" {
		if socket = o.Socket; socket == "" {
			socket = api.DefaultSocket
		}
	}

	if err := checkToken(o.Token, base); err != nil {
		return nil, err
	}

	if o.HTTPClient != nil && socket != "" && at != "" {
		return nil, inventory.Errorf(inventory.KindInvalid, "an HTTPClient cannot open the socket %s", at).
			Do("set an http:// URL")
	}

	e := &endpoint{http: o.HTTPClient, base: base, where: base, certFile: o.Trust.CertFile}
	if socket != "" {
		// HTTP requires a host name; the socket ignores it.
		e.base, e.where, e.socket = "http://clusterm", socket, socket
	}

	if e.http == nil {
		var secure *tls.Config
		if strings.HasPrefix(e.base, "https://") {
			if secure, err = o.Trust.config(e.base); err != nil {
				return nil, err
			}
		}

		e.http = &http.Client{Transport: transport(socket, secure, several)}
	}

	// A redirect would send the request, and its token, to another program.
	own := *e.http
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	e.http = &own

	return e, nil
}

// transport connects to the socket, or to the host of the URL if socket is
// empty. It never uses a proxy, which could read requests and answers.
func transport(socket string, secure *tls.Config, several bool) *http.Transport {
	dialer := &net.Dialer{KeepAlive: 15 * time.Second}
	if several {
		// A stream from a dead host has to end, so that it goes on elsewhere.
		dialer.KeepAliveConfig = net.KeepAliveConfig{
			Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 2,
		}
		dialer.Control = giveUpSoon
	}

	dial := func(secure *tls.Config) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialLimit(ctx))
			defer cancel()

			if socket != "" {
				network, addr = "unix", socket
			}

			conn, err := dialer.DialContext(ctx, network, addr)
			if err == nil && secure != nil {
				raw, over := conn, tls.Client(conn, secure)
				conn = over

				if err = over.HandshakeContext(ctx); err != nil {
					_ = raw.Close()
				}
			}

			if err != nil {
				return nil, &dialError{err}
			}
			return conn, nil
		}
	}

	// The daemon closes an idle connection later, so no request meets that.
	return &http.Transport{
		DialContext: dial(nil), DialTLSContext: dial(secure), MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second,
		DisableCompression: true, ExpectContinueTimeout: maxDial,
	}
}

// tcpUserTimeout is TCP_USER_TIMEOUT of Linux, which package syscall lacks.
const tcpUserTimeout = 18

// deadAfter is how long a host may confirm nothing of what was sent. It bounds streams and the changes that are not
// repeated; a few lost packets take less.
const deadAfter = 4 * time.Second

// giveUpSoon ends a connection whose host confirms nothing of what was sent for deadAfter. Without it, a request over
// an open connection to a dead host would take all its time.
func giveUpSoon(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") || runtime.GOOS != "linux" {
		return nil
	}

	// Without the option it is only slower.
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(deadAfter.Milliseconds()))
	})
}

// dialError is the failure to connect: nothing of the request was sent.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// timedOut reports whether nothing answered within the limit.
func (e *dialError) timedOut() bool {
	timeout, ok := errors.AsType[net.Error](e.error)
	return ok && timeout.Timeout() || errors.Is(e.error, context.DeadlineExceeded)
}

const (
	// maxDial bounds a connection, with its handshake.
	maxDial = 10 * time.Second
	// quickDial is the bound while other instances may answer sooner.
	quickDial = 800 * time.Millisecond
)

type dialLimitKey struct{}

func dialLimit(ctx context.Context) time.Duration {
	if limit, ok := ctx.Value(dialLimitKey{}).(time.Duration); ok {
		return limit
	}
	return maxDial
}

// order returns the endpoints, beginning with the one that answered last.
func (r *route) order() []*endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.Concat(r.endpoints[r.last:], r.endpoints[:r.last])
}

// note makes an endpoint the first to try, after its answer or its last error.
func (r *route) note(e *endpoint, err error) {
	if lost(err) {
		r.avoid(e)
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.last = slices.Index(r.endpoints, e)
}

// avoid makes another endpoint the first to try, after this one has not answered.
func (r *route) avoid(e *endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.endpoints[r.last] == e {
		r.last = (r.last + 1) % len(r.endpoints)
	}
}

// show records the revision that an answer shows.
func (r *route) show(e *endpoint, res *http.Response) {
	revision, err := strconv.ParseInt(res.Header.Get(api.HeaderRevision), 10, 64)

	r.mu.Lock()
	defer r.mu.Unlock()

	if err == nil && revision > r.revision {
		r.revision, r.shown = revision, e
	}
}

// elsewhere returns the newest revision that another endpoint has shown, or 0. An endpoint shows what it has shown
// before, but it may be behind the others.
func (r *route) elsewhere(e *endpoint) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.shown == e {
		return 0
	}
	return r.revision
}

// failure is the failure of an attempt at an endpoint.
type failure struct {
	at  *endpoint
	err error
}

// hedge is how long an instance has to answer before another one is asked, too. It is far more than an answer takes,
// and lets a client find another instance within a second, if the one that it asks, or its host, stands still: then the
// host may still confirm what it gets, and no connection ends.
const hedge = 500 * time.Millisecond

// attempted is the result of an attempt at an endpoint.
type attempted[T any] struct {
	failure
	value T
}

// failover calls attempt with the instance that answered last and, while it is unavailable, with the others. It never
// repeats a call that may have been carried out, unless that is harmless. A call that may be repeated goes to another
// instance, too, if there is no answer for hedge; the first answer counts, and drop gets the values of others. While
// there are others, an instance has quickDial to accept the connection; if all fail, those that did not accept it in
// time get another chance. from gave the value; arrived reports whether a request without an answer may have arrived.
func failover[T any](
	ctx context.Context, c *Client, k call, attempt func(context.Context, *endpoint) (T, error), drop func(T),
) (value T, from *endpoint, arrived bool, err error) {
	pending := c.route.order()
	if len(pending) == 1 {
		value, err := attempt(ctx, pending[0])
		return value, pending[0], mayHaveArrived(err), err
	}

	var failed []failure

	limit := quickDial
	for {
		first, failures := race(context.WithValue(ctx, dialLimitKey{}, limit), c, k, pending, attempt, drop)

		var slow []*endpoint

		for _, f := range failures {
			arrived = arrived || mayHaveArrived(f.err)

			if dial, ok := errors.AsType[*dialError](f.err); ok && dial.timedOut() {
				slow = append(slow, f.at)
			}

			failed = append(slices.DeleteFunc(failed, func(g failure) bool { return g.at == f.at }), f)
		}

		if first != nil {
			c.route.note(first.at, first.err)
			return first.value, first.at, arrived || mayHaveArrived(first.err), first.err
		}

		if len(slow) == 0 || limit != quickDial {
			return value, nil, arrived, noAnswer(failed)
		}

		pending, limit = slow, maxDial/time.Duration(len(slow))
	}
}

// race makes one attempt at each endpoint, until one has a result that is final: the next begins after a failure, or
// without an answer for hedge.
func race[T any](
	ctx context.Context, c *Client, k call, pending []*endpoint,
	attempt func(context.Context, *endpoint) (T, error), drop func(T),
) (first *attempted[T], failures []failure) {
	var (
		results = make(chan attempted[T], len(pending))
		cancels = map[*endpoint]context.CancelFunc{}
		begun   int
	)

	silent := time.NewTimer(hedge + k.extra)
	defer silent.Stop()

	begin := func() {
		if begun == len(pending) {
			return
		}

		e := pending[begun]
		begun++

		trying, cancel := context.WithCancel(ctx)
		cancels[e] = cancel

		silent.Reset(hedge + k.extra)

		go func() {
			value, err := attempt(trying, e)
			results <- attempted[T]{failure{e, err}, value}
		}()
	}

	for begin(); len(failures) < begun; {
		select {
		case <-silent.C:
			if c.mayRepeat(k) {
				begin()
			}
		case got := <-results:
			if ctx.Err() == nil && c.isForOthers(k, got.err) {
				cancels[got.at]()
				failures = append(failures, got.failure)

				begin()

				continue
			}

			// The context of a stream lives on, with that of the caller.
			delete(cancels, got.at)

			for _, cancel := range cancels {
				cancel()
			}

			left := begun - len(failures) - 1

			go func() {
				for range left {
					if late := <-results; late.err == nil {
						drop(late.value)
					}
				}
			}()

			return &got, failures
		}
	}

	return nil, failures
}

// isForOthers reports whether another instance may be tried after a failure: nothing was sent, or the instance is
// unavailable and the call may be repeated.
func (c *Client) isForOthers(k call, err error) bool {
	if _, unsent := errors.AsType[*dialError](err); unsent {
		return true
	}
	return inventory.KindOf(err) == inventory.KindUnavailable && c.mayRepeat(k)
}

// errUnknown is added to the message of a change with an unknown outcome.
const errUnknown = "whether it carried out the change is unknown"

// outcome adds to the error of a change that it may have been carried out, if a request has arrived.
func (c *Client) outcome(k call, err error, arrived bool) error {
	e, ok := errors.AsType[*inventory.Error](err)
	if !ok || !arrived || k.harmless() || e.Kind != inventory.KindUnavailable {
		return err
	}

	unknown := *e
	unknown.Message += ": " + errUnknown
	unknown.Remedy = "look whether it did before you repeat the command"

	return &unknown
}

// mayHaveArrived reports whether the error is that of a request which was sent, and has no answer.
func mayHaveArrived(err error) bool {
	_, unsent := errors.AsType[*dialError](err)
	return !unsent && lost(err)
}

// lost reports whether the error is that of a request without an answer.
func lost(err error) bool {
	return errors.Is(err, errBroke) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}

// noAnswer returns the failures of all instances as one error.
func noAnswer(failed []failure) error {
	out := &inventory.Error{Kind: inventory.KindOf(failed[0].err)}

	var reasons, remedies []string

	for _, f := range failed {
		out.Err = errors.Join(out.Err, f.err)

		if inventory.KindOf(f.err) != out.Kind {
			out.Kind = inventory.KindUnavailable
		}

		e, ok := errors.AsType[*inventory.Error](f.err)
		if !ok {
			e = &inventory.Error{Message: f.err.Error()}
		}

		reason := e.Message
		if !strings.Contains(reason, f.at.where) {
			reason = f.at.where + ": " + reason
		}
		reasons = append(reasons, reason)

		// One remedy may contain another.
		said := func(remedy string) bool { return strings.Contains(remedy, e.Remedy) }
		if !slices.ContainsFunc(remedies, said) {
			remedies = slices.DeleteFunc(remedies, func(r string) bool { return strings.Contains(e.Remedy, r) })
			remedies = append(remedies, e.Remedy)
		}

		if out.Actions == nil {
			out.Actions = e.Actions
		}
		if out.Request == "" {
			out.Request = e.Request
		}
	}

	out.Message = "no instance of the manager answers: " + strings.Join(reasons, "; ")
	out.Remedy = strings.Join(remedies, "; ")

	return out
}
