// SPDX-License-Identifier: Apache-2.0

package tftp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// transfer sends a file to one machine.
type transfer struct {
	conn     net.Conn
	block    int // bytes
	patience time.Duration
}

// send sends the options, if there are any, and then the content. It returns how many bytes of it were acknowledged.
func (t *transfer) send(content io.Reader, size int64, options []byte) (sent int64, err error) {
	if options != nil {
		if err := t.exchange(options, 0); err != nil {
			return 0, err
		}
	}

	packet := make([]byte, header+t.block)
	packet[1] = opData

	// The number of a block begins again after 65535, as that of the machine does.
	for number := uint16(1); ; number++ {
		n, err := io.ReadFull(content, packet[header:])
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)

		// A machine must not take a part for the whole.
		switch read := sent + int64(n); {
		case err != nil && !last:
			return sent, t.abandon(fmt.Errorf("cannot read the file: %w", err))
		case last && read != size || read > size:
			return sent, t.abandon(fmt.Errorf("the file has not the %d bytes that it should have", size))
		}

		binary.BigEndian.PutUint16(packet[2:], number)

		if err := t.exchange(packet[:header+n], number); err != nil {
			return sent, err
		}

		sent += int64(n)
		if last {
			return sent, nil
		}
	}
}

// abandon tells the machine that nothing more comes.
func (t *transfer) abandon(err error) error {
	_, _ = t.conn.Write(failure(codeOther, "the transfer has failed"))
	return err
}

// exchange sends a packet until the machine acknowledges it as this block. Only silence lets it send again: not an
// acknowledgement that comes twice, which would double all packets that follow.
func (t *transfer) exchange(packet []byte, block uint16) error {
	for range attempts {
		if _, err := t.conn.Write(packet); err != nil {
			return err
		}

		if done, err := t.await(block); done || err != nil {
			return err
		}
	}

	return t.abandon(errSilent)
}

// await reports whether the machine acknowledges a block before the patience ends. Other packets do not prolong it.
func (t *transfer) await(block uint16) (bool, error) {
	if err := t.conn.SetReadDeadline(time.Now().Add(t.patience)); err != nil {
		return false, err
	}

	buffer := make([]byte, maxRequest)

	for {
		n, err := t.conn.Read(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case err != nil:
			return false, err
		}

		if done, err := acknowledges(buffer[:n], block); done || err != nil {
			return done, err
		}
	}
}
