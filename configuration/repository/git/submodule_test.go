// SPDX-License-Identifier: Apache-2.0

package git

import (
	"encoding/pem"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"golang.org/x/crypto/ssh"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// beside returns another repository on the server of r.
func (r *testRepo) beside(name string) *testRepo {
	r.t.Helper()
	return newRepoAt(r.t, filepath.Join(filepath.Dir(r.dir), name))
}

// module is an entry for a submodule.
func module(commit string) file {
	return file{mode: filemode.Submodule, hash: plumbing.NewHash(commit)}
}

// withModule returns playbooks with a submodule at roles/shared.
func withModule(commit, url string) map[string]file {
	all := playbooks()
	all["roles/shared"] = module(commit)
	all[modulesFile] = text("[submodule \"shared\"]\n\tpath = roles/shared\n\turl = " + url + "\n")
	return all
}

// TestSubmodules: the files of submodules are part of the playbooks, in any form and
// level.
func TestSubmodules(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	inner, role := r.beside("inner.git"), r.beside("role.git")

	deep := inner.push("main", map[string]file{"deep.yml": text("deep\n")})
	pinned := role.push("main", map[string]file{
		"tasks/main.yml": text("[]\n"), "files/inner": module(deep),
		modulesFile: text("[submodule \"x\"]\n\tpath = files/inner\n\turl = ../inner.git\n"),
	})
	role.push("main", map[string]file{"tasks/main.yml": text("newer\n")})

	for name, url := range map[string]string{"relative": "../role.git", "absolute": role.dir} {
		t.Run(name, func(t *testing.T) {
			commit := r.push(name, withModule(pinned, url))
			m := r.mirror()
			m.Options.Branch, m.Options.Submodules = name, true

			_, err := m.Fetch(t.Context())
			errtest.None(t, err)

			for range 2 {
				got, err := files(t, m, commit)
				errtest.None(t, err)

				if got["roles/shared/tasks/main.yml"] != "-rw-r--r-- []\n" ||
					got["roles/shared/files/inner/deep.yml"] != "-rw-r--r-- deep\n" || got["site.yml"] == "" {
					t.Errorf("got %q", got)
				}
			}
		})
	}

	// In a folder of the repository, and the same mirror for two commits.
	old := r.push("folder", map[string]file{"deploy/site.yml": text("a"), "deploy/sub": module(deep),
		"outside":   module(pinned),
		modulesFile: text("[submodule \"x\"]\n\tpath = deploy/sub\n\turl = ../inner.git\n")})
	deep = inner.push("main", map[string]file{"deep.yml": text("deeper\n")})
	commit := r.push("folder", map[string]file{"deploy/site.yml": text("a"), "deploy/sub": module(deep),
		modulesFile: text("[submodule \"x\"]\n\tpath = deploy/sub\n\turl = ../inner.git\n")})

	m := r.mirror()
	m.Options.Branch, m.Options.Folder, m.Options.Submodules = "folder", "deploy", true

	_, err := m.Fetch(t.Context())
	errtest.None(t, err)

	errtest.None(t, m.Trees(t.Context(), []string{old, commit}, func(trees []fs.FS) error {
		changes, _, err := Diff(t.Context(), trees[0], trees[1], func(string, fs.DirEntry) bool { return false })
		if len(changes) != 1 || changes[0].Path != "sub/deep.yml" {
			t.Errorf("got %+v", changes)
		}
		return err
	}))
}

// TestSubmoduleRefused: submodules that are not wanted, or may harm.
func TestSubmoduleRefused(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	role := r.beside("role.git")
	pinned := role.push("main", map[string]file{"big": text(strings.Repeat("x", 100_000))})
	elsewhere := newRepo(t)
	foreign := elsewhere.push("main", playbooks())

	bare := withModule(pinned, "../role.git")
	delete(bare, modulesFile)

	for _, c := range []struct {
		name   string
		files  map[string]file
		change func(*Options)
		kind   inventory.Kind
		err    string
	}{
		{"off", withModule(pinned, "../role.git"), func(o *Options) { o.Submodules = false },
			inventory.KindRefused, "set repository.submodules to true"},
		{"no file", bare, nil, inventory.KindRefused, "there is no file .gitmodules"},
		{"no URL", withModule(pinned, ""), nil, inventory.KindRefused, `its URL "" is not one`},
		{"elsewhere", withModule(foreign, elsewhere.dir), nil, inventory.KindRefused, "not on the server"},
		{"above", withModule(foreign, "../../../etc"), nil, inventory.KindRefused, "not on the server"},
		{"https", withModule(pinned, "https://example.com/x"), nil, inventory.KindRefused, "not on the server"},
		{"command", withModule(pinned, "ext::sh -c true"), nil, inventory.KindRefused, "is not one of a repository"},
		{"option", withModule(pinned, "--upload-pack=x"), nil, inventory.KindRefused, "is not one of a repository"},
		{"does not parse", func() map[string]file {
			all := withModule(pinned, "x")
			all[modulesFile] = text("[submodule")
			return all
		}(), nil, inventory.KindRefused, "does not parse"},
		{"gone", withModule(pinned, "../gone.git"), nil, inventory.KindUnavailable, "roles/shared: "},
		{"no such commit", withModule(strings.Repeat("ab", 20), "../role.git"), nil, inventory.KindUnavailable,
			"roles/shared: "},
		{"size", withModule(pinned, "../role.git"), func(o *Options) { o.Limits.Size = 90_000 },
			inventory.KindTooLarge, "roles/shared: "},
		{"size of all", withModule(pinned, "../role.git"), func(o *Options) { o.Limits.Size = 100_010 },
			inventory.KindRefused, "its files have more than 100010 bytes"},
		{"files", withModule(pinned, "../role.git"), func(o *Options) { o.Limits.Files = len(playbooks()) + 4 },
			inventory.KindRefused, "repository.limits.files"},
	} {
		t.Run(c.name, func(t *testing.T) {
			commit := r.push(strings.ReplaceAll(c.name, " ", "-"), c.files)
			m := r.mirror()
			m.Options.Branch, m.Options.Submodules = strings.ReplaceAll(c.name, " ", "-"), true

			if c.change != nil {
				c.change(&m.Options)
			}

			_, err := m.Fetch(t.Context())
			errtest.None(t, err)

			_, err = files(t, m, commit)
			if inventory.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.err) {
				t.Errorf("the error is %q: %v, want %q: %s", inventory.KindOf(err), err, c.kind, c.err)
			}
		})
	}
}

