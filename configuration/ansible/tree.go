// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

// Bounds of a playbook folder.
const (
	DefaultTreeBytes = 64 << 20
	DefaultTreeFiles = 10_000
)

// Trees keeps copies of playbook folders, each under the digest of its content:
// a run that is pinned to a digest sees what was there when it was accepted,
// whatever is edited later. Methods may be called at once; of several processes
// only one may use Dir.
type Trees struct {
	Dir             string // absolute; made with mode 0700
	AnsiblePlaybook string // for SyntaxCheck: path or name; empty: ansible-playbook in PATH
	MaxBytes        int64  // of a folder's files together; 0: DefaultTreeBytes
	MaxFiles        int    // files, folders and links of a folder; 0: DefaultTreeFiles

	mu      sync.Mutex          // one copy, or one removal, at a time
	checkMu sync.Mutex          // guards checked, and lets one check run at a time
	checked map[string]struct{} // digest, playbook and the rest that passed
}

// Path is where the folder of that digest is, if it is pinned.
func (t *Trees) Path(digest string) string { return filepath.Join(t.Dir, digest) }

// PinDir pins a folder of the file system. Links that lead out of it are refused.
func (t *Trees) PinDir(ctx context.Context, dir string) (digest string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the playbook folder cannot be read: %w", err)
	}
	defer root.Close() //nolint:errcheck // only read

	return t.Pin(ctx, root.FS())
}

// Pin copies src under the digest of its content, durably, and returns the
// digest. What is there already is not copied again. Left out are .git and what
// Python and Ansible leave behind (__pycache__, *.pyc, *.retry).
//
// The digest covers paths, permissions, link targets and content. Links must
// stay inside the folder and lead to something; other than files, folders and
// links, and folders over the bounds, are refused.
func (t *Trees) Pin(ctx context.Context, src fs.FS) (digest string, err error) {
	if err := safePath("the folder for pinned playbooks", t.Dir); err != nil {
		return "", err
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	if err := os.MkdirAll(t.Dir, 0o700); err != nil {
		return "", err
	}

	digest, err = t.walk(ctx, src, nil)
	if err != nil {
		return "", err
	}

	if t.intact(ctx, digest) {
		return digest, nil
	}

	tmp, err := os.MkdirTemp(t.Dir, ".tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // Prune removes what is left

	to, err := os.OpenRoot(tmp)
	if err != nil {
		return "", err
	}
	defer to.Close() //nolint:errcheck // synced by then
	// The source may have changed since: the copy's own digest names it.
	if digest, err = t.walk(ctx, src, to); err != nil {
		return "", err
	}

	if t.intact(ctx, digest) {
		return digest, nil
	}

	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}

	if _, err := os.Lstat(t.Path(digest)); err == nil { // damaged
		if err := os.Rename(t.Path(digest), filepath.Join(t.Dir, ".damaged-"+filepath.Base(tmp))); err != nil {
			return "", err
		}
	}

	if err := os.Rename(tmp, t.Path(digest)); err != nil {
		return "", err
	}

	return digest, syncDir(t.Dir)
}

// intact reports whether a pinned folder is there and what its digest says. It
// marks it as used now.
func (t *Trees) intact(ctx context.Context, digest string) bool {
	dir := t.Path(digest)
	if _, err := os.Lstat(dir); err != nil {
		return false
	}

	found, err := t.walk(ctx, os.DirFS(dir), nil)
	now := time.Now()

	return err == nil && found == digest && os.Chtimes(dir, now, now) == nil
}

func skipped(name string, dir bool) bool {
	return name == ".git" || dir && name == "__pycache__" ||
		!dir && (strings.HasSuffix(name, ".pyc") || strings.HasSuffix(name, ".retry"))
}

// walk computes the digest of src and, where to is given, copies it there.
func (t *Trees) walk(ctx context.Context, src fs.FS, to *os.Root) (string, error) {
	refuse := func(format string, args ...any) error {
		return inventory.Errorf(inventory.KindInvalid, "the playbook folder cannot be used: "+format, args...)
	}
	maxBytes, maxFiles := cmp.Or(t.MaxBytes, DefaultTreeBytes), cmp.Or(t.MaxFiles, DefaultTreeFiles)
	var lines, links, dirs []string
	var size int64

	err := fs.WalkDir(src, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return refuse("%w", err)
		}

		if err := ctx.Err(); err != nil {
			return err
		}

		if name == "." {
			return nil
		}

		if skipped(d.Name(), d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}

			return nil
		}

		if len(lines) >= maxFiles {
			return refuse("it holds more than %d files", maxFiles)
		}

		switch d.Type() {
		case fs.ModeDir:
			lines = append(lines, fmt.Sprintf("dir %q", name))

			dirs = append(dirs, name)
			if to != nil {
				return to.Mkdir(name, 0o755)
			}
		case fs.ModeSymlink:
			target, err := fs.ReadLink(src, name)
			if err != nil {
				return refuse("%w", err)
			}

			lines = append(lines, fmt.Sprintf("link %q %q", name, target))

			links = append(links, name)
			if path.IsAbs(target) {
				return refuse(
					"the link %s points to %s; links must be relative and stay inside the folder",
					name,
					target,
				)
			}

			if to != nil {
				return to.Symlink(target, name)
			}
		case 0:
			sum, mode, n, err := t.file(src, name, to, maxBytes-size)
			if errors.Is(err, errTooLarge) {
				return refuse("it holds more than %d bytes", maxBytes)
			}

			if err != nil {
				return refuse("%w", err)
			}

			size += n
			lines = append(lines, fmt.Sprintf("file %q %o %x", name, mode, sum))
		default:
			return refuse("%s is neither a file nor a folder nor a link", name)
		}

		return nil
	})
	if err != nil {
		return "", err
	}

	if to != nil {
		if err := settle(to, append(dirs, "."), links); err != nil {
			return "", refuse("%w", err)
		}
	}

	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))

	return hex.EncodeToString(sum[:]), nil
}

