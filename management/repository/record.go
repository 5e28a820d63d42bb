// SPDX-License-Identifier: Apache-2.0

// Package repository decides which commit of a git repository the playbooks come from.
//
// The leader fetches at intervals. A new commit is checked as a folder of playbooks would
// be, and comes into use as a whole; a bad one is refused and reported, and the former one
// stays in use. The decision is a record that all instances share. The trees are kept by
// their content, as those of a folder, so that jobs and nodes refer to both alike.
package repository

import (
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
)

// Use is a commit that came into use.
type Use struct {
	configuration.Commit

	Digest string // of its playbooks
	Since  time.Time
}

// Refusal is a commit that was refused.
type Refusal struct {
	configuration.Commit

	Reason string
	Remedy string
	Time   time.Time
}

// Record is the stored state of the repository.
type Record struct {
	// Source identifies the URL, the reference and the folder that the record is about.
	Source string
	InUse  *Use     // nil: no commit was good so far
	Bad    *Refusal // the newest commit, if it was refused
	// Rewritten is the commit that was in use before InUse, if InUse does not descend from
	// it: its history was replaced.
	Rewritten string
	// Past are the commits that were in use, the newest first, InUse excluded. A reader
	// finds the commit of a digest here.
	Past []Use
}

// maxPast bounds the commits of a record, apart from those that nodes carry.
const maxPast = 100

// clone returns a copy that shares nothing that changes.
func (r Record) clone() Record {
	r.Past = slices.Clone(r.Past)
	return r
}

// use returns the record with the commit in use. carried reports whether a node or a job
// refers to the playbooks with a digest.
func (r Record) use(next Use, rewritten string, carried func(digest string) bool) Record {
	r = r.clone()

	if r.InUse != nil {
		same := func(u Use) bool { return u.Hash == r.InUse.Hash && u.Digest == r.InUse.Digest }
		r.Past = slices.Insert(slices.DeleteFunc(r.Past, same), 0, *r.InUse)
	}

	for i := len(r.Past) - 1; i >= maxPast; i-- {
		if !carried(r.Past[i].Digest) {
			r.Past = slices.Delete(r.Past, i, i+1)
		}
	}

	r.InUse, r.Rewritten, r.Bad = &next, rewritten, nil

	return r
}

// inUse identifies the commit in use.
func (r Record) inUse() string {
	if r.InUse == nil {
		return ""
	}
	return r.Source + " " + r.InUse.Hash + " " + r.InUse.Digest
}

// ByDigest returns the newest use of the playbooks with the digest.
func (r Record) ByDigest(digest string) (Use, bool) {
	return r.find(func(u Use) bool { return u.Digest == digest })
}

// ByCommit returns the newest use of a commit.
func (r Record) ByCommit(hash string) (Use, bool) {
	return r.find(func(u Use) bool { return u.Hash == hash })
}

func (r Record) find(match func(Use) bool) (Use, bool) {
	if r.InUse != nil && match(*r.InUse) {
		return *r.InUse, true
	}

	if at := slices.IndexFunc(r.Past, match); at >= 0 {
		return r.Past[at], true
	}
	return Use{}, false
}
