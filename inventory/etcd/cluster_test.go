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
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

	followed chan error // the result of Follow
}

// cluster is a cluster on addresses of its own.
type cluster struct {
	authority *authority
	network   string // the first three numbers of the addresses
	children  bool   // the servers are child processes
	quota     int64  // of later ones; 0: the default
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

// kill kills the child process.
func (i *instance) kill(t *testing.T) {
	t.Helper()
	i.signal(t, "KILL")
}

func (i *instance) signal(t *testing.T, name string) {
	t.Helper()

	pid, err := os.ReadFile(i.pidFile())
	errtest.None(t, err)
	if out, err := exec.Command("kill", "-"+name, strings.TrimSpace(string(pid))).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// next describes one more instance.
func (c *cluster) next(t *testing.T) *instance {
	t.Helper()

	n := len(c.instances) + 1
	i := &instance{
		Member: c.authority.member(t, fmt.Sprintf("i%d", n), fmt.Sprint(c.network, n)),
		opts:   ServerOptions{Dir: shortDir(t), NoSync: true, Quota: c.quota},
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
	followed := make(chan error, 1) // the instance may be started again
	i.followed = followed

	var following sync.WaitGroup
	following.Go(func() { followed <- client.Follow(ctx, 200*time.Millisecond) })

	t.Cleanup(func() {
		stop()
		following.Wait()
		client.Close()
	})
}

// admit adds one more instance as a learner, and does not start it.
func (c *cluster) admit(t *testing.T) *instance {
	t.Helper()

	i := c.next(t)

	j, err := c.instances[0].client.AddLearner(within(t, testTimeout), i.Name, i.PeerURL())
	errtest.None(t, err)

	i.InitialCluster, i.Endpoints = j.InitialCluster, j.Endpoints
	errtest.None(t, WriteMember(i.opts.Dir, i.Member))

	return i
}

// join adds one more instance as a learner, and starts it.
func (c *cluster) join(t *testing.T) *instance {
	t.Helper()

	i := c.admit(t)
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

	for _, i := range c.instances[:voters] {
		eventually(t, i.Name+" knows all voters", func() bool { return len(i.client.Endpoints()) == voters })
	}
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

// named returns the member of the instance.
func (c *cluster) named(t *testing.T, by *instance, name string) ClusterMember {
	t.Helper()

	members := c.members(t, by)
	for _, m := range members {
		if m.Name == name {
			return m
		}
	}

	t.Fatalf("no member %s: %+v", name, members)

	return ClusterMember{}
}

// leader returns the instance that leads and the others.
func (c *cluster) leader(t *testing.T) (leader *instance, others []*instance) {
	t.Helper()

	members := c.members(t, c.instances[0])
	for _, m := range members {
		for _, i := range c.instances {
			switch {
			case m.Name != i.Name:
			case m.Leader:
				leader = i
			default:
				others = append(others, i)
			}
		}
	}

	if leader == nil || len(others) != len(c.instances)-1 {
		t.Fatalf("no leader, or members are missing: %+v", members)
	}

	return leader, others
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

// TestFailover kills the leader, starts it again, and kills a follower. Clients on every
// host go on, with all that was acknowledged.
func TestFailover(t *testing.T) {
	t.Parallel()

	c := newThree(t, true)

	var keys []string

	puts := func(what string) {
		for _, by := range c.instances {
			longest := time.Duration(0)
			for range 20 {
				keys = append(keys, fmt.Sprint(len(keys)))
				longest = max(longest, by.put(t, keys[len(keys)-1]))
			}
			t.Logf("%s: the longest of 20 puts of %s took %s", what, by.Name, longest.Round(time.Millisecond))
		}
	}

	// The client of the first one is older than the network side of its server.
	leader, others := c.leader(t)
	if leader != c.instances[0] {
		t.Fatalf("%s leads", leader.Name)
	}

	leader.kill(t)
	puts("the leader was killed")

	errtest.None(t, leader.server.Close())
	leader.server = start(t, leader.opts)
	eventually(t, "all members answer", func() bool {
		return !slices.ContainsFunc(c.members(t, others[0]), func(m ClusterMember) bool { return !m.Healthy })
	})

	_, others = c.leader(t)
	others[0].kill(t)
	puts("a follower was killed")

	// With data, the initial cluster of its first start is of no interest.
	errtest.None(t, others[0].server.Close())
	others[0].server = start(t, others[0].opts)

	for _, i := range c.instances {
		i.holds(t, keys...)
	}
}

// TestWatchGoesOn: a watch lives through the restarts of opening, and of each member of
// three. It misses nothing.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()

	c := newCluster(t, true)
	first := c.instances[0]
	ctx := within(t, testTimeout)
	watch := first.client.Watch(ctx, "/t/", clientv3.WithPrefix())

	var want []string

	put := func(key string) {
		t.Helper()
		first.put(t, key)
		want = append(want, "/t/"+key)
	}

	put("alone")

	begun := time.Now()
	c.open(t)
	put("opened")
	t.Logf("opening took %s", time.Since(begun).Round(time.Millisecond))

	c.join(t)
	c.join(t)
	c.grow(t, 3)

	for _, i := range c.instances {
		put("before the end of " + i.Name)

		begun := time.Now()
		errtest.None(t, i.server.Close())
		t.Logf("%s ended in %s", i.Name, time.Since(begun).Round(time.Millisecond))
		put("without " + i.Name)

		i.server = start(t, i.opts)
		eventually(t, "all members answer", func() bool {
			members, err := first.client.Members(ctx)
			return err == nil && !slices.ContainsFunc(members, func(m ClusterMember) bool { return !m.Healthy })
		})
	}

	// A put that was repeated is there twice.
	var got []string
	for !slices.Equal(got, want) {
		resp, ok := <-watch
		if !ok || resp.Err() != nil {
			t.Fatalf("the watch ended with %v after %v, want %v", resp.Err(), got, want)
		}

		for _, e := range resp.Events {
			got = append(got, string(e.Kv.Key))
		}
		got = slices.Compact(got)
	}
}

// TestJoinBeforeStart adds two members before either starts, in each order.
func TestJoinBeforeStart(t *testing.T) {
	t.Parallel()

	for name, order := range map[string][]int{"as they joined": {1, 2}, "the last first": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := newCluster(t, true)
			c.open(t)
			c.instances[0].put(t, "alone")
			c.admit(t)
			c.admit(t)

			for _, i := range order {
				c.instances[i].start(t)
			}

			c.grow(t, 3)

			for _, i := range c.instances {
				i.holds(t, "alone")
			}
		})
	}
}

// TestLostData starts a voter whose data are gone. It may neither join again as the one that it was, nor begin anew.
func TestLostData(t *testing.T) {
	t.Parallel()

	c := newThree(t, true)
	second := c.instances[1]
	initial := second.InitialCluster

	eventually(t, "the initial cluster is forgotten", func() bool {
		m, err := ReadMember(second.opts.Dir)
		return err == nil && len(m.InitialCluster) == 0 && len(m.Endpoints) == 2
	})

	errtest.None(t, second.server.Close())
	errtest.None(t, os.RemoveAll(second.opts.dataDir()))

	second.opts.Log = discardLog()

	for _, initial := range []map[string]string{nil, initial} {
		m, err := ReadMember(second.opts.Dir)
		errtest.None(t, err)

		// As it is before the first look at the others.
		m.InitialCluster = initial
		errtest.None(t, WriteMember(second.opts.Dir, m))

		for _, accept := range []bool{false, true} {
			o, err := Open(within(t, testTimeout), Opening{
				Server: second.opts, AcceptEmpty: accept, Traces: []string{"instance.id"},
			})
			if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(fmt.Sprint(err), "lost its data") {
				t.Errorf("initial cluster %v, accept %v: got %v", initial, accept, err)
			}

			if err == nil {
				errtest.None(t, o.Close())
			}
		}
	}

	c.instances[0].put(t, "after")
}

// TestLostWrite sends writes to a follower whose leader was just killed. They end with
// the news that their outcome is unknown, long before etcd answers, and what was
// acknowledged stays.
func TestLostWrite(t *testing.T) {
	t.Parallel()

	c := newThree(t, true)
	leader, others := c.leader(t)
	leader.kill(t)

	const puts = 20

	begun := time.Now()
	errs := make([]error, puts)

	var requests sync.WaitGroup
	for i := range puts {
		requests.Go(func() {
			_, errs[i] = others[0].client.Put(within(t, testTimeout), fmt.Sprint("/t/", i), "x")
		})
	}

	requests.Wait()
	t.Logf("the last of %d writes ended after %s", puts, time.Since(begun).Round(time.Millisecond))

	lost := 0

	var keys []string
	for i, err := range errs {
		switch {
		case err == nil:
			keys = append(keys, fmt.Sprint(i))
		case strings.Contains(err.Error(), errLost.Error()):
			lost++

			if kind := inventory.KindOf(Error(err)); kind != inventory.KindUnavailable {
				t.Errorf("put %d: %v is %s", i, err, kind)
			}
		default:
			t.Errorf("put %d: %v", i, err)
		}
	}

	if lost == 0 {
		t.Errorf("of %d writes, none was lost: %v", puts, errs)
	}

	others[0].put(t, "after")
	others[0].holds(t, append(keys, "after")...)
	others[1].holds(t, keys...)
}

// TestPausedMember stops the process of the member that a client of another host uses.
func TestPausedMember(t *testing.T) {
	t.Parallel()

	c := newThree(t, true)
	learner := c.join(t)
	learner.put(t, "before")

	// The connection is to one of them.
	for _, i := range c.instances[:3] {
		i.signal(t, "STOP")
		took := learner.put(t, "stopped-"+i.Name)
		i.signal(t, "CONT")

		t.Logf("with %s stopped, a put took %s", i.Name, took.Round(time.Millisecond))
		eventually(t, "all members answer", func() bool {
			members, err := learner.client.Members(within(t, testTimeout))
			return err == nil && !slices.ContainsFunc(members, func(m ClusterMember) bool { return !m.Healthy })
		})
	}

	for _, i := range c.instances[:3] {
		i.holds(t, "before", "stopped-i1", "stopped-i2", "stopped-i3")
	}
}

// TestOpenInterrupted ends the process after the first step of Open. The next start does
// the rest, so that others can join.
func TestOpenInterrupted(t *testing.T) {
	t.Parallel()

	c := newCluster(t, false)
	first := c.instances[0]
	first.put(t, "alone")

	errtest.None(t, WriteMember(first.opts.Dir, first.Member))
	errtest.None(t, first.server.Close())
	first.server = start(t, first.opts)

	c.join(t)
	c.join(t)
	c.grow(t, 3)

	for _, i := range c.instances {
		i.holds(t, "alone")
	}
}

// TestOpenRefuses: an address that the server cannot have leaves it as it was.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()

	c := newCluster(t, false)
	first := c.instances[0]

	l, err := net.Listen("tcp", first.peerURL().Host)
	errtest.None(t, err)
	defer l.Close()

	err = first.server.Open(within(t, testTimeout), first.Member)
	if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), first.peerURL().Host) {
		t.Errorf("a port in use: %v", err)
	}

	if _, err := ReadMember(first.opts.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a description: %v", err)
	}

	first.put(t, "after")
	errtest.None(t, l.Close())
	c.open(t)
	c.join(t)

	moved := first.Member
	moved.PeerPort = freePort(t, moved.Address.String())
	if err := first.server.Open(within(t, testTimeout), moved); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("another address with others in the cluster: %v", err)
	}

	first.holds(t, "after")
}

