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
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

// authority issues certificates of members.
type authority struct {
	path string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()

	a := &authority{path: filepath.Join(shortDir(t), "ca.pem")}
	a.cert, a.key = a.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "instances"}, IsCA: true, BasicConstraintsValid: true,
	}, a.path, "")

	return a
}

// issue signs the template by the authority, or by itself if that has no key yet.
func (a *authority) issue(
	t *testing.T, template *x509.Certificate, certFile, keyFile string,
) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.None(t, err)

	template.SerialNumber = big.NewInt(mathrand.Int64())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)

	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	errtest.None(t, err)
	cert, err := x509.ParseCertificate(der)
	errtest.None(t, err)
	errtest.None(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))

	if keyFile != "" {
		pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
		errtest.None(t, err)
		block := &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}
		errtest.None(t, os.WriteFile(keyFile, pem.EncodeToMemory(block), 0o600))
	}

	return cert, key
}

// member describes a member at an address of this host, with free ports.
func (a *authority) member(t *testing.T, name, ip string) Member {
	t.Helper()

	dir := shortDir(t)
	m := Member{
		Name: name, Address: netip.MustParseAddr(ip), ClientPort: freePort(t, ip), PeerPort: freePort(t, ip),
		CAFile: a.path, CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"),
	}
	a.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.ParseIP(ip)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, m.CertFile, m.KeyFile)

	return m
}

// freePort returns a free port below the ephemeral ones, which an outgoing connection
// could take.
func freePort(t *testing.T, ip string) uint16 {
	t.Helper()

	for range 100 {
		port := uint16(20000 + mathrand.IntN(12000))

		l, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(ip), port).String())
		if err == nil {
			l.Close()
			return port
		}
	}

	t.Fatalf("no port is free on %s", ip)

	return 0
}

// instance is a member with a client that follows the others.
type instance struct {
	Member
	opts   ServerOptions
	server *Server
	client *Client
}

// cluster is a cluster on addresses of its own.
type cluster struct {
	authority *authority
	network   string // the first three numbers of the addresses
	children  bool   // the servers are child processes
	instances []*instance
}

// newCluster starts a server that only its host can reach.
func newCluster(t *testing.T, children bool) *cluster {
	t.Helper()

	c := &cluster{
		authority: newAuthority(t), children: children,
		network: fmt.Sprintf("127.%d.%d.", 1+mathrand.IntN(250), 1+mathrand.IntN(250)),
	}
	c.next(t).start(t)

	return c
}

// open opens the first server.
func (c *cluster) open(t *testing.T) {
	t.Helper()

	i := c.instances[0]
	errtest.None(t, i.server.Open(within(t, testTimeout), i.Member))
}

func (i *instance) pidFile() string { return filepath.Join(i.opts.Dir, "pid") }

// next describes one more instance.
func (c *cluster) next(t *testing.T) *instance {
	t.Helper()

	n := len(c.instances) + 1
	i := &instance{
		Member: c.authority.member(t, fmt.Sprintf("i%d", n), fmt.Sprint(c.network, n)),
		opts:   ServerOptions{Dir: shortDir(t), NoSync: true},
	}

	// A killed child stays away.
	if c.children {
		i.opts.Pause = time.Hour
		i.opts.Command = []string{"/bin/sh", "-c", `echo $$ >"$0"; exec "$@"`, i.pidFile(), os.Args[0], "etcd"}
	}

	c.instances = append(c.instances, i)

	return i
}

// start starts the server and its client.
func (i *instance) start(t *testing.T) {
	t.Helper()

	i.server = start(t, i.opts)

	client, err := i.server.Dial(within(t, testTimeout), "/t")
	errtest.None(t, err)
	i.client = client

	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		client.Follow(ctx, 200*time.Millisecond)
	}()

	t.Cleanup(func() {
		stop()
		<-followed
		client.Close()
	})
}

// join adds one more instance as a learner.
func (c *cluster) join(t *testing.T) *instance {
	t.Helper()

	i := c.next(t)

	j, err := c.instances[0].client.AddLearner(within(t, testTimeout), i.Name, i.PeerURL())
	errtest.None(t, err)

	i.InitialCluster, i.Endpoints = j.InitialCluster, j.Endpoints
	errtest.None(t, WriteMember(i.opts.Dir, i.Member))
	i.start(t)

	return i
}