var errTooLarge = errors.New("too large")

func (t *Trees) file(
	src fs.FS,
	name string,
	to *os.Root,
	room int64,
) (sum []byte, mode fs.FileMode, n int64, err error) {
	f, err := src.Open(name)
	if err != nil {
		return nil, 0, 0, err
	}
	defer f.Close() //nolint:errcheck // only read

	info, err := f.Stat()
	if err != nil {
		return nil, 0, 0, err
	}

	if !info.Mode().IsRegular() {
		return nil, 0, 0, fmt.Errorf("%s changes while it is read", name)
	}

	mode = info.Mode().Perm() | 0o400
	hash := sha256.New()
	dst := io.Writer(hash)

	var out *os.File
	if to != nil {
		if out, err = to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return nil, 0, 0, err
		}

		dst = io.MultiWriter(hash, out)
	}

	n, err = io.Copy(dst, io.LimitReader(f, room+1))
	if out != nil {
		err = errors.Join(err, out.Chmod(mode), out.Sync(), out.Close())
	}

	if err == nil && n > room {
		err = errTooLarge
	}

	return hash.Sum(nil), mode, n, err
}

// settle makes a copy durable, and makes sure that its links stay inside. It
// looks at the copy, where nobody can change them any more.
func settle(root *os.Root, dirs, links []string) error {
	for _, l := range links {
		if _, err := root.Stat(l); err != nil {
			target, _ := root.Readlink(l)
			return fmt.Errorf(
				"the link %s points to %s; links must lead to something inside the folder: %w",
				l,
				target,
				err,
			)
		}
	}

	for _, d := range dirs {
		f, err := root.Open(d)
		if err != nil {
			return err
		}

		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}

	return nil
}

var digestName = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Prune removes the pinned folders that are not in keep and were not pinned
// again within the last unused time, and what interrupted copies left. It
// returns the digests that it removed.
func (t *Trees) Prune(keep []string, unused time.Duration) (removed []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	entries, err := os.ReadDir(t.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || slices.Contains(keep, e.Name()) || time.Since(info.ModTime()) < unused {
			continue
		}

		pinned := digestName.MatchString(e.Name())
		if !pinned && !strings.HasPrefix(e.Name(), ".tmp-") && !strings.HasPrefix(e.Name(), ".damaged-") {
			continue
		}

		if err := os.RemoveAll(filepath.Join(t.Dir, e.Name())); err != nil {
			errs = append(errs, err)
		} else if pinned {
			removed = append(removed, e.Name())
		}
	}

	return removed, errors.Join(errs...)
}

// SyntaxCheck lets Ansible read a playbook of a pinned folder without running
// it. A playbook that is missing or does not parse is an error of kind invalid
// with Ansible's own words. groups are those that the inventory of a real run
// may have. A playbook that passed is not checked again.
func (t *Trees) SyntaxCheck(ctx context.Context, digest, playbook, bundledRoles string, groups ...string) error {
	tree := t.Path(digest)
	if err := checkPlaybook(tree, playbook); err != nil {
		return err
	}

	if bundledRoles != "" {
		if err := safePath("the folder of bundled roles", bundledRoles); err != nil {
			return err
		}
	}

	t.checkMu.Lock()
	defer t.checkMu.Unlock()

	key := strings.Join([]string{digest, playbook, bundledRoles}, "\x00")
	if _, ok := t.checked[key]; ok {
		return nil
	}

	command, err := lookPath(t.AnsiblePlaybook)
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "clusterm-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing depends on it
	settings := "[defaults]\n" + strings.Join(append(treeSettings(dir, tree, bundledRoles),
		"localhost_warning = False", "force_valid_group_names = ignore", "retry_files_enabled = False"), "\n") +
		"\n\n[inventory]\n" + strings.Join(inventorySettings, "\n") + "\n"

	inv, err := checkInventory(groups)
	if err != nil {
		return err
	}

	for name, content := range map[string][]byte{fileConfig: []byte(settings), fileInventory: inv} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}

	out, err := runShort(ctx, tree, []string{"ANSIBLE_CONFIG=" + filepath.Join(dir, fileConfig)}, command,
		"-i", filepath.Join(dir, fileInventory), "--syntax-check", filepath.Join(tree, playbook))
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		why := strings.TrimSpace(string(out))

		var said *commandError
		if errors.As(err, &said) {
			why = said.said
		}

		why = strings.ReplaceAll(why, tree+"/", "")

		return inventory.Errorf(inventory.KindInvalid, "the playbook %s does not parse: %s", playbook, firstBytes([]byte(cmp.Or(why, err.Error())), 2048)).
			Do("correct it and repeat the request")
	}

	if t.checked == nil || len(t.checked) > 1000 {
		t.checked = map[string]struct{}{}
	}

	t.checked[key] = struct{}{}

	return nil
}

// checkInventory names one host that nothing connects to, in every group.
func checkInventory(groups []string) ([]byte, error) {
	const host = "syntax-check"

	children := map[string]any{}
	for _, g := range groups {
		if err := inventory.CheckGroup(g); err != nil {
			return nil, err
		}

		children[g] = map[string]any{"hosts": map[string]any{host: nil}}
	}

	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	err := enc.Encode(map[string]any{"all": map[string]any{"hosts": map[string]any{host: nil}, "children": children}})

	return b.Bytes(), errors.Join(err, enc.Close())
}
