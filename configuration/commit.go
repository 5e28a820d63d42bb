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
