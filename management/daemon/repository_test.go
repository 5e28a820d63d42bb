// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	gitconfig "github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/crypto/ssh"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/repository"
)

// clone is a clone with the playbooks of a site, and the bare repository behind it.
type clone struct {
	s    *site
	bare string
	dir  string
	repo *gogit.Repository
	at   time.Time
}

// newClone makes a bare repository with a first commit.
func (s *site) newClone() *clone {
	s.t.Helper()

	c := &clone{s: s, bare: filepath.Join(s.dir, "origin.git"), dir: filepath.Join(s.dir, "clone"), at: time.Now()}
	main := &gogit.PlainInitOptions{
		InitOptions: gogit.InitOptions{DefaultBranch: "refs/heads/main"}, Bare: true,
	}

	_, err := gogit.PlainInitWithOptions(c.bare, main)
	s.must(err)

	main.Bare = false
	c.repo, err = gogit.PlainInitWithOptions(c.dir, main)
	s.must(err)

	s.must(os.CopyFS(c.dir, os.DirFS(filepath.Join(s.dir, "playbooks"))))

	return c
}

// put writes a file of the clone. An empty text removes it.
func (c *clone) put(name, text string) {
	c.s.t.Helper()

	path := filepath.Join(c.dir, name)

	if text == "" {
		c.s.must(os.Remove(path))
		return
	}

	c.s.must(os.MkdirAll(filepath.Dir(path), 0o755))
	c.s.must(os.WriteFile(path, []byte(text), 0o600))
}

// push commits everything and copies the branch to the bare repository. orphan: without
// a parent.
func (c *clone) push(message string, orphan bool) string {
	c.s.t.Helper()

	w, err := c.repo.Worktree()
	c.s.must(err)
	c.s.must(w.AddWithOptions(&gogit.AddOptions{All: true}))

	c.at = c.at.Add(time.Second)
	author := &object.Signature{Name: "A. Uthor", Email: "a@example.com", When: c.at}
	hash, err := w.Commit(message, &gogit.CommitOptions{Author: author, AllowEmptyCommits: true})
	c.s.must(err)

	if orphan {
		hash = c.orphan(hash)
	}

	c.send(hash)

	return hash.String()
}

func (c *clone) orphan(hash plumbing.Hash) plumbing.Hash {
	c.s.t.Helper()

	commit, err := c.repo.CommitObject(hash)
	c.s.must(err)

	commit.ParentHashes = nil
	o := c.repo.Storer.NewEncodedObject()
	c.s.must(commit.Encode(o))

	hash, err = c.repo.Storer.SetEncodedObject(o)
	c.s.must(err)
	c.s.must(c.repo.Storer.SetReference(plumbing.NewHashReference("refs/heads/main", hash)))

	return hash
}

// send copies a commit with its objects into the bare repository, and moves the branch.
func (c *clone) send(hash plumbing.Hash) {
	c.s.t.Helper()

	bare, err := gogit.PlainOpen(c.bare)
	c.s.must(err)

	objects, err := c.repo.Storer.IterEncodedObjects(plumbing.AnyObject)
	c.s.must(err)

	c.s.must(objects.ForEach(func(o plumbing.EncodedObject) error {
		_, err := bare.Storer.SetEncodedObject(o)
		return err
	}))
	c.s.must(bare.Storer.SetReference(plumbing.NewHashReference("refs/heads/main", hash)))
}

// removeBranch removes the branch of the bare repository, which keeps another one.
func (c *clone) removeBranch() {
	c.s.t.Helper()

	bare, err := gogit.PlainOpen(c.bare)
	c.s.must(err)

	main, err := bare.Reference("refs/heads/main", false)
	c.s.must(err)
	c.s.must(bare.Storer.SetReference(plumbing.NewHashReference("refs/heads/other", main.Hash())))
	c.s.must(bare.Storer.RemoveReference("refs/heads/main"))
	c.s.must(bare.Storer.SetConfig(gitconfig.NewConfig()))
}

// section is the part of the configuration for the repository.
func (c *clone) section(more string) []string {
	return []string{"playbooks: \"\"", "repository: {url: " + c.bare + ", branch: main, interval: 1h" + more + "}"}
}

