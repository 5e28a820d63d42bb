// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	gittransport "github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/contiv/cluster/configuration/source"
	"github.com/contiv/cluster/inventory"
)

// sshRemote is git-upload-pack on an ssh server.
type sshRemote struct {
	client *ssh.Client
	stop   func() bool // the end of the context no longer closes the connection
	in     io.WriteCloser
	out    io.Reader
	errors *firstBytes
	refs   *packp.AdvRefs
}

// dialSSH logs in with the deploy key, to a host with a known key. The account's own
// configuration and agent are not used. The connection ends with the context.
func dialSSH(ctx context.Context, a address, o Options, b *budget) (remote, error) {
	config, err := sshConfig(a, o)
	if err != nil {
		return nil, err
	}

	var dialer net.Dialer

	conn, err := dialer.DialContext(ctx, "tcp", a.host)
	if err != nil {
		return nil, err
	}

	stop := context.AfterFunc(ctx, func() { conn.Close() })

	counted := countedConn{conn, b.reader(conn)}

	sshConn, channels, requests, err := ssh.NewClientConn(counted, a.host, config)
	if err != nil {
		stop()
		conn.Close()

		return nil, sshError(a, err)
	}

	r := &sshRemote{client: ssh.NewClient(sshConn, channels, requests), stop: stop, errors: &firstBytes{limit: 1000}}
	if err := r.start(a.path); err != nil {
		r.close()
		return nil, err
	}

	return r, nil
}

// countedConn counts the bytes that arrive.
type countedConn struct {
	net.Conn

	in io.Reader
}

func (c countedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

func sshConfig(a address, o Options) (*ssh.ClientConfig, error) {
	pem, err := source.File(o.KeyFile)
	if err != nil {
		return nil, about("key_file", err)
	}

	key, err := ssh.ParsePrivateKey([]byte(pem))
	if err != nil {
		return nil, about("key_file", fmt.Errorf("%s is not a private key without a passphrase", o.KeyFile))
	}

	known, err := knownhosts.New(o.KnownHostsFile)
	if err != nil {
		return nil, about("known_hosts_file", err)
	}

	return &ssh.ClientConfig{
		User: a.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: known,
		HostKeyAlgorithms: algorithms(known, a.host), Timeout: time.Minute,
	}, nil
}

// algorithms returns those of the keys that are known of a host, so that the server
// shows one of them. It is empty for an unknown host.
func algorithms(known ssh.HostKeyCallback, host string) []string {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil
	}

	other, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil
	}

	mismatch, ok := errors.AsType[*knownhosts.KeyError](known(host, &net.TCPAddr{}, other))
	if !ok {
		return nil
	}

	var names []string

	for _, key := range mismatch.Want {
		if name := key.Key.Type(); name == ssh.KeyAlgoRSA {
			names = append(names, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			names = append(names, name)
		}
	}

	return names
}

// sshError explains a login that failed.
func sshError(a address, err error) error {
	if mismatch, ok := errors.AsType[*knownhosts.KeyError](err); ok {
		if len(mismatch.Want) == 0 {
			return inventory.Errorf(inventory.KindRefused, "the host key of %s is not in repository.known_hosts_file",
				a.host).Do("compare it with that of the server's operator, and add it to the file")
		}

		return inventory.Errorf(inventory.KindRefused, "the host key of %s differs from repository.known_hosts_file",
			a.host).Do("ask the server's operator why; if the key was replaced, correct the file")
	}

	if strings.Contains(err.Error(), "unable to authenticate") {
		return inventory.Errorf(inventory.KindRefused, "%s does not accept the key in repository.key_file", a.host).
			Do("add its public key to the repository as a deploy key that may read")
	}

	return err
}

// start runs git-upload-pack on the server.
func (r *sshRemote) start(path string) error {
	session, err := r.client.NewSession()
	if err != nil {
		return err
	}

	if r.in, err = session.StdinPipe(); err != nil {
		return err
	}

	if r.out, err = session.StdoutPipe(); err != nil {
		return err
	}

	session.Stderr = r.errors

	quoted := "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"

	return session.Start("git-upload-pack " + quoted)
}

func (r *sshRemote) references(context.Context) (references, error) {
	ar := packp.NewAdvRefs()

	switch err := ar.Decode(r.out); {
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && ar.IsEmpty():
		return references{}, gittransport.ErrEmptyRemoteRepository
	case err != nil && r.errors.String() != "":
		return references{}, fmt.Errorf("the server answers: %s", r.errors.String())
	case err != nil:
		return references{}, err
	}

	gittransport.FilterUnsupportedCapabilities(ar.Capabilities)
	r.refs = ar

	return advertised(ar), nil
}

func (r *sshRemote) givesAny() bool { return givesAny(r.refs.Capabilities) }

func (r *sshRemote) pack(_ context.Context, wants []plumbing.Hash, m *mirrored) (io.ReadCloser, error) {
	req, err := request(r.refs.Capabilities, wants, m)
	if err != nil {
		return nil, err
	}

	if err := req.UploadRequest.Encode(r.in); err != nil {
		return nil, err
	}

	if err := req.UploadHaves.Encode(r.in, true); err != nil {
		return nil, err
	}

	if err := pktline.NewEncoder(r.in).Encodef("done\n"); err != nil {
		return nil, err
	}

	if err := r.in.Close(); err != nil {
		return nil, err
	}

	resp := packp.NewUploadPackResponse(req)
	if err := resp.Decode(io.NopCloser(r.out)); err != nil {
		return nil, err
	}

	return packOf(req, resp), nil
}

func (r *sshRemote) close() {
	r.stop()

	_ = r.client.Close() // the server may have closed it
}
