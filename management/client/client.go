// SPDX-License-Identifier: Apache-2.0

// Package client is the API under /v1 as Go methods, for clusterctl and for
// programs of others:
//
//	c, err := client.New(client.Options{}) // the manager on this host
//	nodes, err := c.Nodes(ctx, client.NodeFilter{Selector: "rack in (r1,r2)"})
//	job, err := c.Submit(ctx, api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: []string{"host2-04f4"}})
//	job, err = c.WaitJob(ctx, job.ID)
//
// It needs nothing but the standard library, and the packages management/api
// (the wire types) and inventory (statuses, verbs, kinds of error). The examples
// run against a whole manager. docs/rest.md says what each call means.
//
// Errors carry the kinds that the daemon gave them: inventory.KindOf tells a
// refusal from a wrong request or from a daemon that does not answer
// (KindUnavailable, with what to do about it). An error of the caller's own
// context is returned as it is when the context was cancelled.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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

// Options say which daemon to talk to, and how. The zero value is the daemon
// on this host.
type Options struct {
	// URL is http://HOST:PORT, HOST:PORT or unix:///PATH.
	URL string
	// Socket is the path of a Unix socket; it is what is used where URL is
	// empty. Empty: api.DefaultSocket.
	Socket string
	// Actor is the person that root acts for, for the daemon's records. The
	// daemon believes it only of root over the Unix socket.
	Actor string
	// UserAgent names the program, as NAME/VERSION.
	UserAgent string
	// Timeout bounds one request, streams excepted. 0: 30 s.
	Timeout time.Duration
	// Patience bounds how long a follower of a log, or somebody who waits for a
	// job, puts up with a daemon that does not answer, counted from its last
	// word. 0: one minute; negative: none.
	Patience time.Duration
	// HTTPClient is used instead of one of the client's own. Then Socket and
	// unix:// make no sense.
	HTTPClient *http.Client
}

// Client talks to one daemon. It may be used by several goroutines at once.
type Client struct {
	http     *http.Client
	base     string // without a trailing slash
	where    string // for people
	opt      Options
	revision int64 // what reads have to be at least as new as; 0: anything
	newest   bool  // reads show everything that was acknowledged before
	match    string
	key      string // of requests that are carried out once; empty: one is made up
}

// New returns a client; it does not connect yet.
func New(o Options) (*Client, error) {
	c := &Client{opt: o, http: o.HTTPClient}
	if c.opt.Timeout == 0 {
		c.opt.Timeout = 30 * time.Second
	}

	if c.opt.Patience == 0 {
		c.opt.Patience = time.Minute
	}

	if o.URL != "" && o.Socket != "" {
		return nil, inventory.Errorf(inventory.KindInvalid, "both a URL (%s) and a socket (%s) are given", o.URL, o.Socket).
			Do("give one")
	}

	socket, base, err := parse(o.URL)
	if err != nil {
		return nil, err
	}

	if o.URL == "" {
		if socket = o.Socket; socket == "" {
			socket = api.DefaultSocket
		}
	}

	if o.HTTPClient != nil && socket != "" && o.URL != "" {
		return nil, inventory.Errorf(inventory.KindInvalid, "a client of your own cannot open %s", o.URL).
			Do("give an http:// URL")
	}

	c.base, c.where = base, base
	if socket != "" {
		// The host's name means nothing on a Unix socket; HTTP wants one.
		c.base, c.where = "http://clusterm", socket
	}

	if c.http == nil {
		c.http = &http.Client{
			Transport:     transport(socket),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}

	return c, nil
}

// transport connects to the socket, or where that is empty to what the URL
// says. It never uses a proxy: the API is not for others to read.
func transport(socket string) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}

	t := &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, DisableCompression: true,
	}
	if socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}

	return t
}

