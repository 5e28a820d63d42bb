// SPDX-License-Identifier: Apache-2.0

// Package backup is the format of a backup: one file with all records of a manager at one revision.
//
//	clusterm-backup 1            the version of the format
//	{"manager": …}               the Header, a line of JSON
//	PART …                       the length of the rest, four bytes big endian, and compressed records
//	0                            the length 0, four bytes
//	{"records": …, "bytes": …}   the Trailer, a line of JSON
//	sha256:…                     the checksum of all bytes before it, in hexadecimal digits, and the end of the line
//
// A part holds records one after the other, in the order of their keys: the length of the key, the key, the length of
// the value, the value. The lengths are unsigned varints, and the keys are those below the prefix of the store. The
// package knows no compression, so that a client checks a backup on its way without one.
package backup

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Version is the version of the format that this build writes and reads.
const Version = "1"

const (
	magic   = "clusterm-backup "
	maxLine = 64 << 10 // of the header and the trailer, in bytes
	maxPart = 16 << 20 // as it is in the file, in bytes
	// partSize is when a part is complete, in bytes before the compression.
	partSize = 1 << 20
)

// Header describes a backup.
type Header struct {
	Manager  string    `json:"manager"`         // the identity of the manager
	Time     time.Time `json:"time"`            // by the clock of the instance that made it
	Version  string    `json:"version"`         // of clusterm
	Schema   string    `json:"schema"`          // the version of the records
	Revision int64     `json:"revision"`        // of the store
	Epoch    int64     `json:"epoch,omitempty"` // of the store, see state.Epoch
	// SecretsKey is the id of the key that opens the secrets in the records; empty: they have none.
	SecretsKey string `json:"secrets_key,omitempty"`
}

// Trailer counts what a backup holds.
type Trailer struct {
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"` // of their keys and values
	// Checksum is that of the file, in its own line.
	Checksum string `json:"-"`
}

// Writer writes a backup. It is for one goroutine.
type Writer struct {
	out      io.Writer
	sum      hash.Hash
	compress func([]byte) []byte
	part     []byte
	trailer  Trailer
}

// NewWriter writes the header. compress compresses a part.
func NewWriter(out io.Writer, h Header, compress func([]byte) []byte) (*Writer, error) {
	w := &Writer{sum: sha256.New(), compress: compress}
	w.out = io.MultiWriter(out, w.sum)

	line, err := json.Marshal(h)
	if err == nil {
		_, err = fmt.Fprintf(w.out, "%s%s\n%s\n", magic, Version, line)
	}

	return w, err
}

// Add adds a record. Those before have lower keys.
func (w *Writer) Add(key string, value []byte) error {
	w.trailer.Records++
	w.trailer.Bytes += int64(len(key) + len(value))

	w.part = binary.AppendUvarint(w.part, uint64(len(key)))
	w.part = append(w.part, key...)
	w.part = binary.AppendUvarint(w.part, uint64(len(value)))
	w.part = append(w.part, value...)

	if len(w.part) < partSize {
		return nil
	}

	return w.flush()
}

func (w *Writer) flush() error {
	if len(w.part) == 0 {
		return nil
	}

	part := w.compress(w.part)
	w.part = w.part[:0]

	//nolint:gosec // a part is below 4 GiB
	if _, err := w.out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part)))); err != nil {
		return err
	}

	_, err := w.out.Write(part)

	return err
}

// Close writes the end. Without it, the backup is incomplete, and is refused.
func (w *Writer) Close() (Trailer, error) {
	if err := w.flush(); err != nil {
		return Trailer{}, err
	}
	if _, err := w.out.Write(make([]byte, 4)); err != nil {
		return Trailer{}, err
	}

	line, err := json.Marshal(w.trailer)
	if err != nil {
		return Trailer{}, err
	}
	if _, err := w.out.Write(append(line, '\n')); err != nil {
		return Trailer{}, err
	}

	w.trailer.Checksum = checksum(w.sum)
	_, err = io.WriteString(w.out, w.trailer.Checksum+"\n")

	return w.trailer, err
}

func checksum(sum hash.Hash) string { return "sha256:" + hex.EncodeToString(sum.Sum(nil)) }

