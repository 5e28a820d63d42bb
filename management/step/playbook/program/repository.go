// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/ansible"
	kept "github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/configuration/repository/galaxy"
	"github.com/contiv/cluster/configuration/repository/git"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step/playbook"
)

// CheckSection refuses invalid values of the section repository. It reads
// nothing.
func CheckSection(r repository.Config) error {
	if !r.Used() {
		return nil
	}

	if err := git.CheckURL(r.URL); err != nil {
		return inventory.Under("repository.url", err)
	}

	for _, ref := range []struct{ key, name string }{{"branch", r.Branch}, {"tag", r.Tag}} {
		if ref.name == "" {
			continue
		}

		if err := git.CheckRef(ref.name); err != nil {
			return inventory.Under("repository."+ref.key, err)
		}
	}

	if r.Commit != "" && !git.IsCommit(r.Commit) {
		return inventory.Errorf(inventory.KindInvalid, "repository.commit: %q is no full hash of a commit", r.Commit).
			Do("write its 40 hexadecimal digits, as git rev-parse prints them")
	}

	if err := git.CheckFolder(r.Folder); err != nil {
		return inventory.Under("repository.folder", err)
	}

	for _, file := range []struct{ key, path string }{{"key_file", r.KeyFile}, {"known_hosts_file", r.KnownHostsFile}} {
		if git.UsesSSH(r.URL) && file.path == "" {
			missing := inventory.Errorf(inventory.KindInvalid, "repository.%s: it is empty", file.key)
			return missing.Do("name the file: the URL is one of ssh")
		}
	}

	if r.RequirementsMirror != "" {
		if err := galaxy.CheckURL(r.RequirementsMirror); err != nil {
			return inventory.Under("repository.requirements_mirror", err)
		}
	}

	if r.CredentialFile != "" && !git.UsesHTTPS(r.URL) {
		return inventory.Errorf(inventory.KindInvalid, "repository.credential_file: only https uses credentials").
			Do("remove it, or write an https URL")
	}

	return nil
}

// mirrorOf returns the mirror of the configured repository, in a folder of its own below
// dir.
func mirrorOf(r repository.Config, dir string) *git.Mirror {
	sum := sha256.Sum256([]byte(r.URL))

	return &git.Mirror{
		Dir: filepath.Join(dir, hex.EncodeToString(sum[:8])),
		Options: git.Options{
			URL: r.URL, Branch: r.Branch, Tag: r.Tag, Commit: r.Commit, Folder: r.Folder, KeyFile: r.KeyFile,
			KnownHostsFile: r.KnownHostsFile, CredentialFile: r.CredentialFile, CAFile: r.CAFile, SignedBy: r.SignedBy,
			Submodules: r.Submodules,
			Limits: git.Limits{
				Fetch: r.Limits.Fetch, Size: r.Limits.Size, Files: r.Limits.Files, Time: time.Duration(r.Limits.Time),
			},
		},
	}
}

// referenceOf describes the selected branch, tag or commit.
func referenceOf(r repository.Config) string { return mirrorOf(r, "").Options.Reference() }

// CheckRepository fetches the configured repository, and refuses a newest commit with
// an error that `clusterm playbooks check` would find.
func (a Checks) CheckRepository(ctx context.Context, config playbook.Config) error {
	c, done, err := newRepositoryCheck(ctx, config, a.Temp)
	if err != nil {
		return err
	}
	defer done()
	return c.refusal(ctx)
}

// newRepositoryCheck fetches the configured repository for a check, below temp until done
// is called.
func newRepositoryCheck(
	ctx context.Context, config playbook.Config, temp string,
) (c *check, done func(), err error) {
	if err := git.CheckKeys(config.Repository.SignedBy); err != nil {
		return nil, nil, err
	}

	shown := config.Repository.URL + ", " + referenceOf(config.Repository)

	return keepAndCheck(ctx, config, shown, temp, func(store *kept.Store) (string, error) {
		mirror := mirrorOf(config.Repository, store.Dir+"-mirror")

		commit, err := mirror.Fetch(ctx)
		if err != nil {
			return "", err
		}

		k := keeping{config: config, store: store, temp: filepath.Dir(store.Dir)}

		return k.commit(ctx, mirror, commit.Hash)
	})
}

// keeping adds the playbooks of commits to a store.
type keeping struct {
	config playbook.Config
	store  *kept.Store
	temp   string // folder for temporary files
}

// commit keeps the playbooks of a fetched commit, if it has a signature where one is
// demanded.
func (k keeping) commit(ctx context.Context, m *git.Mirror, commit string) (digest string, err error) {
	err = m.Tree(ctx, commit, func(tree fs.FS) error {
		digest, err = k.tree(ctx, tree)
		return err
	})

	return digest, err
}

