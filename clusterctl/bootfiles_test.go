// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/configuration/image/kernel/kerneltest"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func kernelPackage(t *testing.T) []byte {
	t.Helper()
	return kerneltest.Package(t, kerneltest.Control("linux-image-6.1.0-9-amd64", "amd64"), kerneltest.Files())
}

// inFolder returns the names of the files in a folder.
func inFolder(t *testing.T, folder string) string {
	t.Helper()

	files, err := os.ReadDir(folder)
	errtest.None(t, err)

	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name()
	}

	return strings.Join(names, " ")
}

// TestBootFiles writes files that a server may read.
func TestBootFiles(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	errtest.None(t, replaceFiles(folder, []string{bootKernel, bootInitrd}, func(to []io.Writer) error {
		_, err := io.WriteString(to[1], "the modules")
		return err
	}))

	if got := inFolder(t, folder); got != "initrd vmlinuz" {
		t.Errorf("%q are in the folder", got)
	}

	info, err := os.Stat(filepath.Join(folder, bootInitrd))
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("a server cannot read it: %v, %v", info, err)
	}

	content, err := os.ReadFile(filepath.Join(folder, bootInitrd))
	if err != nil || string(content) != "the modules" {
		t.Errorf("%q, %v", content, err)
	}
}

// TestBootFilesRefuses: other content than that of the record, and an image without a kernel, are not unpacked.
func TestBootFilesRefuses(t *testing.T) {
	t.Parallel()

	deb := kernelPackage(t)
	sum := sha256.Sum256(deb)
	sent := deb
	recorded := &oneImage{t: t, image: api.Image{Name: "debian", Kind: api.ImageDisk, Arch: "amd64"}}

	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/files/") {
			recorded.ServeHTTP(w, r)
			return
		}

		w.Header().Set("Content-Type", api.TypeBinary)
		_, err := w.Write(sent)
		errtest.None(t, err)
	}))
	t.Cleanup(manager.Close)

	c := quiet()

	var err error
	c.manager, err = client.New(client.Options{URL: manager.URL})
	errtest.None(t, err)

	file := api.ImageFile{Role: "package", Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(deb))}
	receive := func() error { return c.receivePackage(t.Context(), "environment", file, io.Discard) }

	errtest.None(t, receive())

	damaged := bytes.Clone(deb)
	damaged[200]++

	for _, sent = range [][]byte{damaged, deb[:200], append(bytes.Clone(deb), 'x')} {
		if err := receive(); err == nil {
			t.Errorf("%d bytes are taken for the package", len(sent))
		}
	}

	var problem bytes.Buffer

	folder := filepath.Join(t.TempDir(), "files")
	code := Run(t.Context(), []string{"clusterctl", "-u", manager.URL, "image", "boot-files", "debian", folder},
		Options{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &problem})

	if _, err := os.Stat(folder); code != exit.Refused || err == nil {
		t.Errorf("%d: %s", code, problem.String())
	}
}

// TestBootFilesTogether: if one of the files cannot be written, all stay as they are.
func TestBootFilesTogether(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	errtest.None(t, os.WriteFile(filepath.Join(folder, bootKernel), []byte("the former one"), 0o600))

	err := replaceFiles(folder, []string{bootKernel, bootInitrd}, func(to []io.Writer) error {
		_, err := io.WriteString(to[0], "the next one")
		errtest.None(t, err)

		return io.ErrShortWrite
	})
	if err == nil {
		t.Error("a file that cannot be written is no error")
	}

	content, err := os.ReadFile(filepath.Join(folder, bootKernel))
	errtest.None(t, err)

	if string(content) != "the former one" || inFolder(t, folder) != bootKernel {
		t.Errorf("%q in %s", content, inFolder(t, folder))
	}
}
