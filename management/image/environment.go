// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration/image/environment"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
)

// The files of an Environment.
const (
	EnvironmentKernel = "kernel"
	EnvironmentInitrd = "initrd"

	// environmentMade has what is known of the other two.
	environmentMade = "made"
)

// makeWithin is the longest time that the files of an environment take, also those of others that are made before.
const makeWithin = 10 * time.Minute

var environmentFiles = []string{EnvironmentKernel, EnvironmentInitrd, environmentMade}

// architectures are those of images.
var architectures = []string{"amd64", "arm64"}

// Maker makes the files of environments, as the package environment does.
type Maker struct {
	// Version identifies what Make makes for an architecture.
	Version func(arch string) (string, error)
	Make    func(
		ctx context.Context, deb io.ReaderAt, size int64, arch string, vmlinuz, initrd io.Writer,
	) (environment.Made, error)
}

// Environment is the boot environment of an image of the kind kernel.
type Environment struct {
	Image   string
	Release string // of the kernel
	Modules int    // how many its initrd has

	open func(name string) (*os.File, error)
}

// Open opens EnvironmentKernel or EnvironmentInitrd, or returns KindNotFound: also once the content is removed. The
// caller has to close it.
func (e *Environment) Open(name string) (*os.File, error) {
	if name != EnvironmentKernel && name != EnvironmentInitrd {
		return nil, inventory.Errorf(inventory.KindNotFound, "a boot environment has no file %q",
			inventory.Shorten(name, maxShown)).Do("it has the files %s and %s", EnvironmentKernel, EnvironmentInitrd)
	}
	return e.open(name)
}

// EnvironmentFor returns the image of the kind kernel for an architecture: amd64 or arm64. Of several that are
// complete, it is the one that was added last. It is an error if none is complete (KindRefused), or if that one is
// complete on other instances only (KindUnavailable).
func (s *Images) EnvironmentFor(r record.Reader, arch string) (image string, err error) {
	all := kernels(r)

	n := slices.IndexFunc(all, func(i *api.Image) bool { return i.Arch == arch })
	if n < 0 {
		return "", inventory.Errorf(inventory.KindRefused, "no image has a kernel to boot for the architecture %s",
			inventory.Shorten(arch, maxShown)).
			Do("add the package of a kernel, linux-image-VERSION, as an image of the kind kernel for it")
	}

	if _, err := s.packageOf(r, all[n].Name); err != nil {
		return "", err
	}

	return all[n].Name, nil
}

// kernels returns the images of the kind kernel: those that are complete first, and of these the newest.
func kernels(r record.Reader) []*api.Image {
	all := slices.DeleteFunc(slices.Clone(record.List(r, &Kind)), func(i *api.Image) bool {
		return i.Kind != api.ImageKernel
	})
	incomplete := func(i *api.Image) int {
		if i.State == api.ImageComplete {
			return 0
		}
		return 1
	}

	slices.SortFunc(all, func(a, b *api.Image) int {
		return cmp.Or(incomplete(a)-incomplete(b), b.Created.Compare(a.Created), strings.Compare(a.Name, b.Name))
	})

	return all
}

// packageOf returns the package of a kernel, if it is on this instance.
func (s *Images) packageOf(r record.Reader, name string) (f api.ImageFile, err error) {
	found, err := find(r, name)
	if err != nil {
		return f, err
	}
	if found.Kind != api.ImageKernel {
		return f, inventory.Errorf(inventory.KindRefused, "the image %s is of the kind %s, and has no kernel to boot",
			name, found.Kind).Do("name an image of the kind kernel")
	}

	if _, f, err = fileOf(r, name, RolePackage); err == nil && !s.has(f) {
		err = elsewhere(r, name, f)
	}

	return f, err
}

// has reports whether this instance has content, and its record.
func (s *Images) has(f api.ImageFile) bool {
	size, complete := s.Contents.Received(f.Digest)

	return complete && size == f.Size &&
		slices.ContainsFunc(f.Instances, func(p api.ImagePlace) bool { return p.ID == s.Self.ID })
}

