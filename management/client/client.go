// SPDX-License-Identifier: Apache-2.0

// Package client provides the API under /v1 as Go methods, for clusterctl and
// third-party programs:
//
//	c, err := client.New(client.Options{}) // the manager on this host
//	nodes, err := c.Nodes(ctx, client.NodeFilter{Selector: "rack in (r1,r2)"})
//	job, err := c.Submit(ctx, api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: []string{"host2-04f4"}})
//	job, err = c.WaitJob(ctx, job.ID)
//
// It depends only on a backoff library and the packages management/api (wire
// types) and inventory (statuses, verbs, error kinds). The examples run against a
// real manager. The reference at /v1/docs describes each call.
//
// Options.URL may list the instances of a manager. A request goes to the one that
// answered last. If that one is unavailable, it goes to the next at once, and if it does not
// answer for a moment, the next is asked, too. A change has an idempotency key: it is carried
// out once. The few that take none (api.Keyless) are not repeated if they may have been carried
// out: then their error says so. Streams continue where they were, and a read shows what any
// instance has shown before.
//
// Errors have the kinds of package inventory: inventory.KindOf distinguishes a
// refusal from an invalid request and from an unreachable daemon
// (KindUnavailable, with a remedy). A cancelled context returns its own error.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Options select and configure the connection. The zero value connects to the
// daemon on this host.
type Options struct {
	// URL is https://HOST:PORT, http://HOST:PORT, HOST:PORT (http) or unix:///PATH.
	// It may list the URLs of several instances of one manager, separated by commas:
	// see the package comment.
	URL string
	// Trust has the CA of the manager and the client certificate, for https. It is that
	// of every URL.
	Trust Trust
	// Token is a bearer token. It is sent over https, to a socket, and to a loopback
	// address only, and never to the target of a redirect.
	Token string
	// Socket is the path of a Unix socket, used if URL is empty. Default
	// api.DefaultSocket.
	Socket string
	// Actor is the user on behalf of root, for the daemon's records. The daemon
	// accepts it only from root over the Unix socket.
	Actor string
	// UserAgent names the program, as NAME/VERSION.
	UserAgent string
	// Timeout bounds one request, except a stream. Default 30 s.
	Timeout time.Duration
	// Patience is how long streams, waits and idempotent requests retry an
	// unreachable daemon, since its last response. Default one minute; negative
	// disables retries.
	Patience time.Duration
	// Observe, unless nil, is called after the header of each answer, or after the
	// failure to get one. It may be called concurrently.
	Observe func(Exchange)
	// HTTPClient replaces the client's own. It excludes Socket and unix:// URLs.
	HTTPClient *http.Client
}

// Exchange is one request with its answer, without bodies and headers: both may
// hold secrets.
type Exchange struct {
	Method string
	URI    string // path and query
	Where  string // the URL of the instance, or the socket
	Status int    // 0 without an answer
	Took   time.Duration
	// RequestID is the id of the request: that of the answer, or else the sent one.
	RequestID string
	Err       error // nil with an answer
}

// Client calls the API of one manager. It is safe for concurrent use.
type Client struct {
	route    *route
	opt      Options
	revision int64  // minimum revision of reads; 0: none
	newest   bool   // reads are linearizable
	match    string // If-Match of changes
	key      string // idempotency key; empty: a random one per request
}

// New returns a client without connecting. It fails only for invalid options.
func New(o Options) (*Client, error) {
	c := &Client{opt: o}
	if c.opt.Timeout == 0 {
		c.opt.Timeout = 30 * time.Second
	}
	if c.opt.Patience == 0 {
		c.opt.Patience = time.Minute
	}

	if o.URL != "" && o.Socket != "" {
		return nil, inventory.
			Errorf(inventory.KindInvalid, "both a URL (%s) and a socket (%s) are set", o.URL, o.Socket).
			Do("set one of them")
	}

	route, err := newRoute(o)
	if err != nil {
		return nil, err
	}
	c.route = route

	return c, nil
}

