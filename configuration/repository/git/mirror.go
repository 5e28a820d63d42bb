// SPDX-License-Identifier: Apache-2.0

package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/storer"
	gittransport "github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// Mirror is a bare copy of a repository in Dir, which it makes. Several processes may
// use it, one at a time: each method waits for its turn until its context ends. A Mirror
// itself must not be used by two goroutines at once.
type Mirror struct {
	Dir     string
	Options Options

	newest plumbing.ReferenceName // the commit that was fetched last; empty: mainRef
}

// The bounds of a mirror.
const (
	// maxPacks is the number of fetches after which the mirror is fetched anew, as one pack.
	maxPacks = 100
	maxHaves = 64 // commits that are offered to a server
)

// mainRef is the commit of the repository that was fetched last.
const mainRef plumbing.ReferenceName = "refs/clusterm/seen"

// Fetch fetches new objects, and returns the commit that Options name. It does not check
// the commit, see Tree. It blocks for Limits.Time at most.
//
// A repository that cannot be reached is KindUnavailable. One that cannot be used, e.g.
// because it is empty, too large, or lacks the branch, is KindRefused, KindInvalid or
// KindTooLarge. If that is due to one commit, its hash is returned with the error.
func (m *Mirror) Fetch(ctx context.Context) (configuration.Commit, error) {
	bounded, cancel := context.WithTimeout(ctx, m.Options.Limits.Time)
	defer cancel()

	var c configuration.Commit

	err := m.within(bounded, func(store *mirrored) (err error) {
		c, err = m.fetch(bounded, store)
		return err
	})

	if ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return c, inventory.Errorf(inventory.KindUnavailable, "%s was not fetched within %s", m.shown(),
			m.Options.Limits.Time).Do("check the network, or raise repository.limits.time")
	}

	if errors.Is(err, errDamaged) {
		return c, m.broken(err)
	}

	return c, err
}

// broken returns the error for objects that are damaged although they have just been
// fetched: they are so in the repository, unless this host cannot write them.
func (m *Mirror) broken(err error) error {
	reason := plain(err.Error(), 300)

	// A full disk is no fault of the repository.
	if _, local := errors.AsType[syscall.Errno](err); local {
		return inventory.Errorf(inventory.KindUnavailable, "the copy of %s cannot be used: %s", m.shown(), reason).
			Do("check the free space and the permissions of %s", m.Dir)
	}

	return inventory.Errorf(inventory.KindRefused, "%s has a damaged or missing object: %s", m.shown(), reason).
		Do("check it there with git fsck, and push the commit anew")
}

// shown returns the repository as messages name it.
func (m *Mirror) shown() string { return "the repository " + m.Options.URL }

func (m *Mirror) fetch(ctx context.Context, store *mirrored) (configuration.Commit, error) {
	// A commit never changes.
	if want := plumbing.NewHash(m.Options.Commit); m.Options.Commit != "" && store.has(want) {
		return m.commit(store, want)
	}
	return m.fetchWithin(ctx, store, newBudget(m.Options.Limits.Fetch))
}

// fetchWithin fetches the commit that Options name, with a budget for all that arrives.
func (m *Mirror) fetchWithin(ctx context.Context, store *mirrored, b *budget) (configuration.Commit, error) {
	hash, err := m.bring(ctx, store, b)

	var c configuration.Commit
	if !hash.IsZero() {
		c.Hash = hash.String()
	}

	switch e, known := errors.AsType[*inventory.Error](err); {
	case err == nil:
	case b.spent():
		return c, inventory.Errorf(inventory.KindTooLarge,
			"%s sends more than %d bytes", m.shown(), b.limit).
			Do("raise repository.limits.fetch, or use a repository for the playbooks alone")
	case known:
		return c, e
	case errors.Is(err, errDamaged):
		return c, err
	default:
		return configuration.Commit{}, m.unreachable(err)
	}

	return m.commit(store, hash)
}

