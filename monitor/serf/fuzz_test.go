// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"bytes"
	"encoding/base64"
	"net"
	"runtime"
	"strings"
	"testing"
	"unicode"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// FuzzKey expects the content of a key file to be refused without a part of it in
// the error, or to be a key of a length that AES has.
func FuzzKey(f *testing.F) {
	for _, s := range []string{GenerateKey(), GenerateKey() + "\n", "", "c2hvcnQ=", "not base64", "\x00", "{{ x }}"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		key, err := parseKey(s)
		if err != nil {
			if secret := strings.TrimSpace(s); len(secret) > 12 && strings.Contains(err.Error(), secret) {
				t.Fatalf("the error shows the key: %v", err)
			}
			return
		}

		if n := len(key); n != 16 && n != 24 && n != 32 || CheckKey(base64.StdEncoding.EncodeToString(key)) != nil {
			t.Fatalf("%q is a key of %d bytes", s, len(key))
		}
	})
}

// FuzzPeer expects the address of a peer to be refused, or to be one that the
// inventory accepts too.
func FuzzPeer(f *testing.F) {
	for _, s := range []string{
		"10.0.0.1", "10.0.0.1:7946", "[fd00::1]:7946", "fd00::1", "host", "host:0", "host:99999", ":7946", "[x",
		"a:b:c",
	} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		if checkPeer(s) != nil {
			return
		}

		host, port, err := splitAddr(s)
		if err != nil || port < 1 || port > 65535 || inventory.CheckAddr(host) != nil {
			t.Fatalf("the peer %q is %q:%d, %v", s, host, port, err)
		}
	})
}

// FuzzLogLine expects one bounded line without control characters, whatever a member
// puts into a message.
func FuzzLogLine(f *testing.F) {
	for _, s := range []string{
		"[ERR] memberlist: x", "\x1b[2J", "a\nb", strings.Repeat("é", 5000), "\u202e", "[WARN] \xff",
	} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		_, text := parseLine(s)
		if len(text) > 8*maxLine || strings.ContainsFunc(text, unicode.IsControl) {
			t.Fatalf("%q became %q", s, text)
		}
	})
}

// recorded is a connection that plays what an agent sent.
type recorded struct {
	net.Conn

	in *bytes.Reader
}

func (r recorded) Read(p []byte) (int, error) { return r.in.Read(p) }
func (r recorded) Close() error               { return nil }

// FuzzRPC expects any bytes of an agent to end as events or as an error, within
// memory in proportion to their length.
func FuzzRPC(f *testing.F) {
	var sample bytes.Buffer

	c := newRPC(recorded{in: bytes.NewReader(nil)})
	c.enc.Reset(&sample)

	event := rpcEvent{"member-join", []rpcMember{rpcAlive("web-1", 1, map[string]string{"NodeLabel": "web"})}}
	for _, v := range []any{rpcAnswer{Seq: 1}, event, rpcAnswer{Seq: 1, Error: "x"}} {
		errtest.None(f, c.enc.Encode(v))
	}

	f.Add(sample.Bytes())
	f.Add([]byte("\x82\xa3Seq\x01\xa5Error\xa0\x82\xa5Event\xa1x\xa7Members\xdd\xff\xff\xff\xff"))
	f.Add([]byte("\xdf\xff\xff\xff\xff"))
	f.Add([]byte("\x82\xa3Seq\x01\xa5Error\xdb\x7f\xff\xff\xffx"))

	f.Fuzz(func(t *testing.T, sent []byte) {
		c := newRPC(recorded{in: bytes.NewReader(sent)})
		c.stream = 1

		var before, after runtime.MemStats

		runtime.ReadMemStats(&before)

		events := 0
		err := c.next(func(e rpcEvent) {
			events++

			for _, m := range e.Members {
				_ = asMember(m.member())
			}
		})

		runtime.ReadMemStats(&after)

		if err == nil && events == 0 {
			t.Fatalf("%q is neither an event nor an error", sent)
		}

		if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20+uint64(len(sent))<<10 {
			t.Fatalf("%d bytes allocated %d", len(sent), grown)
		}
	})
}
