// SPDX-License-Identifier: Apache-2.0

package configuration

import "time"

// Commit is a commit of a git repository of playbooks. Author and Subject are
// untrusted text, bounded and without control characters.
type Commit struct {
	Hash    string // 40 hexadecimal digits
	Author  string
	Subject string // the first line of its message
	Time    time.Time
}

// The kinds of a FileChange.
const (
	FileAdded   = "added"
	FileRemoved = "removed"
	FileChanged = "changed"
)

// FileChange is the difference of one file. Path and Text are untrusted.
type FileChange struct {
	Path string
	Kind string // FileAdded, FileRemoved or FileChanged
	Text string // unified; empty: see Note
	Note string // why there is no text, e.g. that of a binary file
}
