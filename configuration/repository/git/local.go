// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	gittransport "github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/server"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/utils/ioutil"

	"github.com/contiv/cluster/inventory"
)

// localSession is a repository in a folder of this host. It is read directly: neither
// git nor a hook runs. The library reads the references.
type localSession struct {
	gittransport.UploadPackSession

	from    *filesystem.Storage
	have    *mirrored
	maxSize int64
	budget  *budget
}

func openLocal(e *gittransport.Endpoint, maxSize int64, have *mirrored, b *budget) (session, error) {
	dir := e.Path
	if info, err := os.Stat(filepath.Join(dir, ".git")); err == nil && info.IsDir() {
		dir = filepath.Join(dir, ".git")
	}

	for _, part := range []string{"HEAD", "objects"} {
		if _, err := os.Stat(filepath.Join(dir, part)); err != nil {
			return nil, inventory.Errorf(inventory.KindUnavailable, "%s is not a git repository: %w", e.Path, err).
				Do("give the path of a bare repository, or of a clone")
		}
	}

	from := newStorage(dir)

	references, err := server.NewClient(server.MapLoader{e.String(): from}).NewUploadPackSession(e, nil)
	if err != nil {
		return nil, err
	}
	return &localSession{references, from, have, maxSize, b}, nil
}

// newStorage opens the git folder dir.
func newStorage(dir string) *filesystem.Storage {
	return filesystem.NewStorageWithOptions(
		plainFiles{osfs.New(dir)}, cache.NewObjectLRU(32*cache.MiByte), filesystem.Options{KeepDescriptors: true},
	)
}

// plainFiles opens regular files only: the owner of a local repository is not trusted,
// and a pipe would block.
type plainFiles struct{ billy.Filesystem }

// Open opens a file for reading.
func (p plainFiles) Open(name string) (billy.File, error) {
	return p.OpenFile(name, os.O_RDONLY, 0)
}

// OpenFile opens a file.
func (p plainFiles) OpenFile(name string, flag int, mode os.FileMode) (billy.File, error) {
	if info, err := p.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return p.Filesystem.OpenFile(name, flag, mode)
}

// AdvertisedReferencesContext returns the references. Every commit can be had.
func (s *localSession) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	ar, err := s.UploadPackSession.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, err
	}
	return ar, ar.Capabilities.Add(capability.AllowReachableSHA1InWant)
}

// UploadPack returns a pack with the objects that the mirror lacks.
func (s *localSession) UploadPack(
	ctx context.Context, req *packp.UploadPackRequest,
) (*packp.UploadPackResponse, error) {
	c := copier{ctx: ctx, from: s.from, have: s.have, seen: map[plumbing.Hash]*lazyObject{}, maxSize: s.maxSize}

	for _, want := range req.Wants {
		if err := c.collect(want); err != nil {
			return nil, err
		}
	}

	reader, writer := io.Pipe()

	// It ends when the pack is read, or the reader closed.
	go func() {
		_, err := packfile.NewEncoder(writer, lazyStore{s.from, c.seen}, false).Encode(c.found, 0)
		writer.CloseWithError(err)
	}()

	return packp.NewUploadPackResponseWithPackfile(req, ioutil.NewReadCloser(s.budget.reader(reader), reader)), nil
}

// Close closes the repository.
func (s *localSession) Close() error { return s.from.Close() }

// lazyStore has the objects of a pack. The encoder takes all of them before it writes the
// first one, so their content must not be in memory.
type lazyStore struct {
	*filesystem.Storage

	objects map[plumbing.Hash]*lazyObject
}

// EncodedObject returns an object that is read when it is written.
func (s lazyStore) EncodedObject(_ plumbing.ObjectType, hash plumbing.Hash) (plumbing.EncodedObject, error) {
	if o := s.objects[hash]; o != nil {
		return o, nil
	}
	return nil, plumbing.ErrObjectNotFound
}

// lazyObject is an object of a storage without its content.
type lazyObject struct {
	plumbing.EncodedObject // nil: it cannot be written

	from *filesystem.Storage
	hash plumbing.Hash
	kind plumbing.ObjectType
	size int64
}

