// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/contiv/cluster/inventory"
)

// The bounds of submodules.
const (
	maxModules     = 50       // of one commit, in all levels
	maxModuleDepth = 5        // levels of submodules in submodules
	maxModulesFile = 64 << 10 // bytes of .gitmodules
)

const modulesFile = ".gitmodules"

// modules are the submodules of trees. Their commits are in the mirror of the repository. A
// submodule is fetched when the tree is read, if its commit is missing.
type modules struct {
	m      *Mirror
	store  *mirrored
	signed bool
	left   int64 // bytes that may be fetched
	count  int   // of the submodules of one tree
}

// level is a commit with submodules: that of the repository, or of a submodule.
type level struct {
	url   string
	root  plumbing.Hash // its whole tree, not the configured folder
	at    string        // the path of the folder or the submodule within root's tree; "": it is root
	under string        // the path in the playbooks of what is at
	depth int
}

// within returns the path in the tree of root of an entry of the playbooks.
func (l level) within(full string) string {
	// The root of the playbooks is no part of a path in them.
	rest := full
	if l.under != "." {
		rest = strings.TrimPrefix(strings.TrimPrefix(full, l.under), "/")
	}
	return path.Join(l.at, rest)
}

// open returns the commit of a submodule, which it fetches if that is necessary.
func (s *modules) open(ctx context.Context, l level, full string, want plumbing.Hash) (level, *object.Commit, error) {
	if s.count++; s.count > maxModules || l.depth >= maxModuleDepth {
		return level{}, nil, refusef("%s is one submodule too many: %d in %d levels are allowed", full, maxModules,
			maxModuleDepth)
	}

	// Before anything is fetched: the commit is not trusted.
	address, err := s.locate(l, full)
	if err != nil {
		return level{}, nil, err
	}

	if !s.store.has(want) {
		if err := s.fetch(ctx, address, want); err != nil {
			return level{}, nil, inventory.Under("the submodule "+full, err)
		}
	}

	c, err := object.GetCommit(s.store, want)

	switch {
	case errors.Is(err, plumbing.ErrObjectNotFound):
		return level{}, nil, refusef("the submodule %s is at %s, which is no commit", full, short(want))
	case err != nil:
		return level{}, nil, damaged(err)
	}

	if s.signed {
		if err := s.m.verify(c); err != nil {
			return level{}, nil, inventory.Under("the submodule "+full, err)
		}
	}

	return level{url: address, root: c.TreeHash, under: full, depth: l.depth + 1}, c, nil
}

// fetch fetches the commit of a submodule. A repository that does not have it makes the
// commit bad that names it.
func (s *modules) fetch(ctx context.Context, address string, want plumbing.Hash) error {
	ctx, cancel := context.WithTimeout(ctx, s.m.Options.Limits.Time)
	defer cancel()

	// Everything but the place is as the settings have it for the repository.
	nested := *s.m
	sum := sha256.Sum256([]byte(address))
	nested.newest = plumbing.ReferenceName("refs/clusterm/" + hex.EncodeToString(sum[:8]))
	nested.Options.URL, nested.Options.Commit = address, want.String()
	nested.Options.Branch, nested.Options.Tag, nested.Options.Folder = "", "", ""
	nested.Options.Limits.Fetch = s.left

	b := newBudget(s.left)
	_, err := nested.fetchWithin(ctx, s.store, b)
	s.left -= b.used()

	return err
}

// locate returns the URL of the submodule at a path of the playbooks.
func (s *modules) locate(l level, full string) (string, error) {
	at := l.within(full)

	named, err := s.named(l, at)
	if err != nil {
		return "", err
	}

	for _, module := range named {
		if module.Path != at {
			continue
		}

		address, err := resolve(l.url, module.URL)
		if err != nil {
			return "", refusef("the submodule %s: %w", full, err)
		}
		return address, nil
	}

	return "", refusef("%s is a submodule without a URL in %s", full, modulesFile)
}

// named returns the submodules that the file .gitmodules names.
func (s *modules) named(l level, at string) (map[string]*config.Submodule, error) {
	root, err := object.GetTree(s.store, l.root)
	if err != nil {
		return nil, damaged(err)
	}
	e, err := root.FindEntry(modulesFile)
	if err != nil || !e.Mode.IsFile() {
		return nil, refusef("%s is a submodule, and there is no file %s", at, modulesFile)
	}
	blob, err := object.GetBlob(s.store, e.Hash)
	if err != nil {
		return nil, damaged(err)
	}
	if blob.Size > maxModulesFile {
		return nil, refusef("%s is larger than %d bytes", modulesFile, maxModulesFile)
	}

	content, err := readBlob(blob)
	if err != nil {
		return nil, err
	}

	parsed := config.NewModules()
	if err := parsed.Unmarshal(content); err != nil {
		return nil, refusef("%s does not parse: %s", modulesFile, plain(err.Error(), 200))
	}
	return parsed.Submodules, nil
}

// resolve returns the URL of a submodule of the repository at base. The commit is not
// trusted to choose a server, so it must be that of the repository: for a path, a
// repository in the same folder, or below it.
func resolve(base, text string) (string, error) {
	if strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") {
		text = join(base, text)
	}

	e, err := parseURL(text)
	if err != nil {
		return "", errors.New("its URL " + quoted(text) + " is not one of a repository")
	}

	own, err := parseURL(base)
	if err != nil {
		return "", err
	}
	same := e.Protocol == own.Protocol && e.User == own.User && e.Host == own.Host && e.Port == own.Port
	if e.Protocol == viaPath {
		same = same && strings.HasPrefix(e.Path, path.Dir(own.Path)+"/")
	}
	if !same {
		return "", errors.New("its URL " + quoted(text) + " is not on the server of the repository; move it there")
	}

	return text, nil
}

func quoted(text string) string { return "\"" + plain(text, 200) + "\"" }

// serverPart matches what precedes the path of a URL.
var serverPart = regexp.MustCompile(`^([A-Za-z]+://[^/]+|[^/:]+:)?`)

// join resolves a relative URL as git does: the base is a folder.
func join(base, relative string) string {
	server := serverPart.FindString(base)
	return server + path.Join(base[len(server):], relative)
}