// parse accepts a URL, HOST:PORT or the path of a socket.
func parse(s string) (socket, base string, err error) {
	bad := func(problem string) (string, string, error) {
		return "", "", inventory.Errorf(inventory.KindInvalid, "the URL %q %s", s, problem).
			Do("write https://HOST:9443, http://127.0.0.1:9007 or unix:///run/clusterm/clusterm.sock")
	}

	if s == "" {
		return "", "", nil
	}

	// Operators often omit the scheme.
	if !strings.Contains(s, "://") {
		if strings.HasPrefix(s, "/") {
			return s, "", nil
		}

		s = "http://" + s
	}

	u, err := url.Parse(s)
	switch {
	case err != nil:
		return bad("is malformed")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return bad("contains more than an address")
	case u.Scheme == "unix":
		if u.Host != "" || u.Path == "" || u.Path == "/" {
			return bad("names no socket")
		}
		return u.Path, "", nil
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("has an unsupported scheme")
	case u.Hostname() == "":
		return bad("names no host")
	}

	return "", u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/"), nil
}

// At returns a client with reads as of the revision or later. The daemon waits
// a bounded time for the revision.
func (c *Client) At(revision int64) *Client {
	at := *c
	at.revision = revision
	return &at
}

// Newest returns a client with linearizable reads: they include every change
// that any instance acknowledged before. They fail with KindUnavailable while
// the store has no quorum.
func (c *Client) Newest() *Client {
	newest := *c
	newest.newest = true
	return &newest
}

// IfMatch returns a client with a precondition for changes of nodes, variables
// and configuration, and for cancels: they fail with KindPrecondition unless the
// record still has the tag. Other changes refuse the precondition. The tag is
// Tag of a revision, an ETag from the daemon, or * for any existing record.
func (c *Client) IfMatch(tag string) *Client {
	match := *c
	match.match = tag
	return &match
}

// IdempotencyKey returns a client that sends the key with each change, as with submissions, retries,
// cancels and forgets. A retry with the same key returns the first result; a
// different request with the key fails with KindKeyReused. The daemon stores
// keys for a day. By default every request has a random key.
func (c *Client) IdempotencyKey(key string) *Client {
	keyed := *c
	keyed.key = key
	return &keyed
}

// Tag returns the tag of a record with the revision, e.g. of api.Node.Revision.
func Tag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// Where returns the URLs, separated by commas, or the path of the socket, for messages.
func (c *Client) Where() string {
	all := make([]string, len(c.route.endpoints))
	for i, e := range c.route.endpoints {
		all[i] = e.where
	}

	return strings.Join(all, ",")
}

// call is one request.
type call struct {
	method string
	path   string // a pattern of the api package
	params []string
	query  url.Values
	in     any // JSON, unless nil
	// content is a body that is no JSON. Such a call is sent once.
	content io.Reader
	from    int64 // the first byte of the answer, if it is not the beginning
	extra   time.Duration
	key     string // the idempotency key
	// tag, unless nil, receives the ETag of the answer.
	tag *string
	// also is a failure status with an ordinary JSON body.
	also int
}

// get reads the answer of type T at a path with these parameters.
func get[T any](ctx context.Context, c *Client, path string, params ...string) (T, error) {
	return find[T](ctx, c, path, nil, params...)
}

// find is get with a query.
func find[T any](ctx context.Context, c *Client, path string, query url.Values, params ...string) (T, error) {
	return ask[T](ctx, c, call{method: http.MethodGet, path: path, params: params, query: query})
}

// post sends in, unless nil, and returns the answer of type T.
func post[T any](ctx context.Context, c *Client, path string, in any, params ...string) (T, error) {
	return ask[T](ctx, c, call{method: http.MethodPost, path: path, params: params, in: in})
}

// remove deletes what is at a path.
func remove(ctx context.Context, c *Client, path, ref string) (api.Changed, error) {
	return ask[api.Changed](ctx, c, call{method: http.MethodDelete, path: path, params: []string{ref}})
}

// ask sends the call and returns its answer.
func ask[T any](ctx context.Context, c *Client, k call) (out T, err error) {
	err = c.do(ctx, k, &out)
	return out, err
}

// maxPreallocated is the largest Content-Length to allocate in advance, in bytes.
const maxPreallocated = 64 << 20

