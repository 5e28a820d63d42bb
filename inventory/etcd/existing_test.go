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
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv/cluster/inventory"
)

func TestExistingCheck(t *testing.T) {
	t.Parallel()

	one := []string{"https://a:2379"}
	for says, e := range map[string]Existing{
		"etcd.ca_file: it is for an existing etcd":               {CAFile: "/x", Prefix: DefaultPrefix},
		"etcd.password_file: it is for":                          {PasswordFile: "/x", Prefix: DefaultPrefix},
		"etcd.user: it is for":                                   {User: "x", Prefix: DefaultPrefix},
		"etcd.prefix: it is for":                                 {Prefix: "/other"},
		"etcd.ca_file: \"x\" is not an absolute path":            {Endpoints: one, CAFile: "x", Prefix: "/a"},
		"etcd.password_file: \"./x\" is not":                     {Endpoints: one, User: "u", PasswordFile: "./x", Prefix: "/a"},
		"etcd.prefix: \"\" is not a prefix":                      {Endpoints: one},
		"etcd.prefix: \"/\" is":                                  {Endpoints: one, Prefix: "/"},
		"etcd.prefix: \"a\" is":                                  {Endpoints: one, Prefix: "a"},
		"etcd.prefix: \"/a/\" is":                                {Endpoints: one, Prefix: "/a/"},
		"etcd.prefix: \"/a//b\" is":                              {Endpoints: one, Prefix: "/a//b"},
		"etcd.prefix: \"/a b\" is":                               {Endpoints: one, Prefix: "/a b"},
		"at most 200":                                            {Endpoints: one, Prefix: "/" + strings.Repeat("a", 200)},
		"\"a:2379\" is not an endpoint":                          {Endpoints: []string{"a:2379"}, Prefix: "/a"},
		"\"https://a\" is not an endpoint":                       {Endpoints: []string{"https://a"}, Prefix: "/a"},
		"\"https://u:p@a:1\" is not an endpoint":                 {Endpoints: []string{"https://u:p@a:1"}, Prefix: "/a"},
		"\"https://a:1/x\" is not an endpoint":                   {Endpoints: []string{"https://a:1/x"}, Prefix: "/a"},
		"\"unix:///x\" is not an endpoint":                       {Endpoints: []string{"unix:///x"}, Prefix: "/a"},
		"\"http://10.0.0.1:2379\" would send everything":         {Endpoints: []string{"http://10.0.0.1:2379"}, Prefix: "/a"},
		"\"http://localhost:2379\" would send":                   {Endpoints: []string{"http://localhost:2379"}, Prefix: "/a"},
		"https and http are mixed":                               {Endpoints: []string{"https://a:1", "http://127.0.0.1:1"}, Prefix: "/a"},
		"is there twice":                                         {Endpoints: []string{"https://a:1", "https://a:1"}, Prefix: "/a"},
		"ca_file, cert_file and key_file go with https":          {Endpoints: []string{"http://127.0.0.1:1"}, CAFile: "/x", Prefix: "/a"},
		"cert_file and key_file go together":                     {Endpoints: one, CertFile: "/x", Prefix: "/a"},
		"etcd.user: user and password_file go together":          {Endpoints: one, User: "x", Prefix: "/a"},
		"etcd.user: user and password_file go together; or none": {Endpoints: one, PasswordFile: "/x", Prefix: "/a"},
	} {
		says, _, _ = strings.Cut(says, "; or")
		if err := e.Check(); inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", e, err)
		}
	}

	for _, e := range []Existing{
		{Prefix: DefaultPrefix},
		{Endpoints: []string{"http://127.0.0.1:2379", "http://127.0.0.2:2379", "http://[::1]:2379"}, Prefix: "/a/b-c/D.e_f"},
		{Endpoints: []string{"https://a:2379", "https://10.0.0.1:2379/"}, CAFile: "/ca", CertFile: "/c", KeyFile: "/k", User: "u", PasswordFile: "/p", Prefix: DefaultPrefix},
	} {
		if err := e.Check(); err != nil {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// certificate writes a key and a certificate for it, and returns their files.
func certificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}

	private8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	write := func(file, kind string, bytes []byte) string {
		path := filepath.Join(dir, name+file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	return write(".crt", "CERTIFICATE", der), write(".key", "PRIVATE KEY", private8)
}

// TestExistingFiles: what is wrong with a file is said before anybody is dialled.
func TestExistingFiles(t *testing.T) {
	t.Parallel()
	d := t.TempDir()
	cert, key := certificate(t, d, "a")
	_, other := certificate(t, d, "b")
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(d, name)
		if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}

		return path
	}

	text, empty, open := write("text", "hello", 0o600), write("empty", "\n", 0o600), write("open", "secret\n", 0o644)
	for says, e := range map[string]Existing{
		"etcd.ca_file cannot be read":                     {CAFile: d + "/nope"},
		"etcd.ca_file: " + text + " holds no certificate": {CAFile: text},
		"etcd.cert_file cannot be read":                   {CertFile: d + "/nope", KeyFile: key},
		"etcd.key_file cannot be read":                    {CertFile: cert, KeyFile: d + "/nope"},
		"do not fit: private key does not match":          {CertFile: cert, KeyFile: other},
		"do not fit: failed to find any PEM data":         {CertFile: cert, KeyFile: text},
		"etcd.password_file cannot be read":               {User: "u", PasswordFile: d},
		"etcd.password_file: " + empty + " is empty":      {User: "u", PasswordFile: empty},
		"every account of this host may open " + open:     {User: "u", PasswordFile: open},
	} {
		e.Endpoints, e.Prefix = []string{"https://127.0.0.1:1"}, DefaultPrefix
		if _, err := DialExisting(
			t.Context(),
			e,
			nil,
		); inventory.KindOf(err) != inventory.KindInvalid ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", e, err)
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
		t.Fatalf("%+v, %v", c, err)
	}

	// A renewed pair is read at the next handshake.
	if err := os.Rename(other, key); err != nil {
		t.Fatal(err)
	}

	if _, err := c.TLS.GetClientCertificate(nil); err == nil {
		t.Error("the certificate was not read again")
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()

	for version, want := range map[string]string{
		"2.3.8": "refused", "3.3.27": "refused", "3.4.0": "refused", "3.4.22": "refused", "3.4.23-rc.1": "refused", "": "refused", "nonsense": "refused",
		"3.4.23": "warned", "3.4.44": "warned", "3.5.0": "warned", "3.5.99": "warned", "3.6.13": "warned", "3.6.14-rc.0": "warned",
		"3.6.14": "taken", "3.6.15": "taken", "3.7.0": "taken", Version: "taken", "4.0.0": "taken",
	} {
		warning, problem := judge(version)

		got := "taken"
		switch {
		case problem != nil:
			got = "refused"

			if inventory.KindOf(problem) != inventory.KindRefused || !strings.Contains(problem.Error(), oldest) ||
				!strings.Contains(problem.Error(), version) {
				t.Errorf("%s: %v", version, problem)
			}
		case warning != "":
			got = "warned"

			if !strings.Contains(warning, version) || !strings.Contains(warning, whole) {
				t.Errorf("%s: %s", version, warning)
			}
		}

		if got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}

func TestLowest(t *testing.T) {
	t.Parallel()

	for want, versions := range map[string][]string{
		"3.4.9": {"3.4.10", "3.4.9", "3.5.0"}, "3.6.14-rc.1": {"3.6.14", "3.6.14-rc.1"}, "odd": {"3.0.0", "odd"}, "3.7.3": {"3.7.3"},
	} {
		if got := lowest(versions); got != want {
			t.Errorf("%v: %s, want %s", versions, got, want)
		}
	}
}

// versionedServer is as much of an etcd server as it takes to be asked for its version.
type versionedServer struct {
	pb.UnimplementedKVServer
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer
	version atomic.Pointer[string]
	members []string
	written atomic.Bool
	cluster uint64
}

func (s *versionedServer) say(version string) { s.version.Store(&version) }

func (s *versionedServer) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.written.Store(true)
	return &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}, nil
}