// repository returns the state of the repository.
func (s *site) repository() api.Repository {
	s.t.Helper()
	r, err := s.Client.Repository(s.ctx())
	s.must(err)
	return r
}

// track starts the manager with a new repository, and returns that and its first commit, which
// is in use.
func (s *site) track() (c *clone, first string) {
	s.t.Helper()

	c = s.newClone()
	first = c.push("first", false)
	s.write(c.section("")...)
	s.up()
	s.t.Cleanup(s.down)
	s.sync(first)

	return c, first
}

// sync fetches, and expects the commit in use.
func (s *site) sync(want string) api.Repository {
	s.t.Helper()

	r, err := s.Client.SyncRepository(s.ctx())
	s.must(err)

	if r.InUse == nil || r.InUse.Hash != want {
		s.t.Fatalf("%+v is in use, want %s", r.InUse, want)
	}

	return r
}

// TestRepository: commits come into use, or are refused and reported; jobs pin them, and
// nodes are cleaned with the playbooks that configured them.
func TestRepository(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	c, first := s.track()
	s.report("a b")

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if j.Status != api.Complete || j.Commit != first {
		t.Fatalf("%+v", j)
	}

	// A folder with the same content has the same digest.
	if again, err := s.programs.Copies.KeepDir(t.Context(), c.dir); err != nil || again != j.PlaybookDigest {
		t.Errorf("a folder has the digest %s, %v; the commit %s", again, err, j.PlaybookDigest)
	}

	c.put("files/new", "new\n")
	second := c.push("second", false)
	r := s.sync(second)

	if len(r.Nodes) != 1 || r.Nodes[0].Commit != first || r.Nodes[0].Current || r.Rewritten != "" {
		t.Errorf("%+v", r)
	}

	d, err := s.Client.RepositoryDiff(s.ctx(), api.RepositoryDiffQuery{Node: "a-1"})
	s.must(err)

	if d.From.Commit != first || d.To.Commit != second || len(d.Files) != 1 || d.Files[0].Path != "files/new" ||
		d.Files[0].Change != "added" || !strings.Contains(d.Files[0].Text, "+new") {
		t.Errorf("%+v", d)
	}

	log, err := s.Client.RepositoryLog(s.ctx(), api.RepositoryLogQuery{})
	s.must(err)

	if len(log.Commits) != 1 || log.Commits[0].Hash != second || !log.Commits[0].InUse ||
		!slices.Equal(log.Since, []string{first}) {
		t.Errorf("%+v", log)
	}

	s.refusals(c, second)

	// A restart changes nothing.
	s.restart()

	if r := s.repository(); r.InUse == nil || r.InUse.Hash != second {
		t.Errorf("after a restart: %+v", r)
	}

	if j := s.runJob(
		api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{"a-1"}},
	); j.Status != api.Complete ||
		j.Commit != second ||
		j.Runs[0].PlaybookDigest != r.Nodes[0].PlaybookDigest {
		t.Errorf("the cleanup: %+v", j)
	}
}

