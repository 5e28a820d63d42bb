// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

func TestExistingCheck(t *testing.T) {
	t.Parallel()

	one := []string{"https://a:2379"}
	endpoints := func(e ...string) Existing { return Existing{Endpoints: e, Prefix: "/a"} }

	for _, tt := range []struct {
		want     string // part of the error
		existing Existing
	}{
		{"etcd.ca_file: it is for an existing etcd", Existing{CAFile: "/x", Prefix: DefaultPrefix}},
		{"etcd.password_file: it is for", Existing{PasswordFile: "/x", Prefix: DefaultPrefix}},
		{"etcd.user: it is for", Existing{User: "x", Prefix: DefaultPrefix}},
		{"etcd.prefix: it is for", Existing{Prefix: "/other"}},
		{`etcd.ca_file: "x" is not an absolute path`, Existing{Endpoints: one, CAFile: "x", Prefix: "/a"}},
		{`etcd.password_file: "./x" is not`, Existing{Endpoints: one, User: "u", PasswordFile: "./x", Prefix: "/a"}},
		{`etcd.prefix: "" is not a prefix`, Existing{Endpoints: one}},
		{`etcd.prefix: "/" is`, Existing{Endpoints: one, Prefix: "/"}},
		{`etcd.prefix: "a" is`, Existing{Endpoints: one, Prefix: "a"}},
		{`etcd.prefix: "/a/" is`, Existing{Endpoints: one, Prefix: "/a/"}},
		{`etcd.prefix: "/a//b" is`, Existing{Endpoints: one, Prefix: "/a//b"}},
		{`etcd.prefix: "/a b" is`, Existing{Endpoints: one, Prefix: "/a b"}},
		{"at most 200", Existing{Endpoints: one, Prefix: "/" + strings.Repeat("a", 200)}},
		{`"a:2379" is not an endpoint`, endpoints("a:2379")},
		{`"https://a" is not an endpoint`, endpoints("https://a")},
		{`"https://u:p@a:1" is not an endpoint`, endpoints("https://u:p@a:1")},
		{`"https://a:1/x" is not an endpoint`, endpoints("https://a:1/x")},
		{`"unix:///x" is not an endpoint`, endpoints("unix:///x")},
		{`"http://10.0.0.1:2379" would send everything`, endpoints("http://10.0.0.1:2379")},
		{`"http://localhost:2379" would send`, endpoints("http://localhost:2379")},
		{"https and http are mixed", endpoints("https://a:1", "http://127.0.0.1:1")},
		{"is listed twice", endpoints("https://a:1", "https://a:1")},
		{
			"ca_file, cert_file and key_file require https",
			Existing{Endpoints: []string{"http://127.0.0.1:1"}, CAFile: "/x", Prefix: "/a"},
		},
		{"cert_file and key_file go together", Existing{Endpoints: one, CertFile: "/x", Prefix: "/a"}},
		{"etcd.user: user and password_file go together", Existing{Endpoints: one, User: "x", Prefix: "/a"}},
		{"etcd.user: user and password_file go together", Existing{Endpoints: one, PasswordFile: "/x", Prefix: "/a"}},
	} {
		err := tt.existing.Check()
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want an invalid error with %q", tt.existing, err, tt.want)
		}
	}

	for _, e := range []Existing{
		{Prefix: DefaultPrefix},
		{
			Endpoints: []string{"http://127.0.0.1:2379", "http://127.0.0.2:2379", "http://[::1]:2379"},
			Prefix:    "/a/b-c/D.e_f",
		},
		{
			Endpoints: []string{"https://a:2379", "https://10.0.0.1:2379/"},
			CAFile:    "/ca", CertFile: "/c", KeyFile: "/k", User: "u", PasswordFile: "/p",
			Prefix: DefaultPrefix,
		},
	} {
		if err := e.Check(); err != nil {
			t.Errorf("%+v: got %v, want no error", e, err)
		}
	}
}

// certificate creates a key pair and returns the paths of both files.
func certificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.None(t, err)

	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	errtest.None(t, err)

	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	errtest.None(t, err)

	write := func(suffix, kind string, bytes []byte) string {
		path := filepath.Join(dir, name+suffix)
		errtest.None(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
		return path
	}

	return write(".crt", "CERTIFICATE", der), write(".key", "PRIVATE KEY", pkcs8)
}

