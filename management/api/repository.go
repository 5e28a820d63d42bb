// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Repository is the state of the git repository of playbooks.
//
// The texts of commits are untrusted.
type Repository struct {
	// The URL, which never contains credentials. Empty: the playbooks come from a folder, or from clusterm.
	URL       string `json:"url"`
	Reference string `json:"reference,omitempty"` // what is used: a branch, a tag or a commit
	Folder    string `json:"folder,omitempty"`    // the folder in the repository with the playbooks
	// What a new commit does to nodes. `notify`: nodes with other playbooks become outdated.
	OnMove string `json:"on_move,omitempty"`

	InUse *CommitInUse `json:"in_use,omitempty"` // the commit in use; absent: no commit was good so far
	// The commit that the reference had at the last fetch of this process.
	Newest *Commit `json:"newest,omitempty"`
	// The newest commit, if it was refused.
	Refused *RefusedCommit `json:"refused,omitempty"`
	// The former commit in use, if the one in use does not descend from it: the history was replaced.
	Rewritten string `json:"rewritten,omitempty"`

	// When a fetch last succeeded, since the start of the manager.
	Fetched   *time.Time `json:"fetched,omitempty"`
	NextFetch *time.Time `json:"next_fetch,omitempty"` // about when it is fetched next
	Error     string     `json:"error,omitempty"`      // why the last fetch failed
	Failing   *time.Time `json:"failing,omitempty"`    // since when fetches fail

	Nodes []NodePlaybooks `json:"nodes"` // the playbooks that configured each node, by group
}

// Commit is a commit. Its texts are those of the repository, without control characters.
type Commit struct {
	Hash    string    `json:"hash"`              // its hash
	Author  string    `json:"author,omitempty"`  // its author
	Subject string    `json:"subject,omitempty"` // the first line of its message, shortened
	Time    time.Time `json:"time"`              // when it was committed
}

// CommitInUse is the commit that new jobs pin.
type CommitInUse struct {
	Commit

	PlaybookDigest string    `json:"playbook_digest"` // the digest of its playbooks
	Since          time.Time `json:"since"`           // when it came into use
}

// RefusedCommit is a commit that did not come into use.
type RefusedCommit struct {
	Commit

	Reason string    `json:"reason"`           // why it was refused
	Remedy string    `json:"remedy,omitempty"` // what to do
	At     time.Time `json:"at"`               // when it was refused
}

// NodePlaybooks are the playbooks that configured a node for a group.
type NodePlaybooks struct {
	Name           string `json:"name"`            // the name of the node
	Group          string `json:"group"`           // the group
	PlaybookDigest string `json:"playbook_digest"` // the digest of the playbooks
	// The commit that they come from. Absent: a folder, or clusterm itself.
	Commit  string `json:"commit,omitempty"`
	Current bool   `json:"current"` // they are those of the commit in use
}

// RepositoryLog are commits of the repository of playbooks.
type RepositoryLog struct {
	Commits []LogCommit `json:"commits"` // the commits, the newest first
	// The commits that nodes carry, at which the list ends. Absent: it goes back to the first one.
	Since []string `json:"since,omitempty"`
	More  bool     `json:"more,omitempty"` // older commits were left out
}

// LogCommit is a commit of the log.
type LogCommit struct {
	Commit

	InUse   bool     `json:"in_use,omitempty"`  // new jobs pin it
	Refused bool     `json:"refused,omitempty"` // it was refused
	Nodes   []string `json:"nodes,omitempty"`   // the nodes that it configured
}

// RepositoryDiff is the difference between two sets of playbooks.
type RepositoryDiff struct {
	From DiffSide `json:"from"`
	To   DiffSide `json:"to"`

	Files []FileChange `json:"files"`          // the files that differ, by path
	More  bool         `json:"more,omitempty"` // files or texts were left out
}

// DiffSide is one side of a difference.
type DiffSide struct {
	Commit         string `json:"commit,omitempty"`          // the commit
	PlaybookDigest string `json:"playbook_digest,omitempty"` // the digest of the playbooks
}

// FileChange is the difference of one file.
//
// All its texts are untrusted.
type FileChange struct {
	Path   string `json:"path"`                                // its path
	Change string `json:"change" enum:"added,removed,changed"` // what happened to it
	Text   string `json:"text,omitempty"`                      // the difference as unified text
	// Why there is no text, e.g. because the file is binary.
	Note string `json:"note,omitempty"`
}

// RepositoryDiffQuery selects two commits. An empty From is the commit in use, or
// that of the node; an empty To is the newest commit, or for a node the one in use.
type RepositoryDiffQuery struct{ Node, From, To string }

// RepositoryLogQuery selects commits. A zero Limit is 50.
type RepositoryLogQuery struct {
	Limit int
	All   bool // from the first commit on
}