// parse reads a URL in the forms that operators write.
func parse(s string) (socket, base string, err error) {
	bad := func(why string) (string, string, error) {
		return "", "", inventory.Errorf(inventory.KindInvalid, "the URL %q %s", s, why).
			Do("write http://127.0.0.1:9007, 127.0.0.1:9007 or unix:///run/clusterm/clusterm.sock")
	}

	if s == "" {
		return "", "", nil
	}

	if !strings.Contains(s, "://") {
		if strings.HasPrefix(s, "/") {
			return s, "", nil
		}

		s = "http://" + s
	}

	u, err := url.Parse(s)
	switch {
	case err != nil:
		return bad("does not parse")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return bad("has more than an address")
	case u.Scheme == "unix":
		if u.Host != "" || u.Path == "" || u.Path == "/" {
			return bad("names no socket")
		}

		return u.Path, "", nil
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("is of a scheme that is not spoken here")
	case u.Hostname() == "":
		return bad("names no host")
	}

	return "", u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/"), nil
}

// At returns a client whose reads show the daemon's view as of the revision or
// later; the daemon waits a bounded time for that.
func (c *Client) At(revision int64) *Client {
	at := *c
	at.revision = revision

	return &at
}

// Newest returns a client whose reads show everything that was acknowledged
// before they were asked for, by whatever instance. They need a store that
// answers: else they are KindUnavailable.
func (c *Client) Newest() *Client {
	newest := *c
	newest.newest = true

	return &newest
}

// IfMatch returns a client whose changes of a node, of variables, of the
// configuration, and cancels, are made only if that is still as the tag says,
// else they are KindPrecondition; other changes refuse it. The tag is Tag of a
// revision, an ETag that the daemon gave, or * for whatever there is.
func (c *Client) IfMatch(tag string) *Client {
	match := *c
	match.match = tag

	return &match
}

// IdempotencyKey returns a client whose submissions, retries, cancels and forgets carry
// this key: the same request with the same key is carried out once, whoever
// sends it again, and the first one's result is the answer; another request
// with the key is KindKeyReused. The daemon remembers a key for a day. Without
// one the client makes up a key for every request.
func (c *Client) IdempotencyKey(key string) *Client {
	once := *c
	once.key = key

	return &once
}

// Tag is the tag of a record of that revision, e.g. of api.Node.Revision.
func Tag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// Where says what the client talks to: a URL, or the path of a socket.
func (c *Client) Where() string { return c.where }

// call is one request.
type call struct {
	method string
	path   string // a pattern of the api package
	params []string
	query  url.Values
	in     any // JSON, unless nil
	extra  time.Duration
	// once: the daemon carries it out once, however often it arrives.
	once bool
	key  string
	// tag, unless nil, gets the tag of the answer.
	tag *string
	// also is a status that has an ordinary body although it is a failure.
	also int
}

// knownSize is up to which size an answer is believed to be as large as it says.
const knownSize = 64 << 20

// do sends the call and reads the answer into out. What is carried out once is
// sent again where the connection broke before the answer: nobody can say then
// whether it had arrived.
func (c *Client) do(ctx context.Context, k call, out any) error {
	if !k.once {
		return c.try(ctx, k, out)
	}

	if k.key = c.key; k.key == "" {
		k.key = rand.Text()
	}

	p, broke := c.patience(), false
	for {
		err := c.try(ctx, k, out)
		if broke = broke || errors.Is(err, errBroke); err == nil || !broke {
			return err
		}

		if err := p.wait(ctx, err); err != nil {
			return err
		}
	}
}

// try sends the call and reads the answer into out.
func (c *Client) try(ctx context.Context, k call, out any) error {
	bounded, cancel := context.WithTimeout(ctx, c.opt.Timeout+k.extra)
	defer cancel()

	res, err := c.send(bounded, k)
	if err != nil {
		return c.explain(ctx, err)
	}
	defer drain(res.Body)

	var read bytes.Buffer
	if n := res.ContentLength; n > 0 && n <= knownSize {
		read.Grow(int(n) + bytes.MinRead)
	}

	if _, err := read.ReadFrom(res.Body); err != nil {
		return c.explain(ctx, err)
	}

	if k.tag != nil {
		*k.tag = res.Header.Get("ETag")
	}

	body := read.Bytes()

	if out == nil {
		return nil
	}

	if list, ok := out.(*api.List[api.Node]); ok {
		err = decodeList(body, list)
	} else {
		err = decode(bytes.NewReader(body), out)
	}

	if err != nil {
		return c.stranger(res, body)
	}

	return nil
}

