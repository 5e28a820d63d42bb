// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Pack writes the kept playbooks with a digest to w, as a compressed archive that Unpack
// keeps elsewhere. Files that a run has added to the copy are left out. It is KindNotFound
// if the playbooks are not kept, or not whole.
func (s *Store) Pack(ctx context.Context, digest string, w io.Writer) error {
	if !s.Intact(ctx, digest) {
		return inventory.Errorf(inventory.KindNotFound, "the playbooks %.12s are not kept here", digest)
	}

	root, err := os.OpenRoot(s.Path(digest))
	if err != nil {
		return err
	}
	defer root.Close()

	// What a run has added to the copy is not in the manifest.
	manifest, err := root.ReadFile(manifestName)
	if err != nil {
		return err
	}

	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)

	// A folder comes before what it contains.
	lines := strings.Split(string(manifest), "\n")
	slices.SortFunc(lines, func(a, b string) int { return cmp.Compare(nameOf(a), nameOf(b)) })

	for _, line := range lines {
		if err := ctx.Err(); err != nil {
			return err
		}

		if err := pack(archive, root, nameOf(line)); err != nil {
			return err
		}
	}

	return errors.Join(archive.Close(), zipped.Close())
}

// nameOf returns the name in a line of a manifest.
func nameOf(line string) string {
	var kind, name string
	if _, err := fmt.Sscanf(line, "%s %q", &kind, &name); err != nil {
		return ""
	}
	return name
}

// pack writes one file, folder or link to an archive.
func pack(archive *tar.Writer, root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}

	target := ""
	if info.Mode().Type() == fs.ModeSymlink {
		if target, err = root.Readlink(name); err != nil {
			return err
		}
	}

	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}

	// The same playbooks give the same bytes on every host.
	header = &tar.Header{
		Typeflag: header.Typeflag, Name: name, Linkname: target, Size: header.Size, Mode: header.Mode,
		Format: tar.FormatPAX,
	}
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}

	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()

	_, err = io.Copy(archive, f)

	return err
}

// Unpack keeps the playbooks of an archive that Pack has written, if they have the digest.
// The archive is not trusted: one that leads out of a folder, exceeds the bounds of the
// store or has other playbooks is KindInvalid, and nothing of it is kept.
func (s *Store) Unpack(ctx context.Context, digest string, r io.Reader) error {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}

	tmp, err := os.MkdirTemp(s.Dir, prefixCopying)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // Prune removes leftovers

	root, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer root.Close()

	if err := s.unpack(ctx, root, r); err != nil {
		return inventory.Errorf(inventory.KindInvalid, "the archive of playbooks cannot be used: %w", err)
	}

	// Nothing becomes part of the store before it has proved to be what was asked for.
	lines, err := s.walk(ctx, whole(root.FS()), nil)
	if err != nil {
		return err
	}
	if got := digestOf(lines); got != digest {
		return inventory.Errorf(inventory.KindInvalid, "the archive has the playbooks %.12s, not %.12s", got, digest)
	}

	_, err = s.Keep(ctx, root.FS())

	return err
}

// unpack extracts an archive.
func (s *Store) unpack(ctx context.Context, root *os.Root, r io.Reader) error {
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	archive := tar.NewReader(unzipped)
	bytesLeft := cmp.Or(s.MaxBytes, DefaultMaxBytes)

	// One more than the bound, for the end of the archive.
	for range cmp.Or(s.MaxFiles, DefaultMaxFiles) + 1 {
		if err := ctx.Err(); err != nil {
			return err
		}

		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		// The header says how many bytes will be copied, however far they expand.
		if bytesLeft -= header.Size; bytesLeft < 0 {
			return errTooLarge
		}

		if err := extract(root, header, archive); err != nil {
			return err
		}
	}

	return errors.New("too many files")
}

// extract creates one entry of an archive below root.
func extract(root *os.Root, header *tar.Header, content io.Reader) error {
	name := header.Name
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q leads out of the folder", name)
	}

	switch header.Typeflag {
	case tar.TypeDir:
		return root.Mkdir(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%q is no file, folder or link", name)
	}

	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	// The mode comes last: without write permission, the file could not be filled.
	_, err = io.Copy(f, io.LimitReader(content, header.Size))

	return errors.Join(err, f.Chmod(header.FileInfo().Mode().Perm()), f.Close())
}
