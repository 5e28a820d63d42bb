// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/configuration/image"
	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/api"
)

// imageFile is a file of this host for a role of an image.
type imageFile struct{ role, path string }

// imageSource is where an image comes from.
type imageSource struct {
	kind  api.ImageKind
	arch  string // that the content tells; empty: it tells none
	files []imageFile
	copy  *localfile.FileLock // on what was fetched; nil: nothing was
}

// forget removes the copy of what was fetched.
func (s imageSource) forget() {
	if s.copy != nil {
		removeCopy(s.copy.File().Name())
	}
}

// close lets other commands have the copy.
func (s imageSource) close() {
	if s.copy != nil {
		_ = s.copy.Unlock()
	}
}

// imageSource finds the files of an image: a file, an installer's folder, or what a URL leads to.
func (c *call) imageSource(ctx context.Context, from string) (imageSource, error) {
	var s imageSource

	if !isWebURL(from) {
		info, err := os.Stat(from)
		if err != nil {
			return s, unreadable(err)
		}

		if info.IsDir() {
			s.kind = api.ImageInstaller
			s.files, err = c.installerFiles(from)

			return s, err
		}
	}

	for _, option := range []string{"kernel", "initrd", "template"} {
		if c.IsSet(option) {
			return s, exit.
				Usagef("--%s is for the folder of an installer, and %s is a file", option, shownSource(from)).
				Try("name the folder, or drop the option")
		}
	}

	path := from

	if isWebURL(from) {
		var err error
		if s.copy, err = c.fetchImage(ctx, from); err != nil {
			return s, err
		}
		path = s.copy.File().Name()
	}

	kind, found, err := imageKind(path, shownSource(from))
	if err != nil {
		s.forget()
		s.close()
	}

	role := "image"
	if kind == api.ImageKernel {
		role = "package"
	}

	s.kind, s.arch, s.files = kind, found.Arch, []imageFile{{role, path}}

	return s, err
}

func isWebURL(from string) bool {
	return strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://")
}

// shownSource is the name of a source in a message: a URL without a password, and without its query, which may have a
// token.
func shownSource(from string) string {
	if !isWebURL(from) {
		return from
	}

	u, err := url.Parse(from)
	if err != nil {
		return "the URL"
	}

	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// imageKind tells by its content what the image in a file is, which messages show by another name.
func imageKind(path, shown string) (kind api.ImageKind, found image.Found, err error) {
	content, err := os.Open(path)
	if err != nil {
		return "", found, unreadable(err)
	}
	defer content.Close()

	info, err := content.Stat()
	if err != nil {
		return "", found, unreadable(err)
	}
	if !info.Mode().IsRegular() {
		return "", found, exit.Usagef("%s is no regular file", shown).Try("copy its content into one")
	}

	found, err = image.Detect(content, info.Size())
	if err == nil && found.Format == image.Deb {
		err = kernel.Check(content, info.Size())
	}
	if err != nil {
		return "", found, inventory.Under(shown, err)
	}

	switch found.Format {
	case image.Raw, image.Qcow2:
		return api.ImageDisk, found, nil
	case image.Tar:
		return api.ImageRootFS, found, nil
	case image.Deb:
		return api.ImageKernel, found, nil
	}

	return "", found, exit.
		Usagef("%s is no image: it is neither a disk with a partition table, nor a qcow2, nor a tar archive, nor a "+
			"Debian package", shown).
		Try("give one of these, the first three also compressed by gzip, xz or zstd, or the folder of an installer")
}

// installerNames are patterns of the files of an installer, by role.
var installerNames = []struct {
	role     string
	template bool
	patterns []string
}{
	{"kernel", false, []string{"vmlinuz*", "linux", "kernel"}},
	{"initrd", false, []string{"initrd*", "initramfs*"}},
	{"kickstart", true, []string{"*.ks", "ks.cfg", "kickstart*"}},
	{"preseed", true, []string{"preseed*", "*.seed"}},
	{"autoinstall", true, []string{"autoinstall*", "user-data"}},
}

// installerFiles finds the kernel, the initrd and the template in a folder: by options, or else by name.
func (c *call) installerFiles(folder string) ([]imageFile, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, unreadable(err)
	}

	var all []imageFile

	template := ""
	if given := c.String("template"); given != "" {
		role, name, _ := strings.Cut(given, "=")

		known := slices.ContainsFunc(installerNames, func(n struct {
			role     string
			template bool
			patterns []string
		}) bool {
			return n.template && n.role == role
		})
		if !known || name == "" {
			return nil, exit.Usagef("%q is no template", given).
				Try("write kickstart=FILE, preseed=FILE or autoinstall=FILE")
		}

		template = role
		all = append(all, imageFile{role, filepath.Join(folder, name)})
	}

	for _, n := range installerNames {
		if n.template && template != "" {
			continue
		}
		if !n.template && c.IsSet(n.role) {
			all = append(all, imageFile{n.role, filepath.Join(folder, c.String(n.role))})
			continue
		}

		for _, e := range entries {
			if slices.ContainsFunc(
				n.patterns,
				func(p string) bool { ok, _ := filepath.Match(p, e.Name()); return ok },
			) {
				all = append(all, imageFile{n.role, filepath.Join(folder, e.Name())})
			}
		}
	}

	count := map[string][]string{}
	for _, f := range all {
		role := f.role
		if role != "kernel" && role != "initrd" {
			role = "template"
		}
		count[role] = append(count[role], filepath.Base(f.path))
	}

	for _, role := range []string{"kernel", "initrd", "template"} {
		if names := count[role]; len(names) != 1 {
			found := "none"
			if len(names) > 1 {
				found = strings.Join(names, ", ")
			}
			return nil, exit.Usagef("%s has no single %s of an installer: %s", folder, role, found).
				Try("name it by --%s; see: clusterctl image add --help", role)
		}
	}

	return all, nil
}

