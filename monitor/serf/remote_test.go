// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/monitor"
)

// scriptedAgent is the agent's side of the RPC: it answers with the configured
// members, and sends events on request.
type scriptedAgent struct {
	t    *testing.T
	addr string
	key  string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]*agentConn
	members  []rpcMember
	silent   bool   // receives requests and answers none
	broken   string // the command with a malformed answer
	requests []string
	onList   func() // called before it answers with a list
}

type agentConn struct {
	mu     sync.Mutex
	w      *bufio.Writer
	enc    *codec.Encoder
	stream uint64
}

func (c *agentConn) send(parts ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, p := range parts {
		if c.enc.Encode(p) != nil {
			return
		}
	}

	c.w.Flush()
}

// scripted starts a scripted agent. Its own member is named self.
func scripted(t *testing.T, key string) *scriptedAgent {
	t.Helper()
	a := &scriptedAgent{t: t, addr: "127.0.0.1:0", key: key}
	a.set(rpcAlive("self", 1, nil))
	a.up()
	t.Cleanup(a.down)
	return a
}

// up listens, at the same address as before.
func (a *scriptedAgent) up() {
	a.t.Helper()

	l, err := net.Listen("tcp", a.addr)
	errtest.None(a.t, err)

	a.mu.Lock()
	defer a.mu.Unlock()

	a.listener, a.addr, a.conns = l, l.Addr().String(), map[net.Conn]*agentConn{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go a.serve(conn)
		}
	}()
}

func (a *scriptedAgent) down() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener.Close()

	for c := range a.conns {
		c.Close()
	}
}

func (a *scriptedAgent) serve(conn net.Conn) {
	defer conn.Close()
	h := &codec.MsgpackHandle{WriteExt: true}
	c := &agentConn{w: bufio.NewWriter(conn)}
	c.enc = codec.NewEncoder(c.w, h)
	a.mu.Lock()
	a.conns[conn] = c
	a.mu.Unlock()
	dec := codec.NewDecoder(bufio.NewReader(conn), h)

	authenticated := a.key == ""
	for {
		var r rpcRequest
		if dec.Decode(&r) != nil {
			return
		}

		var body map[string]any
		if r.Command == "handshake" || r.Command == "auth" || r.Command == "stream" {
			if dec.Decode(&body) != nil {
				return
			}
		}

		a.mu.Lock()
		a.requests = append(a.requests, r.Command)
		silent, broken, onList := a.silent, a.broken, a.onList
		a.mu.Unlock()

		ok := rpcAnswer{Seq: r.Seq}
		switch {
		case silent:
		case broken == r.Command:
			conn.Write([]byte(strings.Repeat("\xc1", 64)))
		case r.Command == "handshake":
			c.send(ok)
		case r.Command == "auth":
			if authenticated = fmt.Sprintf("%s", body["AuthKey"]) == a.key; !authenticated {
				ok.Error = "Invalid authentication token"
			}

			c.send(ok)
		case !authenticated:
			ok.Error = "Authentication required"
			c.send(ok)
		case r.Command == "stream":
			c.mu.Lock()
			c.stream = r.Seq
			c.mu.Unlock()
			c.send(ok)
		case r.Command == "stats":
			c.send(ok, map[string]map[string]string{"agent": {"name": "self"}, "serf": {"encrypted": "true"}})
		case r.Command == "members":
			if onList != nil {
				onList()
			}

			a.mu.Lock()
			ms := a.members
			a.mu.Unlock()
			c.send(ok, map[string]any{"Members": ms})
		}
	}
}

// set replaces the members.
func (a *scriptedAgent) set(ms ...rpcMember) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.members = ms
}

// send sends an event to all subscribers.
func (a *scriptedAgent) send(event string, ms ...rpcMember) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, c := range a.conns {
		if c.stream != 0 {
			c.send(rpcAnswer{Seq: c.stream}, rpcEvent{event, ms})
		}
	}
}

func (a *scriptedAgent) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func rpcAlive(name string, n int, tags map[string]string) rpcMember {
	return rpcMember{Name: name, Addr: net.ParseIP(at(n)), Port: 7946, Tags: tags, Status: "alive"}
}

func (m rpcMember) is(status string) rpcMember { m.Status = status; return m }

// watchIt watches an agent, with a recorder as the sink.
func watchIt(t *testing.T, addr string, adjust ...func(*RemoteOptions)) (*Remote, *recorder) {
	t.Helper()
	seen := &recorder{}

	o := RemoteOptions{Addr: addr, Sinks: []monitor.Sink{seen}, Timing: Loopback(), Log: testLog(t)}
	for _, f := range adjust {
		f(&o)
	}

	r, err := WatchRemote(t.Context(), o)
	errtest.None(t, err)

	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})

	return r, seen
}