// TestAddLearner: it may be repeated, and refuses what belongs to another member.
func TestAddLearner(t *testing.T) {
	t.Parallel()

	c := newCluster(t, false)
	c.open(t)
	first, second, third := c.instances[0], c.next(t), c.next(t)

	add := func(name, url string) (Joining, error) {
		return first.client.AddLearner(within(t, testTimeout), name, url)
	}

	one, err := add(second.Name, second.PeerURL())
	errtest.None(t, err)

	again, err := add(second.Name, second.PeerURL())
	if err != nil || again.ID != one.ID || !maps.Equal(again.InitialCluster, one.InitialCluster) {
		t.Errorf("repeated: %+v, %v, want %+v", again, err, one)
	}

	want := map[string]string{first.Name: first.PeerURL(), second.Name: second.PeerURL()}
	if !maps.Equal(one.InitialCluster, want) || !slices.Equal(one.Endpoints, []string{first.ClientURL()}) {
		t.Errorf("got %+v, want %v at %s", one, want, first.ClientURL())
	}

	for what, m := range map[string]struct{ name, url string }{
		"the name of another": {first.Name, third.PeerURL()},
		"the URL of another":  {third.Name, first.PeerURL()},
	} {
		if _, err := add(m.name, m.url); inventory.KindOf(err) != inventory.KindRefused {
			t.Errorf("%s: %v", what, err)
		}
	}

	for _, url := range []string{
		"", "http://127.0.0.1:1", "https://127.0.0.1:1/x", "https://host:1", "https://127.0.0.1",
	} {
		if _, err := add(third.Name, url); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%q: %v", url, err)
		}
	}

	if n := len(c.members(t, first)); n != 2 {
		t.Errorf("there are %d members", n)
	}

	// Before its first start, a learner has nothing.
	err = first.client.Promote(within(t, testTimeout), one.ID)
	if inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("a learner without data became a voter: %v", err)
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

