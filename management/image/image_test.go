// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration/image/kernel/kerneltest"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/image"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
)

type noAudit struct{}

func (noAudit) Record(context.Context, access.Record) {}

var ann = access.Caller{Principal: "ann"}

// instance returns one with a folder of its own.
func instance(t *testing.T, s *recordtest.Store, id string, edit func(*image.Options)) *image.Images {
	t.Helper()

	log := logrus.New()
	log.SetOutput(io.Discard)

	o := image.Options{
		Store: s, Sync: func(context.Context) error { return nil }, Changed: s.Changed,
		Self: cluster.Identity{ID: id, Node: "host-" + id}, Members: func() []string { return nil },
		Folder: filepath.Join(t.TempDir(), "images"), Audit: noAudit{}, Logger: log,
	}
	if edit != nil {
		edit(&o)
	}

	return image.New(o)
}

func newStore() *recordtest.Store { return recordtest.NewStore(&image.Kind, &state.Instances) }

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// disk is a raw disk with a partition table.
func disk(fill byte) []byte {
	d := bytes.Repeat([]byte{fill}, 8192)
	d[510], d[511] = 0x55, 0xaa

	return d
}

func request(name string, content []byte) api.ImageRequest {
	return api.ImageRequest{
		Name: name, Kind: api.ImageDisk, Arch: "amd64", Boot: "both",
		Files: []api.ImageFileRequest{{Role: "image", Digest: digestOf(content), Size: int64(len(content))}},
	}
}

func stored(t *testing.T, s *recordtest.Store, name string) api.Image {
	t.Helper()

	r, _ := s.Latest()

	found := record.Get(r, &image.Kind, name)
	if found == nil {
		t.Fatalf("there is no image %s", name)
	}

	return *found
}

func add(t *testing.T, i *image.Images, name string, content []byte) {
	t.Helper()

	_, err := i.Create(t.Context(), ann, request(name, content))
	errtest.None(t, err)
	_, err = i.Upload(t.Context(), ann, name, "image", 0, bytes.NewReader(content))
	errtest.None(t, err)
}

func places(f api.ImageFile) string {
	all := make([]string, len(f.Instances))
	for n, p := range f.Instances {
		all[n] = p.ID
	}

	return strings.Join(all, " ")
}

func kind(t *testing.T, err error, want inventory.Kind) {
	t.Helper()

	if inventory.KindOf(err) != want {
		t.Fatalf("%v is %q, and not %q", err, inventory.KindOf(err), want)
	}
}

