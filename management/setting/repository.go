// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Repository selects a git repository with the playbooks, in place of a folder. Its
// adapter checks URL, Branch, Tag, Commit and Folder.
type Repository struct {
	URL    string `yaml:"url"` // empty: none
	Branch string `yaml:"branch"`
	Tag    string `yaml:"tag"`
	Commit string `yaml:"commit"`
	Folder string `yaml:"folder"` // relative, with site.yml

	KeyFile        string   `yaml:"key_file"`
	KnownHostsFile string   `yaml:"known_hosts_file"`
	CredentialFile string   `yaml:"credential_file"`
	CAFile         string   `yaml:"ca_file"`
	SignedBy       []string `yaml:"signed_by"` // files of public keys

	Submodules         bool   `yaml:"submodules"`
	RequirementsMirror string `yaml:"requirements_mirror"` // a folder or an https URL; empty: none

	Interval Duration         `yaml:"interval"`
	OnMove   string           `yaml:"on_move"`
	Limits   RepositoryLimits `yaml:"limits"`
}

// RepositoryLimits bound a fetch.
type RepositoryLimits struct {
	Fetch int64    `yaml:"fetch"` // bytes on the wire
	Size  int64    `yaml:"size"`  // bytes of the files of one commit
	Files int      `yaml:"files"` // of one commit
	Time  Duration `yaml:"time"`
}

// OnMoveNotify is the value of Repository.OnMove with which a new commit marks nodes as
// outdated, and changes none.
const OnMoveNotify = "notify"

func defaultRepository() Repository {
	return Repository{
		SignedBy: []string{}, Interval: Duration(5 * time.Minute), OnMove: OnMoveNotify,
		Limits: RepositoryLimits{
			Fetch: 256 << 20, Size: 64 << 20, Files: 10_000, Time: Duration(5 * time.Minute),
		},
	}
}

// Used reports whether a repository is configured.
func (r Repository) Used() bool { return r.URL != "" }

// files returns the files that r names, by key.
func (r Repository) files() []namedFile {
	files := []namedFile{
		{"repository.key_file", r.KeyFile}, {"repository.known_hosts_file", r.KnownHostsFile},
		{"repository.credential_file", r.CredentialFile}, {"repository.ca_file", r.CAFile},
	}
	for _, path := range r.SignedBy {
		files = append(files, namedFile{"repository.signed_by", path})
	}

	return files
}

type namedFile struct{ key, path string }

func (c *Config) checkRepository() error {
	r := c.Repository

	if r.OnMove != OnMoveNotify {
		return invalid("repository.on_move", "%q is not %s", r.OnMove, OnMoveNotify)
	}

	for _, f := range r.files() {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return invalid(f.key, "%q is not an absolute path", f.path)
		}
	}

	if !r.Used() {
		for _, f := range []namedFile{
			{"branch", r.Branch}, {"tag", r.Tag}, {"commit", r.Commit}, {"folder", r.Folder},
		} {
			if f.path != "" {
				return invalid("repository.url", "it is empty, and repository.%s is set; write the URL", f.key)
			}
		}

		return nil
	}

	if c.Playbooks != "" {
		return invalid("playbooks", "the playbooks come from repository.url").
			Do("remove one of the two keys from the file, or what was set at run time").
			With(inventory.UnsetSetting("playbooks"))
	}

	named := 0
	for _, name := range []string{r.Branch, r.Tag, r.Commit} {
		if name != "" {
			named++
		}
	}

	if named > 1 {
		return invalid("repository", "branch, tag and commit exclude each other; keep one of them")
	}

	return nil
}

// repositoryProblem refuses a repository that cannot be used, unless it is the one of
// old. It may fetch it.
func (c *Config) repositoryProblem(ctx context.Context, old Config, adapters Adapters) error {
	was := old.Repository
	was.Interval, was.OnMove = c.Repository.Interval, c.Repository.OnMove

	if !c.Repository.Used() || reflect.DeepEqual(c.Repository, was) {
		return nil
	}

	for _, f := range c.Repository.files() {
		if f.path == "" {
			continue
		}

		if err := adapters.CheckOwned(f.path); err != nil {
			return inventory.Under(f.key, err)
		}
	}

	err := adapters.CheckRepository(ctx, *c)
	if errors.Is(err, context.Canceled) {
		return err
	}

	return inventory.Under("repository", err)
}