// do sends the call and decodes the answer into out. It retries a change with a key after a lost answer, because the
// request may or may not have arrived.
func (c *Client) do(ctx context.Context, k call, out any) error {
	if k.keyed() {
		k.key = cmp.Or(c.key, rand.Text())
	}

	p, broke, arrived := c.patience(), false, false
	for {
		mayHave, err := c.try(ctx, k, out)

		// Once an answer was lost, even a refused connection is worth a retry.
		broke, arrived = broke || errors.Is(err, errBroke), arrived || mayHave
		if err == nil || !broke || k.key == "" {
			return c.outcome(k, err, arrived)
		}

		if err := p.wait(ctx, err); err != nil {
			return c.outcome(k, err, arrived)
		}
	}
}

// answer is the whole answer of an instance.
type answer struct {
	*http.Response
	body []byte
}

// try sends the call and decodes the answer into out. It does not retry, but it may try several instances. arrived
// reports whether a request without an answer may have arrived.
func (c *Client) try(ctx context.Context, k call, out any) (arrived bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, c.opt.Timeout+k.extra)
	defer cancel()

	fetch := func(ctx context.Context, e *endpoint) (answer, error) {
		res, err := c.send(ctx, e, k)
		if err != nil {
			return answer{}, err
		}
		defer drain(res.Body)

		body, err := whole(res)
		if err != nil {
			return answer{}, e.explain(ctx, err)
		}

		return answer{res, body}, nil
	}

	got, from, arrived, err := failover(bounded, c, k, fetch, func(answer) {})
	if err != nil {
		return arrived, err
	}

	return arrived, got.decode(from, k, out)
}

// whole reads the body of an answer.
func whole(res *http.Response) ([]byte, error) {
	var read bytes.Buffer
	if n := res.ContentLength; n > 0 && n <= maxPreallocated {
		read.Grow(int(n) + bytes.MinRead)
	}

	_, err := read.ReadFrom(res.Body)

	return read.Bytes(), err
}

// decode decodes the answer of an instance into out.
func (a answer) decode(from *endpoint, k call, out any) error {
	if k.tag != nil {
		*k.tag = a.Header.Get("ETag")
	}

	body := a.body

	if out == nil {
		return nil
	}

	var err error

	// Lists of nodes are the only answers large enough to decode in parallel.
	switch list := out.(type) {
	case *string:
		*list = string(body)
	case *api.List[api.Node]:
		err = decodeList(body, list)
	case *api.List[api.InventoryHost]:
		err = decodeList(body, list)
	default:
		err = decode(bytes.NewReader(body), out)
	}

	if err != nil {
		return from.foreign(a.Response, body)
	}

	return nil
}

// request returns the request of a call to an instance.
func (c *Client) request(ctx context.Context, e *endpoint, k call) (*http.Request, error) {
	path, err := api.Path(k.path, k.params...)
	if err != nil {
		return nil, err
	}

	query := url.Values{}
	maps.Copy(query, k.query)

	// These three answer without the view.
	if k.method == http.MethodGet && k.path != api.PathHealth && k.path != api.PathVersion &&
		k.path != api.PathMetrics {
		if revision := max(c.revision, c.route.elsewhere(e)); revision > 0 {
			query.Set("min_revision", strconv.FormatInt(revision, 10))
		}

		if c.newest {
			query.Set("consistency", "linearizable")
		}
	}

	target := e.base + path
	// A parameter without a value has no text.
	if text := query.Encode(); text != "" {
		target += "?" + text
	}

	var body io.Reader
	if k.in != nil {
		b, err := json.Marshal(k.in)
		if err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "cannot encode the request as JSON: %w", err)
		}
		body = bytes.NewReader(b)
	}

	if k.content != nil {
		body = k.content
	}

	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "cannot create the request: %w", err)
	}
	if k.in != nil {
		req.Header.Set("Content-Type", api.TypeJSON)
	}

	if k.content != nil {
		req.Header.Set("Content-Type", api.TypeBinary)
		// The manager may refuse it before it is sent.
		req.Header.Set("Expect", "100-continue")
	}
	if k.from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", k.from))
	}

	req.Header.Set(api.HeaderRequestID, api.NewRequestID())

	if c.opt.UserAgent != "" {
		req.Header.Set("User-Agent", c.opt.UserAgent)
	}

	if c.opt.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.opt.Token)
	}

	if c.opt.Actor != "" {
		req.Header.Set(api.HeaderActor, c.opt.Actor)
	}

	if k.key != "" {
		req.Header.Set(api.HeaderIdempotencyKey, k.key)
	}

	if c.match != "" && k.method != http.MethodGet {
		req.Header.Set("If-Match", c.match)
	}

	c.guardIdle(e, req, k)

	return req, nil
}