// TestAdd: an image is complete once its content has come. The same one again changes nothing, and another one under
// its name is refused.
func TestAdd(t *testing.T) {
	t.Parallel()

	s := newStore()
	i := instance(t, s, "a", nil)
	content := disk(1)

	made, err := i.Create(t.Context(), ann, request("debian", content))
	if err != nil || made.State != api.ImageIncomplete || made.Actor != "ann" {
		t.Fatalf("%+v, %v", made, err)
	}

	out, err := i.Upload(t.Context(), ann, "debian", "image", 0, bytes.NewReader(content))
	errtest.None(t, err)

	got := stored(t, s, "debian")
	if f := got.Files[0]; got.State != api.ImageComplete || out.State != got.State || f.Format != "raw" ||
		got.MinDisk != 8192 || places(f) != "a" {
		t.Errorf("%+v, answered %+v", got, out)
	}

	commits := s.Commits()

	again := request("debian", content)
	again.MinDisk = 4096 // less than the disk in it
	_, err = i.Create(t.Context(), access.Caller{Principal: "bob"}, again)
	errtest.None(t, err)

	if s.Commits() != commits || stored(t, s, "debian").Actor != "ann" {
		t.Error("the same image changed the record")
	}

	for what, edit := range map[string]func(*api.ImageRequest){
		"content": func(r *api.ImageRequest) { r.Files[0].Digest = digestOf(nil) },
		"arm64":   func(r *api.ImageRequest) { r.Arch = "arm64" },
		"boot":    func(r *api.ImageRequest) { r.Boot = "bios" },
		"kind":    func(r *api.ImageRequest) { r.Kind = api.ImageRootFS },
		"disk":    func(r *api.ImageRequest) { r.MinDisk = 1 << 30 },
	} {
		other := request("debian", content)
		edit(&other)

		if _, err := i.Create(t.Context(), ann, other); inventory.KindOf(err) != inventory.KindRefused {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCreateRefuses: what describes no image changes nothing. The digest is never optional.
func TestCreateRefuses(t *testing.T) {
	t.Parallel()

	s := newStore()
	i := instance(t, s, "a", nil)

	for what, edit := range map[string]func(*api.ImageRequest){
		"no name":      func(r *api.ImageRequest) { r.Name = "" },
		"a path":       func(r *api.ImageRequest) { r.Name = "../x" },
		"no kind":      func(r *api.ImageRequest) { r.Kind = "" },
		"no arch":      func(r *api.ImageRequest) { r.Arch = "x86" },
		"no boot mode": func(r *api.ImageRequest) { r.Boot = "" },
		"no digest":    func(r *api.ImageRequest) { r.Files[0].Digest = "" },
		"other digest": func(r *api.ImageRequest) { r.Files[0].Digest = "md5:d41d8cd98f00b204e9800998ecf8427e" },
		"no size":      func(r *api.ImageRequest) { r.Files[0].Size = 0 },
		"huge":         func(r *api.ImageRequest) { r.Files[0].Size = 1 << 50 },
		"no file":      func(r *api.ImageRequest) { r.Files = nil },
		"two files":    func(r *api.ImageRequest) { r.Files = append(r.Files, r.Files[0]) },
		"other role":   func(r *api.ImageRequest) { r.Files[0].Role = "kernel" },
		"no template":  func(r *api.ImageRequest) { r.Kind, r.Files[0].Role = api.ImageInstaller, "kernel" },
		"negative":     func(r *api.ImageRequest) { r.MinDisk = -1 },
		"a text":       func(r *api.ImageRequest) { r.Description = "a\nb" },
	} {
		bad := request("debian", disk(1))
		edit(&bad)

		if _, err := i.Create(t.Context(), ann, bad); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}

	if s.Commits() != 0 {
		t.Errorf("%d commits", s.Commits())
	}
}

// TestCreateOtherSize: one digest has one size, whoever adds it.
func TestCreateOtherSize(t *testing.T) {
	t.Parallel()

	s := newStore()
	i := instance(t, s, "a", nil)
	good := request("debian", disk(1))

	_, err := i.Create(t.Context(), ann, good)
	errtest.None(t, err)

	for _, name := range []string{"debian", "other"} {
		lie := request(name, disk(1))
		lie.Files[0].Size = 1

		_, err = i.Create(t.Context(), ann, lie)
		kind(t, err, inventory.KindRefused)
	}

	if got := stored(t, s, "debian"); got.Files[0].Size != good.Files[0].Size || got.State != api.ImageIncomplete {
		t.Errorf("%+v", got)
	}
}

// TestUploadRefuses: content that is not what the kind says does not complete an image.
func TestUploadRefuses(t *testing.T) {
	t.Parallel()

	s := newStore()
	i := instance(t, s, "a", nil)
	text := []byte("#!/bin/sh\n")

	_, err := i.Create(t.Context(), ann, request("debian", text))
	errtest.None(t, err)

	for range 2 {
		_, err = i.Upload(t.Context(), ann, "debian", "image", 0, bytes.NewReader(text))
		kind(t, err, inventory.KindInvalid)
	}

	if got := stored(t, s, "debian"); got.State != api.ImageIncomplete {
		t.Errorf("%+v", got)
	}

	_, err = i.Upload(t.Context(), ann, "debian", "kernel", 0, bytes.NewReader(text))
	kind(t, err, inventory.KindNotFound)
	_, err = i.Upload(t.Context(), ann, "other", "image", 0, bytes.NewReader(text))
	kind(t, err, inventory.KindNotFound)
}

// TestKernel: only a Debian package of a kernel for its architecture completes an image of one, also as the content of
// another image.
func TestKernel(t *testing.T) {
	t.Parallel()

	s := newStore()
	i := instance(t, s, "a", nil)
	deb := func(name, arch string) []byte {
		return kerneltest.Package(t, kerneltest.Control(name, arch), kerneltest.Files())
	}
	upload := func(name, arch string, content []byte) error {
		r := request(name, content)
		r.Kind, r.Arch, r.Files[0].Role = api.ImageKernel, arch, "package"

		_, err := i.Create(t.Context(), ann, r)
		errtest.None(t, err)
		_, err = i.Upload(t.Context(), ann, name, "package", 0, bytes.NewReader(content))

		return err
	}

	good := deb("linux-image-6.1.0-9-amd64", "amd64")
	none := func(name string) []byte { return kerneltest.Package(t, kerneltest.Control(name, "amd64"), nil) }

	for what, err := range map[string]error{
		"a disk":        upload("disk", "amd64", disk(1)),
		"another arch":  upload("arm64", "amd64", deb("linux-image-6.1.0-9-arm64", "arm64")),
		"a meta":        upload("meta", "amd64", none("linux-image-amd64")),
		"for debuggers": upload("dbg", "amd64", none("linux-image-6.1.0-9-amd64-dbg")),
		"headers":       upload("headers", "amd64", none("linux-headers-6.1.0-9-amd64")),
		"cut off":       upload("cut", "amd64", good[:200]),
	} {
		if inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}

	errtest.None(t, upload("environment", "amd64", good))

	if got := stored(t, s, "environment"); got.State != api.ImageComplete || got.Files[0].Format != "deb" {
		t.Errorf("%+v", got)
	}

	// The content is here already.
	twin, other := request("twin", good), request("other", good)
	for _, r := range []*api.ImageRequest{&twin, &other} {
		r.Kind, r.Files[0].Role = api.ImageKernel, "package"
	}
	other.Arch = "arm64"

	made, err := i.Create(t.Context(), ann, twin)
	if err != nil || made.State != api.ImageComplete {
		t.Errorf("%+v, %v", made, err)
	}

	made, err = i.Create(t.Context(), ann, other)
	if err != nil || made.State != api.ImageIncomplete {
		t.Errorf("%+v, %v", made, err)
	}
}

// TestSeveralInstances: the record names the instances with the content, another one names them in its refusal, and
// content that two images share comes once.
func TestSeveralInstances(t *testing.T) {
	t.Parallel()

	s := newStore()
	a, b := instance(t, s, "a", nil), instance(t, s, "b", nil)
	content := disk(1)
	add(t, a, "debian", content)

	_, _, err := record.Decide(t.Context(), s, func(tx *record.Tx) (any, error) {
		record.Put(tx, &state.Instances, &state.Instance{
			Identity: cluster.Identity{ID: "a", Node: "host-a"}, API: []string{"unix:///x", "https://10.0.0.1:9443"},
		})
		return nil, nil
	})
	errtest.None(t, err)

	r, _ := s.Latest()
	_, _, err = b.Open(r, "debian", "image")
	kind(t, err, inventory.KindUnavailable)

	if !strings.Contains(err.Error(), "https://10.0.0.1:9443") {
		t.Errorf("the refusal does not say where it is: %v", err)
	}

	// Another name for the same content.
	twin, err := b.Create(t.Context(), ann, request("twin", content))
	if err != nil || twin.State != api.ImageComplete || places(twin.Files[0]) != "a" {
		t.Fatalf("%+v, %v", twin, err)
	}

	_, err = b.Upload(t.Context(), ann, "twin", "image", 0, bytes.NewReader(content))
	errtest.None(t, err)

	if got := places(stored(t, s, "debian").Files[0]); got != "a b" {
		t.Errorf("the content is on %q", got)
	}

	f, _, err := b.Open(r, "debian", "image")
	errtest.None(t, err)

	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}

	errtest.None(t, f.Close())
}

// TestVerify: damaged content is removed, and no longer counts.
func TestVerify(t *testing.T) {
	t.Parallel()

	s := newStore()
	folder := ""
	i := instance(t, s, "a", func(o *image.Options) { folder = o.Folder })
	content := disk(1)
	add(t, i, "debian", content)

	result := func() string {
		t.Helper()

		check, err := i.Verify(t.Context(), ann, "debian")
		errtest.None(t, err)

		return check.Files[0].Result
	}

	if got := result(); got != api.ImageOK {
		t.Error(got)
	}

	path := filepath.Join(folder, strings.TrimPrefix(digestOf(content), "sha256:"))
	errtest.None(t, os.WriteFile(path, disk(2), 0o600))

	if got := result(); got != api.ImageDamaged || stored(t, s, "debian").State != api.ImageIncomplete {
		t.Errorf("%s, %+v", got, stored(t, s, "debian"))
	}

	if got := result(); got != api.ImageMissing {
		t.Error(got)
	}

	add(t, i, "debian", content)

	if got := result(); got != api.ImageOK || stored(t, s, "debian").State != api.ImageComplete {
		t.Errorf("%s, %+v", got, stored(t, s, "debian"))
	}
}

// TestDelete: an image in use stays, with the reason.
func TestDelete(t *testing.T) {
	t.Parallel()

	s := newStore()
	users := []string{"node web-1"}
	i := instance(t, s, "a", func(o *image.Options) {
		o.Users = func(_ record.Reader, name string) []string {
			if name != "debian" {
				t.Errorf("asked for %q", name)
			}

			return users
		}
	})
	add(t, i, "debian", disk(1))

	err := i.Delete(t.Context(), ann, "debian")
	kind(t, err, inventory.KindRefused)

	if !strings.Contains(err.Error(), "node web-1") {
		t.Error(err)
	}

	stored(t, s, "debian")

	users = nil
	errtest.None(t, i.Delete(t.Context(), ann, "debian"))
	kind(t, i.Delete(t.Context(), ann, "debian"), inventory.KindNotFound)
}

// TestTidy: content stays for an hour after its image, incomplete content for a week, and the records follow what is on
// the disk and which instances are left.
func TestTidy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		folder := ""

		var left atomic.Bool

		members := func() []string {
			if left.Load() {
				return []string{"a"}
			}
			return []string{"a", "gone"}
		}
		i := instance(t, s, "a", func(o *image.Options) {
			folder, o.Members = o.Folder, members
		})
		add(t, i, "debian", disk(1))
		add(t, i, "kept", disk(2))

		files := func() int {
			found, err := os.ReadDir(folder)
			errtest.None(t, err)

			return len(found)
		}

		i.Loop.Start(t.Context())
		defer i.Loop.Stop()

		errtest.None(t, i.Delete(t.Context(), ann, "debian"))
		time.Sleep(50 * time.Minute)

		if files() != 2 {
			t.Errorf("%d files after 50 minutes", files())
		}

		time.Sleep(time.Hour)

		if files() != 1 {
			t.Errorf("%d files after almost two hours", files())
		}

		// Incomplete content: of an image, and of none.
		_, err := i.Create(t.Context(), ann, request("coming", disk(3)))
		errtest.None(t, err)

		for n := range byte(2) {
			part := filepath.Join(folder, strings.TrimPrefix(digestOf(disk(3+n)), "sha256:")+".part")
			errtest.None(t, os.WriteFile(part, nil, 0o600))
			errtest.None(t, os.Chtimes(part, time.Now(), time.Now()))
		}

		for _, c := range []struct {
			wait time.Duration
			want int
		}{{50 * time.Minute, 3}, {time.Hour, 2}, {6 * 24 * time.Hour, 2}, {24 * time.Hour, 1}} {
			time.Sleep(c.wait)

			if files() != c.want {
				t.Errorf("%d files after %s more, want %d", files(), c.wait, c.want)
			}
		}

		// Somebody removes the rest by hand; and what another instance has counts until that leaves.
		errtest.None(t, os.Remove(filepath.Join(folder, strings.TrimPrefix(digestOf(disk(2)), "sha256:"))))
		add(t, instance(t, s, "gone", nil), "kept", disk(2))
		time.Sleep(time.Hour)

		if got := stored(t, s, "kept"); places(got.Files[0]) != "gone" || got.State != api.ImageComplete {
			t.Errorf("%+v", got)
		}

		left.Store(true)
		time.Sleep(time.Hour)

		if got := stored(t, s, "kept"); places(got.Files[0]) != "" || got.State != api.ImageIncomplete {
			t.Errorf("%+v", got)
		}
	})
}

