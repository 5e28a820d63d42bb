// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration/image"
	"github.com/contiv/cluster/configuration/image/environment"
	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Kind are the images, by name.
var Kind = record.Kind[api.Image]{Name: "images", Key: func(i *api.Image) string { return i.Name }}

// Options are the dependencies of Images.
type Options struct {
	Store   record.Store
	Sync    func(context.Context) error // after it, the records are the newest
	Changed func() <-chan struct{}      // closed when there is a newer view
	Self    cluster.Identity            // the instance
	// Members returns the ids of the instances that belong to the manager; none: they are not known.
	Members func() []string
	Folder  string        // of this instance, with the content
	Owner   func() string // the identity of the manager; empty: not known yet. nil: the folder is not checked
	// Users returns what needs an image, such as jobs and nodes, as words for a person. What it reads guards the
	// removal. nil: nothing does.
	Users  func(r record.Reader, name string) []string
	Audit  access.Auditor
	Maker  Maker // zero: the package environment
	Logger logrus.FieldLogger
}

// Images adds and removes images, and takes and gives their content.
type Images struct {
	Options

	Contents *image.Store
	Loop     *control.Loop // looks after the content of this instance

	// turn is taken while content here is compared with the records, or removed. Its holder uses what follows.
	turn     chan struct{}
	unneeded map[string]time.Time // by digest: since when no image needs the content here
	told     map[string]told      // by digest

	making chan struct{} // taken while the files of an environment are made
	unfit  sync.Map      // by digest and version: why no environment can be made of a package, which never changes

	problem atomic.Pointer[error]
}

// told is what a file was found to be, or why it is nothing.
type told struct {
	file  fs.FileInfo
	found image.Found
	err   error
}

// New returns the use cases of images. Their loop is not started.
func New(o Options) *Images {
	s := &Images{
		Options: o, Contents: image.NewStore(image.Options{Dir: o.Folder, Owner: o.Owner}),
		turn: make(chan struct{}, 1), unneeded: map[string]time.Time{}, told: map[string]told{},
		making: make(chan struct{}, 1),
	}
	if o.Maker.Make == nil {
		s.Maker = Maker{Version: environment.Version, Make: environment.Make}
	}
	s.Loop = control.New(control.Options{
		Name: "content of images", Begin: o.Sync, Changed: o.Changed, Round: s.round,
		Pace: time.Second, Every: lookEvery, Backoff: 10 * time.Second,
		Trouble: "the content of images could not be looked after; retrying", Logger: o.Logger,
	})

	return s
}

