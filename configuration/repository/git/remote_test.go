// SPDX-License-Identifier: Apache-2.0

package git

import (
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// gitProgram returns the path of git, or skips the test.
func gitProgram(t *testing.T) string {
	t.Helper()

	path, err := exec.LookPath("git")
	if err != nil {
		t.Skip("it needs git as the server")
	}
	return path
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	errtest.None(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// fetchTwice fetches a repository, and then its news.
func fetchTwice(t *testing.T, r *testRepo, m *Mirror) {
	t.Helper()

	for i := range 3 {
		all := playbooks()
		all["count"] = text(fmt.Sprint(i))
		commit := r.push("main", all)

		c, err := m.Fetch(t.Context())
		errtest.None(t, err)

		got, err := files(t, m, c.Hash)
		if err != nil || c.Hash != commit || got["count"] != fmt.Sprintf("-rw-r--r-- %d", i) {
			t.Fatalf("got %+v, %q, %v", c, got, err)
		}
	}
}

// smartHTTP serves the repository with git itself, for the user and password.
func smartHTTP(t *testing.T, r *testRepo) *httptest.Server {
	t.Helper()

	backend := &cgi.Handler{
		Path: gitProgram(t), Args: []string{"http-backend"},
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.dir), "GIT_HTTP_EXPORT_ALL=1"},
	}

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()

		switch {
		case strings.HasPrefix(req.URL.Path, "/moved/"):
			http.Redirect(w, req, "/"+strings.TrimPrefix(req.URL.Path, "/moved/"), http.StatusMovedPermanently)
		case strings.HasPrefix(req.URL.Path, "/endless/"):
			endlessReferences(w, w)
		case strings.HasPrefix(req.URL.Path, "/packed/"):
			w.Header().Set("Content-Encoding", "gzip")
			endlessReferences(w, gzip.NewWriter(w))
		case user != "robot" || password != "s3cret":
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
		default:
			backend.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(server.Close)

	return server
}

// endlessReferences answers with references until the client goes away.
func endlessReferences(w http.ResponseWriter, body io.Writer) {
	w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
	fmt.Fprint(body, "001e# service=git-upload-pack\n0000")

	for i := 0; ; i++ {
		line := fmt.Sprintf("%040x refs/heads/b%d\n", i+1, i)
		if i == 0 {
			line = fmt.Sprintf("%040x refs/heads/b%d\x00 ofs-delta\n", i+1, i)
		}
		if _, err := fmt.Fprintf(body, "%04x%s", len(line)+4, line); err != nil {
			return
		}
	}
}

func TestHTTPS(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	server := smartHTTP(t, r)
	ca := write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	good := Options{
		URL: server.URL + "/origin.git", CAFile: ca, CredentialFile: write(t, "robot:s3cret\n"), Limits: DefaultLimits,
	}

	fetchTwice(t, r, &Mirror{Dir: t.TempDir(), Options: good})

	for _, c := range []struct {
		name   string
		change func(*Options)
		err    string
	}{
		{"no credentials", func(o *Options) { o.CredentialFile = "" }, "demands other credentials"},
		{"wrong password", func(o *Options) { o.CredentialFile = write(t, "robot:other") }, "demands other"},
		{"missing file", func(o *Options) { o.CredentialFile = "/nonexistent" }, "repository.credential_file: "},
		{"unknown CA", func(o *Options) { o.CAFile = "" }, "certificate"},
		{"no CA", func(o *Options) { o.CAFile = write(t, "x") }, "repository.ca_file: "},
		{"redirect", func(o *Options) { o.URL = server.URL + "/moved/origin.git" }, "cannot be fetched"},
		{"missing", func(o *Options) { o.URL = server.URL + "/other.git" }, "does not exist"},
		{"endless", func(o *Options) { o.URL = server.URL + "/endless/x.git"; o.Limits.Fetch = 1 << 20 },
			"sends more than 1048576 bytes"},
		// What is counted does not expand.
		{"packed", func(o *Options) { o.URL = server.URL + "/packed/x.git" }, "cannot be fetched"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := good
			c.change(&o)

			_, err := (&Mirror{Dir: t.TempDir(), Options: o}).Fetch(t.Context())
			expect(t, err, c.err)

			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error %v shows the password", err)
			}
		})
	}

	// The limit is one of what arrives, and counts it once.
	noise := make([]byte, 200_000)
	_, err := rand.Read(noise)
	errtest.None(t, err)
	r.push("main", map[string]file{"noise": text(string(noise))})

	for limit, want := range map[int64]string{150_000: "sends more than 150000 bytes", 300_000: ""} {
		o := good
		o.Limits.Fetch = limit
		_, err := (&Mirror{Dir: t.TempDir(), Options: o}).Fetch(t.Context())
		expect(t, err, want)
	}

	exposed := good.CredentialFile
	errtest.None(t, os.Chmod(exposed, 0o644))

	_, err = (&Mirror{Dir: t.TempDir(), Options: good}).Fetch(t.Context())
	expect(t, err, "others can read")
}

