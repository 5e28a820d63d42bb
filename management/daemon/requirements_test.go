// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"archive/tar"
	"compress/gzip"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// mirrorFolder makes a mirror with a collection and a role, built by ansible-galaxy.
func (s *site) mirrorFolder() string {
	s.t.Helper()

	galaxy, err := exec.LookPath("ansible-galaxy")
	s.must(err)

	work, mirror := filepath.Join(s.dir, "work"), filepath.Join(s.dir, "mirror")
	s.must(os.MkdirAll(work, 0o755))
	s.must(os.MkdirAll(mirror, 0o755))

	run := func(args ...string) {
		s.t.Helper()

		cmd := exec.CommandContext(s.t.Context(), galaxy, args...)
		cmd.Dir, cmd.Env = work, append(os.Environ(), "HOME="+work, "LC_ALL=C.UTF-8")

		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Fatalf("%s: %s", err, out)
		}
	}

	for _, name := range []string{"web", "db"} {
		run("collection", "init", "acme."+name)
	}

	// acme.db needs acme.web.
	meta := filepath.Join(work, "acme/db/galaxy.yml")
	text, err := os.ReadFile(meta)
	s.must(err)
	changed := strings.Replace(string(text), "dependencies: {}", "dependencies: {acme.web: '>=1.0.0'}", 1)
	s.must(os.WriteFile(meta, []byte(changed), 0o600))

	for _, name := range []string{"web", "db"} {
		run("collection", "build", filepath.Join("acme", name), "--output-path", mirror)
	}

	s.roleArchive(filepath.Join(mirror, "nginx-1.2.0.tar.gz"))

	return mirror
}

// roleArchive writes the archive of a role.
func (s *site) roleArchive(path string) {
	s.t.Helper()

	f, err := os.Create(path)
	s.must(err)

	zipped := gzip.NewWriter(f)
	w := tar.NewWriter(zipped)

	for name, text := range map[string]string{
		"nginx/tasks/main.yml": "[]\n", "nginx/files/tool": "#!/bin/sh\n",
		"nginx/meta/main.yml": "galaxy_info: {author: a, description: d, license: MIT, min_ansible_version: '2.14'}\n",
	} {
		s.must(w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o664, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		s.must(err)
	}

	s.must(w.Close())
	s.must(zipped.Close())
	s.must(f.Close())
}

// TestLiveRequirements: collections and roles come from the mirror that the settings
// name, as part of the playbooks: the same commit has the same digest wherever they are.
func TestLiveRequirements(t *testing.T) {
	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("runs the real ansible-galaxy; set CLUSTERM_LAB=1, as make system does")
	}

	t.Parallel()

	s := prepare(t)
	mirror := s.mirrorFolder()
	c, _ := s.track()

	c.put("requirements.yml", "collections:\n- {name: acme.db, version: 1.0.0}\n- acme.web:1.0.0\n"+
		"roles:\n- {name: nginx, version: 1.2.0}\n")
	second := c.push("second", false)

	_, err := s.Client.SyncRepository(s.ctx())
	checkError(t, err, inventory.KindRefused, "requirements.yml: the manager installs no roles",
		"configure repository.requirements_mirror")

	s.write(c.section(", requirements_mirror: " + mirror)...)
	_, err = s.ReloadConfig(s.ctx())
	s.must(err)

	digest := s.sync(second).InUse.PlaybookDigest
	kept := s.programs.Copies.Path(digest)

	for path, want := range map[string]bool{
		"collections/ansible_collections/acme/web/MANIFEST.json": true,
		"collections/ansible_collections/acme/db/MANIFEST.json":  true,
		"roles/nginx/tasks/main.yml":                             true,
		"roles/nginx/meta/.galaxy_install_info":                  false, // it has the date
		"site.yml":                                               true,
	} {
		if _, err := os.Stat(filepath.Join(kept, path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}

	// A lost copy comes back with the same digest.
	s.must(os.RemoveAll(kept))

	if restored, err := s.programs.Restore(s.ctx(), digest); !restored || err != nil {
		t.Errorf("%v, %v", restored, err)
	}

	server := httptest.NewTLSServer(http.FileServer(http.Dir(mirror)))
	t.Cleanup(server.Close)

	ca := filepath.Join(s.dir, "ca")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	s.must(os.WriteFile(ca, block, 0o600))

	s.write(c.section(", ca_file: " + ca + ", requirements_mirror: \"" + server.URL + "\"")...)
	_, err = s.ReloadConfig(s.ctx())
	s.must(err)

	if over := s.sync(second).InUse.PlaybookDigest; over != digest {
		t.Errorf("over https the digest is %s, want %s", over, digest)
	}

	s.requirementRefusals(c, second)
}

// requirementRefusals pushes requirements that cannot be had, each of which leaves the
// commit in use.
func (s *site) requirementRefusals(c *clone, inUse string) {
	s.t.Helper()

	for _, bad := range []struct {
		text, reason string
		kind         inventory.Kind
	}{
		{"collections: [{name: acme.db, version: 1.0.0}]", "acme.web", inventory.KindRefused},
		{"collections: [acme.web]", "one such as 1.2.3 is needed", inventory.KindRefused},
		{"collections: [{name: acme.web, version: 1.0.0, source: 'https://example.com'}]", `the key "source"`,
			inventory.KindRefused},
		{"roles: [{name: nginx, version: 9.9.9}]", "nginx-9.9.9.tar.gz is not to be had", inventory.KindUnavailable},
	} {
		c.put("requirements.yml", bad.text+"\n")
		commit := c.push("bad", false)

		_, err := s.Client.SyncRepository(s.ctx())
		checkError(s.t, err, bad.kind, bad.reason)

		r := s.repository()
		if r.InUse == nil || r.InUse.Hash != inUse || r.Newest.Hash != commit {
			s.t.Errorf("%s: %+v", bad.text, r)
		}

		// A mirror that lacks an archive says nothing about the commit.
		if refused := r.Refused != nil && r.Refused.Hash == commit; refused != (bad.kind == inventory.KindRefused) ||
			refused == strings.Contains(r.Error, bad.reason) {
			s.t.Errorf("%s: refused %+v, error %s", bad.text, r.Refused, r.Error)
		}
	}
}