// tree keeps the playbooks of a commit, with the collections and roles that they require.
func (k keeping) tree(ctx context.Context, tree fs.FS) (digest string, err error) {
	r := k.config.Repository
	if r.RequirementsMirror == "" {
		if err := galaxy.Refuse(tree); err != nil {
			return "", err
		}
		return k.store.KeepTree(ctx, tree)
	}

	required, err := galaxy.Read(tree)
	if err != nil {
		return "", err
	}
	if len(required) == 0 {
		return k.store.KeepTree(ctx, tree)
	}

	temp, err := os.MkdirTemp(k.temp, "requirements-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp) // a leftover is removed at the start

	// ansible-galaxy writes into a folder.
	folder := filepath.Join(temp, "playbooks")
	if err := os.CopyFS(folder, tree); err != nil {
		return "", err
	}
	if err := k.install(ctx, required, folder, temp); err != nil {
		return "", err
	}

	if err := plainModes(folder); err != nil {
		return "", err
	}

	return k.store.KeepDir(ctx, folder)
}

// install brings the requirements of the playbooks in a folder from the mirror into it.
func (k keeping) install(ctx context.Context, required []galaxy.Requirement, folder, temp string) error {
	r := k.config.Repository
	mirror := galaxy.Mirror{
		URL: r.RequirementsMirror, CAFile: r.CAFile, Size: r.Limits.Size, Files: r.Limits.Files,
		Time: time.Duration(r.Limits.Time),
	}

	// The content of the mirror runs as root.
	if mirror.IsFolder() {
		resolved, err := kept.CheckOwnedFolder(mirror.URL)
		if err != nil {
			return inventory.Errorf(inventory.KindUnavailable, "repository.requirements_mirror: %w", err)
		}
		mirror.URL = resolved
	}

	archives, home := filepath.Join(temp, "archives"), filepath.Join(temp, "home")
	for _, dir := range []string{archives, home} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}

	if err := mirror.Fetch(ctx, required, archives); err != nil {
		return err
	}

	files := ansible.Archives{Roles: map[string]string{}}

	for _, one := range required {
		path := filepath.Join(archives, one.Archive())
		if one.Role {
			files.Roles[one.Name] = path
		} else {
			files.Collections = append(files.Collections, path)
		}
	}

	return ansible.InstallArchives(ctx, k.config.Ansible, files, folder, home)
}

// plainModes gives all files the permissions that git knows: the umask of this process
// must not change the digest.
func plainModes(folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()

	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() == fs.ModeSymlink {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		mode := fs.FileMode(0o644)
		if d.IsDir() || info.Mode().Perm()&0o100 != 0 {
			mode = 0o755
		}
		return root.Chmod(path, mode)
	})
}

// gitSource implements repository.Source.
type gitSource struct {
	runner *Runner
	view   func() *state.View
	dir    string // of the mirrors
}

func (s gitSource) mirror() *git.Mirror { return mirrorOf(s.runner.config().Repository, s.dir) }

func (s gitSource) keeping() keeping {
	return keeping{config: s.runner.config(), store: s.runner.Copies, temp: s.runner.temp}
}

// Fetch returns the commit that the configuration names now.
func (s gitSource) Fetch(ctx context.Context) (configuration.Commit, error) {
	m := s.mirror()
	s.sweep(filepath.Base(m.Dir))
	return m.Fetch(ctx)
}

// sweep removes mirrors of former repositories.
func (s gitSource) sweep(keep string) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}

	for _, e := range entries {
		if e.Name() != keep {
			// A leftover costs space only.
			_ = os.RemoveAll(filepath.Join(s.dir, e.Name()))
		}
	}
}

// Keep checks the playbooks of a fetched commit, and keeps them.
func (s gitSource) Keep(ctx context.Context, commit string) (digest string, err error) {
	digest, err = s.keeping().commit(ctx, s.mirror(), commit)
	if err != nil {
		return "", err
	}

	// Without Ansible, a commit cannot be judged.
	if err := s.runner.CheckVersion(ctx); err != nil {
		return "", inventory.Errorf(inventory.KindUnavailable, "the commit cannot be checked: %w", err)
	}

	return digest, s.check(ctx, digest)
}

// Restore keeps the playbooks of a commit that was in use. Each user of them compares their
// digest, so a key that signs no more is no reason to refuse them.
func (s gitSource) Restore(ctx context.Context, commit string) (digest string, err error) {
	err = s.mirror().Trees(ctx, []string{commit}, func(trees []fs.FS) error {
		digest, err = s.keeping().tree(ctx, trees[0])
		return err
	})

	return digest, err
}