// grow carries out what Grow decides until there are as many voters.
func (c *cluster) grow(t *testing.T, voters int) {
	t.Helper()

	ctx := within(t, testTimeout)
	client := c.instances[0].client

	eventually(t, fmt.Sprintf("there are %d voters", voters), func() bool {
		members, err := client.Members(ctx)
		if err != nil {
			return false
		}

		for _, m := range Grow(members).Promote {
			errtest.None(t, client.Promote(ctx, m.ID))
		}

		n := 0
		for _, m := range members {
			if !m.Learner && m.Healthy {
				n++
			}
		}

		return n == voters
	})
}

// newThree starts a cluster of three voters.
func newThree(t *testing.T, children bool) *cluster {
	t.Helper()

	c := newCluster(t, children)
	c.open(t)
	c.join(t)
	c.join(t)
	c.grow(t, 3)

	return c
}

// eventually waits until the condition is true.
func eventually(t *testing.T, condition string, ok func() bool) {
	t.Helper()

	ctx := within(t, testTimeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not in time: %s", condition)
		case <-tick.C:
		}
	}
}

// put stores the key, which it repeats until it is acknowledged. It returns how long that
// took.
func (i *instance) put(t *testing.T, key string) time.Duration {
	t.Helper()

	begun := time.Now()

	eventually(t, i.Name+" stores "+key, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := i.client.Put(ctx, "/t/"+key, key)
		return err == nil
	})

	return time.Since(begun)
}

// holds reads each key from the server on the host of the instance, by a connection that
// has no other.
func (i *instance) holds(t *testing.T, keys ...string) {
	t.Helper()

	c := dial(t, i.server, "/t")
	for _, key := range keys {
		got, err := c.Get(within(t, testTimeout), "/t/"+key)
		if err != nil || len(got.Kvs) != 1 {
			t.Errorf("%s has %v, %v for %s", i.Name, got, err, key)
		}
	}
}

// TestGrowthKeepsData: everything that the lone member acknowledged is on each of three,
// and clients that were there before go on.
func TestGrowthKeepsData(t *testing.T) {
	t.Parallel()

	for name, children := range map[string]bool{"in this process": false, "as children": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := newCluster(t, children)
			first := c.instances[0]

			first.put(t, "alone")
			c.open(t)
			c.open(t) // repeated, it changes nothing
			first.put(t, "opened")

			second := c.join(t)
			second.put(t, "learner") // through the voter

			third := c.join(t)
			c.grow(t, 3)
			second.put(t, "second")
			third.put(t, "third")

			for _, i := range c.instances {
				i.holds(t, "alone", "opened", "learner", "second", "third")
			}

			if n := first.server.Restarts(); n != 0 {
				t.Errorf("the first server exited by itself %d times", n)
			}
		})
	}
}

// TestForeignCertificate: a certificate of another authority opens neither port.
func TestForeignCertificate(t *testing.T) {
	t.Parallel()

	c := newCluster(t, false)
	c.open(t)
	first := c.instances[0]

	foreign := newAuthority(t).member(t, "foreign", first.Address.String())
	foreign.CAFile = c.authority.path

	for name, m := range map[string]Member{"our": c.next(t).Member, "a foreign": foreign} {
		config, err := m.tlsConfig()
		errtest.None(t, err)

		for _, u := range []string{first.ClientURL(), first.PeerURL()} {
			_, err := probe(within(t, testTimeout), u, config)
			if (err == nil) != (name == "our") {
				t.Errorf("%s certificate at %s: %v", name, u, err)
			}
		}
	}

	config, err := foreign.tlsConfig()
	errtest.None(t, err)
	config.GetClientCertificate = nil

	for _, u := range []string{first.ClientURL(), first.PeerURL()} {
		if _, err := probe(within(t, testTimeout), u, config); err == nil {
			t.Errorf("%s accepts a client without a certificate", u)
		}
	}
}