// digestOf reads a file, and returns its digest and its size.
func (c *call) digestOf(ctx context.Context, path string) (string, int64, error) {
	content, err := os.Open(path)
	if err != nil {
		return "", 0, unreadable(err)
	}
	defer content.Close()

	info, err := content.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return "", 0, unreadable(err)
	}

	sum, done := sha256.New(), c.progress("reading "+filepath.Base(path), 0, info.Size())
	n, err := io.Copy(sum, whileAlive(ctx, counted{content, done}))
	done.end()

	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), n, err
}

// whileAlive returns a reader that fails once the context ends.
func whileAlive(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

const (
	// validatorSuffix is that of a file with the ETag of what was fetched.
	validatorSuffix = ".etag"
	// fetchStall is how long a server may send nothing.
	fetchStall = time.Minute
	// copiesFor is how long a copy stays that no command goes on with.
	copiesFor    = 7 * 24 * time.Hour
	maxRedirects = 10
)

// fetcher fetches what a URL leads to.
var fetcher = http.Client{CheckRedirect: func(next *http.Request, before []*http.Request) error {
	next.Header.Del("Referer") // the URL may have a token

	switch {
	case len(before) >= maxRedirects:
		return fmt.Errorf("it is redirected more than %d times", maxRedirects)
	case before[len(before)-1].URL.Scheme == "https" && next.URL.Scheme != "https":
		return errors.New("it is redirected from https to http, where others can change it on the way")
	}

	return nil
}}

// fetchImage fetches what a URL leads to into the cache of the user, and returns the locked file. It goes on after what
// an earlier command has fetched, if the server says that it is the same.
func (c *call) fetchImage(ctx context.Context, from string) (*localfile.FileLock, error) {
	failed := func(err error) error {
		if ctx.Err() != nil {
			return exit.Errorf(exit.Interrupted, "interrupted").Try("the same command goes on where this one stopped")
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL
		}

		failure := exit.Errorf(exit.Failed, "cannot fetch %s: %v", shownSource(from), err)
		if errors.Is(err, localfile.ErrLocked) {
			return failure.Try("wait until the other command with this URL ends")
		}

		return failure.Try("check the URL; the same command goes on where this one stopped")
	}

	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, failed(err)
	}

	sum := sha256.Sum256([]byte(from))
	path := filepath.Join(cache, "clusterctl", "images", hex.EncodeToString(sum[:]))

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, failed(err)
	}

	removeOldCopies(filepath.Dir(path))

	// No other command fetches the same, or removes it, while this one has it.
	lock, err := lockCopy(path)
	if err != nil {
		return nil, failed(err)
	}

	if err := c.fetchInto(ctx, lock.File(), from); err != nil {
		return nil, errors.Join(failed(err), lock.Unlock())
	}

	return lock, nil
}