// check refuses kept playbooks that jobs could not use.
func (s gitSource) check(ctx context.Context, digest string) error {
	c := checkOf(s.runner.config(), s.runner.Copies, digest, s.runner.temp)

	if err := c.refusal(ctx); err != nil {
		return err
	}
	return s.covers(digest)
}

// covers refuses playbooks without a play for a node that is configured: it could not be
// configured any more.
func (s gitSource) covers(digest string) error {
	plays := s.runner.Copies.Plays(digest, job.PlaybookSite)

	var idle, groups []string

	for _, n := range s.view().Nodes() {
		acts := func(p configuration.Play) bool { return p.Matches(n.Name, n.Group) != configuration.No }
		if n.Group == "" || slices.ContainsFunc(plays, acts) {
			continue
		}

		idle = append(idle, n.Name)

		if !slices.Contains(groups, n.Group) {
			groups = append(groups, n.Group)
		}
	}

	if len(idle) == 0 {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused, "no play of %s is for the group %s of %s", job.PlaybookSite,
		strings.Join(groups, " and "), job.ShortList(idle)).
		Do("add a play for the group, or decommission its nodes first").About(idle...)
}

// diffTimeout bounds a comparison.
const diffTimeout = time.Minute

// Diff compares two sets of playbooks. It keeps nothing.
func (s gitSource) Diff(ctx context.Context, old, changed repository.Side) (repository.Difference, error) {
	ctx, cancel := context.WithTimeout(ctx, diffTimeout)
	defer cancel()

	d := repository.Difference{Old: old, New: changed}

	err := s.folders(ctx, []repository.Side{old, changed}, func(trees []fs.FS) (err error) {
		d.Files, d.More, err = git.Diff(ctx, trees[0], trees[1], kept.Internal)
		return err
	})

	return d, err
}

// folders calls use with the playbooks of each side: the copy of this host, or the commit
// in the mirror.
func (s gitSource) folders(ctx context.Context, sides []repository.Side, use func([]fs.FS) error) error {
	folders := make([]fs.FS, len(sides))

	var (
		commits []string
		at      []int // of each commit in folders
	)

	// Copies have the requirements from the mirror; commits have not.
	compared := s.runner.config().Repository.RequirementsMirror != "" &&
		!slices.ContainsFunc(sides, func(side repository.Side) bool { return side.Commit == "" })

	for i, side := range sides {
		switch {
		case compared:
			commits, at = append(commits, side.Commit), append(at, i)
		case side.Digest != "" && s.runner.Copies.Intact(ctx, side.Digest):
			folders[i] = os.DirFS(s.runner.Copies.Path(side.Digest))
		case side.Commit == "":
			gone := inventory.Errorf(inventory.KindRefused, "the playbooks with the digest %s are missing or damaged",
				side.Digest[:min(len(side.Digest), 12)])

			return gone.Do("compare two commits")
		default:
			commits, at = append(commits, side.Commit), append(at, i)
		}
	}

	if len(commits) == 0 {
		return use(folders)
	}

	return s.mirror().Trees(ctx, commits, func(trees []fs.FS) error {
		for i, tree := range trees {
			folders[at[i]] = tree
		}

		return use(folders)
	})
}

// Track returns the keeper of the configured repository, and pins its playbooks from now on. The options have what is
// not about playbooks.
func (r *Runner) Track(o repository.Options) *repository.Keeper {
	source := gitSource{r, o.State.View, filepath.Join(r.dataDir, "repositories")}

	o.Settings, o.Source, o.Playbooks, o.Moved = source.settings, source, r.Copies, r.Note.refresh
	o.History = func() repository.History { return source.mirror() }

	k := repository.New(o)
	r.repository = k

	return k
}

// settings returns the configuration of the repository.
func (s gitSource) settings() repository.Settings {
	r := s.runner.config().Repository

	return repository.Settings{
		Used: r.Used(), URL: r.URL, Reference: referenceOf(r), Folder: r.Folder, OnMove: r.OnMove,
		Interval: time.Duration(r.Interval),
		Source:   sourceOf(r),
	}
}

// sourceOf identifies the repository with all that decides which of its commits are good: a
// commit in use is judged again when it changes. It reads the files with keys.
func sourceOf(r repository.Config) string {
	source := fmt.Sprintf("%s %s %s", r.URL, referenceOf(r), r.Folder)

	// Keys that cannot be read judge no commit good.
	keys, err := git.KeysDigest(r.SignedBy)
	if err != nil {
		keys = "unreadable"
	}
	if keys != "" {
		source += " signed by " + keys
	}

	if r.Submodules {
		source += " with submodules"
	}

	if r.RequirementsMirror != "" {
		source += " requirements from " + r.RequirementsMirror
	}

	return source
}