// TestSubmoduleSignature: the commit of a submodule needs a signature, too.
func TestSubmoduleSignature(t *testing.T) {
	t.Parallel()

	key, _ := sshKey(t)
	sign := signSSH(t, key, "git")

	r := newRepo(t)
	role := r.beside("role.git")
	unsigned := role.push("main", map[string]file{"x": text("x")})
	signed := role.push("main", map[string]file{"y": text("y")}, sign)

	for commit, want := range map[string]string{unsigned: "the submodule roles/shared: commit", signed: ""} {
		top := r.push("main", withModule(commit, "../role.git"), sign)

		m := r.mirror()
		m.Options.Submodules = true
		m.Options.SignedBy = []string{write(t, string(ssh.MarshalAuthorizedKey(key.PublicKey())))}

		_, err := m.Fetch(t.Context())
		errtest.None(t, err)

		_, err = files(t, m, top)
		expect(t, err, want)
	}
}

// TestSubmoduleHTTPS: a server gives a commit that is not the end of a branch only with
// the branches.
func TestSubmoduleHTTPS(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	server := smartHTTP(t, r)
	role := r.beside("role.git")
	pinned := role.push("main", map[string]file{"tasks/main.yml": text("[]\n")})
	role.push("main", map[string]file{"tasks/main.yml": text("newer\n")})

	commit := r.push("main", withModule(pinned, server.URL+"/role.git"))
	ca := write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	m := &Mirror{Dir: t.TempDir(), Options: Options{
		URL: server.URL + "/origin.git", CredentialFile: write(t, "robot:s3cret\n"), Limits: DefaultLimits,
		CAFile: ca, Submodules: true,
	}}

	_, err := m.Fetch(t.Context())
	errtest.None(t, err)

	got, err := files(t, m, commit)
	if err != nil || got["roles/shared/tasks/main.yml"] != "-rw-r--r-- []\n" {
		t.Errorf("got %q, %v", got, err)
	}

	// The data of all submodules counts for the limit.
	small := *m
	small.Dir, small.Options.Limits.Fetch = t.TempDir(), 1500
	big := role.push("main", map[string]file{"big": text(strings.Repeat("0123456789abcdef", 10))})
	commit = r.push("main", withModule(big, server.URL+"/role.git"))

	if _, err := small.Fetch(t.Context()); err == nil {
		_, err = files(t, &small, commit)
		if inventory.KindOf(err) != inventory.KindTooLarge {
			t.Errorf("got %v", err)
		}
	} else if inventory.KindOf(err) != inventory.KindTooLarge {
		t.Error(err)
	}
}

// TestResolve: the URLs of submodules, as git understands them.
func TestResolve(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ base, url, want string }{
		{"https://example.com/a/b.git", "../c.git", "https://example.com/a/c.git"},
		{"https://example.com/a/b.git", "./c", "https://example.com/a/b.git/c"},
		{"https://example.com/a/b.git", "https://example.com:443/c", "https://example.com:443/c"},
		{"https://example.com/a/b.git", "https://example.com.evil/c", ""},
		{"https://example.com/a/b.git", "https://u:p@example.com/c", ""},
		{"https://example.com/a/b.git", "ssh://git@example.com/c", ""},
		{"https://example.com/a/b.git", "/etc", ""},
		{"https://example.com/a/b.git", "../../../..", ""},
		{"git@example.com:a/b.git", "../c.git", "git@example.com:a/c.git"},
		{"git@example.com:a/b.git", "ssh://git@example.com/c", "ssh://git@example.com/c"},
		{"ssh://git@example.com:2222/a/b.git", "../c.git", "ssh://git@example.com:2222/a/c.git"},
		{"ssh://git@example.com:2222/a/b.git", "git@example.com:c", ""},
		{"/srv/git/b.git", "../c.git", "/srv/git/c.git"},
		{"/srv/git:a/b.git", "../c.git", "/srv/git:a/c.git"},
		{"/srv/git/b.git", "../../c.git", ""},
		{"/srv/git/b.git", "/srv/git/../c.git", ""},
		{"/b.git", "/etc", ""},
	} {
		got, err := resolve(c.base, c.url)
		if got != c.want && err == nil || (err == nil) != (c.want != "") {
			t.Errorf("%s, %s: %q, %v; want %q", c.base, c.url, got, err, c.want)
		}
	}
}