// refusals pushes bad commits, each of which leaves the one in use.
func (s *site) refusals(c *clone, inUse string) {
	t := s.t
	t.Helper()

	site, err := os.ReadFile(filepath.Join(c.dir, "site.yml"))
	s.must(err)

	for _, bad := range []struct{ name, file, text, reason string }{
		{"does not parse", "site.yml", "broken\n", "site.yml does not parse"},
		{"without site.yml", "site.yml", "", "site.yml: it is missing"},
		{"no play", "site.yml", "- hosts: service-worker\n", "is for the group service-master of a-1"},
		{"variables", "group_vars/service-worker.yml", "broken\n", "variables of the playbook folder cannot be loaded"},
		{"requirements", "requirements.yml", "[]\n", "requirements.yml: the manager installs no roles"},
	} {
		c.put(bad.file, bad.text)
		commit := c.push(bad.name, false)

		for range 2 {
			_, err := s.Client.SyncRepository(s.ctx())
			checkError(t, err, inventory.KindRefused, bad.reason, commit[:12])
		}

		r := s.repository()
		if r.InUse.Hash != inUse || r.Refused == nil || r.Refused.Hash != commit ||
			!strings.Contains(r.Refused.Reason, bad.reason) || r.Newest.Hash != commit {
			t.Errorf("%s: %+v", bad.name, r)
		}

		if h, err := s.Health(s.ctx()); err != nil || !strings.Contains(h.Checks["repository"], bad.reason) {
			t.Errorf("%s: the health is %+v, %v", bad.name, h.Checks, err)
		}

		if bad.file != "site.yml" {
			c.put(bad.file, "")
		}

		c.put("site.yml", string(site))
	}

	// Back to the commit in use, in content: a commit of its own.
	good := c.push("mended", false)
	if r := s.sync(good); r.Refused != nil {
		t.Errorf("%+v", r.Refused)
	}

	// The same playbooks under the former commit.
	c.send(plumbing.NewHash(inUse))

	if r := s.sync(inUse); r.Rewritten != good {
		t.Errorf("going back is not shown: %+v", r)
	}
}

// TestRepositoryIsSurvived: a force-push, a deleted branch, and a repository that is gone.
func TestRepositoryIsSurvived(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	c, first := s.track()

	c.put("files/new", "new\n")
	second := c.push("forced", true)

	if r := s.sync(second); r.Rewritten != first {
		t.Errorf("%+v", r)
	}

	c.removeBranch()

	s.failing("has no branch main; its branches are other", second)

	s.must(os.RemoveAll(c.bare))
	s.failing("is not a git repository", second)

	// Jobs go on with the commit in use, even if its copy has to be made again.
	s.must(os.RemoveAll(s.programs.Copies.Path(s.repository().InUse.PlaybookDigest)))
	s.report("a")

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if j.Status != api.Complete || j.Commit != second {
		t.Errorf("%+v", j)
	}
}

// failing expects a sync to fail, and the commit to stay in use.
func (s *site) failing(reason, inUse string) {
	s.t.Helper()

	_, err := s.Client.SyncRepository(s.ctx())
	if err == nil || !strings.Contains(err.Error(), reason) {
		s.t.Errorf("the error is %v, want %q", err, reason)
	}

	r := s.repository()
	if r.InUse.Hash != inUse || !strings.Contains(r.Error, reason) || r.Failing == nil {
		s.t.Errorf("%+v", r)
	}

	h, err := s.Health(s.ctx())
	s.must(err)

	if !strings.Contains(fmt.Sprint(h.Warnings), reason) || h.Checks["repository"] != "ok" {
		s.t.Errorf("the health is %+v", h)
	}
}

