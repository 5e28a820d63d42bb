// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// Repository knows and fetches the git repository of playbooks.
type Repository interface {
	// Status does not block. It lists the nodes of the view.
	Status(v *state.View) repository.Status
	// Sync fetches now. The error is the reason why the newest commit is not in use. It
	// may take minutes, as Log and Diff.
	Sync(ctx context.Context, c access.Caller) error
	Log(ctx context.Context, v *state.View, limit int, all bool) (repository.Log, error)
	Diff(ctx context.Context, v *state.View, r repository.DiffRequest) (repository.Difference, error)
}

func (s *Server) repositoryRoutes() []rest.Route {
	return []rest.Route{
		show(s, s.getRepository, rest.Route{
			Path: api.PathRepository, Allow: access.Readers.Scoped(),
			Doc: &openapi.Doc{
				ID: "getRepository", Summary: "Show the git repository of playbooks",
				Text: "Returns the commit in use, the newest one, the last fetch, and which playbooks configured " +
					"each node. A token with a scope sees its own nodes.",
				Success: "The state of the repository.",
			},
		}),
		act(s, s.syncRepository, rest.Route{
			Path: api.PathSyncRepository, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "syncRepository", Summary: "Fetch the repository of playbooks now",
				Text: "Fetches the repository, as the manager does at each interval, and puts its newest commit " +
					"into use once it is checked. A commit that does not parse, or lacks a play for a group with " +
					"nodes, is refused, and the former one stays in use. No node is changed. The answer may take " +
					"as long as `repository.limits.time`.",
				Success: "The newest commit is in use.", Revision: true,
				Fails: openapi.Fails{409: "No repository is configured, or its newest commit was refused."},
			},
		}),
		show(s, s.getRepositoryLog, rest.Route{
			Path: api.PathRepositoryLog, Allow: access.Readers,
			Query: []openapi.Param{
				{
					Name: "limit", Type: openapi.Number, Min: 1, Max: 200, Default: "50", Example: "10",
					Help: "The maximum number of commits.",
				},
				{
					Name: "all", Type: openapi.Flag, Example: "true",
					Help: "List older commits as well, back to the first one.",
				},
			},
			Doc: &openapi.Doc{
				ID: "getRepositoryLog", Summary: "List commits of the repository of playbooks",
				Text: "Returns the fetched commits that no node carries yet, the newest first. Authors and " +
					"subjects are text of the repository.",
				Success: "The commits.",
			},
		}),
		show(s, s.getRepositoryDiff, rest.Route{
			Path: api.PathRepositoryDiff, Allow: access.Operators,
			Query: []openapi.Param{
				{
					Name: "node", Example: "host5-9c1e",
					Help: "Compare what configured this node, in place of `from`.",
				},
				{
					Name: "from", Example: "3f2a91c",
					Help: "The hash of a commit, or its first 7 digits or more. By default the commit in use.",
				},
				{
					Name: "to", Example: "8d04be7",
					Help: "The hash of a commit, or its first 7 digits or more. By default the newest commit; with " +
						"`node` the one in use.",
				},
			},
			Doc: &openapi.Doc{
				ID: "getRepositoryDiff", Summary: "Compare two sets of playbooks",
				Text: "Compares two commits, by default the one in use with the newest one, or the playbooks that " +
					"configured a node with the commit in use. The text of files is that of the repository, which " +
					"may contain secrets; a terminal must not get it as it is.",
				Success: "The files that differ.",
				Fails: openapi.Fails{
					409: "There is no repository, no commit in use, or no record of the playbooks of the node.",
				},
			},
		}),
	}
}

func (s *Server) getRepository(r *http.Request, v *state.Scoped) (api.Repository, int64, error) {
	return s.repository(v), 0, nil
}

func (s *Server) syncRepository(r *http.Request, c access.Caller, _ openapi.Empty) (api.Repository, error) {
	if err := s.Repository.Sync(r.Context(), c); err != nil {
		return api.Repository{}, err
	}
	return s.repository(s.view(r.Context())), nil
}

func (s *Server) getRepositoryLog(r *http.Request, v *state.Scoped) (api.RepositoryLog, int64, error) {
	q := rest.Query(r)
	log, err := s.Repository.Log(r.Context(), v.View, int(q.Number("limit")), q.Flag("all"))
	return logOf(s.Repository.Status(v.View), log), 0, err
}

