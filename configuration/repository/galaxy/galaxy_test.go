// SPDX-License-Identifier: Apache-2.0

package galaxy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

func TestRead(t *testing.T) {
	t.Parallel()

	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

	got, err := Read(fstest.MapFS{
		"requirements.yml": file(
			"---\ncollections:\n- acme.web:1.0.0\n- {name: acme.db, version: ==2.1.0-rc.1, type: galaxy}\n" +
				"roles:\n- name: nginx\n  version: v1.2\n",
		),
		"roles/requirements.yml":       file("- src: geerlingguy.docker\n  version: 7.0.1\n- nginx,v1.2\n"),
		"collections/requirements.yml": file("collections: []\n"),
		"roles/requirements.yaml":      file(""),
	})
	errtest.None(t, err)

	want := []Requirement{
		{File: "requirements.yml", Name: "acme.web", Version: "1.0.0"},
		{File: "requirements.yml", Name: "acme.db", Version: "2.1.0-rc.1"},
		{File: "requirements.yml", Role: true, Name: "nginx", Version: "v1.2"},
		{File: "roles/requirements.yml", Role: true, Name: "geerlingguy.docker", Version: "7.0.1"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}

	if got[0].Archive() != "acme-web-1.0.0.tar.gz" || got[3].Archive() != "geerlingguy.docker-7.0.1.tar.gz" ||
		got[0].Folder() != "collections/ansible_collections/acme/web" || got[2].Folder() != "roles/nginx" {
		t.Errorf("got %s, %s", got[0].Archive(), got[0].Folder())
	}

	for name, c := range map[string]struct{ text, err string }{
		"no version":    {"collections: [acme.web]", "line 1: acme.web has the version"},
		"range":         {"collections: [{name: acme.web, version: '>=1.0.0'}]", "one such as 1.2.3 is needed"},
		"star":          {"collections: [{name: acme.web, version: '*'}]", "one such as 1.2.3 is needed"},
		"source":        {"collections: [{name: acme.web, version: 1.0.0, source: https://x}]", `the key "source"`},
		"git":           {"collections: [{name: 'git+https://x/y', version: 1.0.0}]", "is not the name"},
		"type":          {"collections: [{name: acme.web, version: 1.0.0, type: git}]", `the key "type"`},
		"role of a URL": {"- src: https://x/y.tar.gz\n  version: 1.0.0\n", "is not the name"},
		"include":       {"- include: other.yml\n", `the key "include"`},
		"path":          {"roles: [{name: ../x, version: 1.0.0}]", "is not the name"},
		"version path":  {"roles: [{name: x, version: ../1}]", "one such as 1.2.3"},
		"unknown":       {"other: []", "does not parse"},
		"text":          {"hello", "does not parse"},
		"list":          {"roles: [[x]]", "is no entry"},
		"twice": {
			"roles: [{name: x, version: 1.0.0}, {name: x, version: 1.0.1}]", "the versions 1.0.0 and 1.0.1",
		},
		"in the repository": {"roles: [{name: own, version: 1.0.0}]", "roles/own is in the repository"},
		"long":              {strings.Repeat("#", maxFile+1), "larger than"},
		"many":              {"roles:\n" + strings.Repeat("- a,1\n", 1) + many(), "more than 200"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(fstest.MapFS{"requirements.yml": file(c.text), "roles/own/tasks/main.yml": file("[]")})
			if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), c.err) {
				t.Errorf("the error is %v, want %q", err, c.err)
			}
		})
	}
}

// TestRefuse: without a mirror, each file with requirements is refused by its name.
func TestRefuse(t *testing.T) {
	t.Parallel()

	for _, file := range []string{"requirements.yml", "roles/requirements.yml", "collections/requirements.yaml"} {
		err := Refuse(fstest.MapFS{file: &fstest.MapFile{Data: []byte("[]")}, "site.yml": &fstest.MapFile{}})
		if inventory.KindOf(err) != inventory.KindRefused || !strings.HasPrefix(err.Error(), file+": ") {
			t.Errorf("%s: %v", file, err)
		}
	}

	if err := Refuse(fstest.MapFS{"site.yml": &fstest.MapFile{}}); err != nil {
		t.Error(err)
	}
}

func many() string {
	var b strings.Builder

	for i := range maxEntries + 1 {
		fmt.Fprintf(&b, "- r%d,1\n", i)
	}

	return b.String()
}

// archive returns an archive with one entry.
func archive(t *testing.T, h tar.Header, content string) string {
	t.Helper()

	var b bytes.Buffer

	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	h.Size, h.Mode = int64(len(content)), 0o644
	errtest.None(t, w.WriteHeader(&h))

	_, err := w.Write([]byte(content))
	errtest.None(t, err)
	errtest.None(t, w.Close())
	errtest.None(t, zipped.Close())

	return b.String()
}