// Problem returns why the folder with the content cannot be used, or nil.
func (s *Images) Problem() error {
	if p := s.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// take waits for the turn, which ends with release.
func (s *Images) take(ctx context.Context) (release func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// find returns the image with the name.
func find(r record.Reader, name string) (*api.Image, error) {
	if found := record.Get(r, &Kind, name); found != nil {
		return found, nil
	}
	return nil, inventory.Errorf(inventory.KindNotFound, "there is no image %q", inventory.Shorten(name, maxShown)).
		Do("list the images for their names")
}

// fileOf returns the file of an image for a role.
func fileOf(r record.Reader, name, role string) (*api.Image, api.ImageFile, error) {
	found, err := find(r, name)
	if err != nil {
		return nil, api.ImageFile{}, err
	}

	i := slices.IndexFunc(found.Files, func(f api.ImageFile) bool { return f.Role == role })
	if i < 0 {
		return nil, api.ImageFile{}, inventory.Errorf(inventory.KindNotFound, "the image %s has no file for %q", name,
			inventory.Shorten(role, maxShown)).Do("its files are those that its record lists")
	}

	return found, found.Files[i], nil
}

func (s *Images) decide(
	ctx context.Context, c access.Caller, action, name string, decide func(*record.Tx) (api.Image, error),
) (out api.Image, err error) {
	entry := access.Record{Action: action, Targets: []string{inventory.Shorten(name, maxShown)}}
	err = access.Audited(ctx, s.Audit, c, entry, func(ctx context.Context, _ *access.Record) (err error) {
		out, _, err = access.Decide(ctx, s.Store, c, nil, decide)
		return err
	})

	return out, err
}

// Create adds an image, whose content follows. If there is the same one it changes nothing, and it refuses another one
// with the name.
func (s *Images) Create(ctx context.Context, c access.Caller, r api.ImageRequest) (api.Image, error) {
	if err := check(r); err != nil {
		return api.Image{}, err
	}

	made := api.Image{
		Name: r.Name, Kind: r.Kind, Arch: r.Arch, Boot: r.Boot, MinDisk: r.MinDisk, Description: r.Description,
		Actor: c.Principal, Created: time.Now().UTC(),
	}
	for _, f := range r.Files {
		made.Files = append(made.Files, api.ImageFile{
			Role: f.Role, Digest: f.Digest, Size: f.Size, Instances: []api.ImagePlace{},
		})
	}

	slices.SortFunc(made.Files, func(a, b api.ImageFile) int { return strings.Compare(a.Role, b.Role) })

	release, err := s.take(ctx)
	if err != nil {
		return api.Image{}, err
	}
	defer release()

	// Content may be here already, of an image that was removed.
	here := map[string]image.Found{}
	for _, f := range made.Files {
		if found, complete := s.look(f); complete && fits(r.Kind, r.Arch, f.Role, found) == nil {
			here[f.Digest] = found
		}
	}

	return s.decide(ctx, c, "images.create", r.Name, func(tx *record.Tx) (api.Image, error) {
		if was := record.Get(tx, &Kind, r.Name); was != nil {
			return *was, differs(*was, made)
		}

		all := record.List(tx, &Kind)
		if err := agrees(made, all); err != nil {
			return made, err
		}

		if len(all) >= MaxImages {
			return made, inventory.Errorf(inventory.KindRefused, "there are %d images, which is the limit", MaxImages).
				Do("remove one that is not needed any more")
		}

		next := clone(made)
		for digest, found := range here {
			next.place(digest, found, s.place())
		}

		next.share(all)
		record.Put(tx, &Kind, &next.Image)

		return next.Image, nil
	})
}

// agrees refuses content with another size than it has in another image.
func agrees(made api.Image, all []*api.Image) error {
	for _, f := range made.Files {
		for _, other := range all {
			for _, of := range other.Files {
				if of.Digest == f.Digest && of.Size != f.Size {
					return inventory.Errorf(inventory.KindRefused,
						"the content %s has %d bytes in the image %s, not %d", f.Digest, of.Size, other.Name, f.Size).
						Do("give the size of the file; if that image has a wrong one, remove it")
				}
			}
		}
	}

	return nil
}

// differs refuses to add an image in the place of another one.
func differs(was, made api.Image) error {
	content := func(i api.Image) (all []string) {
		for _, f := range i.Files {
			all = append(all, fmt.Sprint(f.Role, " ", f.Digest, " ", f.Size))
		}
		return all
	}

	// The size of the disk in the content counts once it is known.
	var virtual int64
	for _, f := range was.Files {
		virtual = max(virtual, f.VirtualSize)
	}

	what := ""
	switch {
	case was.Kind != made.Kind:
		what = "is of the kind " + string(was.Kind)
	case !slices.Equal(content(was), content(made)):
		what = "has other content"
	case was.Arch != made.Arch:
		what = "is for " + was.Arch
	case was.Boot != made.Boot:
		what = "boots with " + was.Boot
	case made.MinDisk > 0 && was.MinDisk != max(made.MinDisk, virtual):
		what = "needs a disk of another size"
	case made.Description != "" && was.Description != made.Description:
		what = "has another description"
	default:
		return nil
	}

	return inventory.Errorf(inventory.KindRefused, "there is an image %s already, which %s", was.Name, what).
		Do("choose another name, or remove that image before")
}

// look tells what content that is complete here is.
func (s *Images) look(f api.ImageFile) (found image.Found, complete bool) {
	size, complete := s.Contents.Received(f.Digest)
	if !complete || size != f.Size || s.Contents.Owned() != nil {
		return found, false
	}

	found, err := s.detect(f)

	return found, err == nil
}

// detect tells what content here is, and looks once at each file.
func (s *Images) detect(f api.ImageFile) (image.Found, error) {
	content, err := s.Contents.Open(f.Digest)
	if err != nil {
		return image.Found{}, err
	}
	defer content.Close()

	if !isDetected(f.Role) {
		return image.Found{Format: image.Data}, nil
	}

	file, err := content.Stat()
	if err != nil {
		return image.Found{}, err
	}

	if t, ok := s.told[f.Digest]; ok && os.SameFile(t.file, file) && t.file.ModTime().Equal(file.ModTime()) {
		return t.found, t.err
	}

	found, err := image.Detect(content, f.Size)
	if err == nil && f.Role == RolePackage && found.Format == image.Deb {
		err = kernel.Check(content, f.Size)
	}
	s.told[f.Digest] = told{file, found, err}

	return found, err
}

func (s *Images) place() api.ImagePlace { return api.ImagePlace{ID: s.Self.ID, Node: s.Self.Node} }

// Received returns how many bytes of content are on this instance.
func (s *Images) Received(digest string) int64 {
	n, _ := s.Contents.Received(digest)
	return n
}

// Upload takes the content of a file from the offset on; see image.Store. It blocks while content comes.
func (s *Images) Upload(
	ctx context.Context, c access.Caller, name, role string, offset int64, content io.Reader,
) (out api.Image, err error) {
	v, _ := s.Store.Latest()

	known, f, err := fileOf(v, name, role)
	if err != nil {
		return out, err
	}

	entry := access.Record{Action: "images.upload", Targets: []string{name, role}}
	err = access.Audited(ctx, s.Audit, c, entry, func(ctx context.Context, _ *access.Record) error {
		if err := s.Contents.Write(f.Digest, f.Size, offset, content); err != nil {
			return inventory.Under(name+", "+role, err)
		}

		out, err = s.accept(ctx, c, *known, f)

		return err
	})

	return out, err
}

// accept records content that has come for a file of an image.
func (s *Images) accept(
	ctx context.Context, c access.Caller, known api.Image, f api.ImageFile,
) (out api.Image, err error) {
	release, err := s.take(ctx)
	if err != nil {
		return out, err
	}
	defer release()

	if has, complete := s.Contents.Received(f.Digest); !complete || has != f.Size {
		return out, inventory.Errorf(inventory.KindRefused, "%s, %s: %d bytes are here, and it should have %d",
			known.Name, f.Role, has, f.Size).
			Do("compare it with its digest, which removes what is damaged, and add it again")
	}

	found, err := s.detect(f)
	if err == nil {
		err = fits(known.Kind, known.Arch, f.Role, found)
	}
	if err != nil {
		return out, err // the loop removes the content once the image is removed
	}

	out, _, err = access.Decide(ctx, s.Store, c, nil, func(tx *record.Tx) (api.Image, error) {
		_, now, err := fileOf(tx, known.Name, f.Role)
		if err == nil && (now.Digest != f.Digest || now.Size != f.Size) {
			err = inventory.Errorf(inventory.KindConflict, "the image %s is another one meanwhile", known.Name).
				Do("add it again")
		}
		if err != nil {
			return api.Image{}, err
		}

		s.putPlaces(tx, map[string]image.Found{f.Digest: found}, nil, none)
		is := clone(*record.Get(tx, &Kind, known.Name))
		is.place(f.Digest, found, s.place())

		return is.Image, nil
	})

	return out, err
}

// putPlaces records that this instance has content, that it has other content no more, and that instances have left.
func (s *Images) putPlaces(
	tx *record.Tx, has map[string]image.Found, lacks []string, left func(api.ImagePlace) bool,
) {
	for _, old := range record.List(tx, &Kind) {
		next := clone(*old)
		for digest, found := range has {
			next.place(digest, found, s.place())
		}

		for i := range next.Files {
			f := &next.Files[i]
			f.Instances = slices.DeleteFunc(f.Instances, func(p api.ImagePlace) bool {
				return left(p) || p.ID == s.Self.ID && slices.Contains(lacks, f.Digest)
			})
		}

		next.judge()

		if !same(*old, next.Image) {
			record.Put(tx, &Kind, &next.Image)
		}
	}
}

func none(api.ImagePlace) bool { return false }

// Open opens the content of a file. Only an instance that has it does; another one names those that do. The caller has
// to close it.
func (s *Images) Open(r record.Reader, name, role string) (*os.File, api.ImageFile, error) {
	_, f, err := fileOf(r, name, role)
	if err != nil {
		return nil, f, err
	}

	content, err := s.Contents.Open(f.Digest)
	if inventory.KindOf(err) == inventory.KindNotFound {
		err = elsewhere(r, name, f)
	}

	return content, f, err
}

// Disk returns the file of an image of the kind disk, if this instance can have it written to a disk of a machine of
// the architecture.
func (s *Images) Disk(r record.Reader, name, arch string) (api.ImageFile, error) {
	found, err := find(r, name)
	if err != nil {
		return api.ImageFile{}, err
	}

	refused := func(format string, args ...any) *inventory.Error {
		return inventory.Errorf(inventory.KindRefused, "the image %s "+format, append([]any{name}, args...)...)
	}

	if found.Kind != api.ImageDisk {
		return api.ImageFile{}, refused(
			"is of the kind %s, and only images of the kind disk are installed",
			found.Kind,
		).
			Do("name an image of the kind disk")
	}
	if found.Arch != arch {
		return api.ImageFile{}, refused("is for %s, and the machine has %s", found.Arch, arch).
			Do("name an image for %s", arch)
	}

	_, f, err := fileOf(r, name, RoleImage)

	switch {
	case err != nil:
		return f, err
	case !s.has(f):
		return f, elsewhere(r, name, f)
	case f.Format != image.Raw:
		return f, refused("has the format %s, and only raw ones are written", f.Format).
			Do("convert it with qemu-img convert -O raw FILE NEWFILE, and add that under another name")
	}

	return f, nil
}

// OpenDisk opens the content of an image of the kind disk.
func (s *Images) OpenDisk(r record.Reader, name string) (*os.File, error) {
	f, _, err := s.Open(r, name, RoleImage)
	return f, err
}

// elsewhere is the error for content that is not on this instance.
func elsewhere(r record.Reader, name string, f api.ImageFile) error {
	if len(f.Instances) == 0 {
		return inventory.Errorf(inventory.KindRefused, "the content of %s for %s has not come yet", f.Role, name).
			Do("add the image again, from the same files: it goes on where it stopped")
	}

	err := inventory.Errorf(inventory.KindUnavailable, "this instance does not have the content of %s for %s: the one "+
		"on %s does", f.Role, name, f.Instances[0].Node)

	for _, p := range f.Instances {
		if in := record.Get(r, &state.Instances, p.ID); in != nil && len(in.API) > 0 {
			return err.Do("ask the one on %s, at %s", in.Node, in.API[len(in.API)-1])
		}
	}

	return err.Do("start clusterm on %s; if that is lost, remove the image and add it again", f.Instances[0].Node)
}

// Verify reads the content of an image on this instance. What is damaged is removed from it, so that it can come again.
// It blocks until all is read.
func (s *Images) Verify(ctx context.Context, c access.Caller, name string) (api.ImageCheck, error) {
	v, _ := s.Store.Latest()

	found, err := find(v, name)
	if err != nil {
		return api.ImageCheck{}, err
	}

	out := api.ImageCheck{Image: name, Node: s.Self.Node, Files: []api.ImageFileCheck{}}

	var damaged []image.Entry
	for _, f := range found.Files {
		result := api.ImageOK

		is, ok, err := s.Contents.Verify(ctx, f.Digest)
		switch {
		case inventory.KindOf(err) == inventory.KindNotFound:
			result = api.ImageMissing
		case err != nil:
			return out, err
		case !ok:
			result = api.ImageDamaged
			damaged = append(damaged, is)
		}

		out.Files = append(out.Files, api.ImageFileCheck{Role: f.Role, Digest: f.Digest, Result: result})
	}

	release, err := s.take(ctx)
	if err != nil {
		return out, err
	}
	defer release()

	_, err = s.decide(ctx, c, "images.verify", name, func(tx *record.Tx) (api.Image, error) {
		var lacks []string
		for _, d := range damaged {
			lacks = append(lacks, d.Digest)
		}

		s.putPlaces(tx, nil, lacks, none)

		return api.Image{}, nil
	})
	if err != nil {
		return out, err
	}

	// The record goes before its content.
	for _, d := range damaged {
		if err := s.Contents.Remove(d); err != nil {
			return out, err
		}
	}

	return out, nil
}

// Delete removes an image, unless something needs it. Its content stays for a while.
func (s *Images) Delete(ctx context.Context, c access.Caller, name string) error {
	_, err := s.decide(ctx, c, "images.delete", name, func(tx *record.Tx) (api.Image, error) {
		found, err := find(tx, name)
		if err != nil {
			return api.Image{}, err
		}

		if s.Users != nil {
			if users := s.Users(tx, name); len(users) > 0 {
				return *found, inventory.Errorf(inventory.KindRefused, "the image %s is in use: %s", name,
					strings.Join(inventory.ShortenAll(users, 5, maxShown), ", ")).
					Do("wait until they do not need it any more, or give them another image")
			}
		}

		record.Remove(tx, &Kind, name)

		return *found, nil
	})

	return err
}

// editable is a copy of an image that may be changed.
type editable struct{ api.Image }

func clone(i api.Image) *editable {
	i.Files = slices.Clone(i.Files)
	for n := range i.Files {
		i.Files[n].Instances = append([]api.ImagePlace{}, i.Files[n].Instances...)
	}

	return &editable{i}
}

func same(a, b api.Image) bool {
	return a.State == b.State && slices.EqualFunc(a.Files, b.Files, func(a, b api.ImageFile) bool {
		return a.Format == b.Format && slices.Equal(a.Instances, b.Instances)
	})
}

// place records that an instance has content, and what it is.
func (i *editable) place(digest string, found image.Found, at api.ImagePlace) {
	for n := range i.Files {
		f := &i.Files[n]
		if f.Digest != digest || fits(i.Kind, i.Arch, f.Role, found) != nil {
			continue
		}

		f.Format, f.Compression, f.VirtualSize = found.Format, found.Compression, found.Virtual
		f.Instances = slices.DeleteFunc(f.Instances, func(p api.ImagePlace) bool { return p.ID == at.ID })
		f.Instances = append(f.Instances, at)
		slices.SortFunc(f.Instances, func(a, b api.ImagePlace) int { return strings.Compare(a.ID, b.ID) })

		i.MinDisk = max(i.MinDisk, found.Virtual)
	}

	i.judge()
}

// share takes what is known of the same content in other images.
func (i *editable) share(others []*api.Image) {
	for _, other := range others {
		for _, f := range other.Files {
			for _, at := range f.Instances {
				found := image.Found{
					Format: f.Format, Compression: f.Compression, Virtual: f.VirtualSize, Arch: other.Arch,
				}
				i.place(f.Digest, found, at)
			}
		}
	}

	i.judge()
}

// judge sets whether the content of all files is somewhere.
func (i *editable) judge() {
	i.State = api.ImageComplete
	if slices.ContainsFunc(i.Files, func(f api.ImageFile) bool { return len(f.Instances) == 0 }) {
		i.State = api.ImageIncomplete
	}
}