// send sends the call. An answer that is a failure comes back as its error.
func (c *Client) send(ctx context.Context, k call) (*http.Response, error) {
	path, err := api.Path(k.path, k.params...)
	if err != nil {
		return nil, err
	}

	query := url.Values{}
	maps.Copy(query, k.query)

	if k.method == http.MethodGet && k.path != api.PathHealth && k.path != api.PathVersion &&
		k.path != api.PathMetrics {
		if c.revision > 0 {
			query.Set("min_revision", strconv.FormatInt(c.revision, 10))
		}

		if c.newest {
			query.Set("consistency", "linearizable")
		}
	}

	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}

	var body io.Reader
	if k.in != nil {
		b, err := json.Marshal(k.in)
		if err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "the request cannot be written as JSON: %w", err)
		}

		body = bytes.NewReader(b)
	}

	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the request cannot be made: %w", err)
	}

	if k.in != nil {
		req.Header.Set("Content-Type", api.TypeJSON)
	}

	if c.opt.UserAgent != "" {
		req.Header.Set("User-Agent", c.opt.UserAgent)
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

	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}

	if res.StatusCode >= 200 && res.StatusCode < 300 ||
		k.also != 0 && res.StatusCode == k.also && isType(res, api.TypeJSON) {
		return res, nil
	}

	defer drain(res.Body)

	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, err
	}

	if isType(res, api.TypeProblem) {
		var p api.Problem
		if err := json.Unmarshal(text, &p); err == nil && p.Detail != "" {
			if p.Status == 0 {
				p.Status = res.StatusCode
			}

			return nil, p.Restore()
		}
	}

	if kind := res.Header.Get(api.HeaderProblem); kind != "" {
		told := api.Problem{
			Type:   api.ProblemBase + kind,
			Status: res.StatusCode,
			Detail: strings.TrimSpace(string(text)),
		}
		return nil, told.Restore()
	}

	return nil, c.stranger(res, text)
}

func isType(res *http.Response, want string) bool {
	t, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && t == want
}

// drain reads the little that may be left, so that the connection can be used
// again, and closes.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4<<10)
	_ = body.Close()
}

// stranger is the error for an answer that the daemon would not give.
func (c *Client) stranger(res *http.Response, body []byte) error {
	text := strings.TrimSpace(string(body))
	if len(text) > 200 {
		text = text[:200] + "…"
	}

	return inventory.Errorf(inventory.KindUnavailable, "%s does not answer like clusterm: %s %q", c.where, res.Status, text).
		Do("check the address; clusterm and clusterctl should be of the same version")
}

// errBroke is the cause of an error where a request may have arrived, and its
// answer did not.
var errBroke = errors.New("the connection broke")

// explain turns an error of the connection into one that says what to do. ctx
// is the caller's own.
func (c *Client) explain(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*inventory.Error](err); ok {
		return err
	}

	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}

	cause := err
	if u, ok := errors.AsType[*url.Error](err); ok {
		cause = u.Err // without method and URL
	}

	fail := func(format string, args ...any) *inventory.Error {
		e := inventory.Errorf(inventory.KindUnavailable, format, args...)
		e.Err = err

		return e
	}
	const running = "is clusterm running? systemctl status clusterm"

	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fail("%s may not be opened: permission denied", c.where).Do("only root can open it: use sudo")
	case errors.Is(err, fs.ErrNotExist):
		return fail("there is no socket %s", c.where).Do(running)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail("nobody answers at %s: connection refused", c.where).Do(running)
	case errors.Is(err, context.DeadlineExceeded), isNet && timeout.Timeout():
		return fail("%s did not answer in time", c.where).Do(running)
	case errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		e := fail(
			"%s ended the connection before it had answered",
			c.where,
		).Do("repeat; if that changes nothing: %s", running)
		e.Err = errors.Join(errBroke, err)

		return e
	}

	return fail("%s cannot be reached: %v", c.where, cause).Do(running)
}

// native replaces the numbers of decoded JSON by int64 where they fit, else by
// float64. A number that neither holds exactly stays as it was written, and so
// does one like 1.0: encoded anew as a float64 it would be an integer.
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