// TestRemove removes the leader of three. Its server ends, and a start with its data says
// why it is of no use.
func TestRemove(t *testing.T) {
	t.Parallel()

	for name, children := range map[string]bool{"in this process": false, "as children": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := newThree(t, children)
			leader, others := c.leader(t)
			id := c.named(t, others[0], leader.Name).ID

			// While it is down, so that it learns of its removal at its next start.
			errtest.None(t, others[0].client.moveLeadership(within(t, testTimeout), c.members(t, others[0])))
			errtest.None(t, leader.server.Close())

			for range 2 {
				errtest.None(t, others[0].client.Remove(within(t, testTimeout), id))
			}

			s := start(t, leader.opts)

			_, err := s.Dial(within(t, testTimeout), "/t")
			if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "was removed") {
				t.Errorf("got %v, want that the member was removed", err)
			}
			gone(t, s)

			others[1].put(t, "more")

			err = others[1].client.Remove(within(t, testTimeout), c.named(t, others[0], others[0].Name).ID)
			errtest.None(t, err)
			gone(t, others[0].server)

			others[1].put(t, "alone")

			err = others[1].client.Remove(within(t, testTimeout), c.named(t, others[1], others[1].Name).ID)
			if inventory.KindOf(err) != inventory.KindRefused {
				t.Errorf("the last member was removed: %v", err)
			}
		})
	}
}