func TestFetch(t *testing.T) {
	t.Parallel()

	wanted := Requirement{File: "requirements.yml", Role: true, Name: "nginx", Version: "1.0.0"}
	bad := func(h tar.Header) string { return archive(t, h, "") }
	good := archive(t, tar.Header{Name: "nginx/tasks/main.yml", Typeflag: tar.TypeReg}, "[]\n")

	for name, c := range map[string]struct {
		content string
		change  func(*Mirror)
		kind    inventory.Kind
		err     string
	}{
		"good":       {good, nil, "", ""},
		"missing":    {"", nil, inventory.KindUnavailable, "nginx-1.0.0.tar.gz is not to be had"},
		"no archive": {"this is no archive", nil, inventory.KindRefused, "gzip"},
		"cut":        {good[:len(good)/2], nil, inventory.KindRefused, "EOF"},
		"out": {bad(tar.Header{Name: "../x", Typeflag: tar.TypeReg}), nil,
			inventory.KindRefused, "leads out"},
		"absolute": {bad(tar.Header{Name: "/etc/x", Typeflag: tar.TypeReg}), nil,
			inventory.KindRefused, "leads out"},
		"link": {
			bad(tar.Header{Name: "a/b", Linkname: "../../x", Typeflag: tar.TypeSymlink}), nil,
			inventory.KindRefused, "leads out",
		},
		"absolute link": {
			bad(tar.Header{Name: "a", Linkname: "/etc", Typeflag: tar.TypeSymlink}), nil,
			inventory.KindRefused, "leads out",
		},
		"hard link": {
			bad(tar.Header{Name: "a", Linkname: "b", Typeflag: tar.TypeLink}), nil,
			inventory.KindRefused, "neither a file",
		},
		"device": {bad(tar.Header{Name: "a", Typeflag: tar.TypeChar}), nil, inventory.KindRefused, "neither a file"},
		"expands": {
			archive(t, tar.Header{Name: "a", Typeflag: tar.TypeReg}, strings.Repeat("0", 1<<20)),
			func(m *Mirror) { m.Size = 100_000 }, inventory.KindRefused, "larger than repository.limits",
		},
		"files":  {good, func(m *Mirror) { m.Files = 0 }, inventory.KindRefused, "larger than repository.limits"},
		"large":  {good, func(m *Mirror) { m.Size = 10 }, inventory.KindTooLarge, "more than 10 bytes"},
		"no CA":  {good, func(m *Mirror) { m.CAFile = "" }, inventory.KindUnavailable, "certificate"},
		"moved":  {good, func(m *Mirror) { m.URL += "/moved" }, inventory.KindUnavailable, "301"},
		"absent": {good, func(m *Mirror) { m.URL += "/absent" }, inventory.KindUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			if c.content != "" {
				errtest.None(t, os.WriteFile(filepath.Join(dir, wanted.Archive()), []byte(c.content), 0o600))
			}

			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if rest, moved := strings.CutPrefix(r.URL.Path, "/moved/"); moved {
					http.Redirect(w, r, "/"+rest, http.StatusMovedPermanently)
					return
				}

				http.FileServer(http.Dir(dir)).ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)

			ca := filepath.Join(t.TempDir(), "ca")
			block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			errtest.None(t, os.WriteFile(ca, block, 0o600))

			for _, m := range []Mirror{{URL: dir}, {URL: server.URL, CAFile: ca}} {
				m.Size, m.Files, m.Time = 1<<20, 100, time.Minute

				if onlyHTTPS := name == "no CA" || name == "moved"; onlyHTTPS && m.IsFolder() {
					continue
				}

				if c.change != nil {
					c.change(&m)
				}

				to := t.TempDir()

				err := m.Fetch(t.Context(), []Requirement{wanted}, to)
				if inventory.KindOf(err) != c.kind || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s: the error is %v, want %q: %s", m.URL, err, c.kind, c.err)
				}

				if got, _ := os.ReadFile(filepath.Join(to, wanted.Archive())); err == nil && string(got) != c.content {
					t.Errorf("%s: got %d bytes", m.URL, len(got))
				}
			}
		})
	}
}

// TestPipe: a pipe in the folder does not block.
func TestPipe(t *testing.T) {
	t.Parallel()

	wanted := Requirement{Role: true, Name: "nginx", Version: "1.0.0"}
	dir := t.TempDir()
	errtest.None(t, unix.Mkfifo(filepath.Join(dir, wanted.Archive()), 0o600))

	m := Mirror{URL: dir, Size: 1, Files: 1, Time: time.Minute}
	if err := m.Fetch(
		t.Context(),
		[]Requirement{wanted},
		t.TempDir(),
	); inventory.KindOf(
		err,
	) != inventory.KindUnavailable {
		t.Errorf("got %v", err)
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()

	for text, good := range map[string]bool{
		"/srv/galaxy": true, "https://mirror.example.com/galaxy": true, "https://mirror.example.com": true,
		"": false, "srv": false, "/srv/../x": false, "http://mirror.example.com": false,
		"https://u:p@example.com/x": false,
		"https://example.com/x?y":   false, "file:///srv": false,
	} {
		if err := CheckURL(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