// TestTidyNotBetween: content that a new image was told to have is not removed before that image is recorded.
func TestTidyNotBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		i := instance(t, s, "a", nil)
		content := disk(1)
		add(t, i, "debian", content)

		i.Loop.Start(t.Context())
		defer i.Loop.Stop()

		errtest.None(t, i.Delete(t.Context(), ann, "debian"))
		time.Sleep(50 * time.Minute)

		// The store takes two hours for this one commit.
		slow := true
		s.Before = func(*record.Tx) error {
			if slow {
				slow = false
				time.Sleep(2 * time.Hour)
			}

			return nil
		}

		made, err := i.Create(t.Context(), ann, request("again", content))
		if err != nil || made.State != api.ImageComplete {
			t.Fatalf("%+v, %v", made, err)
		}

		time.Sleep(2 * time.Hour)

		if n := i.Received(digestOf(content)); n != int64(len(content)) {
			t.Errorf("%d bytes are left of a complete image", n)
		}
	})
}

// TestTidyOtherFolder: nothing is removed from a folder of another manager, or that is not known to be of this one, and
// its content is nobody's here.
func TestTidyOtherFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		folder := t.TempDir()
		of := func(manager string) *image.Images {
			return instance(t, s, manager, func(o *image.Options) {
				o.Folder, o.Owner = folder, func() string { return manager }
			})
		}

		one, other := of("m-1"), of("m-2")
		content := disk(1)
		add(t, one, "debian", content)
		errtest.None(t, one.Delete(t.Context(), ann, "debian"))

		for _, remove := range []string{"", ".clusterm-images"} {
			if remove != "" {
				errtest.None(t, os.Remove(filepath.Join(folder, remove)))
			}

			other.Loop.Start(t.Context())
			time.Sleep(3 * time.Hour)
			other.Loop.Stop()

			if n := other.Received(digestOf(content)); n != int64(len(content)) {
				t.Errorf("%d bytes are left", n)
			}
			if err := other.Problem(); inventory.KindOf(err) != inventory.KindRefused {
				t.Error(err)
			}
		}

		made, err := other.Create(t.Context(), ann, request("mine", content))
		if err != nil || made.State != api.ImageIncomplete {
			t.Errorf("%+v, %v", made, err)
		}
	})
}

