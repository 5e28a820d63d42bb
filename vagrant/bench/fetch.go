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
	"time"

	"github.com/contiv/cluster/configuration/repository/git"
)

// fetchedFiles is the number of files of the repository.
const fetchedFiles = 1000

// origin is a bare repository, with a clone that pushes to it.
type origin struct {
	dir, bare, clone string
	ca               string // file with the certificate of the server
	pushed           int
}

// git runs git in a folder.
func (o *origin) git(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{
		"-C", dir, "-c", "user.name=bench", "-c", "user.email=bench@example.com", "-c", "gc.auto=0",
		"-c", "maintenance.auto=false",
	}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_SSL_CAINFO="+o.ca)

	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}

	return nil
}

// newOrigin makes a repository of many roles.
func newOrigin(ctx context.Context, dir string) (*origin, error) {
	o := &origin{dir: dir, bare: filepath.Join(dir, "origin.git"), clone: filepath.Join(dir, "clone")}

	for i := range fetchedFiles {
		path := filepath.Join(o.clone, "roles", fmt.Sprintf("role%d", i/10), "tasks", fmt.Sprintf("part%d.yml", i%10))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}

		text := fmt.Sprintf("- name: task %d\n  ansible.builtin.command: echo %d\n", i, i)
		if err := os.WriteFile(path, []byte(strings.Repeat(text, 20)), 0o644); err != nil {
			return nil, err
		}
	}

	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main", o.clone},
		{"init", "--quiet", "--bare", "--initial-branch=main", o.bare},
	} {
		if err := o.git(ctx, dir, args...); err != nil {
			return nil, err
		}
	}

	return o, o.push(ctx)
}

// push changes one file, and pushes the commit.
func (o *origin) push(ctx context.Context) error {
	o.pushed++
	path := filepath.Join(o.clone, "roles", fmt.Sprintf("role%d", o.pushed%100), "tasks", "part0.yml")

	if err := os.WriteFile(path, []byte(fmt.Sprintf("- name: change %d\n", o.pushed)), 0o644); err != nil {
		return err
	}

	for _, args := range [][]string{
		{"add", "--all"}, {"commit", "--quiet", "--message", fmt.Sprintf("change %d", o.pushed)},
		{"push", "--quiet", o.bare, "main"},
	} {
		if err := o.git(ctx, o.clone, args...); err != nil {
			return err
		}
	}

	return nil
}

// serve serves the repository over https.
func (o *origin) serve() (*httptest.Server, error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}

	server := httptest.NewTLSServer(&cgi.Handler{
		Path: path, Args: []string{"http-backend"},
		Env: []string{"GIT_PROJECT_ROOT=" + o.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	})

	o.ca = filepath.Join(o.dir, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	return server, os.WriteFile(o.ca, block, 0o600)
}

// fetches measures the fetch of a repository in which one file has changed.
func fetches(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "fetch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	o, err := newOrigin(ctx, dir)
	if err != nil {
		return err
	}

	server, err := o.serve()
	if err != nil {
		return err
	}
	defer server.Close()

	if err := o.measure(ctx, b, "path", o.bare); err != nil {
		return err
	}

	return o.measure(ctx, b, "https", server.URL+"/origin.git")
}

func (o *origin) measure(ctx context.Context, b *bench, name, url string) error {
	m := &git.Mirror{
		Dir: filepath.Join(o.dir, "mirror-"+name), Options: git.Options{URL: url, Limits: git.DefaultLimits},
	}
	if strings.HasPrefix(url, "https") {
		m.Options.CAFile = o.ca
	}

	fetched := filepath.Join(o.dir, "fetched-"+name)
	if err := o.git(ctx, o.dir, "init", "--quiet", "--bare", fetched); err != nil {
		return err
	}

	// Without the first fetch, which brings everything.
	product := o.timed(func(ctx context.Context) error {
		_, err := m.Fetch(ctx)
		return err
	})
	baseline := o.timed(func(ctx context.Context) error {
		return o.git(ctx, fetched, "fetch", "--quiet", url, "+main:refs/heads/main")
	})

	for _, first := range []side{product, baseline} {
		if _, err := first(ctx); err != nil {
			return err
		}
	}

	return b.compare(ctx, comparison{
		name: fmt.Sprintf("fetch of %d files over %s, one changed", fetchedFiles, name),
		unit: "ms", against: "git fetch, whole process", rounds: 15, floor: atMost(1.5, 0, "<= 1.5 x"),
		product: product, baseline: baseline,
	})
}

// timed pushes a change, and measures a fetch.
func (o *origin) timed(run func(context.Context) error) side {
	return func(ctx context.Context) (float64, error) {
		if err := o.push(ctx); err != nil {
			return 0, err
		}

		begun := time.Now()
		err := run(ctx)

		return float64(time.Since(begun).Microseconds()) / 1000, err
	}
}
