// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"context"
	"errors"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/job"
)

// RunSpec describes one run of a playbook.
type RunSpec struct {
	ID             string // JOB-N, never reused
	PlaybookDigest string // of the pinned playbooks, or job.PlaybooksBundled
	Playbook       string
	Hosts          []configuration.Host
	Extra          configuration.Vars
	Ansible        configuration.AnsibleOptions
	Secrets        []string // texts to hide in the output and in the events
	Fence          configuration.Fence
	Deadline       time.Time
	Lease          time.Time // the runner ends its processes at this time unless the lease is renewed
}

// RunExit is the result of a run of ansible-playbook.
type RunExit struct {
	Code int
	// Cause is empty if the playbook ended by itself; otherwise it is cancelled,
	// deadline, interrupted or internal, and Message explains it.
	Cause   job.Cause
	Message string
	// NotBegun: ansible-playbook is known to have never been executed.
	NotBegun bool
	// Incomplete: events may be missing, so every host may have been touched.
	Incomplete bool
	// Lost: its lease ended.
	Lost bool
}

// Run is a run that was started, perhaps by an earlier process.
type Run interface {
	// Wait blocks until the run has ended and no process of it is left.
	Wait(ctx context.Context) (RunExit, error)
	// Cancel asks the runner to end all its processes. It blocks only while the
	// runner starts.
	Cancel(ctx context.Context) error
	// Renew extends the runner's lease.
	Renew(until time.Time) error
	Output
}

// Output is the output of a run.
type Output interface {
	// Tail emits the stream from the offset on, until the run has ended and
	// everything is emitted.
	Tail(ctx context.Context, s job.Stream, offset int64, emit func([]byte) error) error
	// Results returns the result on each host, after the end.
	Results() (map[string]job.HostResult, error)
	// HostKeys returns the ssh host keys recorded at a first contact.
	HostKeys() (map[string][]string, error)
}

// ErrNeverStarted is returned by Attach for a run without a runner.
var ErrNeverStarted = errors.New("the run was never started")

// NotBegunError is the error of a run that never executed ansible-playbook and
// never will, so that no host was touched.
type NotBegunError struct {
	Cause job.Cause // internal or interrupted
	Err   error
}

func (e *NotBegunError) Error() string { return e.Err.Error() }
func (e *NotBegunError) Unwrap() error { return e.Err }

// Runner runs playbooks. A run outlives the process that started it.
type Runner interface {
	// Check refuses if ansible-playbook is missing or too old.
	Check(ctx context.Context) error
	// Start starts a run. It returns soon and ignores the end of ctx. After any
	// error other than a NotBegunError the playbook may have been executed.
	Start(ctx context.Context, spec RunSpec) (Run, error)
	// Attach returns a run that was started before, or ErrNeverStarted.
	Attach(id string) (Run, error)
}

// Playbooks keeps copies of the configured playbooks by content.
type Playbooks interface {
	// Pin keeps a copy of the configured playbooks as they are now.
	Pin(ctx context.Context) (digest string, err error)
	// CommitOf returns the commit of the git repository that the playbooks with a digest
	// come from, or "" if they come from elsewhere. It does not block.
	CommitOf(digest string) string
	// Kept reports whether the copy with that digest is on this host, undamaged.
	Kept(ctx context.Context, digest string) bool
	// Restore makes the copy with that digest again, if the configured playbooks, or a
	// commit of their repository, have it, and reports whether it did. It may fetch.
	Restore(ctx context.Context, digest string) (bool, error)
	// Changed returns the names of the files that differ between two copies, sorted. It is
	// KindNotFound if one is not on this host.
	Changed(ctx context.Context, then, now string) ([]string, error)
	// Prune removes the remains of runs, and copies, except those that keep
	// returns. It calls keep after it has listed them, so that a run started
	// meanwhile is not touched.
	Prune(ctx context.Context, keep func() (runs, digests []string)) error
}

// Content shows what is in the copies of playbooks.
type Content interface {
	// Parse refuses playbooks that are missing from the copy or do not parse, and a
	// copy with variables for the groups or the hosts that cannot be loaded.
	Parse(ctx context.Context, digest string, playbooks, groups, hosts []string) error
	// Plays returns the plays of a playbook in the copy, as far as its text shows them.
	Plays(digest, playbook string) []configuration.Play
	// Outline returns what the text of a playbook shows about a run in check mode.
	Outline(digest, playbook string) configuration.Outline
}