// unreachable returns the error for a repository that does not answer as it should.
func (m *Mirror) unreachable(err error) error {
	switch {
	case errors.Is(err, gittransport.ErrEmptyRemoteRepository):
		return inventory.Errorf(inventory.KindRefused, "%s is empty", m.shown()).Do("push a commit with the playbooks")
	case errors.Is(err, gittransport.ErrAuthenticationRequired), errors.Is(err, gittransport.ErrAuthorizationFailed):
		return inventory.Errorf(inventory.KindRefused, "%s demands other credentials", m.shown()).
			Do("check repository.credential_file")
	case errors.Is(err, gittransport.ErrRepositoryNotFound):
		return inventory.Errorf(inventory.KindRefused, "%s does not exist", m.shown()).
			Do("check the URL, and that its server lets the manager read it")
	}

	return inventory.Errorf(inventory.KindUnavailable, "%s cannot be fetched: %s", m.shown(), plain(err.Error(), 500)).
		Do("check the URL, the network and the server")
}

// bring fetches missing objects, and returns the object that Options name, as soon as it
// is known also with an error.
func (m *Mirror) bring(ctx context.Context, store *mirrored, b *budget) (plumbing.Hash, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	s, err := m.open(ctx, store, b)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer s.Close()

	refs, err := s.AdvertisedReferencesContext(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}

	b.raise(m.Options.Limits.Fetch)

	want, err := m.choose(refs)
	if err != nil || store.has(want) {
		return want, err
	}

	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants = m.wants(refs, store, want)

	// A local repository looks into the mirror itself.
	if _, local := s.(*localSession); !local {
		req.Haves = store.haves(m.newestRef())
	}

	if refs.Capabilities.Supports(capability.NoProgress) {
		if err := req.Capabilities.Set(capability.NoProgress); err != nil {
			return want, err
		}
	}

	resp, err := s.UploadPack(ctx, req)
	if err != nil {
		return want, err
	}
	defer resp.Close()

	if err := m.receive(ctx, store, packOf(req, resp)); err != nil {
		return want, err
	}

	if !store.has(want) {
		return want, fmt.Errorf("the server did not send %s", want)
	}

	return want, nil
}

// packOf returns the pack in a response.
func packOf(req *packp.UploadPackRequest, resp io.Reader) io.Reader {
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, resp)
	case req.Capabilities.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, resp)
	}

	return resp
}

// wants returns the objects to ask for, to get one. A server may give no commit that is
// not the end of a branch or a tag: such a one comes with all of these.
func (m *Mirror) wants(refs *packp.AdvRefs, store *mirrored, want plumbing.Hash) []plumbing.Hash {
	givesAny := refs.Capabilities.Supports(capability.AllowReachableSHA1InWant)
	if m.Options.Commit == "" || givesAny || slices.Contains(slices.Collect(maps.Values(refs.References)), want) {
		return []plumbing.Hash{want}
	}

	var wants []plumbing.Hash

	// Other references, e.g. of merge requests, may be many.
	for name, hash := range refs.References {
		ref := plumbing.ReferenceName(name)
		if (ref.IsBranch() || ref.IsTag()) && !slices.Contains(wants, hash) && !store.has(hash) {
			wants = append(wants, hash)
		}
	}

	if len(wants) == 0 {
		wants = append(wants, want) // the server says that it does not have it
	}

	return wants
}

// choose returns the object to fetch.
func (m *Mirror) choose(refs *packp.AdvRefs) (plumbing.Hash, error) {
	o := m.Options

	var name plumbing.ReferenceName

	switch {
	case o.Commit != "":
		return plumbing.NewHash(o.Commit), nil
	case o.Branch != "":
		name = plumbing.NewBranchReferenceName(o.Branch)
	case o.Tag != "":
		name = plumbing.NewTagReferenceName(o.Tag)
	case refs.Head != nil:
		return *refs.Head, nil
	}

	if hash, ok := refs.References[name.String()]; ok {
		return hash, nil
	}

	return plumbing.ZeroHash, inventory.Errorf(inventory.KindRefused, "%s has no %s; %s", m.shown(),
		o.Reference(), describe(refs)).
		Do("push it, or correct the section repository of the configuration file")
}

// describe names the branches of a repository.
func describe(refs *packp.AdvRefs) string {
	var names []string

	for _, full := range slices.Sorted(maps.Keys(refs.References)) {
		if name, ok := strings.CutPrefix(full, "refs/heads/"); ok {
			names = append(names, plain(name, 60))
		}
	}

	switch {
	case len(names) == 0:
		return "it has no branch"
	case len(names) > 10:
		names = append(names[:10], "and others")
	}

	return "its branches are " + strings.Join(names, ", ")
}

