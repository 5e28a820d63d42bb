// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// diskImage is a raw disk of some MiB, larger than max_body.
func diskImage() (content []byte, digest string) {
	content = make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	content[510], content[511] = 0x55, 0xaa
	sum := sha256.Sum256(content)

	return content, "sha256:" + hex.EncodeToString(sum[:])
}

// addImage adds an image without its content.
func (s *site) addImage(name, digest string, size int) api.Image {
	s.t.Helper()

	made, err := s.CreateImage(s.ctx(), api.ImageRequest{
		Name: name, Kind: api.ImageDisk, Arch: "amd64", Boot: "both",
		Files: []api.ImageFileRequest{{Role: "image", Digest: digest, Size: int64(size)}},
	})
	s.must(err)

	return made
}

func (s *site) image(name string) api.Image {
	s.t.Helper()

	found, err := s.Image(s.ctx(), name)
	s.must(err)

	return found
}

// TestImages sends an image in two halves, with a restart between them, reads it by ranges, and finds damage.
func TestImages(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	folder := filepath.Join(s.dir, "content")
	s.write("images: {folder: " + folder + "}")
	s.up()
	t.Cleanup(func() { s.down() })

	content, digest := diskImage()
	half := len(content) / 2

	if made := s.addImage("debian-13", digest, len(content)); made.State != api.ImageIncomplete {
		t.Errorf("%+v", made)
	}

	broken := io.MultiReader(bytes.NewReader(content[:half]), iotest.ErrReader(errors.New("the file is gone")))

	// Without the checks of the contract, which read a whole body before they send it.
	plain, err := client.New(client.Options{URL: s.url})
	s.must(err)

	if _, err := plain.SendImage(s.ctx(), "debian-13", "image", 0, broken); err == nil {
		t.Fatal("half an image is an image")
	}

	// The client drops what it has not sent yet.
	var come int64

	s.eventually("what has come", func() bool {
		come = s.image("debian-13").Files[0].Received
		return come > int64(half)-(64<<10)
	})
	s.down()
	s.up()

	got := s.image("debian-13")
	if come = got.Files[0].Received; come > int64(half) || got.State != api.ImageIncomplete {
		t.Fatalf("after a restart: %+v", got)
	}

	_, err = s.SendImage(s.ctx(), "debian-13", "image", 0, bytes.NewReader(content))
	if inventory.KindOf(err) != inventory.KindPrecondition {
		t.Errorf("from the beginning: %v", err)
	}

	done, err := s.SendImage(s.ctx(), "debian-13", "image", come, bytes.NewReader(content[come:]))
	s.must(err)

	if f := done.Files[0]; done.State != api.ImageComplete || f.Format != "raw" || len(f.Instances) != 1 {
		t.Errorf("%+v", done)
	}

	kept := filepath.Join(folder, strings.TrimPrefix(digest, "sha256:"))

	onDisk, err := os.ReadFile(kept)
	if err != nil || !bytes.Equal(onDisk, content) {
		t.Fatalf("%d bytes on the disk, %v", len(onDisk), err)
	}

	s.readImage(content, digest)

	// Damage is found, and the same content comes again.
	s.must(os.WriteFile(kept, content[:100], 0o600))

	check, err := s.VerifyImage(s.ctx(), "debian-13")
	s.must(err)

	if check.Files[0].Result != api.ImageDamaged || s.image("debian-13").State != api.ImageIncomplete {
		t.Errorf("%+v, %+v", check, s.image("debian-13"))
	}

	_, err = s.SendImage(s.ctx(), "debian-13", "image", 0, bytes.NewReader(content))
	s.must(err)
	_, err = s.DeleteImage(s.ctx(), "debian-13")
	s.must(err)

	if l, err := s.Images(s.ctx()); err != nil || l.Total != 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestStopDuringUpload: a stop does not wait for a client that sends nothing, and keeps what has come.
func TestStopDuringUpload(t *testing.T) {
	t.Parallel()

	s := begin(t)
	content, digest := diskImage()
	s.addImage("debian-13", digest, len(content))

	plain, err := client.New(client.Options{URL: s.url})
	s.must(err)

	source, sink := io.Pipe()
	done := make(chan error, 1)

	go func() {
		_, err := plain.SendImage(t.Context(), "debian-13", "image", 0, source)
		done <- err
	}()

	_, err = sink.Write(content[:2<<20])
	s.must(err)
	s.eventually("what has come", func() bool { return s.image("debian-13").Files[0].Received >= 1<<20 })

	s.down()
	s.must(sink.Close())

	if err := <-done; err == nil {
		t.Error("half an image was sent")
	}

	s.up()

	if got := s.image("debian-13").Files[0].Received; got < 1<<20 || got > 2<<20 {
		t.Errorf("%d bytes are left", got)
	}
}

// readImage reads all of an image, the rest after an offset, and a range.
func (s *site) readImage(content []byte, digest string) {
	s.t.Helper()

	for _, offset := range []int{0, 1 << 20} {
		body, err := s.ImageContent(s.ctx(), "debian-13", "image", int64(offset))
		s.must(err)
		got, err := io.ReadAll(body)
		s.must(err)
		s.must(body.Close())

		if !bytes.Equal(got, content[offset:]) {
			s.t.Errorf("%d bytes from %d on", len(got), offset)
		}
	}

	req, err := http.NewRequestWithContext(s.ctx(), http.MethodGet, s.url+"/v1/images/debian-13/files/image", nil)
	s.must(err)
	req.Header.Set("Range", "bytes=510-511")
	res, err := http.DefaultClient.Do(req)
	s.must(err)
	got, err := io.ReadAll(res.Body)
	s.must(err)
	s.must(res.Body.Close())

	if res.StatusCode != http.StatusPartialContent || string(got) != "\x55\xaa" ||
		res.Header.Get("ETag") != `"`+digest+`"` {
		s.t.Errorf("%d, %q, %v", res.StatusCode, got, res.Header)
	}
}

// TestImageRoles: a viewer reads records and no content.
func TestImageRoles(t *testing.T) {
	t.Parallel()

	s := begin(t, "plain_http_role: viewer")
	content, digest := diskImage()
	s.addImage("debian-13", digest, len(content))

	viewer, err := client.New(client.Options{URL: s.url})
	s.must(err)

	l, err := viewer.Images(s.ctx())
	if err != nil || l.Total != 1 || l.Items[0].Files[0].Digest != digest {
		t.Errorf("%+v, %v", l, err)
	}

	_, read := viewer.ImageContent(s.ctx(), "debian-13", "image", 0)
	_, sent := viewer.SendImage(s.ctx(), "debian-13", "image", 0, bytes.NewReader(content))
	_, removed := viewer.DeleteImage(s.ctx(), "debian-13")
	_, verified := viewer.VerifyImage(s.ctx(), "debian-13")

	for _, err := range []error{read, sent, removed, verified} {
		if inventory.KindOf(err) != inventory.KindForbidden {
			t.Errorf("%s: %v", access.RoleViewer, err)
		}
	}

	if f := s.image("debian-13").Files[0]; f.Received != 0 {
		t.Errorf("%d bytes have come from a viewer", f.Received)
	}
}