// TestDetectOnce: content of another kind than its image is looked at once, and again after it has changed.
func TestDetectOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		folder := ""
		i := instance(t, s, "a", func(o *image.Options) { folder = o.Folder })
		content := disk(1)
		path := filepath.Join(folder, strings.TrimPrefix(digestOf(content), "sha256:"))

		_, err := i.Create(t.Context(), ann, request("debian", content))
		errtest.None(t, err)
		errtest.None(t, os.MkdirAll(folder, 0o700))

		// The same file and time: it is not looked at, although it is a disk by now.
		then := time.Now()
		write := func(content []byte) {
			errtest.None(t, os.WriteFile(path, content, 0o600))
			errtest.None(t, os.Chtimes(path, then, then))
		}

		write(make([]byte, len(content)))
		i.Loop.Start(t.Context())
		defer i.Loop.Stop()
		time.Sleep(65 * time.Minute) // between two rounds
		write(content)
		time.Sleep(time.Hour)

		if got := stored(t, s, "debian"); got.State != api.ImageIncomplete {
			t.Errorf("it was looked at again: %+v", got)
		}

		then = time.Now()
		write(content)
		time.Sleep(time.Hour)

		if got := stored(t, s, "debian"); got.State != api.ImageComplete {
			t.Errorf("it has changed: %+v", got)
		}
	})
}