// send sends the call to an instance. It returns a failure of the daemon as its error, and one of the connection
// with a remedy.
func (c *Client) send(ctx context.Context, e *endpoint, k call) (*http.Response, error) {
	req, err := c.request(ctx, e, k)
	if err != nil {
		return nil, err
	}

	res, err := c.exchange(e, req)
	if err != nil {
		return nil, e.explain(ctx, err)
	}

	c.route.show(e, res)

	if res.StatusCode >= 200 && res.StatusCode < 300 ||
		k.also != 0 && res.StatusCode == k.also && isType(res, api.TypeJSON) {
		return res, nil
	}

	defer drain(res.Body)

	// From here on the answer is a failure.
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, e.explain(ctx, err)
	}

	if isType(res, api.TypeProblem) {
		var p api.Problem
		if err := json.Unmarshal(text, &p); err == nil && p.Detail != "" {
			if p.Status == 0 {
				p.Status = res.StatusCode
			}

			p.RequestID = cmp.Or(p.RequestID, res.Header.Get(api.HeaderRequestID))
			return nil, p.Restore()
		}
	}

	// The first generation has the kind in a header and the reason as text.
	if kind := res.Header.Get(api.HeaderProblem); kind != "" {
		problem := api.Problem{
			Type:   api.ProblemBase + kind,
			Status: res.StatusCode,
			Detail: strings.TrimSpace(string(text)), RequestID: res.Header.Get(api.HeaderRequestID),
		}

		return nil, problem.Restore()
	}

	return nil, e.foreign(res, text)
}

// guardIdle prevents that a request meets the end of an idle connection: the daemon may
// end one at any moment, and then it is unknown whether the request arrived.
func (c *Client) guardIdle(e *endpoint, req *http.Request, k call) {
	switch {
	case k.method == http.MethodGet || k.key != "":
		// net/http repeats it over a new connection.
	case c.mayRepeat(k):
		// So it does with this key, which is not sent.
		req.Header["X-Idempotency-Key"] = nil
	default:
		e.http.CloseIdleConnections()
	}
}

// mayRepeat reports whether the call may be sent again while it is unknown whether it was carried out.
func (c *Client) mayRepeat(k call) bool { return k.key != "" || k.harmless() }

// harmless reports whether it does no harm if the call arrives twice.
func (k call) harmless() bool { return k.method == http.MethodGet || api.Keyless[k.path] }

// keyed reports whether the call takes an idempotency key.
func (k call) keyed() bool {
	_, keyless := api.Keyless[k.path]
	return k.method != http.MethodGet && !keyless
}

// exchange sends the request, and reports it to the observer.
func (c *Client) exchange(e *endpoint, req *http.Request) (*http.Response, error) {
	began := time.Now()
	res, err := e.http.Do(req)

	if c.opt.Observe != nil {
		x := Exchange{
			Method: req.Method, URI: req.URL.RequestURI(), Where: e.where, Took: time.Since(began),
			RequestID: req.Header.Get(api.HeaderRequestID), Err: err,
		}
		if res != nil {
			x.Status = res.StatusCode
		}

		// The other end may be any program, and the id reaches a terminal.
		if res != nil && api.IsRequestID(res.Header.Get(api.HeaderRequestID)) {
			x.RequestID = res.Header.Get(api.HeaderRequestID)
		}

		c.opt.Observe(x)
	}

	return res, err
}

func isType(res *http.Response, want string) bool {
	t, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && t == want
}

// drain reads a short rest, so that the connection can be reused, and closes.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4<<10)
	_ = body.Close()
}