// TestRepositorySettings: the section belongs to the file, and a repository that cannot
// be used is refused by a reload and by a check of the file.
func TestRepositorySettings(t *testing.T) {
	t.Parallel()

	s := begin(t)
	c := s.newClone()

	for _, bad := range []struct{ yaml, reason string }{
		{"{url: http://example.com/x}", "repository.url: the URL begins with http://"},
		{"{url: https://u:p@example.com/x}", "repository.url: the URL contains credentials"},
		{"{url: git@example.com:x}", "repository.key_file: it is empty"},
		{"{url: /x, branch: a, tag: b}", "branch, tag and commit exclude each other"},
		{"{url: /x, branch: -a}", "repository.branch"},
		{"{url: /x, commit: abc}", "repository.commit"},
		{"{url: /x, folder: ../y}", "repository.folder"},
		{"{url: /x, key_file: y}", "repository.key_file"},
		{"{url: /x, credential_file: /y}", "only https uses credentials"},
		{"{url: /x, requirements_mirror: galaxy}", "repository.requirements_mirror"},
		{"{url: /x, on_move: upgrade}", "repository.on_move"},
		{"{url: /x, interval: 1s}", "repository.interval"},
		{"{branch: main}", "repository.url: it is empty"},
		{"{url: /nonexistent}", "is not a git repository"},
		{"{url: /nonexistent, signed_by: [/nonexistent]}", "repository.signed_by"},
		{"{url: " + c.bare + "}", "is empty"},
	} {
		s.write("playbooks: \"\"", "repository: "+bad.yaml)

		_, err := s.ReloadConfig(s.ctx())
		checkError(t, err, inventory.KindOf(err), bad.reason)

		if err := CheckFile(t.Context(), s.file); err == nil || !strings.Contains(err.Error(), bad.reason) {
			t.Errorf("%s: the check says %v", bad.yaml, err)
		}
	}

	first := c.push("first", false)
	s.write("repository: {url: " + c.bare + "}")
	_, err := s.ReloadConfig(s.ctx())
	checkError(t, err, inventory.KindRefused, "playbooks: the playbooks come from repository.url")

	s.write(c.section("")...)
	_, err = s.ReloadConfig(s.ctx())
	s.must(err)
	s.sync(first)

	report, err := CheckPlaybooks(t.Context(), s.file, "")
	if err != nil || !report.OK || report.Folder != c.bare+", branch main" {
		t.Errorf("%+v, %v", report, err)
	}

	_, err = s.PatchConfig(s.ctx(), map[string]any{"repository.branch": "other"})
	checkError(t, err, inventory.KindRefused, "repository.branch belongs to the configuration file")

	// Another branch is another source: nothing of the former one is used.
	s.write("playbooks: \"\"", "repository: {url: "+c.bare+", branch: other}")
	_, err = s.ReloadConfig(s.ctx())
	checkError(t, err, inventory.KindRefused, "has no branch other")

	s.write()
	_, err = s.ReloadConfig(s.ctx())
	s.must(err)

	if r := s.repository(); r.URL != "" || r.InUse != nil {
		t.Errorf("%+v", r)
	}

	_, err = s.Client.SyncRepository(s.ctx())
	checkError(t, err, inventory.KindRefused, "no repository of playbooks is configured")
}

// TestRepositoryAudit: decisions of the watch are on record, once.
func TestRepositoryAudit(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	c := s.newClone()
	c.put("site.yml", "broken\n")
	bad := c.push("bad", false)
	s.write(c.section("")...)
	s.up()
	t.Cleanup(s.down)
	s.report("a")

	_, err := s.Client.SyncRepository(s.ctx())
	checkError(t, err, inventory.KindRefused, "commit "+bad[:12]+" is refused")

	_, err = s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	checkError(t, err, inventory.KindRefused, "no commit of "+c.bare+" is in use yet", "does not parse")

	site, err := os.ReadFile(filepath.Join(s.dir, "playbooks", "site.yml"))
	s.must(err)
	c.put("site.yml", string(site))
	good := c.push("good", false)
	s.sync(good)

	found := map[string]string{}

	s.must(s.readAudit(audit.Filter{Verb: "repository.use"}, func(e audit.Entry) error {
		if e.Who == repository.Principal {
			found[e.Targets[0]] = e.Result
		}
		return nil
	}))

	if found[bad] != string(inventory.KindRefused) || found[good] != "done" {
		t.Errorf("the audit trail has %v", found)
	}
}

// TestRepositoryKeys: a list of keys that comes later holds for the commit in use.
func TestRepositoryKeys(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	c, first := s.track()
	s.report("a")

	public, _, err := ed25519.GenerateKey(rand.Reader)
	s.must(err)
	key, err := ssh.NewPublicKey(public)
	s.must(err)

	keys := filepath.Join(s.dir, "keys")
	s.must(os.WriteFile(keys, ssh.MarshalAuthorizedKey(key), 0o600))

	// A reload refuses it. A restart does not look at the repository first.
	s.write(c.section(", signed_by: [" + keys + "]")...)
	_, err = s.ReloadConfig(s.ctx())
	checkError(t, err, inventory.KindRefused, "has no signature")
	s.restart()

	_, err = s.Client.SyncRepository(s.ctx())
	checkError(t, err, inventory.KindRefused, "commit "+first[:12]+" is refused", "has no signature")

	_, err = s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	checkError(t, err, inventory.KindRefused, "no commit of "+c.bare+" is in use yet", "has no signature")

	if r := s.repository(); r.InUse != nil || r.Refused == nil || r.Refused.Hash != first {
		t.Errorf("%+v", r)
	}

	s.write(c.section("")...)
	_, err = s.ReloadConfig(s.ctx())
	s.must(err)
	s.sync(first)

	// A stop writes the rest of the audit trail.
	s.restart()

	refusals := 0

	s.must(s.readAudit(audit.Filter{Verb: "repository.use"}, func(e audit.Entry) error {
		if e.Who == repository.Principal && e.Targets[0] == first && e.Result == string(inventory.KindRefused) {
			refusals++
		}
		return nil
	}))

	if refusals == 0 {
		t.Error("the refusal is not in the audit trail")
	}
}