// Environment returns the boot environment of an image of the kind kernel whose content is on this instance, and makes
// its files if they are missing. That takes up to 20 seconds of one processor; one is made at a time, and others wait.
func (s *Images) Environment(ctx context.Context, name string) (*Environment, error) {
	r, _ := s.Store.Latest()

	f, err := s.packageOf(r, name)
	if err != nil {
		return nil, err
	}

	arch := record.Get(r, &Kind, name).Arch

	version, err := s.Maker.Version(arch)
	if err != nil {
		return nil, err
	}

	if err := s.derive(ctx, f, arch, version); err != nil {
		return nil, inventory.Under(name, err)
	}

	e := &Environment{Image: name, open: func(file string) (*os.File, error) {
		return s.Contents.OpenDerived(f.Digest, version, file)
	}}

	made, err := e.open(environmentMade)
	if err != nil {
		return nil, err
	}
	defer made.Close()

	var is environment.Made
	if err := json.NewDecoder(made).Decode(&is); err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "%s is damaged: %w", made.Name(), err).
			Do("remove its folder, and try again")
	}

	e.Release, e.Modules = is.Release, is.Modules

	return e, nil
}

// derive makes the files of an environment, unless they are here.
func (s *Images) derive(ctx context.Context, f api.ImageFile, arch, version string) error {
	if s.Contents.IsDerived(f.Digest, version, environmentFiles) {
		return nil
	}

	ctx, cancel := context.WithTimeoutCause(ctx, makeWithin, inventory.
		Errorf(inventory.KindUnavailable, "the files of the boot environment were not made within %s", makeWithin).
		Do("look for what keeps the processors of this instance busy, and try again"))
	defer cancel()

	select {
	case s.making <- struct{}{}:
		defer func() { <-s.making }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	// The same package is as bad the next time.
	key := f.Digest + " " + version
	if bad, ok := s.unfit.Load(key); ok {
		return bad.(error)
	}

	err := s.Contents.Derive(ctx, f.Digest, version, environmentFiles,
		func(ctx context.Context, deb *os.File, size int64, to []io.Writer) error {
			made, err := s.Maker.Make(ctx, deb, size, arch, to[0], to[1])
			if err != nil {
				return err
			}
			return json.NewEncoder(to[2]).Encode(made)
		})

	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case inventory.KindOf(err) == inventory.KindInvalid:
		s.unfit.Store(key, err)
	}

	return err
}

// prepare returns the acts that make the files of all environments, the newest first, so that no boot waits for them.
// Files of a former program are removed.
func (s *Images) prepare() ([]control.Act, error) {
	versions := map[string]string{} // by architecture; none: this clusterm was built without the program for it
	for _, arch := range architectures {
		if v, err := s.Maker.Version(arch); err == nil {
			versions[arch] = v
		}
	}

	if err := s.Contents.TidyDerived(slices.Collect(maps.Values(versions))); err != nil {
		return nil, err
	}

	r, _ := s.Store.Latest()

	var acts []control.Act

	for _, i := range kernels(r) {
		f, err := s.packageOf(r, i.Name)
		version := versions[i.Arch]

		if err != nil || version == "" || s.Contents.IsDerived(f.Digest, version, environmentFiles) {
			continue
		}
		if _, bad := s.unfit.Load(f.Digest + " " + version); bad {
			continue
		}

		acts = append(acts, control.Act{
			Key: "boot environment " + f.Digest, Lane: "boot environments", Longest: lookEvery,
			Do: func(ctx context.Context) error {
				err := s.derive(ctx, f, i.Arch, version)

				switch inventory.KindOf(err) {
				case inventory.KindNotFound, inventory.KindConflict:
					return nil // the content was removed meanwhile
				case inventory.KindInvalid:
					s.Logger.WithField("image", i.Name).WithError(err).Warn("no machine can boot this image")
					return nil
				}

				return err
			},
		})
	}

	return acts, nil
}

// Environments are the environments of images for the boot service.
type Environments struct{ *Images }

// For is EnvironmentFor.
func (e Environments) For(r record.Reader, arch string) (string, error) {
	return e.EnvironmentFor(r, arch)
}

// Make makes the files of an image, if they are missing.
func (e Environments) Make(ctx context.Context, name string) error {
	_, err := e.Environment(ctx, name)
	return err
}

// Open opens a file of an image.
func (e Environments) Open(ctx context.Context, name, file string) (*os.File, error) {
	made, err := e.Environment(ctx, name)
	if err != nil {
		return nil, err
	}
	return made.Open(file)
}
