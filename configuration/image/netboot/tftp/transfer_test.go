// SPDX-License-Identifier: Apache-2.0

package tftp

import (
	"bytes"
	"encoding/binary"
	"net"
	"path"
	"strings"
	"testing"
	"time"
)

// reader is a machine that acknowledges each block, without a network. It has its own count of them.
type reader struct {
	net.Conn

	want   []byte // what is still to come
	blocks int
	wrong  int
}

func (r *reader) SetReadDeadline(time.Time) error { return nil }

func (r *reader) Write(packet []byte) (int, error) {
	r.blocks++

	rest, found := bytes.CutPrefix(r.want, packet[header:])
	if !found || packet[1] != opData || int(binary.BigEndian.Uint16(packet[2:])) != r.blocks%65536 {
		r.wrong++
	}
	r.want = rest

	return len(packet), nil
}

func (r *reader) Read(buffer []byte) (int, error) {
	return copy(buffer, []byte{0, opAck, byte(r.blocks >> 8), byte(r.blocks)}), nil
}

// TestLarge sends more blocks than there are numbers.
func TestLarge(t *testing.T) {
	t.Parallel()

	const size = 33<<20 + 7

	all := make([]byte, size)
	for at := 0; at < size-8; at += usualBlock {
		binary.BigEndian.PutUint32(all[at:], uint32(at))
	}

	r := &reader{want: all}
	large := transfer{conn: r, block: usualBlock, patience: never}

	if sent, err := large.send(bytes.NewReader(all), size, nil); err != nil || sent != size {
		t.Errorf("sent %d bytes: %v", sent, err)
	}

	if r.blocks != size/usualBlock+1 || r.wrong != 0 || len(r.want) != 0 {
		t.Errorf("%d of %d blocks are wrong, and %d bytes are missing", r.wrong, r.blocks, len(r.want))
	}
}

// TestNames tells plain names from those with a trick.
func TestNames(t *testing.T) {
	t.Parallel()

	for _, name := range []string{
		"x", "ipxe.efi", "amd64/snponly.efi", "a b", "..x", "x..", "...", "für", strings.Repeat("x", maxName),
	} {
		if !isPlain(name) {
			t.Errorf("%q is refused", name)
		}
	}

	for _, name := range []string{
		"", ".", "..", "/", "/x", "../x", "x/..", "x/../y", "./x", "x/.", "x//y", "x/", `x\y`, `..\x`, "x\ny",
		"\x1b[2J", "x\x7f", "x\u202ey", "x\u0085", "\xff", strings.Repeat("x", maxName+1),
	} {
		if isPlain(name) {
			t.Errorf("%q is not refused", name)
		}
	}
}

// FuzzPacket takes packets of any content, as a request and as the answer of a machine.
func FuzzPacket(f *testing.F) {
	f.Add([]byte("\x00\x01/ipxe.efi\x00octet\x00blksize\x001468\x00tsize\x000\x00timeout\x003\x00"))
	f.Add([]byte("\x00\x01../x\x00octet\x00"))
	f.Add([]byte("\x00\x04\x00\x07"))

	f.Fuzz(func(t *testing.T, packet []byte) {
		_, _ = acknowledges(packet, 7)

		r, err := parse(packet)
		if err != nil {
			return
		}

		if r.name == "" || len(r.name) > 200 || r.name[0] == '/' || path.Clean(r.name) != r.name || r.name == "." ||
			r.name == ".." || strings.HasPrefix(r.name, "../") || strings.ContainsAny(r.name, "\\\x00\n\r\x1b\x7f") {
			t.Errorf("the name is %q", r.name)
		}

		if r.block != 0 && (r.block < 8 || r.block > 65464) || r.timeout < 0 || r.timeout > maxTimeout {
			t.Errorf("the options are %+v", r)
		}

		if p := r.accept(1 << 40); p != nil && (len(p) > 100 || !bytes.HasSuffix(p, []byte{0})) {
			t.Errorf("accepted with %q", p)
		}
	})
}
