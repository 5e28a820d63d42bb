// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/repository"
)

// filesOf returns the files that r names, by key.
func filesOf(r repository.Config) []namedFile {
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

	if r.OnMove != repository.OnMoveNotify {
		return invalid("repository.on_move", "%q is not %s", r.OnMove, repository.OnMoveNotify)
	}

	for _, f := range filesOf(r) {
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

	for _, f := range filesOf(c.Repository) {
		if f.path == "" {
			continue
		}

		if err := adapters.CheckOwned(f.path); err != nil {
			return inventory.Under(f.key, err)
		}
	}

	err := adapters.CheckRepository(ctx, c.Programs())
	if errors.Is(err, context.Canceled) {
		return err
	}

	return inventory.Under("repository", err)
}
