// SPDX-License-Identifier: Apache-2.0

package tftp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Operations and error codes of RFC 1350 and RFC 2347.
const (
	opRead    = 1
	opWrite   = 2
	opData    = 3
	opAck     = 4
	opError   = 5
	opOptions = 6

	codeOther    = 0
	codeNotFound = 1
	codeDenied   = 2
)

const (
	header     = 4     // bytes before the data of a block
	maxRequest = 512   // bytes, by RFC 2347
	maxName    = 200   // bytes
	usualBlock = 512   // bytes, where the machine asks for no other size
	minBlock   = 8     // bytes, by RFC 2348
	maxBlock   = 65464 // bytes, by RFC 2348

	// maxTimeout bounds the time that a silent machine takes. RFC 2349 lets a machine ask for up to 255 s.
	maxTimeout = 10 * time.Second
)

// request is what a machine asks for. A zero option was not asked for.
type request struct {
	name    string
	block   int // bytes
	size    bool
	timeout time.Duration
}

// refusal is an error that the machine is told.
type refusal struct {
	error
	code uint16
	told string
}

var errMalformed = errors.New("the packet is no request")

// parse reads a request. The error is a refusal if the machine is to have an answer.
func parse(packet []byte) (request, error) {
	if len(packet) < 2 || len(packet) > maxRequest {
		return request{}, errMalformed
	}

	op := binary.BigEndian.Uint16(packet)
	fields := strings.Split(string(packet[2:]), "\x00")

	// The last field follows the last NUL.
	if op != opRead && op != opWrite || len(fields) < 3 {
		return request{}, errMalformed
	}

	name, mode, options := strings.TrimPrefix(fields[0], "/"), fields[1], fields[2:len(fields)-1]

	if !isPlain(name) {
		err := fmt.Errorf("%.*q is not the name of a file", maxName, fields[0])
		return request{}, refusal{err, codeNotFound, "file not found"}
	}

	r := request{name: name}

	switch {
	case op == opWrite:
		return r, refusal{errors.New("the machine wants to write"), codeDenied, "this server is read-only"}
	case !strings.EqualFold(mode, "octet"):
		err := fmt.Errorf("the machine asks for the mode %.20q", mode)
		return r, refusal{err, codeOther, "only the mode octet is served"}
	}

	for ; len(options) >= 2; options = options[2:] {
		r.option(options[0], options[1])
	}

	return r, nil
}

// isPlain reports whether a name is a relative path without tricks, that can be shown.
func isPlain(name string) bool {
	return len(name) <= maxName && fs.ValidPath(name) && name != "." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '\\' || !unicode.IsPrint(r) })
}

// option notes an option. One that is not known, or asks for what cannot be, is as if it were not there (RFC 2347).
func (r *request) option(name, value string) {
	n, err := strconv.Atoi(value)
	if err != nil {
		return
	}

	switch strings.ToLower(name) {
	case "blksize":
		if n >= minBlock && n <= maxBlock {
			r.block = n
		}
	case "tsize":
		r.size = true
	case "timeout":
		if d := time.Duration(n) * time.Second; n > 0 && n <= int(maxTimeout/time.Second) {
			r.timeout = d
		}
	}
}

// accept returns the packet that accepts the options of a request for a file of that size; nil: there are none.
func (r request) accept(size int64) []byte {
	packet := []byte{0, opOptions}
	add := func(name string, value int64) { packet = fmt.Appendf(packet, "%s\x00%d\x00", name, value) }

	if r.block > 0 {
		add("blksize", int64(r.block))
	}
	if r.size {
		add("tsize", size)
	}
	if r.timeout > 0 {
		add("timeout", int64(r.timeout/time.Second))
	}

	if len(packet) == 2 {
		return nil
	}

	return packet
}

// acknowledges reports whether a packet acknowledges a block. The error says that the machine has ended the transfer.
func acknowledges(packet []byte, block uint16) (bool, error) {
	if len(packet) < header {
		return false, nil
	}

	switch number := binary.BigEndian.Uint16(packet[2:]); binary.BigEndian.Uint16(packet) {
	case opAck:
		return number == block, nil
	case opError:
		text, _, _ := bytes.Cut(packet[header:], []byte{0})
		return false, fmt.Errorf("the machine has ended the transfer: error %d, %.100q", number, text)
	default:
		return false, nil
	}
}

// failure returns the packet of an error.
func failure(code uint16, text string) []byte {
	packet := binary.BigEndian.AppendUint16([]byte{0, opError}, code)
	return append(append(packet, text...), 0)
}
