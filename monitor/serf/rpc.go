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

// The subset of serf's RPC protocol that a watch needs. Requests and answers have
// a header and, depending on the command, a body. An answer carries the sequence
// number of its request, an event that of its subscription. See README.md for
// the reasons against serf's own client.
const (
	rpcVersion = 1
	rpcEvents  = "member-join,member-leave,member-failed,member-update,member-reap"
	rpcReap    = "member-reap"

	// maxMessage bounds one message, in bytes. A list of about 100 000 members
	// fits.
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

// rpcMember is a member in the agent's encoding.
type rpcMember struct {
	Name   string
	Addr   net.IP
	Port   uint16
	Tags   map[string]string
	Status string
}

// member converts to serf's type. An unknown status becomes StatusNone.
func (m rpcMember) member() hserf.Member {
	out := hserf.Member{Name: m.Name, Addr: m.Addr, Port: m.Port, Tags: m.Tags}

	known := []hserf.MemberStatus{hserf.StatusAlive, hserf.StatusLeaving, hserf.StatusLeft, hserf.StatusFailed}
	for _, s := range known {
		if s.String() == m.Status {
			out.Status = s
		}
	}

	return out
}

// rpcEvent is a change of members. After rpcReap the agent has forgotten them.
type rpcEvent struct {
	Event   string
	Members []rpcMember
}

// rpc is a connection to an agent. One goroutine calls read, once, until the
// connection ends; any goroutine may make requests meanwhile.
type rpc struct {
	conn net.Conn
	in   *limited
	dec  *codec.Decoder
	out  *bufio.Writer
	enc  *codec.Encoder

	// details: an answer about keys has a body even if the agent reports an error.
	details bool

	requests sync.Mutex // held from a request to its answer

	mu     sync.Mutex
	seq    uint64     // of the last request
	stream uint64     // of the subscription; 0: none
	into   any        // the destination of the answer's body; nil: it has none
	answer chan error // nil: no request is open
	err    error      // the error that ended the connection
	ended  chan struct{}
}

// limited fails a message that exceeds maxMessage.
type limited struct {
	r    io.Reader
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("it sent a message of more than %d bytes", maxMessage)
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
	return newRPC(conn), nil
}

func newRPC(conn net.Conn) *rpc {
	// The encoding of serf's own server and client.
	h := &codec.MsgpackHandle{WriteExt: true}
	h.TimeNotBuiltin = true
	c := &rpc{conn: conn, in: &limited{r: conn}, out: bufio.NewWriter(conn), ended: make(chan struct{})}
	c.dec, c.enc = codec.NewDecoder(bufio.NewReader(c.in), h), codec.NewEncoder(c.out, h)
	return c
}

// close closes the connection; read returns soon after, with the error that
// matters.
func (c *rpc) close() { c.conn.Close() }

// read receives messages until the connection ends. It calls handle for events, one
// after the other; handle must not wait for an answer.
func (c *rpc) read(handle func(rpcEvent)) {
	err := c.next(handle)
	for err == nil {
		err = c.next(handle)
	}

	c.close()
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	close(c.ended)
}

// next receives one message.
func (c *rpc) next(handle func(rpcEvent)) error {
	// The limit counts anew for each message.
	c.in.left = maxMessage

	var h rpcAnswer
	if err := c.dec.Decode(&h); err != nil {
		return err
	}

	c.mu.Lock()
	request, stream, into, answer := c.seq, c.stream, c.into, c.answer
	c.mu.Unlock()

	switch {
	case answer != nil && h.Seq == request:
		var err error
		if h.Error != "" {
			err = errors.New(h.Error)
		}

		if into != nil && (h.Error == "" || c.details && h.Error != authRequired) {
			if err := c.dec.Decode(into); err != nil {
				return fmt.Errorf("cannot decode its answer: %w", err)
			}
		}

		// Before the next request can start.
		c.mu.Lock()
		c.answer = nil
		c.mu.Unlock()
		answer <- err

		return nil
	case stream != 0 && h.Seq == stream && h.Error == "":
		var e rpcEvent
		if err := c.dec.Decode(&e); err != nil {
			return fmt.Errorf("cannot decode its event: %w", err)
		}

		handle(e)

		return nil
	}

	return fmt.Errorf("it sent an answer without a request (%d: %q)", h.Seq, h.Error)
}

// call makes a request and decodes the body of the answer into into; nil means it
// has none. It closes the connection when ctx is done before the answer, since a
// late answer would be taken for the next one.
func (c *rpc) call(ctx context.Context, command string, body, into any) error {
	c.requests.Lock()
	defer c.requests.Unlock()
	answer := make(chan error, 1)
	c.mu.Lock()
	c.seq++

	// Events may follow the answer at once, so the subscription counts from here.
	c.into, c.answer = into, answer
	if command == "stream" {
		c.stream = c.seq
	}

	request := rpcRequest{command, c.seq}
	c.mu.Unlock()

	// Closing the connection interrupts both the write and the wait.
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

	// The timeout closed the connection: report the timeout, not its effect.
	if ctx.Err() != nil {
		return errors.New("it does not answer")
	}

	return c.failure()
}

// failure is the error that ended the connection.
func (c *rpc) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if errors.Is(c.err, io.EOF) {
		return errors.New("it closed the connection")
	}
	return c.err
}

const authRequired = "Authentication required"

// explain translates the refusal of an agent for an operator. The RPC protocol
// transmits errors as text only, and serf exports no constants for it.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case err.Error() == authRequired:
		return errors.New("it requires a key: name the file that holds its rpc_auth in rpc_auth_file")
	case err.Error() == "Invalid authentication token":
		return errors.New("it refuses the key: put its rpc_auth into the file named in rpc_auth_file")
	}

	return fmt.Errorf("it answered %q", err.Error())
}

// open starts the session and subscribes to events.
func (c *rpc) open(ctx context.Context, key string) error {
	if err := c.login(ctx, key); err != nil {
		return err
	}
	return c.call(ctx, "stream", map[string]string{"Type": rpcEvents}, nil)
}

// login starts the session.
func (c *rpc) login(ctx context.Context, key string) error {
	if err := c.call(ctx, "handshake", map[string]int{"Version": rpcVersion}, nil); err != nil {
		return err
	}

	if key == "" {
		return nil
	}
	return c.call(ctx, "auth", map[string]string{"AuthKey": key}, nil)
}

// rpcStats are the numbers of an agent, by topic.
type rpcStats struct {
	Agent map[string]string `codec:"agent"`
	Serf  map[string]string `codec:"serf"`
}

func (c *rpc) stats(ctx context.Context) (s rpcStats, err error) {
	return s, c.call(ctx, "stats", nil, &s)
}

func (c *rpc) members(ctx context.Context) ([]hserf.Member, error) {
	var list struct{ Members []rpcMember }
	if err := c.call(ctx, "members", nil, &list); err != nil {
		return nil, err
	}

	all := make([]hserf.Member, 0, len(list.Members))
	for _, m := range list.Members {
		all = append(all, m.member())
	}

	return all, nil
}

// checkRPC refuses an address outside loopback.
func checkRPC(addr string) error {
	if ap, err := netip.ParseAddrPort(addr); err == nil && ap.Addr().IsLoopback() && ap.Port() != 0 {
		return nil
	}

	return fmt.Errorf(
		"%q is not a loopback address and port, as in 127.0.0.1:7373; serf's RPC is not encrypted, so use a tunnel "+
			"to an agent on another host: ssh -N -L 127.0.0.1:7373:127.0.0.1:7373 root@HOST",
		addr,
	)
}
