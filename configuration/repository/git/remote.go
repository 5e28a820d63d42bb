// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	gittransport "github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/contiv/cluster/configuration/source"
	"github.com/contiv/cluster/inventory"
)

// references are the branches and tags that a repository advertises.
type references struct {
	named  map[string]plumbing.Hash // by full name; an annotated tag by its own object
	head   plumbing.Hash            // zero: the repository has no default branch
	branch string                   // full name of the default branch; empty: unknown
}

// remote is an open connection to a repository.
type remote interface {
	references(ctx context.Context) (references, error)
	// pack returns a pack with the objects and all that they lead to, without the objects of
	// the mirror. The caller closes it.
	pack(ctx context.Context, wants []plumbing.Hash, m *mirrored) (io.ReadCloser, error)
	// givesAny reports whether pack gives objects that no reference names. references was
	// called.
	givesAny() bool
	close()
}

// open connects to the repository. The budget counts the bytes that arrive.
func (m *Mirror) open(ctx context.Context, b *budget) (remote, error) {
	a, err := parseURL(m.Options.URL)
	if err != nil {
		return nil, err
	}

	switch a.via {
	case viaPath:
		return openLocal(a.path, m.Options.Limits.Size)
	case viaSSH:
		return dialSSH(ctx, a, m.Options, b)
	default:
		return openHTTPS(a, m.Options, b)
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

// givesAny reports whether a server gives commits that no reference names.
func givesAny(capabilities *capability.List) bool {
	return capabilities.Supports(capability.AllowReachableSHA1InWant)
}

// request asks for objects and all that they lead to.
func request(capabilities *capability.List, wants []plumbing.Hash, m *mirrored) (*packp.UploadPackRequest, error) {
	req := packp.NewUploadPackRequestFromCapabilities(capabilities)
	req.Wants, req.Haves = wants, m.haves()

	if capabilities.Supports(capability.NoProgress) {
		if err := req.Capabilities.Set(capability.NoProgress); err != nil {
			return nil, err
		}
	}

	return req, nil
}

// packOf returns the pack in a response.
func packOf(req *packp.UploadPackRequest, resp *packp.UploadPackResponse) io.ReadCloser {
	type parts struct {
		io.Reader
		io.Closer
	}

	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		return parts{sideband.NewDemuxer(sideband.Sideband64k, resp), resp}
	case req.Capabilities.Supports(capability.Sideband):
		return parts{sideband.NewDemuxer(sideband.Sideband, resp), resp}
	}

	return resp
}

// advertised converts the references that a server sends.
func advertised(ar *packp.AdvRefs) references {
	refs := references{named: map[string]plumbing.Hash{}}
	for name, hash := range ar.References {
		refs.named[name] = hash
	}

	if ar.Head != nil {
		refs.head = *ar.Head
	}

	for _, link := range ar.Capabilities.Get(capability.SymRef) {
		if target, ok := strings.CutPrefix(link, "HEAD:"); ok {
			refs.branch = target
		}
	}

	return refs
}

// httpsRemote is a repository behind https.
type httpsRemote struct {
	session gittransport.UploadPackSession
	client  *http.Client
	refs    *packp.AdvRefs
}

func openHTTPS(a address, o Options, b *budget) (remote, error) {
	endpoint, err := gittransport.NewEndpoint(a.url)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the URL is not one of a repository").Do(forms)
	}

	client, err := httpClient(o, b)
	if err != nil {
		return nil, err
	}

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

	session, err := githttp.NewClientWithOptions(client, options).NewUploadPackSession(endpoint, auth)
	if err != nil {
		return nil, err
	}

	return &httpsRemote{session: session, client: client}, nil
}

// httpTimeout bounds the time that a server takes to begin an answer.
const httpTimeout = time.Minute

func httpClient(o Options, b *budget) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}

	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, about("ca_file", err)
		}

		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, about("ca_file", fmt.Errorf("%s has no certificate in PEM", o.CAFile))
		}
	}

	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: httpTimeout, ResponseHeaderTimeout: httpTimeout,
	}

	return &http.Client{Transport: countedTransport{transport, b}}, nil
}

// countedTransport counts the bytes of the bodies of answers.
type countedTransport struct {
	*http.Transport

	budget *budget
}

func (t countedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}

	resp.Body = struct {
		io.Reader
		io.Closer
	}{t.budget.reader(resp.Body), resp.Body}

	return resp, nil
}

func (r *httpsRemote) references(ctx context.Context) (references, error) {
	ar, err := r.session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return references{}, err
	}

	r.refs = ar

	return advertised(ar), nil
}

func (r *httpsRemote) givesAny() bool { return givesAny(r.refs.Capabilities) }

func (r *httpsRemote) pack(ctx context.Context, wants []plumbing.Hash, m *mirrored) (io.ReadCloser, error) {
	req, err := request(r.refs.Capabilities, wants, m)
	if err != nil {
		return nil, err
	}

	resp, err := r.session.UploadPack(ctx, req)
	if err != nil {
		return nil, err
	}

	return packOf(req, resp), nil
}

func (r *httpsRemote) close() {
	_ = r.session.Close() // it does nothing

	r.client.CloseIdleConnections()
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