// TestRemovedWhilePaused removes a member whose server does not learn of it. Its client does, through the others.
func TestRemovedWhilePaused(t *testing.T) {
	t.Parallel()

	c := newThree(t, true)
	third := c.instances[2]

	third.signal(t, "STOP")
	defer third.signal(t, "CONT")

	first := c.instances[0]
	errtest.None(t, first.client.Remove(within(t, testTimeout), c.named(t, first, third.Name).ID))

	gone(t, third.server)

	if err := <-third.followed; inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("its client goes on: %v", err)
	}
}

// TestOtherStore: a client stays with its store where another one answers at the address of a member.
func TestOtherStore(t *testing.T) {
	t.Parallel()

	c := newCluster(t, false)
	c.open(t)
	other := &cluster{authority: c.authority, network: fmt.Sprintf("127.%d.%d.", 1+mathrand.IntN(250), 251)}
	other.next(t).start(t)
	other.open(t)

	first, foreign := c.instances[0], other.instances[0]
	ctx := within(t, testTimeout)

	eventually(t, "each member serves", func() bool {
		return first.client.serves(ctx, first.ClientURL()) && foreign.client.serves(ctx, foreign.ClientURL())
	})

	// It answers, so that its answer is what the client judges.
	if _, err := first.client.Status(ctx, foreign.ClientURL()); err != nil {
		t.Fatal(err)
	}

	if first.client.serves(ctx, foreign.ClientURL()) {
		t.Error("the client would use another store")
	}
}

// TestFoundAgain: a store that is founded in the place of another one has an id of its own.
func TestFoundAgain(t *testing.T) {
	t.Parallel()

	o := ServerOptions{Dir: shortDir(t), NoSync: true}
	ids := map[uint64]bool{}

	for range 2 {
		s := start(t, o)
		status, err := dial(t, s, "/t").Status(within(t, testTimeout), s.Endpoint())
		errtest.None(t, err)

		ids[status.Header.ClusterId] = true

		errtest.None(t, s.Close())
		errtest.None(t, os.RemoveAll(o.dataDir()))
	}

	if len(ids) != 2 {
		t.Errorf("the ids are %v", ids)
	}
}

// TestStatusOfRemoved: etcd panics on a question about its state after it was removed.
func TestStatusOfRemoved(t *testing.T) {
	t.Parallel()

	info := &grpc.UnaryServerInfo{FullMethod: pb.Maintenance_Status_FullMethodName}

	_, err := answeringRemoved(t.Context(), nil, info, func(context.Context, any) (any, error) {
		panic("failed to find local ID in cluster members")
	})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

// gone waits until the server has given up.
func gone(t *testing.T, s *Server) {
	t.Helper()

	select {
	case <-s.hopeless.Done():
	case <-within(t, testTimeout).Done():
		t.Fatal("the server still runs")
	}
}

func (c *cluster) members(t *testing.T, by *instance) []ClusterMember {
	t.Helper()

	members, err := by.client.Members(within(t, testTimeout))
	errtest.None(t, err)

	return members
}
