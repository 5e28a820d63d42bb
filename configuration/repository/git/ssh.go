// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	gittransport "github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"github.com/contiv/cluster/configuration/source"
	"github.com/contiv/cluster/inventory"
)

// sshSession is git-upload-pack on an ssh server. That of go-git does not serve: it reads the
// account's own configuration, cannot count bytes, and waits for a silent server without end.
type sshSession struct {
	client *ssh.Client
	in     io.WriteCloser
	out    io.Reader
	errors *firstBytes
}

// dialSSH logs in with the deploy key, to a host with a known key. The account's own
// configuration and agent are not used. The connection ends with the context.
func dialSSH(ctx context.Context, e *gittransport.Endpoint, o Options, b *budget) (session, error) {
	host := net.JoinHostPort(strings.Trim(e.Host, "[]"), strconv.Itoa(e.Port))

	config, err := sshConfig(e.User, host, o)
	if err != nil {
		return nil, err
	}

	conn, err := dial(ctx, host, b)
	if err != nil {
		return nil, err
	}
	sshConn, channels, requests, err := ssh.NewClientConn(conn, host, config)
	if err != nil {
		return nil, sshError(host, err)
	}
	s := &sshSession{client: ssh.NewClient(sshConn, channels, requests), errors: &firstBytes{limit: 1000}}
	if err := s.start(e.Path); err != nil {
		return nil, err
	}
	return s, nil
}

func sshConfig(user, host string, o Options) (*ssh.ClientConfig, error) {
	pem, err := source.File(o.KeyFile)
	if err != nil {
		return nil, about("key_file", err)
	}
	key, err := ssh.ParsePrivateKey([]byte(pem))
	if err != nil {
		return nil, about("key_file", fmt.Errorf("%s is not a private key without a passphrase", o.KeyFile))
	}

	known, err := knownhosts.NewDB(o.KnownHostsFile)
	if err != nil {
		return nil, about("known_hosts_file", err)
	}

	return &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
		// The server has to show one of the known keys.
		HostKeyCallback: known.HostKeyCallback(), HostKeyAlgorithms: known.HostKeyAlgorithms(host),
	}, nil
}

// sshError explains a login that failed.
func sshError(host string, err error) error {
	switch {
	case knownhosts.IsHostUnknown(err):
		return inventory.Errorf(inventory.KindRefused, "the host key of %s is not in repository.known_hosts_file",
			host).Do("compare it with that of the server's operator, and add it to the file")
	case knownhosts.IsHostKeyChanged(err):
		return inventory.Errorf(inventory.KindRefused, "the host key of %s differs from repository.known_hosts_file",
			host).Do("ask the server's operator why; if the key was replaced, correct the file")
	case strings.Contains(err.Error(), "unable to authenticate"):
		return inventory.Errorf(inventory.KindRefused, "%s does not accept the key in repository.key_file", host).
			Do("add its public key to the repository as a deploy key that may read")
	}

	return err
}

// start runs git-upload-pack on the server.
func (s *sshSession) start(path string) error {
	session, err := s.client.NewSession()
	if err != nil {
		return err
	}
	if s.in, err = session.StdinPipe(); err != nil {
		return err
	}

	if s.out, err = session.StdoutPipe(); err != nil {
		return err
	}

	session.Stderr = s.errors

	quoted := "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"

	return session.Start("git-upload-pack " + quoted)
}

// AdvertisedReferencesContext reads the references.
func (s *sshSession) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	ar := packp.NewAdvRefs()

	switch err := ar.Decode(s.out); {
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && ar.IsEmpty():
		return nil, gittransport.ErrEmptyRemoteRepository
	case err != nil && s.errors.String() != "":
		return nil, fmt.Errorf("the server answers: %s", s.errors.String())
	case err != nil:
		return nil, err
	}

	gittransport.FilterUnsupportedCapabilities(ar.Capabilities)

	return ar, nil
}

// UploadPack asks for objects.
func (s *sshSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if err := req.UploadRequest.Encode(s.in); err != nil {
		return nil, err
	}

	if err := req.UploadHaves.Encode(s.in, true); err != nil {
		return nil, err
	}

	if err := pktline.NewEncoder(s.in).Encodef("done\n"); err != nil {
		return nil, err
	}

	if err := s.in.Close(); err != nil {
		return nil, err
	}

	resp := packp.NewUploadPackResponse(req)

	return resp, resp.Decode(io.NopCloser(s.out))
}

// Close closes the connection.
func (s *sshSession) Close() error { return s.client.Close() }