// commit returns the commit behind an object: itself, or that of an annotated tag. It
// becomes the newest one of the mirror.
func (m *Mirror) commit(store *mirrored, hash plumbing.Hash) (configuration.Commit, error) {
	const maxTags = 10

	none := inventory.Errorf(inventory.KindRefused, "the %s is no commit", m.Options.Reference()).
		Do("name a branch, a tag of a commit, or a commit")

	for range maxTags {
		found, err := object.GetObject(store, hash)
		if err != nil {
			return configuration.Commit{Hash: hash.String()}, damaged(err)
		}

		switch found := found.(type) {
		case *object.Commit:
			return commitOf(found), damaged(store.SetReference(plumbing.NewHashReference(m.newestRef(), hash)))
		case *object.Tag:
			hash = found.Target
		default:
			return configuration.Commit{}, none
		}
	}

	return configuration.Commit{}, none
}

// commitOf returns the domain form of a commit.
func commitOf(c *object.Commit) configuration.Commit {
	subject, _, _ := strings.Cut(c.Message, "\n")

	return configuration.Commit{
		Hash: c.Hash.String(), Author: plain(c.Author.Name, 100), Subject: plain(subject, 200),
		Time: c.Committer.When.UTC(),
	}
}

// mirrored is the opened storage of a mirror.
type mirrored struct{ *filesystem.Storage }

func (s *mirrored) has(hash plumbing.Hash) bool { return s.HasEncodedObject(hash) == nil }

// haves returns commits of the mirror, from a reference on.
func (s *mirrored) haves(from plumbing.ReferenceName) (found []plumbing.Hash) {
	ref, err := s.Reference(from)
	if err != nil {
		return nil
	}
	newest, err := object.GetCommit(s, ref.Hash())
	if err != nil {
		return nil
	}

	// A damaged history offers less.
	_ = object.NewCommitIterBSF(newest, nil, nil).ForEach(func(c *object.Commit) error {
		if found = append(found, c.Hash); len(found) == maxHaves {
			return storer.ErrStop
		}
		return nil
	})

	return found
}

// errDamaged marks errors of the mirror itself.
var errDamaged = errors.New("the mirror is damaged")

func damaged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

// within runs f on the opened mirror, while nobody else uses it. A damaged mirror is
// removed, and f runs again on an empty one.
func (m *Mirror) within(ctx context.Context, f func(*mirrored) error) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()

	err = m.use(f)
	if !errors.Is(err, errDamaged) || ctx.Err() != nil {
		return err
	}

	if err := os.RemoveAll(m.gitDir()); err != nil {
		return err
	}

	return m.use(f)
}

func (m *Mirror) use(f func(*mirrored) error) error {
	if err := m.prepare(); err != nil {
		return err
	}

	store := newStorage(m.gitDir())
	defer store.Close()

	return f(&mirrored{store})
}

func (m *Mirror) newestRef() plumbing.ReferenceName { return cmp.Or(m.newest, mainRef) }

func (m *Mirror) gitDir() string { return filepath.Join(m.Dir, "mirror.git") }

// prepare makes the mirror, and removes the remains of an interrupted fetch.
func (m *Mirror) prepare() error {
	for _, pattern := range []string{
		filepath.Join(m.Dir, "incoming-*"), filepath.Join(m.gitDir(), "objects", "pack", "tmp_pack_*"),
		filepath.Join(m.Dir, "modules"), // mirrors of submodules, which an earlier version had
	} {
		// The pattern is valid.
		left, _ := filepath.Glob(pattern)
		for _, file := range left {
			if err := os.RemoveAll(file); err != nil {
				return err
			}
		}
	}

	packs, err := filepath.Glob(filepath.Join(m.gitDir(), "objects", "pack", "*.pack"))
	if err != nil {
		return err
	}

	if len(packs) > maxPacks {
		if err := os.RemoveAll(m.gitDir()); err != nil {
			return err
		}
	}

	if _, err := os.Stat(filepath.Join(m.gitDir(), "HEAD")); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return m.initialize()
}

// initialize makes an empty mirror. The file HEAD comes last: without it, the mirror is
// made again.
func (m *Mirror) initialize() error {
	if err := os.MkdirAll(m.gitDir(), 0o700); err != nil {
		return err
	}

	if err := newStorage(m.gitDir()).Init(); err != nil {
		return err
	}
	return localfile.Replace(filepath.Join(m.gitDir(), "HEAD"), []byte("ref: "+mainRef.String()+"\n"))
}
