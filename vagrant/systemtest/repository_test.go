// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// servedRepo is the bare repository on host1.
const servedRepo = "/srv/playbooks.git"

// playbookRepo is a clone on this machine, with a bare repository that is copied to host1.
type playbookRepo struct {
	w           *world
	clone, bare string
}

func (w *world) newRepo() *playbookRepo {
	w.t.Helper()

	dir := w.t.TempDir()
	r := &playbookRepo{w: w, clone: filepath.Join(dir, "clone"), bare: filepath.Join(dir, "bare.git")}

	errtest.None(w.t, os.CopyFS(r.clone, os.DirFS("testdata/playbooks")))

	r.git("init", "--quiet", "--initial-branch=main")
	r.git("init", "--quiet", "--bare", "--initial-branch=main", r.bare)

	return r
}

// git runs git in the clone, and returns its output.
func (r *playbookRepo) git(args ...string) string {
	r.w.t.Helper()

	cmd := exec.CommandContext(r.w.t.Context(), "git", append([]string{
		"-C", r.clone, "-c", "user.name=A. Uthor", "-c", "user.email=a@example.com",
	}, args...)...)

	out, err := cmd.CombinedOutput()
	if err != nil {
		r.w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *playbookRepo) write(name, content string) {
	r.w.t.Helper()

	path := filepath.Join(r.clone, name)

	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}

	errtest.None(r.w.t, err)
}

// push commits everything, and puts the repository on host1.
func (r *playbookRepo) push(message string, amend ...string) string {
	r.w.t.Helper()

	r.git("add", "--all")
	r.git(append([]string{"commit", "--quiet", "--allow-empty", "--message", message}, amend...)...)
	r.git("push", "--quiet", "--force", r.bare, "main")
	r.serve()

	return r.git("rev-parse", "HEAD")
}

func (r *playbookRepo) serve() {
	r.w.t.Helper()
	r.w.sh("host1", "rm -rf "+servedRepo)
	r.w.labDo("cp", r.bare, "host1:"+servedRepo)
}

func (w *world) repository() api.Repository {
	w.t.Helper()
	return decode[api.Repository](w, w.ctl("repo", "status", "-o", "json"))
}

// sync fetches, and expects the commit in use.
func (w *world) sync(commit string) api.Repository {
	w.t.Helper()

	r := decode[api.Repository](w, w.ctl("repo", "sync", "-o", "json"))
	if r.InUse == nil || r.InUse.Hash != commit {
		w.t.Fatalf("%+v is in use, want %s", r.InUse, commit)
	}
	return r
}

// TestRepository: nodes are configured by a commit with the roles and collections that
// it brings; a bad commit, a force-push, a deleted branch and kill -9 change nothing that
// they should not.
func TestRepository(t *testing.T) {
	w := newWorld(t, setup{hosts: 3, config: "repository: {url: " + servedRepo + ", branch: main, interval: 10s}\n"})

	// Without a commit, no job is accepted.
	w.awaitState(inventory.Discovered, "host2", "host3")
	w.wantRefused(5, []string{"no commit of " + servedRepo, "is not a git repository"},
		"nodes", "commission", w.name("host2"), "-g", master)

	repo := w.newRepo()
	repo.write(
		"roles/own/tasks/main.yml",
		"- ansible.builtin.copy: {dest: /etc/own-role, content: \"role\\n\", mode: \"0644\"}\n",
	)
	repo.write("collections/ansible_collections/site/own/roles/stamp/tasks/main.yml",
		"- ansible.builtin.copy: {dest: /etc/own-collection, content: \"collection\\n\", mode: \"0644\"}\n")

	own := readSite(t) + `
- name: Roles and collections of the repository
  hosts: service-master:service-worker:&job_targets
  gather_facts: false
  roles:
    - role: own
    - role: site.own.stamp
`
	repo.write("site.yml", own)
	first := repo.push("first")
	w.sync(first)

	j := w.commission(master, "host2")
	if j.Commit != first {
		t.Errorf("the job has the commit %q, want %s", j.Commit, first)
	}

	w.sh("host2", "grep -q role /etc/own-role && grep -q collection /etc/own-collection")

	// The leader finds a new commit by itself. It concerns the node that an older one configured.
	repo.write("files/motd", "hello\n")
	second := repo.push("second")
	await(t, time.Minute, "the second commit is in use", func() (bool, string) {
		r := w.repository()
		return r.InUse.Hash == second, fmt.Sprintf("%+v", r)
	})

	w.commission(worker, "host3")

	for _, n := range w.repository().Nodes {
		if isNew := n.Name == w.name("host3"); n.Current != isNew || (n.Commit == second) != isNew {
			t.Errorf("%+v", n)
		}
	}

	diff := w.ctl("repo", "diff", "--node", w.name("host2")).stdout
	if !strings.Contains(diff, "added: files/motd") || !strings.Contains(diff, "+hello") {
		t.Errorf("the difference is\n%s", diff)
	}
}

// readSite returns the site.yml of the test playbooks.
func readSite(t *testing.T) string {
	t.Helper()
	site, err := os.ReadFile("testdata/playbooks/site.yml")
	errtest.None(t, err)
	return string(site)
}
