// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	gittransport "github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/contiv/cluster/configuration/source"
	"github.com/contiv/cluster/inventory"
)

// session is an open connection to a repository, as the transports of go-git have it.
type session interface {
	AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error)
	// UploadPack returns a pack with the wanted objects and all that they lead to.
	UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
	Close() error
}

// open connects to the repository. Connections end with the context, and the budget counts
// the bytes that arrive.
func (m *Mirror) open(ctx context.Context, store *mirrored, b *budget) (session, error) {
	e, err := parseURL(m.Options.URL)
	if err != nil {
		return nil, err
	}

	switch e.Protocol {
	case viaPath:
		return openLocal(e, m.Options.Limits.Size, store, b)
	case viaSSH:
		return dialSSH(ctx, e, m.Options, b)
	default:
		return openHTTPS(ctx, e, m.Options, b)
	}
}

// budget bounds the bytes that arrive from a repository.
type budget struct {
	limit int64
	left  atomic.Int64
}

// maxReferences bounds the list of references, which is kept in memory, in bytes.
const maxReferences = 16 << 20

// newBudget returns a budget for the list of references.
func newBudget(limit int64) *budget {
	b := &budget{limit: min(limit, maxReferences)}
	b.left.Store(b.limit)
	return b
}

// raise sets the limit for all that arrives.
func (b *budget) raise(limit int64) {
	b.left.Add(limit - b.limit)
	b.limit = limit
}

var errBudget = errors.New("it sends more than the limit")

// used returns the bytes that have arrived.
func (b *budget) used() int64 { return b.limit - b.left.Load() }

func (b *budget) spent() bool { return b.left.Load() < 0 }

// reader counts the bytes of r.
func (b *budget) reader(r io.Reader) io.Reader { return budgetReader{r, b} }

type budgetReader struct {
	io.Reader

	budget *budget
}

func (r budgetReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.budget.left.Add(-int64(n)) < 0 {
		return 0, errBudget
	}
	return n, err
}

// dial connects to a server. The connection ends with the context.
func dial(ctx context.Context, addr string, b *budget) (net.Conn, error) {
	var dialer net.Dialer

	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })

	return countedConn{conn, b.reader(conn)}, nil
}

// countedConn counts the bytes that arrive.
type countedConn struct {
	net.Conn

	in io.Reader
}

func (c countedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

func openHTTPS(ctx context.Context, e *gittransport.Endpoint, o Options, b *budget) (session, error) {
	transport, err := source.Transport(o.CAFile)
	if err != nil {
		return nil, about("ca_file", err)
	}

	// The budget counts bytes of the wire, which must not expand afterwards.
	transport.DisableCompression = true
	transport.DialContext = func(_ context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr, b) }

	var auth gittransport.AuthMethod

	if o.CredentialFile != "" {
		text, err := source.File(o.CredentialFile)
		if err != nil {
			return nil, about("credential_file", err)
		}
		user, password, both := strings.Cut(text, ":")
		if !both {
			user, password = "git", text
		}
		auth = &githttp.BasicAuth{Username: user, Password: password}
	}

	// The credentials must not follow a redirect.
	options := &githttp.ClientOptions{RedirectPolicy: githttp.NoFollowRedirects}

	return githttp.NewClientWithOptions(&http.Client{Transport: transport}, options).NewUploadPackSession(e, auth)
}

// errorMessage returns the text of an error without its remedy.
func errorMessage(err error) string {
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// about returns an error with the key of the configuration that it is about.
func about(key string, err error) error {
	if _, ok := errors.AsType[*inventory.Error](err); ok {
		return inventory.Under("repository."+key, err)
	}

	return inventory.Errorf(inventory.KindInvalid, "repository.%s: %w", key, err).
		Do("correct the configuration file")
}
