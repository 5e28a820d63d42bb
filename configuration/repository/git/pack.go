// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/utils/ioutil"

	"github.com/contiv/cluster/inventory"
)

// maxObjects bounds the objects of one fetch.
const maxObjects = 5_000_000

// receive checks a pack and adds it to the mirror.
func (m *Mirror) receive(ctx context.Context, store *mirrored, pack io.Reader) error {
	file, err := os.CreateTemp(m.Dir, "incoming-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()

	if _, err := io.Copy(file, ioutil.NewContextReader(ctx, pack)); err != nil {
		return err
	}

	if err := m.checkPack(ctx, file); err != nil {
		return err
	}

	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}

	if err := packfile.WritePackfileToObjectStorage(store, ioutil.NewContextReader(ctx, file)); err != nil {
		return fmt.Errorf("the pack cannot be stored: %w", err)
	}

	return nil
}

// checkPack refuses a pack with too many or too large objects. It reads the pack as a
// stream, so that an object that expands takes no memory.
func (m *Mirror) checkPack(ctx context.Context, file *os.File) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}

	scanner := packfile.NewScanner(file)

	_, count, err := scanner.Header()
	if err != nil {
		return fmt.Errorf("the server sent no pack: %w", err)
	}

	if count > maxObjects {
		return inventory.Errorf(inventory.KindTooLarge, "%s has more than %d objects", m.shown(), maxObjects).
			Do("use a repository for the playbooks alone")
	}

	for range count {
		if err := ctx.Err(); err != nil {
			return err
		}

		if err := m.checkObject(scanner); err != nil {
			return err
		}
	}

	return nil
}

func (m *Mirror) checkObject(scanner *packfile.Scanner) error {
	header, err := scanner.NextObjectHeader()
	if err != nil {
		return fmt.Errorf("the pack is damaged: %w", err)
	}

	limit := m.Options.Limits.Size
	if header.Length > limit {
		return errObject("", header.Length, limit)
	}
	start := &firstBytes{limit: 2 * binary.MaxVarintLen64}
	n, _, err := scanner.NextObject(start)

	switch {
	case err != nil:
		return fmt.Errorf("the pack is damaged: %w", err)
	case n != header.Length:
		return errors.New("the pack is damaged: an object is shorter than its header says")
	case !header.Type.IsDelta():
		return nil
	}

	// A short delta may describe a long object. It begins with the sizes of its base and of the object.
	_, base := binary.Uvarint(start.text)
	size, read := binary.Uvarint(start.text[max(base, 0):])

	switch {
	case base <= 0 || read <= 0:
		return errors.New("the pack is damaged: a delta has no size")
	case size > uint64(limit): //nolint:gosec // it is positive
		return errObject("", int64(min(size, math.MaxInt64)), limit)
	}

	return nil
}

func errObject(hash string, size, limit int64) error {
	return inventory.Errorf(inventory.KindTooLarge, "the object %sof the repository has %d bytes, the limit is %d",
		strings.TrimPrefix(hash+" ", " "), size, limit).
		Do("raise repository.limits.size, or remove large files from its history")
}
