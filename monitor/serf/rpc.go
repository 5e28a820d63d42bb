// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/hashicorp/go-msgpack/v2/codec"
	hserf "github.com/hashicorp/serf/serf"
)

// What follows is the part of serf's RPC protocol that a watcher needs: requests
// and answers are a header, and a body where the command has one. An answer has
// the number of its request; what a subscription brings has that of the
// subscription. See README.md for why serf's own client is not used.
const (
	rpcVersion = 1
	rpcEvents  = "member-join,member-leave,member-failed,member-update,member-reap"
	rpcReap    = "member-reap"

	// maxMessage bounds, in bytes, what one message may make this process read.
	// It is the list of some 100 000 members.
	maxMessage = 64 << 20
)

type rpcRequest struct {
	Command string
	Seq     uint64
}

type rpcAnswer struct {
	Seq   uint64
	Error string
}

// rpcMember is a member as an agent describes it.
type rpcMember struct {
	Name   string
	Addr   net.IP
	Port   uint16
	Tags   map[string]string
	Status string
}

// member is the same in serf's own words.
func (m rpcMember) member() hserf.Member {
	out := hserf.Member{Name: m.Name, Addr: m.Addr, Port: m.Port, Tags: m.Tags}
	for _, s := range []hserf.MemberStatus{hserf.StatusAlive, hserf.StatusLeaving, hserf.StatusLeft, hserf.StatusFailed} {
		if s.String() == m.Status {
			out.Status = s
		}
	}

	return out
}

// rpcEvent is what happened to members. An event whose name is rpcReap says that
// the agent has forgotten them.
type rpcEvent struct {
	Event   string
	Members []rpcMember
}

// rpc is a connection to an agent. One goroutine calls read, once, for as long
// as the connection lasts; any may ask meanwhile.
type rpc struct {
	conn net.Conn
	in   *limited
	dec  *codec.Decoder
	out  *bufio.Writer
	enc  *codec.Encoder

	asking sync.Mutex // held for one request until its answer

	mu     sync.Mutex
	seq    uint64     // of the last request
	stream uint64     // of the subscription; 0: none
	into   any        // takes the body of the answer; nil: there is none
	answer chan error // nil: nothing is asked
	err    error      // why reading ended
	ended  chan struct{}
}

// limited ends a message that is longer than anything sensible.
type limited struct {
	r    io.Reader
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("it sends a message of more than %d bytes", maxMessage)
	}

	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n

	return n, err
}

func dialRPC(ctx context.Context, addr string) (*rpc, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}

	h := &codec.MsgpackHandle{WriteExt: true}
	h.TimeNotBuiltin = true
	c := &rpc{conn: conn, in: &limited{r: conn}, out: bufio.NewWriter(conn), ended: make(chan struct{})}
	c.dec, c.enc = codec.NewDecoder(bufio.NewReader(c.in), h), codec.NewEncoder(c.out, h)

	return c, nil
}

// close ends the connection; read returns soon after.
func (c *rpc) close() { c.conn.Close() } // reading says what there is to say

// read takes what the agent sends until the connection ends. Events go to take,
// one after the other; it must not wait for an answer.
func (c *rpc) read(take func(rpcEvent)) {
	err := c.next(take)
	for err == nil {
		err = c.next(take)
	}

	c.close()
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	close(c.ended)
}

func (c *rpc) next(take func(rpcEvent)) error {
	c.in.left = maxMessage

	var h rpcAnswer
	if err := c.dec.Decode(&h); err != nil {
		return err
	}

	c.mu.Lock()
	asked, stream, into, answer := c.seq, c.stream, c.into, c.answer
	c.mu.Unlock()

	switch {
	case answer != nil && h.Seq == asked:
		var err error
		if h.Error != "" {
			err = errors.New(h.Error)
		} else if into != nil {
			if err := c.dec.Decode(into); err != nil {
				return fmt.Errorf("its answer cannot be read: %w", err)
			}
		}

		c.mu.Lock()
		c.answer = nil
		c.mu.Unlock()
		answer <- err

		return nil
	case stream != 0 && h.Seq == stream && h.Error == "":
		var e rpcEvent
		if err := c.dec.Decode(&e); err != nil {
			return fmt.Errorf("its event cannot be read: %w", err)
		}

		take(e)

		return nil
	}

	return fmt.Errorf("it answers what was not asked (%d: %q)", h.Seq, h.Error)
}

