// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/state"
)

// The commits of the fake repository.
const (
	commitOne = "1111111111111111111111111111111111111111"
	commitTwo = "2222222222222222222222222222222222222222"
)

// fakeRepository has two commits; the newer one is refused.
type fakeRepository struct{}

func commit(hash string) configuration.Commit {
	return configuration.Commit{Hash: hash, Author: "A", Subject: "s", Time: time.Unix(1_700_000_000, 0).UTC()}
}

func (fakeRepository) Status(v *state.View) repository.Status {
	use := repository.Use{Commit: commit(commitOne), Digest: strings.Repeat("ab", 32), Since: time.Unix(1, 0).UTC()}
	s := repository.Status{
		Settings: repository.Settings{Used: true, URL: "https://git.example.com/p", Reference: "branch main"},
		Record: repository.Record{InUse: &use, Rewritten: commitTwo, Bad: &repository.Refusal{
			Commit: commit(commitTwo), Reason: "no play is for node-0", Remedy: "add one", Time: time.Unix(2, 0).UTC(),
		}},
		Current: true, Seen: commit(commitTwo), Fetched: time.Unix(3, 0), Failure: errors.New("no route"),
		Failing: time.Unix(4, 0),
	}

	for _, n := range v.Nodes() {
		s.Nodes = append(s.Nodes, repository.NodeUse{
			Name: n.Name, Group: "service-master", Digest: use.Digest, Commit: commitOne, Current: true,
		})
	}

	return s
}

func (fakeRepository) Sync(context.Context, access.Caller) error { return nil }

func (fakeRepository) Log(_ context.Context, _ *state.View, limit int, all bool) (repository.Log, error) {
	log := repository.Log{Commits: []configuration.Commit{commit(commitTwo), commit(commitOne)}[:min(limit, 2)]}
	log.More = !all
	return log, nil
}

func (fakeRepository) Diff(
	_ context.Context, _ *state.View, r repository.DiffRequest,
) (repository.Difference, error) {
	if r.From == "bad" {
		return repository.Difference{}, inventory.Errorf(inventory.KindInvalid, "no hash").Do("give one")
	}

	return repository.Difference{
		Old: repository.Side{Commit: r.From}, New: repository.Side{Commit: r.To, Digest: r.Node},
		Files: []configuration.FileChange{{Path: "site.yml", Kind: configuration.FileChanged, Text: "+x\n"}},
	}, nil
}

// repositoryMethods uses every method of the client for the repository.
func repositoryMethods(t *testing.T, c *client.Client) {
	t.Helper()

	ctx := testCtx(t)

	r := must[api.Repository](t)(c.Repository(ctx))
	if r.URL == "" || r.InUse.Hash != commitOne || r.Refused.Hash != commitTwo || r.Newest.Hash != commitTwo ||
		r.Rewritten != commitTwo || r.Error != "no route" || r.Fetched == nil {
		t.Errorf("got %+v", r)
	}

	if again := must[api.Repository](t)(c.SyncRepository(ctx)); again.InUse.Hash != commitOne {
		t.Errorf("got %+v", again)
	}

	log := must[api.RepositoryLog](t)(c.RepositoryLog(ctx, api.RepositoryLogQuery{Limit: 2, All: true}))
	if len(log.Commits) != 2 || log.More || !log.Commits[0].Refused || !log.Commits[1].InUse {
		t.Errorf("got %+v", log)
	}

	d := must[api.RepositoryDiff](t)(c.RepositoryDiff(ctx, api.RepositoryDiffQuery{From: commitOne, To: commitTwo}))
	if d.From.Commit != commitOne || d.To.Commit != commitTwo || d.Files[0].Text != "+x\n" {
		t.Errorf("got %+v", d)
	}
}

func TestRepository(t *testing.T) {
	t.Parallel()
	s := serve(t)

	for _, path := range []string{
		"/log?limit=0", "/log?limit=201", "/log?limit=x", "/log?all=x", "/log?from=x", "/diff?from=bad",
		"/diff?node=a&from=b", "/diff?to=a&to=b",
	} {
		if code, body := s.request(t, http.MethodGet, api.PathRepository+path, ""); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// TestScopedRepository: a caller with a scope sees the commits of its own nodes, and no
// name of another one.
func TestScopedRepository(t *testing.T) {
	t.Parallel()

	s, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})

	w := send(http.MethodGet, api.PathRepository, "")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), inside) {
		t.Errorf("%d %s", w.Code, w.Body)
	}

	for _, n := range s.manager.View().Nodes() {
		if n.Group != inventory.GroupWorker && strings.Contains(w.Body.String(), n.Name) {
			t.Errorf("it names %s: %s", n.Name, w.Body)
		}
	}

	for _, path := range []string{"/log", "/diff"} {
		if w := send(http.MethodGet, api.PathRepository+path, ""); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}

	if w := send(http.MethodPost, api.PathSyncRepository, ""); w.Code != http.StatusForbidden {
		t.Errorf("sync: %d %s", w.Code, w.Body)
	}
}
