// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/contiv/cluster/configuration/repository/git"
)

// origin is a bare repository, with a clone that pushes to it.
type origin struct {
	dir, bare, clone string
	ca               string // file with the certificate of the server
	files, pushed    int
}

// git runs git in a folder.
func (o *origin) git(ctx context.Context, dir string, args ...string) {
	cmd := exec.CommandContext(ctx, "git", append([]string{
		"-C", dir, "-c", "user.name=bench", "-c", "user.email=bench@example.com", "-c", "gc.auto=0",
		"-c", "maintenance.auto=false",
	}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_SSL_CAINFO="+o.ca)

	if out, err := cmd.CombinedOutput(); err != nil {
		fail("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
}

// newOrigin makes a repository of many roles.
func newOrigin(ctx context.Context, dir string, files int) *origin {
	o := &origin{dir: dir, files: files, bare: filepath.Join(dir, "origin.git"), clone: filepath.Join(dir, "clone")}

	for i := range files {
		path := filepath.Join(o.clone, "roles", fmt.Sprintf("role%d", i/10), "tasks", fmt.Sprintf("part%d.yml", i%10))
		check(os.MkdirAll(filepath.Dir(path), 0o755))
		text := fmt.Sprintf("- name: task %d\n  ansible.builtin.command: echo %d\n", i, i)
		check(os.WriteFile(path, []byte(strings.Repeat(text, 20)), 0o644))
	}

	o.git(ctx, dir, "init", "--quiet", "--initial-branch=main", o.clone)
	o.git(ctx, dir, "init", "--quiet", "--bare", "--initial-branch=main", o.bare)
	o.push(ctx)

	return o
}

// push changes one file, and pushes the commit.
func (o *origin) push(ctx context.Context) {
	o.pushed++
	path := filepath.Join(o.clone, "roles", fmt.Sprintf("role%d", o.pushed%(o.files/10)), "tasks", "part0.yml")
	check(os.WriteFile(path, fmt.Appendf(nil, "- name: change %d\n", o.pushed), 0o644))

	o.git(ctx, o.clone, "add", "--all")
	o.git(ctx, o.clone, "commit", "--quiet", "--message", fmt.Sprintf("change %d", o.pushed))
	o.git(ctx, o.clone, "push", "--quiet", o.bare, "main")
}

// serve serves the repository over https.
func (o *origin) serve() *httptest.Server {
	server := httptest.NewTLSServer(&cgi.Handler{
		Path: must(exec.LookPath("git")), Args: []string{"http-backend"},
		Env: []string{"GIT_PROJECT_ROOT=" + o.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	})

	o.ca = filepath.Join(o.dir, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	check(os.WriteFile(o.ca, block, 0o600))

	return server
}

// fetches measures the fetch of a repository in which one file has changed.
func fetches(ctx context.Context, b *bench) []row {
	o := newOrigin(ctx, must(os.MkdirTemp(b.dir, "fetch")), b.files)
	server := o.serve()

	b.cleanup(server.Close)
	return []row{o.row(ctx, "path", o.bare, ""), o.row(ctx, "https", server.URL+"/origin.git", o.ca)}
}

func (o *origin) row(ctx context.Context, name, url, ca string) row {
	m := &git.Mirror{
		Dir:     filepath.Join(o.dir, "mirror-"+name),
		Options: git.Options{URL: url, CAFile: ca, Limits: git.DefaultLimits},
	}

	fetched := filepath.Join(o.dir, "fetched-"+name)
	o.git(ctx, o.dir, "init", "--quiet", "--bare", fetched)

	// changed pushes a change, and measures a fetch.
	changed := func(fetch func()) side {
		return func() float64 { o.push(ctx); return 1000 * timed(fetch) }
	}
	r := row{
		Name: fmt.Sprintf("fetch of %d files over %s, one changed", o.files, name),
		Unit: "ms", Against: "git fetch, whole process", Rounds: 15, floor: atMost(1.5, 0, "<= 1.5 x"),
		product:  changed(func() { _ = must(m.Fetch(ctx)) }),
		baseline: changed(func() { o.git(ctx, fetched, "fetch", "--quiet", url, "+main:refs/heads/main") }),
	}

	// The first fetch, which brings everything, is not measured.
	r.product()
	r.baseline()

	return r
}
