// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/state"
)

// Status is the state of the repository.
type Status struct {
	Settings
	Record

	Current bool // the record is about the configured repository
	Seen    configuration.Commit
	Fetched time.Time // zero: not since the start
	Next    time.Time
	Failure error // of the last attempt, unless it is the refusal of a commit
	Failing time.Time
	Nodes   []NodeUse
}

// NodeUse are the playbooks that configured a node.
type NodeUse struct {
	Name    string
	Group   string
	Digest  string
	Commit  string // empty: they do not come from a commit on record
	Current bool   // they are those in use
}

// Status returns the state, with the nodes of the view. It does not block.
func (k *Keeper) Status(v *state.View) Status {
	settings := k.Settings()

	k.mu.Lock()
	s := Status{
		Settings: settings, Record: k.record.clone(), Seen: k.seen, Fetched: k.fetched, Next: k.next,
		Failure: k.failure, Failing: k.failing,
	}
	k.mu.Unlock()

	s.Current = settings.Used && s.Source() == settings.Source
	s.Nodes = s.nodes(v)

	return s
}

// Source returns the source that the record is about.
func (s Status) Source() string { return s.Record.Source }

// newest returns the newest commit of the repository that is known, or "". After a start,
// and on an instance that does not lead, it is on record only.
func (s Status) newest() string {
	switch {
	case s.Seen.Hash != "":
		return s.Seen.Hash
	case !s.Current:
		return ""
	case s.Bad != nil:
		return s.Bad.Hash
	case s.InUse != nil:
		return s.InUse.Hash
	}

	return ""
}

// nodes lists the playbooks of each node, by group.
func (s Status) nodes(v *state.View) []NodeUse {
	uses := []NodeUse{}

	for _, n := range v.Nodes() {
		for _, group := range n.Carries() {
			digest := n.Playbooks[group]
			if digest == "" {
				continue
			}
			use := NodeUse{Name: n.Name, Group: group, Digest: digest}
			if at, ok := s.ByDigest(digest); ok {
				use.Commit = at.Hash
			}
			use.Current = s.Current && s.InUse != nil && s.InUse.Digest == digest
			uses = append(uses, use)
		}
	}

	return uses
}

// MaxLog bounds the commits of a log.
const MaxLog = 200

// Log are commits, the newest first.
type Log struct {
	Commits []configuration.Commit
	More    bool
	// Since are the commits that nodes carry and that the log ends at; empty: the log
	// goes back to the first commit.
	Since []string
}

// Log returns the commits between those that nodes carry and the newest one, at most
// limit. With all it begins at the first commit of the repository. Without a repository it
// is empty.
func (k *Keeper) Log(ctx context.Context, v *state.View, limit int, all bool) (Log, error) {
	s := k.Status(v)
	if !s.Used {
		return Log{}, nil
	}
	to := s.newest()

	var out Log

	for _, use := range s.Nodes {
		if use.Commit != "" && !all && !slices.Contains(out.Since, use.Commit) {
			out.Since = append(out.Since, use.Commit)
		}
	}

	var err error
	if to != "" {
		out.Commits, out.More, err = k.History().Log(ctx, to, out.Since, limit)
	}

	return out, err
}

// Side is one of two sets of playbooks to compare.
type Side struct {
	Commit string // empty: they come from elsewhere
	Digest string // empty: they are not kept
}

// Difference is the difference between two sets of playbooks.
type Difference struct {
	Old, New Side
	Files    []configuration.FileChange
	More     bool // files or texts were left out
}

// DiffRequest names the sides of a difference: commits, by their hashes or beginnings of
// them, or the playbooks of a node. An empty From is the commit in use, an empty To the
// newest one.
type DiffRequest struct {
	Node     string // in place of From
	From, To string
}

// Diff compares two sets of playbooks.
func (k *Keeper) Diff(ctx context.Context, v *state.View, r DiffRequest) (Difference, error) {
	s := k.Status(v)

	old, err := k.oldSide(ctx, v, s, r)
	if err != nil {
		return Difference{}, err
	}

	to := r.To

	switch {
	case to != "":
	case !s.Used:
		return Difference{}, errUnused()
	case r.Node != "" && s.InUse != nil && s.Current:
		to = s.InUse.Hash
	default:
		to = s.newest()
	}

	if to == "" {
		return Difference{}, k.noCommit(s.Record, s.Settings)
	}

	changed, err := k.side(ctx, s, to)
	if err != nil {
		return Difference{}, err
	}
	return k.Source.Diff(ctx, old, changed)
}

func (k *Keeper) oldSide(ctx context.Context, v *state.View, s Status, r DiffRequest) (Side, error) {
	if r.Node == "" {
		from := r.From

		if from == "" {
			if !s.Used {
				return Side{}, errUnused()
			}

			if s.InUse == nil || !s.Current {
				return Side{}, k.noCommit(s.Record, s.Settings)
			}

			from = s.InUse.Hash
		}

		return k.side(ctx, s, from)
	}

	n, err := v.Node(r.Node)
	if err != nil {
		return Side{}, err
	}

	for _, group := range slices.Backward(n.Carries()) {
		if digest := n.Playbooks[group]; digest != "" {
			use, _ := s.ByDigest(digest)
			return Side{Commit: use.Hash, Digest: digest}, nil
		}
	}

	return Side{}, inventory.Errorf(inventory.KindRefused, "no playbooks are on record that configured %s", r.Node).
		Do("give two commits in place of the node").About(r.Node)
}

// minHash is the length of the shortest abbreviation of a commit.
const minHash = 7

// side finds a commit by its hash or the beginning of it.
func (k *Keeper) side(ctx context.Context, s Status, ref string) (Side, error) {
	if !isHash(ref) {
		return Side{}, inventory.Errorf(inventory.KindInvalid, "%q is not the hash of a commit",
			inventory.Shorten(ref, 60)).Do("give at least %d digits of a hash of the log", minHash).
			With(inventory.LogRepository())
	}

	if use, ok := s.find(func(u Use) bool { return strings.HasPrefix(u.Hash, ref) }); ok {
		return Side{Commit: use.Hash, Digest: use.Digest}, nil
	}

	c, ok, err := k.History().Lookup(ctx, ref)
	if err != nil {
		return Side{}, err
	}

	if !ok {
		return Side{}, inventory.Errorf(inventory.KindNotFound, "there is no one commit %s among those fetched", ref).
			Do("see the log of the repository").With(inventory.LogRepository())
	}

	return Side{Commit: c.Hash}, nil
}

func isHash(text string) bool {
	return len(text) >= minHash && len(text) <= 40 && strings.Trim(text, "0123456789abcdef") == ""
}
