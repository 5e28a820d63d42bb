// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"time"
)

// VerdictResult is the result of a verification in one word.
type VerdictResult string

// The results of a verification.
const (
	Clean      VerdictResult = "clean"   // the node carries what its playbooks configure
	Drifted    VerdictResult = "drifted" // it differs from that
	Unverified VerdictResult = "unknown" // the verification could not tell
)

// Verdict is the result of a verification of a node.
type Verdict struct {
	// `clean`: the node carries what its playbooks configure; `drifted`: it differs; `unknown`: the verification
	// could not tell.
	Result      VerdictResult `json:"result"`
	Time        time.Time     `json:"time"`                  // the end of the verification
	Job         string        `json:"job"`                   // the verification
	Differences int           `json:"differences,omitempty"` // tasks that would change the node
	Unjudged    int           `json:"unjudged,omitempty"`    // tasks that check mode cannot judge
	// Tasks that ran in spite of check mode, with a change or a failure.
	Executed int `json:"executed,omitempty"`
	// Whether the node was compared with variables or playbooks that were not applied to it yet, which count as
	// differences.
	Outdated bool `json:"outdated,omitempty"`
	// Whether a check of verify.yml failed. The node is not healthy then: it does not count for the requirements
	// of groups, and uses up the budget of its own.
	Failed bool `json:"failed,omitempty"`
	// A check of verify.yml that failed, or why the result is unknown.
	Reason string `json:"reason,omitempty"`
}

// Reworded returns the verdict with its reason as text returns it; itself if that changes nothing.
func (v *Verdict) Reworded(text func(string) string) *Verdict {
	if v == nil {
		return nil
	}

	reason := text(v.Reason)
	if reason == v.Reason {
		return v
	}

	reworded := *v
	reworded.Reason = reason

	return &reworded
}

// FailGate returns the node as one that does not serve as it should, because the gate of a rollout
// failed on it for that reason. Its next verification, or a job that configures it, ends that.
func (n Node) FailGate(reason string, now time.Time) Node {
	m := n.Clone()
	v := Verdict{Result: Unverified, Time: now}

	if m.Verification != nil && m.Verification.Result == Drifted {
		v = *m.Verification
	}

	v.Failed, v.Reason = true, reason
	m.Verification, m.Updated = &v, now

	return m
}

// ByGate reports whether a gate gave the verdict, and no verification.
func (v Verdict) ByGate() bool { return v.Failed && v.Job == "" }

// Describe returns the verdict in words without its time, such as "drifted: 3 tasks would change".
func (v Verdict) Describe() string {
	if detail := v.Detail(); detail != "" {
		return string(v.Result) + ": " + detail
	}
	return string(v.Result)
}

// Detail returns the reasons of the result, such as "3 tasks would change"; mostly empty if it is Clean.
func (v Verdict) Detail() string {
	var parts []string
	if v.Differences > 0 {
		parts = append(parts, Count(v.Differences, "task", "tasks")+" would change")
	}

	if v.Reason != "" {
		parts = append(parts, v.Reason)
	}

	if v.Unjudged > 0 {
		parts = append(parts, Count(v.Unjudged, "task", "tasks")+" not judged by check mode")
	}

	if v.Executed > 0 {
		parts = append(parts, Count(v.Executed, "task", "tasks")+" executed for real")
	}

	if v.Outdated && v.Result != Clean {
		parts = append(parts, "compared with a configuration that was not applied yet")
	}

	return strings.Join(parts, "; ")
}
