// SPDX-License-Identifier: Apache-2.0

package galaxy

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration/source"
	"github.com/contiv/cluster/inventory"
)

// Mirror is a folder with archives, named as ansible-galaxy names them:
// NAMESPACE-NAME-VERSION.tar.gz of a collection, NAME-VERSION.tar.gz of a role.
type Mirror struct {
	URL    string // https, or an absolute path on this host
	CAFile string // for https; empty: the authorities of the system

	Size  int64 // bytes of all archives, and of all files in them
	Files int   // files, folders and links in all archives
	Time  time.Duration
}

// CheckURL refuses a URL that is neither https nor a clean absolute path.
func CheckURL(text string) error {
	bad := inventory.Errorf(inventory.KindInvalid, "%q is not the place of a mirror", inventory.Shorten(text, 100)).
		Do("write the absolute path of a folder, or https://HOST/PATH without credentials")

	if strings.HasPrefix(text, "/") {
		if filepath.Clean(text) != text {
			return bad
		}
		return nil
	}

	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return bad
	}

	return nil
}

// IsFolder reports whether the mirror is a folder of this host.
func (m Mirror) IsFolder() bool { return strings.HasPrefix(m.URL, "/") }

// Fetch copies the archives of the requirements into dir, and checks that they can be
// unpacked without harm. It blocks for Time at most. A mirror without an archive, or
// without an answer, is KindUnavailable; an archive that may harm is KindRefused.
func (m Mirror) Fetch(ctx context.Context, all []Requirement, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, m.Time)
	defer cancel()

	transport, err := source.Transport(m.CAFile)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()

	client := &http.Client{
		Transport: transport,
		// The settings name the one place that archives come from.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	// The limits hold for all archives together.
	left, bounds := m.Size, &bounds{size: m.Size, files: m.Files}

	for _, r := range all {
		n, err := m.copy(ctx, client, r, filepath.Join(dir, r.Archive()), left)
		if err != nil {
			return err
		}
		left -= n

		if err := bounds.check(filepath.Join(dir, r.Archive())); err != nil {
			return inventory.Errorf(
				inventory.KindRefused,
				"%s requires %s, and its archive %s of the mirror cannot be used: %w",
				r.File,
				r.Name,
				r.Archive(),
				err,
			).Do("build the archive anew, or require another version")
		}
	}

	return nil
}

// open opens an archive by its name.
func (m Mirror) open(ctx context.Context, client *http.Client, name string) (io.ReadCloser, error) {
	if m.IsFolder() {
		return openFile(m.URL, name)
	}

	address := strings.TrimSuffix(m.URL, "/") + "/" + url.PathEscape(name)

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}

	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("the mirror answers %s", resp.Status)
	}

	return resp.Body, nil
}

// openFile opens a regular file in a folder: a pipe would block.
func openFile(folder, name string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()

	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}

	return root.Open(name)
}

// copy copies an archive of at most left bytes, and returns its size.
func (m Mirror) copy(
	ctx context.Context, client *http.Client, r Requirement, to string, left int64,
) (n int64, err error) {
	missing := func(err error) error {
		return inventory.Errorf(
			inventory.KindUnavailable,
			"%s requires %s, and %s is not to be had from the mirror %s: %w",
			r.File,
			r.Name,
			r.Archive(),
			m.URL,
			err,
		).Do("put the archive there, under that name")
	}

	from, err := m.open(ctx, client, r.Archive())
	if err != nil {
		return 0, missing(err)
	}
	defer from.Close()

	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(file, io.LimitReader(from, left+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return n, missing(err)
	}

	if n > left {
		return n, inventory.Errorf(inventory.KindTooLarge,
			"the required collections and roles have more than %d bytes", m.Size).
			Do("raise repository.limits.size, or require less")
	}

	return n, nil
}

// bounds limit the content of all archives.
type bounds struct {
	size  int64
	files int
}

// check refuses an archive that would write outside of its folder, or too much.
func (b *bounds) check(archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()

	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	entries := tar.NewReader(unzipped)

	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		if err := checkEntry(h); err != nil {
			return err
		}

		// The size in a header is a claim.
		n, err := io.Copy(io.Discard, io.LimitReader(entries, b.size+1))
		if err != nil {
			return err
		}
		b.size -= n
		b.files--

		if b.size < 0 || b.files < 0 {
			return errors.New("its content is larger than repository.limits allow")
		}
	}
}

func checkEntry(h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeXGlobalHeader:
		if !filepath.IsLocal(path.Clean(h.Name)) {
			return fmt.Errorf("the name %q leads out of it", inventory.Shorten(h.Name, 100))
		}
	case tar.TypeSymlink:
		// Relative to the folder of the link, as the system follows it.
		target := path.Join(path.Dir(path.Clean(h.Name)), h.Linkname) // #nosec G305 -- what leads out is refused below
		if path.IsAbs(h.Linkname) || !filepath.IsLocal(path.Clean(h.Name)) || !filepath.IsLocal(target) {
			return fmt.Errorf("the link %q leads out of it", inventory.Shorten(h.Name, 100))
		}
	default:
		return fmt.Errorf("%q is neither a file nor a folder nor a link", inventory.Shorten(h.Name, 100))
	}

	return nil
}