// lockCopy locks the file with that name. Another command may have removed the one that was there.
func lockCopy(path string) (*localfile.FileLock, error) {
	for {
		lock, err := localfile.TryLock(path)
		if err != nil {
			return nil, err
		}

		own, err := lock.File().Stat()
		named, gone := os.Lstat(path)

		if err == nil && gone == nil && os.SameFile(own, named) {
			return lock, nil
		}

		_ = lock.Unlock()
	}
}

// removeCopy removes a copy that is locked.
func removeCopy(path string) {
	_ = os.Remove(path + validatorSuffix)
	_ = os.Remove(path)
}

// removeOldCopies removes what commands have left that nobody repeated. What fails is of no consequence.
func removeOldCopies(dir string) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		path := filepath.Join(dir, strings.TrimSuffix(f.Name(), validatorSuffix))

		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < copiesFor {
			continue
		}

		if lock, err := lockCopy(path); err == nil {
			removeCopy(path)
			_ = lock.Unlock()
		}
	}
}

// fetchInto completes the file.
func (c *call) fetchInto(ctx context.Context, f *os.File, from string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	stalled := time.AfterFunc(fetchStall, func() { cancel(fmt.Errorf("nothing came for %s", fetchStall)) })
	defer stalled.Stop()

	has, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}

	tag, err := os.ReadFile(f.Name() + validatorSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	// The bytes of a compressed answer are others.
	req.Header.Set("Accept-Encoding", "identity")

	if has > 0 && len(tag) > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", has))
		req.Header.Set("If-Range", string(tag))
	}

	res, err := fetcher.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	total := res.ContentLength

	// Some servers ignore If-Range.
	changed := false

	switch res.StatusCode {
	case http.StatusPartialContent:
		changed = res.Header.Get("ETag") != "" && res.Header.Get("ETag") != string(tag)
	case http.StatusRequestedRangeNotSatisfiable:
		changed = res.Header.Get("Content-Range") != fmt.Sprintf("bytes */%d", has)
	}

	switch begins := fmt.Sprintf("bytes %d-", has); {
	case changed:
		return errors.Join(errors.New("it has changed since the beginning of it was fetched, and is fetched anew"),
			f.Truncate(0), os.Remove(f.Name()+validatorSuffix))
	case res.StatusCode == http.StatusPartialContent && strings.HasPrefix(res.Header.Get("Content-Range"), begins):
		total += has
	case res.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return nil // all of it is here
	case res.StatusCode == http.StatusOK:
		if err := f.Truncate(0); err != nil {
			return err
		}
		has, err = f.Seek(0, io.SeekStart)

		// A weak tag does not say that the bytes are the same.
		tag := res.Header.Get("ETag")
		if strings.HasPrefix(tag, "W/") {
			tag = ""
		}
		if err := errors.Join(err, localfile.Replace(f.Name()+validatorSuffix, []byte(tag))); err != nil {
			return err
		}
	default:
		return fmt.Errorf("the server answered %s", res.Status)
	}

	done := c.progress("fetching", has, max(total, 0))
	_, err = io.Copy(f, counted{readerFunc(func(p []byte) (int, error) {
		stalled.Reset(fetchStall)
		return res.Body.Read(p)
	}), done})
	done.end()

	if cause := context.Cause(ctx); cause != nil {
		return cause
	}

	return err
}