// TestExistingFiles expects errors in files before any connection.
func TestExistingFiles(t *testing.T) {
	t.Parallel()

	d := t.TempDir()
	cert, key := certificate(t, d, "a")
	_, other := certificate(t, d, "b")

	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(d, name)
		errtest.None(t, errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode)))
		return path
	}

	text, empty := write("text", "hello", 0o600), write("empty", "\n", 0o600)
	open := write("open", "secret\n", 0o644)

	for want, e := range map[string]Existing{
		"etcd.ca_file cannot be read":                        {CAFile: d + "/nope"},
		"etcd.ca_file: " + text + " contains no certificate": {CAFile: text},
		"etcd.cert_file cannot be read":                      {CertFile: d + "/nope", KeyFile: key},
		"etcd.key_file cannot be read":                       {CertFile: cert, KeyFile: d + "/nope"},
		"do not match: tls: private key does not match":      {CertFile: cert, KeyFile: other},
		"do not match: tls: failed to find any PEM data":     {CertFile: cert, KeyFile: text},
		"etcd.password_file cannot be read":                  {User: "u", PasswordFile: d},
		"etcd.password_file: " + empty + " is empty":         {User: "u", PasswordFile: empty},
		"every account of this host may open " + open:        {User: "u", PasswordFile: open},
	} {
		e.Endpoints, e.Prefix = []string{"https://127.0.0.1:1"}, DefaultPrefix

		_, err := DialExisting(t.Context(), e, nil)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an invalid error with %q", e, err, want)
		}
	}

	c, err := Existing{
		Endpoints:    []string{"https://a:1"},
		CAFile:       cert,
		CertFile:     cert,
		KeyFile:      key,
		User:         "u",
		PasswordFile: write("good", "s3 cret\n", 0o600),
	}.config()
	if err != nil || c.Username != "u" || c.Password != "s3 cret" || c.TLS.RootCAs == nil {
		t.Fatalf("got %+v, %v", c, err)
	}

	// The next handshake reads the changed files.
	errtest.None(t, os.Rename(other, key))

	if _, err := c.TLS.GetClientCertificate(nil); err == nil {
		t.Error("the certificate is not read again")
	}
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()

	for want, versions := range map[string][]string{
		"problem": {"2.3.8", "3.3.27", "3.4.0", "3.4.22", "3.4.23-rc.1", "", "nonsense"},
		"warning": {"3.4.23", "3.4.44", "3.5.0", "3.5.99", "3.6.13", "3.6.14-rc.0"},
		"none":    {"3.6.14", "3.6.15", "3.7.0", Version, "4.0.0"},
	} {
		for _, version := range versions {
			warning, problem := checkVersion(version)

			got := "none"
			switch {
			case problem != nil:
				got = "problem"

				if inventory.KindOf(problem) != inventory.KindRefused || !strings.Contains(problem.Error(), version) ||
					!strings.Contains(problem.Error(), minVersion) {
					t.Errorf("got problem %v, want a refused error with both versions", problem)
				}
			case warning != "":
				got = "warning"

				if !strings.Contains(warning, version) || !strings.Contains(warning, safeVersion) {
					t.Errorf("got warning %q, want both versions in it", warning)
				}
			}

			if got != want {
				t.Errorf("version %q: got warning %q, problem %v, want %s", version, warning, problem, want)
			}
		}
	}
}

func TestLowestVersion(t *testing.T) {
	t.Parallel()

	for want, versions := range map[string][]string{
		"3.4.9":       {"3.4.10", "3.4.9", "3.5.0"},
		"3.6.14-rc.1": {"3.6.14", "3.6.14-rc.1"},
		"odd":         {"3.0.0", "odd"},
		"3.7.3":       {"3.7.3"},
	} {
		if got := lowestVersion(versions); got != want {
			t.Errorf("%v: got %s, want %s", versions, got, want)
		}
	}
}

// fakeServer implements as much of etcd as a version check and the first read need.
type fakeServer struct {
	pb.UnimplementedKVServer
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer

	version atomic.Pointer[string] // nil: the status request fails
	members []string
	read    atomic.Bool
	cluster uint64
}

// newFakeServer returns a server of the version; members are advertised endpoints.
func newFakeServer(cluster uint64, version string, members ...string) *fakeServer {
	s := &fakeServer{cluster: cluster, members: members}
	s.version.Store(&version)
	return s
}

func (s *fakeServer) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.read.Store(true)
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (s *fakeServer) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{
		Header:  &pb.ResponseHeader{ClusterId: s.cluster},
		Members: []*pb.Member{{ClientURLs: s.members}},
	}, nil
}

func (s *fakeServer) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	version := s.version.Load()
	if version == nil {
		return nil, status.Error(codes.Internal, "the member is broken")
	}
	return &pb.StatusResponse{Header: &pb.ResponseHeader{ClusterId: s.cluster}, Version: *version}, nil
}

// serve starts the server and returns its endpoint.
func (s *fakeServer) serve(t *testing.T) string {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)

	g := grpc.NewServer()
	pb.RegisterKVServer(g, s)
	pb.RegisterClusterServer(g, s)
	pb.RegisterMaintenanceServer(g, s)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(l)
	}()
	t.Cleanup(func() { g.Stop(); <-ended })

	return "http://" + l.Addr().String()
}

