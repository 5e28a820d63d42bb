// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Repository is the state of the git repository of playbooks. The texts of commits are
// untrusted.
type Repository struct {
	URL       string `json:"url"`                 // empty: the playbooks do not come from a repository
	Reference string `json:"reference,omitempty"` // the branch, the tag or the commit in use
	Folder    string `json:"folder,omitempty"`    // with the playbooks
	OnMove    string `json:"on_move,omitempty"`   // the effect of a new commit on nodes

	InUse *CommitInUse `json:"in_use,omitempty"` // absent: no commit was good so far
	// Newest is the commit that the reference had at the last fetch of this process.
	Newest *Commit `json:"newest,omitempty"`
	// Refused is the newest commit, if it was refused.
	Refused *RefusedCommit `json:"refused,omitempty"`
	// Rewritten is the former commit in use, if the one in use does not descend from it.
	Rewritten string `json:"rewritten,omitempty"`

	Fetched   *time.Time `json:"fetched,omitempty"`    // the last fetch that succeeded, since the start
	NextFetch *time.Time `json:"next_fetch,omitempty"` // about
	Error     string     `json:"error,omitempty"`      // why the last fetch failed
	Failing   *time.Time `json:"failing,omitempty"`    // since when fetches fail

	Nodes []NodePlaybooks `json:"nodes"`
}

// Commit is a commit of the repository.
type Commit struct {
	Hash    string    `json:"hash"`
	Author  string    `json:"author,omitempty"`
	Subject string    `json:"subject,omitempty"`
	Time    time.Time `json:"time"`
}

// CommitInUse is the commit that jobs pin now.
type CommitInUse struct {
	Commit

	PlaybookDigest string    `json:"playbook_digest"`
	Since          time.Time `json:"since"`
}

// RefusedCommit is a commit that did not come into use.
type RefusedCommit struct {
	Commit

	Reason string    `json:"reason"`
	Remedy string    `json:"remedy,omitempty"`
	At     time.Time `json:"at"`
}

// NodePlaybooks are the playbooks that configured a node for a group.
type NodePlaybooks struct {
	Name           string `json:"name"`
	Group          string `json:"group"`
	PlaybookDigest string `json:"playbook_digest"`
	Commit         string `json:"commit,omitempty"` // empty: they do not come from the repository
	Current        bool   `json:"current"`          // they are those of the commit in use
}

// RepositoryLog are commits of the repository, the newest first.
type RepositoryLog struct {
	Commits []LogCommit `json:"commits"`
	// Since are the commits that nodes carry, at which the list ends. Empty: it goes back
	// to the first commit.
	Since []string `json:"since,omitempty"`
	More  bool     `json:"more,omitempty"` // older commits were left out
}

// LogCommit is a commit of the log.
type LogCommit struct {
	Commit

	InUse   bool     `json:"in_use,omitempty"`
	Refused bool     `json:"refused,omitempty"`
	Nodes   []string `json:"nodes,omitempty"` // that carry it
}

// RepositoryDiff is the difference between two sets of playbooks.
type RepositoryDiff struct {
	From DiffSide `json:"from"`
	To   DiffSide `json:"to"`

	Files []FileChange `json:"files"`
	More  bool         `json:"more,omitempty"` // files or texts were left out
}

// DiffSide is one side of a difference.
type DiffSide struct {
	Commit         string `json:"commit,omitempty"`
	PlaybookDigest string `json:"playbook_digest,omitempty"`
}

// FileChange is the difference of one file. All its texts are untrusted.
type FileChange struct {
	Path   string `json:"path"`
	Change string `json:"change"`         // added, removed or changed
	Text   string `json:"text,omitempty"` // unified
	Note   string `json:"note,omitempty"` // why there is no text
}

// RepositoryDiffQuery selects two commits. An empty From is the commit in use, or
// that of the node; an empty To is the newest commit, or for a node the one in use.
type RepositoryDiffQuery struct{ Node, From, To string }

// RepositoryLogQuery selects commits. A zero Limit is 50.
type RepositoryLogQuery struct {
	Limit int
	All   bool // from the first commit on
}