// TestRepositoryRestores: playbooks that are gone from this host come back from the mirror
// for the cleanup of a node, even when the repository is gone.
func TestRepositoryRestores(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	c, first := s.track()
	s.report("a")

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if j.Status != api.Complete || j.Commit != first {
		t.Fatalf("%+v", j)
	}

	c.put("files/new", "new\n")
	second := c.push("second", false)
	s.sync(second)

	s.must(os.RemoveAll(c.bare))
	s.must(os.RemoveAll(s.programs.Copies.Path(j.PlaybookDigest)))

	cleanup := s.runJob(api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{"a-1"}})
	if cleanup.Status != api.Complete || cleanup.Runs[0].PlaybookDigest != j.PlaybookDigest {
		t.Errorf("the cleanup: %+v", cleanup)
	}
}

// TestRepositorySubmodules: submodules are used when the settings ask for them, and the
// remedy says how.
func TestRepositorySubmodules(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	c := s.newClone()
	first := c.push("first", false)

	// A second repository, beside the first one.
	role := &clone{s: s, bare: filepath.Join(s.dir, "role.git"), dir: filepath.Join(s.dir, "role"), at: c.at}
	_, err := gogit.PlainInit(role.bare, true)
	s.must(err)
	role.repo, err = gogit.PlainInit(role.dir, false)
	s.must(err)
	role.put("tasks/main.yml", "[]\n")
	pinned := role.push("role", false)

	s.write(c.section("")...)
	s.up()
	t.Cleanup(s.down)
	s.sync(first)

	second := c.submodule("roles/shared", "../role.git", plumbing.NewHash(pinned))

	_, err = s.Client.SyncRepository(s.ctx())
	checkError(t, err, inventory.KindRefused, "commit "+second[:12]+" is refused", "roles/shared is a submodule",
		"set repository.submodules to true")

	s.write(c.section(", submodules: true")...)
	_, err = s.ReloadConfig(s.ctx())
	s.must(err)

	r := s.sync(second)

	content, err := os.ReadFile(
		filepath.Join(s.programs.Copies.Path(r.InUse.PlaybookDigest), "roles/shared/tasks/main.yml"),
	)
	if string(content) != "[]\n" || err != nil {
		t.Errorf("the submodule has %q, %v", content, err)
	}

	// Without them, the commit in use is not good any more.
	s.write(c.section("")...)
	_, err = s.ReloadConfig(s.ctx())
	checkError(t, err, inventory.KindRefused, "roles/shared is a submodule")
}

// submodule pushes a commit with a submodule.
func (c *clone) submodule(path, url string, hash plumbing.Hash) string {
	c.s.t.Helper()

	c.put(".gitmodules", "[submodule \"x\"]\n\tpath = "+path+"\n\turl = "+url+"\n")

	w, err := c.repo.Worktree()
	c.s.must(err)
	_, err = w.Add(".gitmodules")
	c.s.must(err)

	index, err := c.repo.Storer.Index()
	c.s.must(err)

	e := index.Add(path)
	e.Hash, e.Mode = hash, filemode.Submodule
	c.s.must(c.repo.Storer.SetIndex(index))

	c.at = c.at.Add(time.Second)
	author := &object.Signature{Name: "A. Uthor", Email: "a@example.com", When: c.at}
	commit, err := w.Commit("submodule", &gogit.CommitOptions{Author: author})
	c.s.must(err)
	c.send(commit)

	return commit.String()
}