// Scan reads a backup to its end and checks it. It calls begin with the header, and take with each part as it is in the
// file; both may be nil, and an error of theirs ends it. What take gets is known to be whole only once Scan returns
// without an error. A backup that is incomplete or damaged is KindInvalid, one of a newer format is KindRefused; an
// error of r is returned as it is.
func Scan(r io.Reader, begin func(Header) error, take func(part []byte) error) (Trailer, error) {
	s := &scanner{in: bufio.NewReaderSize(r, maxLine), sum: sha256.New()}

	h, err := s.header()
	if err != nil {
		return Trailer{}, err
	}

	if begin != nil {
		if err := begin(h); err != nil {
			return Trailer{}, err
		}
	}

	for {
		part, err := s.next()
		if err != nil {
			return Trailer{}, err
		}
		if part == nil {
			return s.trailer()
		}

		if take != nil {
			if err := take(part); err != nil {
				return Trailer{}, err
			}
		}
	}
}

// scanner reads a backup.
type scanner struct {
	in   *bufio.Reader
	sum  hash.Hash
	read int64
	part []byte
}

// line reads a line, without its end, into the checksum.
func (s *scanner) line() ([]byte, error) {
	line, err := s.in.ReadSlice('\n')
	s.read += int64(len(line))
	s.sum.Write(line)

	switch {
	case errors.Is(err, io.EOF):
		return nil, s.incomplete()
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, damaged("a line is too long")
	case err != nil:
		return nil, err
	}

	return line[:len(line)-1], nil
}

func (s *scanner) header() (h Header, err error) {
	first, err := s.line()
	if err != nil {
		return h, err
	}

	version, ours := strings.CutPrefix(string(first), magic)

	switch {
	case !ours:
		return h, inventory.Errorf(inventory.KindInvalid, "this is no backup of clusterm").
			Do("name a file that clusterctl backup wrote")
	case version != Version:
		return h, inventory.Errorf(inventory.KindRefused,
			"the backup has version %.20q of the format, and this clusterm reads version %s", version, Version).
			Do("use the version of clusterm that made the backup, or a later one")
	}

	line, err := s.line()
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, damaged("its header cannot be read")
	}

	return h, nil
}

// next returns the next part, which is valid until the next call; nil: there is none.
func (s *scanner) next() ([]byte, error) {
	var length [4]byte
	if err := s.full(length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(length[:])

	switch {
	case size == 0:
		return nil, nil
	case size > maxPart:
		return nil, damaged("a part of it would have %d bytes", size)
	}

	if cap(s.part) < int(size) {
		s.part = make([]byte, size)
	}

	s.part = s.part[:size]

	return s.part, s.full(s.part)
}

// full reads as many bytes as p has.
func (s *scanner) full(p []byte) error {
	n, err := io.ReadFull(s.in, p)
	s.read += int64(n)
	s.sum.Write(p[:n])

	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.incomplete()
	}

	return err
}

// trailer reads the end and compares the checksum.
func (s *scanner) trailer() (t Trailer, err error) {
	line, err := s.line()
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(line, &t); err != nil {
		return t, damaged("its counts cannot be read")
	}

	t.Checksum = checksum(s.sum)

	found, err := s.line()
	if err != nil {
		return Trailer{}, err
	}

	switch _, err := s.in.ReadByte(); {
	case string(found) != t.Checksum:
		return Trailer{}, damaged("its checksum does not fit its content")
	case err == nil:
		return Trailer{}, damaged("there is more after its end")
	case !errors.Is(err, io.EOF):
		return Trailer{}, err
	}

	return t, nil
}

func (s *scanner) incomplete() error {
	return inventory.Errorf(inventory.KindInvalid, "the backup is incomplete: it ends after %d bytes", s.read).
		Do("use another backup")
}

func damaged(format string, args ...any) error {
	return inventory.Errorf(inventory.KindInvalid, "the backup is damaged: %w", fmt.Errorf(format, args...)).
		Do("use another backup")
}

// Records calls each with the records of a part after its decompression. The value is valid during the call only.
func Records(part []byte, each func(key string, value []byte) error) error {
	for len(part) > 0 {
		var key, value []byte
		var ok bool

		if key, part, ok = cut(part); ok {
			value, part, ok = cut(part)
		}

		if !ok || len(key) == 0 {
			return damaged("a record is cut off")
		}

		if err := each(string(key), value); err != nil {
			return err
		}
	}

	return nil
}

// cut returns the bytes behind a length, and the rest.
func cut(b []byte) (first, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b[n:])) {
		return nil, nil, false
	}
	b = b[n:]

	return b[:size], b[size:], true
}
