// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/configuration/image/environment"
	"github.com/contiv/cluster/configuration/image/kernel/kerneltest"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/image"
)

// maker is a fake: the kernel is the version, and the initrd the name of the package.
type maker struct {
	version atomic.Pointer[string]
	calls   atomic.Int32
	gate    chan struct{} // each call takes from it; nil: none waits
	err     atomic.Pointer[error]
}

func newMaker() *maker {
	m := &maker{}
	m.is("00112233aabbccdd")

	return m
}

func (m *maker) is(version string) { m.version.Store(&version) }

func (m *maker) fails(kind inventory.Kind) {
	var err error = inventory.Errorf(kind, "failed")
	m.err.Store(&err)
}

func (m *maker) use(o *image.Options) {
	o.Maker = image.Maker{
		Version: func(arch string) (string, error) {
			if arch != "amd64" {
				return "", inventory.Errorf(inventory.KindRefused, "no program")
			}
			return *m.version.Load(), nil
		},
		Make: func(
			ctx context.Context, deb io.ReaderAt, size int64, arch string, vmlinuz, initrd io.Writer,
		) (environment.Made, error) {
			m.calls.Add(1)

			if m.gate != nil {
				select {
				case <-m.gate:
				case <-ctx.Done():
					return environment.Made{}, ctx.Err()
				}
			}

			if err := m.err.Load(); err != nil {
				return environment.Made{}, *err
			}

			_, err := io.WriteString(vmlinuz, *m.version.Load())
			_, other := io.Copy(initrd, io.NewSectionReader(deb, 0, size))

			return environment.Made{Release: "6.1-" + arch, Modules: 3}, errors.Join(err, other)
		},
	}
}

// addKernel adds an image of the kind kernel, whose package has that release.
func addKernel(t *testing.T, i *image.Images, name, arch, release string) (deb []byte) {
	t.Helper()

	deb = kerneltest.Package(t, kerneltest.Control("linux-image-"+release, arch), kerneltest.Files())
	createKernel(t, i, name, arch, deb)

	_, err := i.Upload(t.Context(), ann, name, "package", 0, bytes.NewReader(deb))
	errtest.None(t, err)

	return deb
}

func createKernel(t *testing.T, i *image.Images, name, arch string, deb []byte) {
	t.Helper()

	r := request(name, deb)
	r.Kind, r.Arch, r.Files[0].Role = api.ImageKernel, arch, "package"

	_, err := i.Create(t.Context(), ann, r)
	errtest.None(t, err)
}

func textOf(t *testing.T, e *image.Environment, name string) string {
	t.Helper()

	f, err := e.Open(name)
	errtest.None(t, err)
	text, err := io.ReadAll(f)
	errtest.None(t, errors.Join(err, f.Close()))

	return string(text)
}

// derivedIn returns the names of the folders of derived files.
func derivedIn(t *testing.T, folder string) (names []string) {
	t.Helper()

	files, err := os.ReadDir(folder)
	errtest.None(t, err)

	for _, f := range files {
		if f.IsDir() {
			names = append(names, f.Name())
		}
	}

	return names
}

// TestEnvironment makes the files once for each version, and serves no others.
func TestEnvironment(t *testing.T) {
	t.Parallel()

	m := newMaker()
	i := instance(t, newStore(), "a", m.use)
	deb := addKernel(t, i, "environment", "amd64", "6.1.0-9-amd64")

	var e *image.Environment

	for range 2 {
		var err error

		e, err = i.Environment(t.Context(), "environment")
		errtest.None(t, err)
	}

	if e.Image != "environment" || e.Release != "6.1-amd64" || e.Modules != 3 || m.calls.Load() != 1 {
		t.Errorf("%+v after %d calls", e, m.calls.Load())
	}
	if k, i := textOf(t, e, "kernel"), textOf(t, e, "initrd"); k != "00112233aabbccdd" || i != string(deb) {
		t.Errorf("%q and %d bytes", k, len(i))
	}

	for _, name := range []string{"made", "", "../x"} {
		_, err := e.Open(name)
		kind(t, err, inventory.KindNotFound)
	}

	m.is("ffffffff")

	next, err := i.Environment(t.Context(), "environment")
	if err != nil || textOf(t, next, "kernel") != "ffffffff" {
		t.Errorf("%+v, %v", next, err)
	}

	// What has no kernel, and what is not here.
	add(t, i, "disk", disk(1))
	createKernel(t, i, "coming", "amd64", []byte("x"))
	addKernel(t, i, "arm", "arm64", "6.1.0-9-arm64")

	for name, want := range map[string]inventory.Kind{
		"disk": inventory.KindRefused, "coming": inventory.KindRefused, "none": inventory.KindNotFound,
		"arm": inventory.KindRefused,
	} {
		if _, err := i.Environment(t.Context(), name); inventory.KindOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEnvironmentUnfit: what is no kernel is unpacked once, and another failure is tried again.
func TestEnvironmentUnfit(t *testing.T) {
	t.Parallel()

	m := newMaker()
	i := instance(t, newStore(), "a", m.use)
	addKernel(t, i, "environment", "amd64", "6.1.0-9-amd64")

	for _, c := range []struct {
		kind  inventory.Kind
		calls int32
	}{{inventory.KindUnavailable, 2}, {inventory.KindInvalid, 3}} {
		m.fails(c.kind)

		for range 2 {
			_, err := i.Environment(t.Context(), "environment")
			kind(t, err, c.kind)
		}

		if m.calls.Load() != c.calls {
			t.Errorf("%d calls, want %d", m.calls.Load(), c.calls)
		}
	}
}

// TestEnvironmentAtOnce: two callers make the files once, one that does not wait any longer goes, and uploads go on.
func TestEnvironmentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMaker()
		m.gate = make(chan struct{})
		i := instance(t, newStore(), "a", m.use)
		addKernel(t, i, "environment", "amd64", "6.1.0-9-amd64")

		results := make(chan error, 3)
		ask := func(ctx context.Context) {
			_, err := i.Environment(ctx, "environment")
			results <- err
		}

		impatient, leave := context.WithCancel(t.Context())

		go ask(t.Context())
		synctest.Wait()

		go ask(t.Context())
		go ask(impatient)
		synctest.Wait()

		add(t, i, "debian", disk(1))
		leave()

		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("it waits although its caller left: %v", err)
		}

		close(m.gate)
		errtest.None(t, errors.Join(<-results, <-results))

		if m.calls.Load() != 1 {
			t.Errorf("%d calls", m.calls.Load())
		}

		// It has an end.
		m.gate = make(chan struct{})
		m.is("ffffffff")

		_, err := i.Environment(t.Context(), "environment")
		kind(t, err, inventory.KindUnavailable)
	})
}