func (s *Server) getRepositoryDiff(r *http.Request, v *state.Scoped) (api.RepositoryDiff, int64, error) {
	q := rest.Query(r)

	request := repository.DiffRequest{Node: q.Text("node"), From: q.Text("from"), To: q.Text("to")}
	if request.Node != "" && request.From != "" {
		return api.RepositoryDiff{}, 0,
			inventory.Errorf(inventory.KindInvalid, "node and from exclude each other").Do("give one of them")
	}

	d, err := s.Repository.Diff(r.Context(), v.View, request)
	if err != nil {
		return api.RepositoryDiff{}, 0, err
	}
	out := api.RepositoryDiff{
		From: sideOf(d.Old), To: sideOf(d.New), Files: make([]api.FileChange, len(d.Files)), More: d.More,
	}
	for i, f := range d.Files {
		out.Files[i] = api.FileChange{Path: f.Path, Change: f.Kind, Text: f.Text, Note: f.Note}
	}

	return out, 0, nil
}

func sideOf(s repository.Side) api.DiffSide {
	return api.DiffSide{Commit: s.Commit, PlaybookDigest: s.Digest}
}

func commitOf(c configuration.Commit) api.Commit { return api.Commit(c) }

// repository returns the state of the repository with the nodes of the view.
func (s *Server) repository(v *state.Scoped) api.Repository {
	status := s.Repository.Status(v.View)
	if status.Bad == nil {
		return repositoryOf(status)
	}

	// The reason may name nodes.
	bad := *status.Bad
	bad.Reason, bad.Remedy = v.Text(bad.Reason), v.Text(bad.Remedy)
	status.Bad = &bad

	return repositoryOf(status)
}

// repositoryOf returns the wire form of the state of the repository.
func repositoryOf(s repository.Status) api.Repository {
	out := api.Repository{
		URL: s.URL, Reference: s.Reference, Folder: s.Folder, OnMove: s.OnMove, Fetched: optionalTime(s.Fetched),
		NextFetch: optionalTime(s.Next), Nodes: make([]api.NodePlaybooks, len(s.Nodes)),
	}
	for i, n := range s.Nodes {
		out.Nodes[i] = api.NodePlaybooks{
			Name: n.Name, Group: n.Group, PlaybookDigest: n.Digest, Commit: n.Commit, Current: n.Current,
		}
	}

	if !s.Used {
		return api.Repository{Nodes: out.Nodes}
	}

	if s.Seen.Hash != "" {
		newest := commitOf(s.Seen)
		out.Newest = &newest
	}

	if s.Failure != nil {
		out.Error, out.Failing = s.Failure.Error(), optionalTime(s.Failing)
	}

	// A record about another repository says nothing about this one.
	if !s.Current {
		return out
	}

	out.Rewritten = s.Rewritten

	if s.InUse != nil {
		out.InUse = &api.CommitInUse{
			Commit: commitOf(s.InUse.Commit), PlaybookDigest: s.InUse.Digest, Since: s.InUse.Since,
		}
	}

	if bad := s.Bad; bad != nil {
		out.Refused = &api.RefusedCommit{
			Commit: commitOf(bad.Commit), Reason: bad.Reason, Remedy: bad.Remedy, At: bad.Time,
		}
	}

	return out
}

// logOf returns the wire form of a log, with the nodes that carry each commit.
func logOf(s repository.Status, log repository.Log) api.RepositoryLog {
	out := api.RepositoryLog{Commits: make([]api.LogCommit, len(log.Commits)), Since: log.Since, More: log.More}

	for i, c := range log.Commits {
		line := api.LogCommit{
			Commit: commitOf(c), InUse: s.Current && s.InUse != nil && s.InUse.Hash == c.Hash,
			Refused: s.Current && s.Bad != nil && s.Bad.Hash == c.Hash,
		}

		for _, n := range s.Nodes {
			if n.Commit == c.Hash && !slices.Contains(line.Nodes, n.Name) {
				line.Nodes = append(line.Nodes, n.Name)
			}
		}

		out.Commits[i] = line
	}

	return out
}