// foreign returns the error for an answer of something other than clusterm.
func (e *endpoint) foreign(res *http.Response, body []byte) error {
	text := strings.TrimSpace(string(body))
	if text == "Client sent an HTTP request to an HTTPS server." {
		return inventory.Errorf(inventory.KindUnavailable, "%s speaks TLS, and the URL is of plain HTTP", e.where).
			Do("write https:// in front of the address")
	}

	if len(text) > 200 {
		text = text[:200] + "…"
	}

	return inventory.
		Errorf(inventory.KindUnavailable, "%s is not clusterm: it answered %s %q", e.where, res.Status, text).
		Do("check the address, and that clusterm and clusterctl have the same version")
}

// errBroke marks a lost answer: the request may have arrived.
var errBroke = errors.New("the connection broke")

// explain adds a remedy to an error of the connection. ctx is the caller's own.
func (e *endpoint) explain(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*inventory.Error](err); ok {
		return err
	}

	// open ends a request that takes too long by cancelling it.
	if errors.Is(ctx.Err(), context.Canceled) {
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return ctx.Err()
		}
		err = context.DeadlineExceeded
	}

	cause := err
	if u, ok := errors.AsType[*url.Error](err); ok {
		cause = u.Err // without method and URL
	}

	fail := func(format string, args ...any) *inventory.Error {
		out := inventory.Errorf(inventory.KindUnavailable, format, args...)
		out.Err = err
		return out
	}
	const running = "is clusterm running? systemctl status clusterm"

	if alert := e.tlsError(err); alert != nil {
		return alert
	}

	// Each case matches one mistake with its own remedy.
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fail("cannot open %s: permission denied", e.where).Do("only root can open it: use sudo")
	case errors.Is(err, fs.ErrNotExist), e.socket != "" && errors.Is(err, syscall.ECONNREFUSED):
		return e.notRunning(err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail("%s refused the connection", e.where).Do(running)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fail("there is no route to %s", e.where).Do("check the address, and the network of this host")
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOTSOCK), errors.Is(err, syscall.EPROTOTYPE):
		return fail("%s is no socket of clusterm", e.where).Do("check the path")
	case errors.Is(err, context.DeadlineExceeded), isNet && timeout.Timeout():
		return fail("%s did not answer in time", e.where).Do(running)
	case errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		broke := fail("%s closed the connection before it answered", e.where).
			Do("repeat the command; if it fails again: %s", running)
		broke.Err = errors.Join(errBroke, err)
		return broke
	}

	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return fail("the host name %s cannot be resolved: %s", lookup.Name, lookup.Err).Do("check the address")
	}

	// Without "dial tcp", which names no step of an operator.
	if op, ok := errors.AsType[*net.OpError](err); ok {
		cause = op.Err
	}

	return fail("cannot reach %s: %v", e.where, cause).Do(running)
}

// notRunning returns the error for a socket that no daemon serves. It has the
// reason of the daemon's last failure if there was one.
func (e *endpoint) notRunning(err error) error {
	last, unread := api.ReadFailure(e.socket)
	if unread != nil {
		state := "does not exist"
		if !errors.Is(err, fs.ErrNotExist) {
			state = "refused the connection"
		}
		out := inventory.Errorf(inventory.KindUnavailable, "clusterm is not running: its socket %s %s", e.where, state).
			Do("systemctl status clusterm shows the service; to start it: systemctl start clusterm")
		out.Err = err

		return out
	}

	out := inventory.Errorf(inventory.KindUnavailable, "clusterm is not running; it failed at %s: %s",
		last.Time.Local().Format(time.DateTime), last.Message)
	out.Remedy, out.Err = last.Remedy, err

	if out.Remedy == "" {
		out.Remedy = "systemctl status clusterm shows the service, journalctl -u clusterm its log"
	}

	return out
}

// native replaces the numbers of decoded JSON by int64 or float64. A number stays
// a json.Number if neither type is exact, or for 1.0 and the like, which a
// float64 would encode as an integer.
func native(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}

		if strings.ContainsAny(v.String(), ".eE") {
			if f, err := v.Float64(); err == nil && f != math.Trunc(f) {
				return f
			}
		}
	case map[string]any:
		for k, e := range v {
			v[k] = native(e)
		}
	case []any:
		for i, e := range v {
			v[i] = native(e)
		}
	}

	return v
}

func nativeMerged(vars api.MergedVars) {
	for k, v := range vars {
		v.Value = native(v.Value)
		vars[k] = v
	}
}