// sshServer serves the repository with git over ssh, for one key.
func sshServer(t *testing.T, user ssh.PublicKey, host ssh.Signer) string {
	t.Helper()

	program := gitProgram(t)
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if c.User() != "git" || string(key.Marshal()) != string(user.Marshal()) {
				return nil, fmt.Errorf("no")
			}
			return nil, nil //nolint:nilnil // as documented
		},
	}
	config.AddHostKey(host)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); listener.Close() })

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveSSH(ctx, conn, config, program)
		}
	}()

	return listener.Addr().String()
}

func serveSSH(ctx context.Context, conn net.Conn, config *ssh.ServerConfig, program string) {
	defer conn.Close()

	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)

	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}

		for r := range requests {
			_ = r.Reply(r.Type == "exec", nil)

			var command struct{ Line string }
			if r.Type != "exec" || ssh.Unmarshal(r.Payload, &command) != nil {
				continue
			}

			path := strings.Trim(strings.TrimPrefix(command.Line, "git-upload-pack "), "'")
			upload := exec.CommandContext(ctx, program, "upload-pack", path)

			in, _ := upload.StdinPipe()
			upload.Stdout, upload.Stderr = channel, channel.Stderr()

			if err := upload.Start(); err != nil {
				return
			}

			go func() {
				_, _ = io.Copy(in, channel)
				in.Close()
			}()

			_ = upload.Wait()
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{0}))
			channel.Close()
		}
	}
}

// sshKey returns a signer, and its private key in a file.
func sshKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()

	_, private, err := ed25519.GenerateKey(rand.Reader)
	errtest.None(t, err)

	signer, err := ssh.NewSignerFromKey(private)
	errtest.None(t, err)

	block, err := ssh.MarshalPrivateKey(private, "")
	errtest.None(t, err)

	return signer, write(t, string(pem.EncodeToMemory(block)))
}

func TestSSH(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	user, keyFile := sshKey(t)
	host, _ := sshKey(t)
	other, otherFile := sshKey(t)
	addr := sshServer(t, user.PublicKey(), host)
	known := func(key ssh.PublicKey) string {
		return write(t, knownhosts.Line([]string{knownhosts.Normalize(addr)}, key)+"\n")
	}
	good := Options{
		URL:            "ssh://git@" + addr + r.dir,
		KeyFile:        keyFile,
		KnownHostsFile: known(host.PublicKey()),
		Limits:         DefaultLimits,
	}

	fetchTwice(t, r, &Mirror{Dir: t.TempDir(), Options: good})

	for _, c := range []struct {
		name   string
		change func(*Options)
		err    string
	}{
		{"other key", func(o *Options) { o.KeyFile = otherFile }, "does not accept the key"},
		{"no key", func(o *Options) { o.KeyFile = write(t, "x") }, "is not a private key"},
		{"exposed key", func(o *Options) {
			o.KeyFile = write(t, "x")
			errtest.None(t, os.Chmod(o.KeyFile, 0o640))
		}, "others can read"},
		{"other host", func(o *Options) { o.KnownHostsFile = known(other.PublicKey()) }, "differs from"},
		{"unknown host", func(o *Options) { o.KnownHostsFile = write(t, "# none\n") }, "is not in"},
		{"missing", func(o *Options) { o.URL += "-not" }, "cannot be fetched"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := good
			c.change(&o)
			_, err := (&Mirror{Dir: t.TempDir(), Options: o}).Fetch(t.Context())
			expect(t, err, c.err)
		})
	}
}

// TestSilentServer: a server that accepts and says nothing costs the time limit only.
func TestSilentServer(t *testing.T) {
	t.Parallel()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)
	t.Cleanup(func() { listener.Close() })

	host, keyFile := sshKey(t)
	addr := listener.Addr().String()

	for _, url := range []string{"ssh://git@" + addr + "/x", "https://" + addr + "/x"} {
		o := Options{
			URL: url, KeyFile: keyFile, Limits: DefaultLimits,
			KnownHostsFile: write(t, knownhosts.Line([]string{knownhosts.Normalize(addr)}, host.PublicKey())),
		}
		o.Limits.Time = 100 * time.Millisecond

		_, err := (&Mirror{Dir: t.TempDir(), Options: o}).Fetch(t.Context())
		expect(t, err, "was not fetched within 100ms")

		if inventory.KindOf(err) != inventory.KindUnavailable {
			t.Errorf("the kind is %s", inventory.KindOf(err))
		}
	}
}