func (o *lazyObject) Hash() plumbing.Hash       { return o.hash }
func (o *lazyObject) Type() plumbing.ObjectType { return o.kind }
func (o *lazyObject) Size() int64               { return o.size }

// Reader reads the content from the storage.
func (o *lazyObject) Reader() (io.ReadCloser, error) {
	content, err := o.from.EncodedObject(o.kind, o.hash)
	if err != nil {
		return nil, err
	}
	return content.Reader()
}

// maxNesting bounds the recursion into folders. A commit in use has a lower bound.
const maxNesting = 1000

// copier finds the objects that a commit leads to and a mirror lacks. A commit or a tree
// that the mirror has is complete in it.
type copier struct {
	ctx     context.Context //nolint:containedctx // it lives for one call
	from    *filesystem.Storage
	have    *mirrored
	seen    map[plumbing.Hash]*lazyObject
	found   []plumbing.Hash
	maxSize int64
}

// collect finds the objects of a commit, or of an annotated tag.
func (c *copier) collect(want plumbing.Hash) error {
	// A commit that is not there may come with the next push.
	if _, err := c.from.EncodedObjectSize(want); err != nil {
		return fmt.Errorf("the object %s cannot be read: %w", want, err)
	}

	queue := []plumbing.Hash{want}

	for len(queue) > 0 {
		hash := queue[len(queue)-1]
		queue = queue[:len(queue)-1]

		if c.known(hash) {
			continue
		}

		if err := c.add(hash, plumbing.CommitObject); err != nil {
			return err
		}

		found, err := object.GetObject(c.from, hash)
		if err != nil {
			return errUnreadable("object", hash, err)
		}

		switch found := found.(type) {
		case *object.Tag:
			c.seen[hash].kind = plumbing.TagObject
			queue = append(queue, found.Target)
		case *object.Commit:
			queue = append(queue, found.ParentHashes...)

			if err := c.tree(found.TreeHash, 0); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the object %s cannot be read as a commit", hash)
		}
	}

	return nil
}

// errUnreadable returns the error for an object of a local repository that is missing or
// damaged, unless its file cannot be read.
func errUnreadable(kind string, hash plumbing.Hash, err error) error {
	if _, local := errors.AsType[syscall.Errno](err); local {
		return fmt.Errorf("the %s %s cannot be read: %w", kind, hash, err)
	}

	return inventory.Errorf(inventory.KindRefused, "the %s %s of the repository cannot be read: %s", kind, hash,
		plain(err.Error(), 200)).Do("check the repository with git fsck, and push the commit anew")
}

func (c *copier) known(hash plumbing.Hash) bool { return c.seen[hash] != nil || c.have.has(hash) }

func (c *copier) add(hash plumbing.Hash, kind plumbing.ObjectType) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}

	size, err := c.from.EncodedObjectSize(hash)

	switch {
	case err != nil:
		return errUnreadable("object", hash, err)
	case size > c.maxSize:
		return errObject(hash.String(), size, c.maxSize)
	case len(c.found) >= maxObjects:
		return inventory.Errorf(inventory.KindTooLarge, "it has more than %d objects", maxObjects).
			Do("use a repository for the playbooks alone")
	}

	c.seen[hash] = &lazyObject{from: c.from, hash: hash, kind: kind, size: size}
	c.found = append(c.found, hash)

	return nil
}

func (c *copier) tree(hash plumbing.Hash, depth int) error {
	if c.known(hash) {
		return nil
	}

	if depth > maxNesting {
		return errors.New("its folders are nested too deeply")
	}

	if err := c.add(hash, plumbing.TreeObject); err != nil {
		return err
	}

	tree, err := object.GetTree(c.from, hash)
	if err != nil {
		return errUnreadable("tree", hash, err)
	}

	for _, e := range tree.Entries {
		switch {
		case e.Mode == filemode.Dir:
			err = c.tree(e.Hash, depth+1)
		case e.Mode == filemode.Submodule || c.known(e.Hash):
		default:
			err = c.add(e.Hash, plumbing.BlobObject)
		}

		if err != nil {
			return err
		}
	}

	return nil
}