func (s *versionedServer) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{
		Header:  &pb.ResponseHeader{ClusterId: s.cluster},
		Members: []*pb.Member{{ClientURLs: s.members}},
	}, nil
}

func (s *versionedServer) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	version := s.version.Load()
	if version == nil {
		return nil, status.Error(codes.Internal, "it is not well")
	}

	return &pb.StatusResponse{Header: &pb.ResponseHeader{ClusterId: s.cluster}, Version: *version}, nil
}

func (s *versionedServer) serve(t *testing.T) string {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

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

// TestServerVersion: all members are asked, also those that the configuration
// does not name, and the lowest version counts.
func TestServerVersion(t *testing.T) {
	t.Parallel()
	log := logrus.New()
	log.SetOutput(io.Discard)
	gone := &versionedServer{}
	gone.say("1.0.0")

	for _, tt := range []struct{ first, second, lowest, says string }{
		{"3.7.3", "3.7.3", "3.7.3", ""},
		{"3.7.3", "3.4.23", "3.4.23", "warned"},
		{"3.4.22", "3.7.3", "", "too old"},
		{"3.7.3", "3.3.5", "", "version 3.3.5, which is too old: clusterm needs 3.4.23 or later"},
	} {
		second := &versionedServer{cluster: 7}
		second.say(tt.second)
		stranger := &versionedServer{cluster: 8}
		stranger.say("1.0.0")
		first := &versionedServer{
			cluster: 7,
			members: []string{second.serve(t), stranger.serve(t), "https://" + gone.serve(t)[len("http://"):]},
		}
		first.say(tt.first)

		if tt.lowest == "3.4.23" {
			first.members = append(first.members, (&versionedServer{cluster: 7}).serve(t)) // which does not say
		}

		e := Existing{Endpoints: []string{first.serve(t)}, Prefix: DefaultPrefix}

		c, err := DialExisting(within(t, patience), e, log)
		if tt.lowest == "" {
			if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%+v: %v", tt, err)
			}

			if first.written.Load() {
				t.Errorf("%+v: something was written", tt)
			}

			continue
		}

		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}

		version, warning, problem := c.Server()
		if version != tt.lowest || (warning != "") != (tt.says == "warned") || problem != nil {
			t.Errorf("%+v: %s, %s, %v", tt, version, warning, problem)
		}

		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestServerIsReplaced: a member that is downgraded, or upgraded, is noticed while
// clusterm runs.
func TestServerIsReplaced(t *testing.T) {
	t.Parallel()
	said, log := newLines()
	s := &versionedServer{}
	s.say("3.7.3")
	e := Existing{Endpoints: []string{s.serve(t)}, Prefix: DefaultPrefix}

	c, err := DialExisting(within(t, patience), e, log)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	for _, tt := range []struct{ version, says string }{{"3.4.23", "known holes"}, {"3.4.1", "too old"}, {"3.6.14", "another version"}} {
		s.say(tt.version)
		c.look(t.Context(), log)

		version, warning, problem := c.Server()
		if version != tt.version || (warning != "") != (tt.says == "known holes") ||
			(problem != nil) != (tt.says == "too old") ||
			!strings.Contains(said.String(), tt.says) {
			t.Errorf("%s: %s, %s, %v\n%s", tt.version, version, warning, problem, said)
		}

		before := said.String()
		if c.look(t.Context(), log); said.String() != before {
			t.Errorf("it is said again: %s", said)
		}
	}
}

// TestRestrictedUser: what needs a right beyond reading and writing below the
// prefix is not asked for, and what is wrong with the user is said at once.
func TestRestrictedUser(t *testing.T) {
	t.Parallel()
	s := start(t, ServerOptions{Dir: dir(t), NoSync: true})
	ctx := within(t, patience)

	admin := dial(t, s, "/admin")
	for _, err := range []error{
		second(admin.UserAdd(ctx, "root", "root")), second(admin.RoleAdd(ctx, "root")), second(admin.UserGrantRole(ctx, "root", "root")),
		second(admin.UserAdd(ctx, "clusterm", "secret")), second(admin.RoleAdd(ctx, "clusterm")), second(admin.UserGrantRole(ctx, "clusterm", "clusterm")),
		second(admin.RoleGrantPermission(ctx, "clusterm", "/mine/", clientv3.GetPrefixRangeEnd("/mine/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(admin.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	enter := func(user, password, prefix string) (*Client, error) {
		return connect(
			ctx,
			clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: user, Password: password},
			Keys(prefix),
			func(ctx context.Context, c *Client) error { return second(c.survey(ctx)) },
			nil,
		)
	}
	for says, tt := range map[string][3]string{
		"check etcd.user":         {"clusterm", "wrong", "/mine"},
		"configure etcd.user":     {"", "", "/mine"},
		"grant the user of clust": {"clusterm", "secret", "/other"},
	} {
		if _, err := enter(tt[0], tt[1], tt[2]); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", tt, err)
		}
	}

	c, err := enter("clusterm", "secret", "/mine")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
}

func second[T any](_ T, err error) error { return err }