// ask makes a request; into takes the body of the answer, and is nil where there
// is none. It ends the connection when ctx is done before the answer is there:
// what came later could not be told apart.
func (c *rpc) ask(ctx context.Context, command string, body, into any) error {
	c.asking.Lock()
	defer c.asking.Unlock()
	answer := make(chan error, 1)
	c.mu.Lock()
	c.seq++

	c.into, c.answer = into, answer
	if command == "stream" {
		c.stream = c.seq
	}

	request := rpcRequest{command, c.seq}
	c.mu.Unlock()

	stop := context.AfterFunc(ctx, c.close)
	defer stop()

	err := c.enc.Encode(request)
	if err == nil && body != nil {
		err = c.enc.Encode(body)
	}

	if err == nil {
		err = c.out.Flush()
	}

	if err != nil {
		c.close()
	}

	select {
	case err := <-answer:
		return explain(err)
	case <-c.ended:
	}

	if ctx.Err() != nil {
		return errors.New("it does not answer")
	}

	return c.why()
}

// why is the reason for which the connection has ended.
func (c *rpc) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if errors.Is(c.err, io.EOF) {
		return errors.New("it has ended the connection")
	}

	return c.err
}

// explain puts an agent's refusal into an operator's words.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case err.Error() == "Authentication required":
		return errors.New("it wants a key: name the file that holds its rpc_auth in rpc_auth_file")
	case err.Error() == "Invalid authentication token":
		return errors.New("it refuses the key: the file named in rpc_auth_file has to hold its rpc_auth")
	}

	return fmt.Errorf("it says %q", err.Error())
}

// open makes the agent ready to be asked. From then on events come.
func (c *rpc) open(ctx context.Context, key string) error {
	if err := c.ask(ctx, "handshake", map[string]int{"Version": rpcVersion}, nil); err != nil {
		return err
	}

	if key != "" {
		if err := c.ask(ctx, "auth", map[string]string{"AuthKey": key}, nil); err != nil {
			return err
		}
	}

	return c.ask(ctx, "stream", map[string]string{"Type": rpcEvents}, nil)
}

// rpcStats is what an agent tells of itself, by topic.
type rpcStats struct {
	Agent map[string]string `codec:"agent"`
	Serf  map[string]string `codec:"serf"`
}

func (c *rpc) stats(ctx context.Context) (s rpcStats, err error) {
	return s, c.ask(ctx, "stats", nil, &s)
}

func (c *rpc) members(ctx context.Context) ([]hserf.Member, error) {
	var list struct{ Members []rpcMember }
	if err := c.ask(ctx, "members", nil, &list); err != nil {
		return nil, err
	}

	all := make([]hserf.Member, 0, len(list.Members))
	for _, m := range list.Members {
		all = append(all, m.member())
	}

	return all, nil
}

// checkRPC refuses an address that is not a loopback one.
func checkRPC(addr string) error {
	if ap, err := netip.ParseAddrPort(addr); err == nil && ap.Addr().IsLoopback() && ap.Port() != 0 {
		return nil
	}

	return fmt.Errorf(
		"%q is not a loopback address and port, as in 127.0.0.1:7373; serf's RPC is not encrypted, so an agent "+
			"on another host is reached through a tunnel: ssh -N -L 127.0.0.1:7373:127.0.0.1:7373 root@HOST",
		addr,
	)
}