func TestRemoteFollows(t *testing.T) {
	t.Parallel()
	a := scripted(t, "")
	one, two := rpcAlive("one", 11, node(11).Tags()), rpcAlive("two", 12, node(12).Tags())
	a.set(rpcAlive("self", 1, node(1).Tags()), one, two.is("failed"), rpcAlive("stranger", 13, nil))

	r, seen := watchIt(t, a.addr)
	errtest.None(t, r.Err())
	eventually(t, "the list is reported", func() bool { return seen.see("node-11").Alive && seen.see("node-1").Alive })

	if two := seen.see("node-12"); two.Alive || two.Addr != at(12) {
		t.Errorf("a failed member: %+v", two)
	}

	if s := r.Stats(); s.Alive != 3 || s.Failed != 1 || s.Observer.Strangers != 1 {
		t.Errorf("%+v", s)
	}

	if s, err := r.Self(); err != nil || s.Node != node(1) || s.Addr != at(1)+":7946" || !s.Encrypted ||
		r.Node() != node(1) {
		t.Errorf("%+v, %v", s, err)
	}

	// The list stays the same: from here on all changes are events.
	a.send("member-join", two)
	eventually(t, "a join", func() bool { return seen.see("node-12").Alive && seen.joins("node-12") == 1 })
	moved := node(12)
	moved.Addr = at(19)
	two.Tags = moved.Tags()
	a.send("member-update", two)
	eventually(t, "a change of address", func() bool { return seen.see("node-12").Addr == at(19) })
	a.send("member-leave", two.is("left"))
	eventually(t, "a leave", func() bool { return !seen.see("node-12").Alive })
	a.send("member-failed", one.is("failed"))
	eventually(t, "a failure", func() bool { return !seen.see("node-11").Alive })
	a.send("member-join", one, rpcAlive("twin", 14, Identity{Label: "node", Serial: "11", Addr: at(14)}.Tags()))
	eventually(t, "a duplicate", func() bool { return seen.see("node-11").Duplicate })
	a.send("member-reap", rpcAlive("twin", 14, nil).is("failed"))
	eventually(t, "the end of the duplicate", func() bool { s := seen.see("node-11"); return s.Alive && !s.Duplicate })
}

// TestRemoteSubscribesFirst: an event that comes before the list is neither lost
// nor undone by the list.
func TestRemoteSubscribesFirst(t *testing.T) {
	t.Parallel()
	a := scripted(t, "")
	one, two := rpcAlive("one", 21, node(21).Tags()), rpcAlive("two", 22, node(22).Tags())
	a.set(rpcAlive("self", 1, nil), one)
	a.change(func() {
		a.onList = func() {
			a.send("member-failed", one.is("failed"))
			a.send("member-join", two)
		}
	})
	_, seen := watchIt(t, a.addr)
	eventually(t, "the first report", func() bool { return seen.see("node-22").Alive })

	if seen.see("node-21").Alive {
		t.Error("the list has undone an event")
	}

	var list, stream int
	a.change(func() {
		for i, c := range a.requests {
			if c == "stream" && stream == 0 {
				stream = i + 1
			}

			if c == "members" && list == 0 {
				list = i + 1
			}
		}
	})

	if stream == 0 || list < stream {
		t.Errorf("requests: %v, want stream before members", a.requests)
	}
}

// TestRemoteAway: there is no report while the agent is away, and a full one after.
func TestRemoteAway(t *testing.T) {
	t.Parallel()

	for _, way := range []string{"ends", "is silent", "sends garbage"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			a := scripted(t, "")
			one, two := rpcAlive("one", 31, node(31).Tags()), rpcAlive("two", 32, node(32).Tags())
			a.set(rpcAlive("self", 1, nil), one)
			quick := Loopback()
			quick.Answer, quick.Ping = 300*time.Millisecond, 100*time.Millisecond
			r, seen := watchIt(t, a.addr, func(o *RemoteOptions) { o.Timing = quick })
			eventually(t, "the node is seen", func() bool { return seen.see("node-31").Alive })

			switch way {
			case "ends":
				a.down()
			case "is silent":
				a.change(func() { a.silent = true })
			case "sends garbage":
				a.change(func() { a.broken = "stats" })
			}

			eventually(t, "the agent is disconnected", func() bool { return r.Err() != nil })

			if err := r.Err().Error(); !strings.Contains(err, a.addr+" is not connected since ") {
				t.Error(err)
			}

			if _, err := r.Self(); err == nil {
				t.Error("Self answers for a disconnected agent")
			}

			if !seen.see("node-31").Alive {
				t.Error("a node disappeared with the agent")
			}

			a.set(rpcAlive("self", 1, nil), two)

			switch way {
			case "ends":
				a.up()
			default:
				a.change(func() { a.silent, a.broken = false, "" })
			}

			eventually(
				t,
				"the changes meanwhile are seen",
				func() bool { return seen.see("node-32").Alive && !seen.see("node-31").Alive },
			)
			eventually(t, "the agent is connected", func() bool { return r.Err() == nil })
		})
	}
}