// TestServerVersion checks that the lowest version counts among all members of the
// cluster, including those missing from the configuration.
func TestServerVersion(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name                  string
		first, second, lowest string
		want                  string // part of the error or warning
	}{
		{"equal versions", "3.7.3", "3.7.3", "3.7.3", ""},
		{"the other member has known holes", "3.7.3", "3.4.23", "3.4.23", "known holes"},
		{"the configured member is too old", "3.4.22", "3.7.3", "", "too old"},
		{"the other member is too old", "3.7.3", "3.3.5", "",
			"version 3.3.5, which is too old: clusterm needs 3.4.23 or later"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			second := newFakeServer(7, tt.second).serve(t)
			broken := (&fakeServer{cluster: 7}).serve(t)
			otherCluster := newFakeServer(8, "1.0.0").serve(t)
			otherScheme := "https://" + strings.TrimPrefix(newFakeServer(7, "1.0.0").serve(t), "http://")

			first := newFakeServer(7, tt.first, second, broken, otherCluster, otherScheme)
			existing := Existing{Endpoints: []string{first.serve(t)}, Prefix: DefaultPrefix}

			c, err := DialExisting(within(t, testTimeout), existing, discardLog())
			if tt.lowest == "" {
				if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want a refused error with %q", err, tt.want)
				}

				if first.read.Load() {
					t.Error("the records of the refused server were read")
				}
				return
			}

			errtest.None(t, err)
			defer c.Close()

			version, warning, problem := c.Server()
			if version != tt.lowest || problem != nil || (warning == "") != (tt.want == "") ||
				!strings.Contains(warning, tt.want) {
				t.Errorf("got version %s, warning %q, problem %v", version, warning, problem)
			}
		})
	}
}

// TestServerVersionChanges replaces the server at run time and expects one log line
// per change.
func TestServerVersionChanges(t *testing.T) {
	t.Parallel()

	lines, log := newLogBuffer()
	s := newFakeServer(7, "3.7.3")
	existing := Existing{Endpoints: []string{s.serve(t)}, Prefix: DefaultPrefix}

	c, err := DialExisting(within(t, testTimeout), existing, log)
	errtest.None(t, err)
	defer c.Close()

	for _, tt := range []struct{ version, logged string }{
		{"3.4.23", "known holes"},
		{"3.4.1", "too old"},
		{"3.6.14", "version of the etcd server has changed"},
	} {
		s.version.Store(&tt.version)
		c.refreshVersion(t.Context(), log)

		version, warning, problem := c.Server()
		if version != tt.version || (warning != "") != (tt.logged == "known holes") ||
			(problem != nil) != (tt.logged == "too old") {
			t.Errorf("%s: got version %s, warning %q, problem %v", tt.version, version, warning, problem)
		}

		if !strings.Contains(lines.String(), tt.logged) {
			t.Errorf("%s: %q is not logged:\n%s", tt.version, tt.logged, lines)
		}

		before := lines.String()
		if c.refreshVersion(t.Context(), log); lines.String() != before {
			t.Errorf("%s is logged again without a change:\n%s", tt.version, lines)
		}
	}
}

// TestRestrictedUser connects as a user with access below one prefix only, and
// expects errors of authentication and permission without a retry.
func TestRestrictedUser(t *testing.T) {
	t.Parallel()

	s := start(t, ServerOptions{Dir: shortDir(t), NoSync: true})
	ctx := within(t, testTimeout)
	admin := dial(t, s, "/admin")

	for _, err := range []error{
		errorOf(admin.UserAdd(ctx, "root", "root")),
		errorOf(admin.RoleAdd(ctx, "root")),
		errorOf(admin.UserGrantRole(ctx, "root", "root")),
		errorOf(admin.UserAdd(ctx, "clusterm", "secret")),
		errorOf(admin.RoleAdd(ctx, "clusterm")),
		errorOf(admin.UserGrantRole(ctx, "clusterm", "clusterm")),
		errorOf(admin.RoleGrantPermission(ctx, "clusterm", "/mine/", clientv3.GetPrefixRangeEnd("/mine/"),
			clientv3.PermissionType(clientv3.PermReadWrite))),
		errorOf(admin.AuthEnable(ctx)),
	} {
		errtest.None(t, err)
	}

	login := func(user, password, prefix string) (*Client, error) {
		config := clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: user, Password: password}
		accept := func(ctx context.Context, c *Client) error { return errorOf(c.fetchVersion(ctx)) }
		return connect(ctx, config, Keys(prefix), accept, nil)
	}

	for _, tt := range []struct{ user, password, prefix, want string }{
		{"clusterm", "wrong", "/mine", "check etcd.user"},
		{"", "", "/mine", "configure etcd.user"},
		{"clusterm", "secret", "/other", "grant the user of clust"},
	} {
		if _, err := login(tt.user, tt.password, tt.prefix); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v", tt, err)
		}
	}

	c, err := login("clusterm", "secret", "/mine")
	errtest.None(t, err)
	defer c.Close()
}

func errorOf[T any](_ T, err error) error { return err }