// TestEnvironmentFor: the newest image that is complete, for the architecture.
func TestEnvironmentFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := instance(t, s, "a", newMaker().use), instance(t, s, "b", newMaker().use)
		ask := func(i *image.Images, arch, want string, wrong inventory.Kind) {
			t.Helper()

			r, _ := s.Latest()

			name, err := i.EnvironmentFor(r, arch)
			if name != want || inventory.KindOf(err) != wrong {
				t.Errorf("%s: %q, %v", arch, name, err)
			}
		}

		add(t, a, "disk", disk(1))
		ask(a, "amd64", "", inventory.KindRefused)

		createKernel(t, a, "coming", "amd64", []byte("x"))
		ask(a, "amd64", "", inventory.KindRefused)

		for _, name := range []string{"second", "first"} {
			time.Sleep(time.Second)
			addKernel(t, a, name, "amd64", "6.1.0-"+name)
		}

		addKernel(t, a, "other", "arm64", "6.1.0-9-arm64")
		time.Sleep(time.Second)
		createKernel(t, a, "later", "amd64", []byte("y"))

		ask(a, "amd64", "first", "")
		ask(a, "arm64", "other", "")
		ask(a, "riscv64", "", inventory.KindRefused)
		ask(b, "amd64", "", inventory.KindUnavailable)

		_, err := b.Environment(t.Context(), "first")
		kind(t, err, inventory.KindUnavailable)

		if !strings.Contains(err.Error(), "host-a") {
			t.Error(err)
		}
	})
}

// TestPrepare: the loop makes the files before anybody asks, removes those of a former version, and those of content
// that it removes. What is no kernel is unpacked once.
func TestPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newStore(), newMaker()
		folder := ""
		i := instance(t, s, "a", func(o *image.Options) {
			m.use(o)
			folder = o.Folder
		})
		addKernel(t, i, "environment", "amd64", "6.1.0-9-amd64")
		addKernel(t, i, "noprogram", "arm64", "6.1.0-9-arm64")

		i.Loop.Start(t.Context())
		defer i.Loop.Stop()
		time.Sleep(time.Minute)

		if n := m.calls.Load(); n != 1 || len(derivedIn(t, folder)) != 1 {
			t.Errorf("%d calls, %q", n, derivedIn(t, folder))
		}

		if _, err := i.Environment(t.Context(), "environment"); err != nil || m.calls.Load() != 1 {
			t.Errorf("%d calls, %v", m.calls.Load(), err)
		}

		m.is("ffffffff")
		time.Sleep(time.Hour)

		if all := derivedIn(t, folder); len(all) != 1 || filepath.Ext(all[0]) != ".ffffffff" || m.calls.Load() != 2 {
			t.Errorf("%q", all)
		}

		m.fails(inventory.KindInvalid)
		addKernel(t, i, "bad", "amd64", "6.1.0-10-amd64")
		time.Sleep(5 * time.Hour)

		if m.calls.Load() != 3 {
			t.Errorf("%d calls", m.calls.Load())
		}

		errtest.None(t, i.Delete(t.Context(), ann, "environment"))
		time.Sleep(2 * time.Hour)

		if all := derivedIn(t, folder); len(all) != 0 {
			t.Errorf("%q are left", all)
		}
	})
}

// TestVerifyDerived: what was made of content goes with it, if that is damaged.
func TestVerifyDerived(t *testing.T) {
	t.Parallel()

	m := newMaker()
	folder := ""
	i := instance(t, newStore(), "a", func(o *image.Options) {
		m.use(o)
		folder = o.Folder
	})
	deb := addKernel(t, i, "environment", "amd64", "6.1.0-9-amd64")

	e, err := i.Environment(t.Context(), "environment")
	errtest.None(t, err)
	errtest.None(t, os.WriteFile(filepath.Join(folder, strings.TrimPrefix(digestOf(deb), "sha256:")), deb[1:], 0o600))

	_, err = i.Verify(t.Context(), ann, "environment")
	errtest.None(t, err)

	if _, err := e.Open("kernel"); inventory.KindOf(err) != inventory.KindNotFound || len(derivedIn(t, folder)) != 0 {
		t.Errorf("%v, %q", err, derivedIn(t, folder))
	}

	_, err = i.Environment(t.Context(), "environment")
	kind(t, err, inventory.KindRefused)
}