// TestRemoteAlone: an agent that has lost all members may just have started, so the
// first report waits for a bounded time. It does not wait for one that never had
// other members.
func TestRemoteAlone(t *testing.T) {
	t.Parallel()
	a := scripted(t, "")
	one := rpcAlive("one", 41, node(41).Tags())
	a.set(rpcAlive("self", 1, node(1).Tags()))
	var all []*Remote
	watchAlone := func(before string, wait time.Duration) *recorder {
		r, seen := watchIt(
			t,
			a.addr,
			func(o *RemoteOptions) { o.Before, o.Timing.Alone = strings.Fields(before), wait },
		)
		all = append(all, r)

		return seen
	}
	fresh, own := watchAlone("", time.Hour), watchAlone("node-1", time.Hour)

	patient, impatient := watchAlone("node-1 node-41", time.Hour), watchAlone("node-41", 50*time.Millisecond)
	for _, seen := range []*recorder{fresh, own, impatient} {
		eventually(t, "a report without other members", func() bool { return seen.see("node-1").Alive })
	}

	if patient.count() != 0 {
		t.Error("the first report did not wait for the others")
	}

	a.set(rpcAlive("self", 1, nil), one)
	a.send("member-join", one)

	for _, seen := range []*recorder{fresh, own, impatient, patient} {
		eventually(t, "the other", func() bool { return seen.see("node-41").Alive })
	}

	// The agent restarts twice, and the watches that had the other member wait.
	for range 2 {
		a.down()

		for _, r := range all {
			eventually(t, "the agent is disconnected", func() bool { return r.Err() != nil })
		}

		a.set(rpcAlive("self", 1, nil))
		a.up()

		for _, r := range all {
			eventually(t, "the agent is connected", func() bool { return r.Err() == nil })
		}
	}

	eventually(t, "the impatient watch reports", func() bool { return !impatient.see("node-41").Alive })

	for _, seen := range []*recorder{fresh, own, patient} {
		if !seen.see("node-41").Alive {
			t.Error("the report did not wait after a restart of the agent")
		}
	}
}

// TestRemoteBefore: a node that stayed alive over a restart has not joined.
func TestRemoteBefore(t *testing.T) {
	t.Parallel()
	a := scripted(t, "")
	a.set(rpcAlive("self", 1, nil), rpcAlive("one", 51, node(51).Tags()), rpcAlive("two", 52, node(52).Tags()))
	_, seen := watchIt(t, a.addr, func(o *RemoteOptions) { o.Before = []string{"node-51"} })
	eventually(t, "they are seen", func() bool { return seen.see("node-51").Alive })

	if seen.joins("node-51") != 0 || seen.joins("node-52") != 1 {
		t.Errorf("%d and %d joins", seen.joins("node-51"), seen.joins("node-52"))
	}
}

func TestRemoteKey(t *testing.T) {
	t.Parallel()
	a := scripted(t, "open sesame")
	a.set(rpcAlive("self", 1, nil), rpcAlive("one", 61, node(61).Tags()))
	path := filepath.Join(t.TempDir(), "rpc.key")
	fails := func(r *Remote, words string) {
		t.Helper()
		eventually(t, words, func() bool { err := r.Err(); return err != nil && strings.Contains(err.Error(), words) })
	}
	without, _ := watchIt(t, a.addr)
	fails(without, "it requires a key")

	errtest.None(t, os.WriteFile(path, []byte("wrong\n"), 0o600))

	r, seen := watchIt(t, a.addr, func(o *RemoteOptions) { o.AuthFile = path })
	fails(r, "it refuses the key")

	if strings.Contains(r.Err().Error(), "wrong") || seen.count() != 0 {
		t.Errorf("%v; %d reports", r.Err(), seen.count())
	}

	// The file is read before each attempt.
	errtest.None(t, os.WriteFile(path, []byte("open sesame\n"), 0o600))

	eventually(t, "the right key", func() bool { return r.Err() == nil && seen.see("node-61").Alive })
}

func TestRemoteRefuses(t *testing.T) {
	t.Parallel()

	empty := writeFile(t, " \n")
	for _, tt := range []struct{ addr, file, words string }{
		{"127.0.0.1:7373", "/nope/key", "/nope/key"},
		{"127.0.0.1:7373", empty, "is empty"},
		{"", "", "not a loopback address"},
		{"127.0.0.1", "", "not a loopback address"},
		{"127.0.0.1:0", "", "not a loopback address"},
		{"localhost:7373", "", "not a loopback address"},
		{"192.0.2.1:7373", "", "ssh -N -L"},
		{"0.0.0.0:7373", "", "not encrypted"},
	} {
		if _, err := WatchRemote(
			t.Context(),
			RemoteOptions{Addr: tt.addr, AuthFile: tt.file, Log: testLog(t)},
		); err == nil ||
			!strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s %s: %v", tt.addr, tt.file, err)
		}
	}

	if err := CheckRemote("[::1]:7373"); err != nil {
		t.Error(err)
	}
}

// TestRemoteBounds: a message is bounded.
func TestRemoteBounds(t *testing.T) {
	t.Parallel()
	l := &limited{r: strings.NewReader("abcdef"), left: 4}

	b := make([]byte, 3)
	for _, want := range []int{3, 1} {
		if n, err := l.Read(b); n != want || err != nil {
			t.Fatal(n, err)
		}
	}

	if _, err := l.Read(b); err == nil {
		t.Error("it reads beyond the limit")
	}
}
