// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"regexp"
	"slices"
	"strings"
)

const (
	// MaxTags limits each of the two lists of a Selection.
	MaxTags   = 50
	maxTagLen = 64 // bytes
)

// tagName is the grammar of a tag. Nothing in it has a meaning for Ansible.
var tagName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`)

// specialTags have a meaning of their own for Ansible.
var specialTags = []string{"all", "always", "never", "tagged", "untagged"}

// Selection is the tags of a group, which choose the tasks of the playbooks that configure and verify its nodes, or
// those of a job.
//
// The zero value chooses all tasks.
type Selection struct {
	Tags     []string `json:"tags,omitempty"`      // only the tasks with one of these tags run; absent: all tasks
	SkipTags []string `json:"skip_tags,omitempty"` // the tasks with one of these tags are left out
}

// Empty reports whether the selection chooses all tasks.
func (s Selection) Empty() bool { return len(s.Tags)+len(s.SkipTags) == 0 }

// Equal reports whether both have the same tags in the same order.
func (s Selection) Equal(to Selection) bool {
	return slices.Equal(s.Tags, to.Tags) && slices.Equal(s.SkipTags, to.SkipTags)
}

// String describes the selection, such as "tags web, db; skip_tags slow". It is empty for
// all tasks.
func (s Selection) String() string {
	var parts []string
	if len(s.Tags) > 0 {
		parts = append(parts, "tags "+strings.Join(s.Tags, ", "))
	}

	if len(s.SkipTags) > 0 {
		parts = append(parts, "skip_tags "+strings.Join(s.SkipTags, ", "))
	}

	return strings.Join(parts, "; ")
}

// Check refuses lists that are too long, and texts that are no tags, with an error of
// KindInvalid.
func (s Selection) Check() error {
	if err := checkTags("tags", s.Tags); err != nil {
		return err
	}
	return checkTags("skip_tags", s.SkipTags)
}

func checkTags(field string, tags []string) error {
	if len(tags) > MaxTags {
		return Errorf(KindInvalid, "%s has %d tags, the limit is %d", field, len(tags), MaxTags)
	}

	for _, tag := range tags {
		if len(tag) > maxTagLen || !tagName.MatchString(tag) {
			return Errorf(KindInvalid, "%s: %q is not a tag", field, Shorten(tag, maxTagLen)).
				Do("begin with a letter, a digit or _, and go on with these or . : -, at most %d bytes", maxTagLen)
		}
	}

	return nil
}

// CheckGroupTags refuses a list that a group cannot have as its tags or skip_tags, as field
// says, with an error of KindInvalid.
func CheckGroupTags(field string, tags []string) error {
	if err := checkTags(field, tags); err != nil {
		return err
	}

	for i, tag := range tags {
		switch {
		case slices.Contains(specialTags, tag):
			return Errorf(KindInvalid, "%s: %q has a meaning of its own for Ansible", field, tag).
				Do("name tags of your tasks; without tags, all tasks run")
		case slices.Contains(tags[:i], tag):
			return Errorf(KindInvalid, "%s: %q is there twice", field, tag).Do("write it once")
		}
	}

	return nil
}

// Selection returns the tasks that the playbooks run on nodes of the group, in the one
// form that compares equal.
func (g Group) Selection() Selection {
	return Selection{Tags: slices.Sorted(slices.Values(g.Tags)), SkipTags: slices.Sorted(slices.Values(g.SkipTags))}
}

func (g Group) checkTags() error {
	if err := CheckGroupTags("tags", g.Tags); err != nil {
		return err
	}

	if err := CheckGroupTags("skip_tags", g.SkipTags); err != nil {
		return err
	}

	for _, tag := range g.Tags {
		if slices.Contains(g.SkipTags, tag) {
			return Errorf(KindInvalid, "%q is in tags and in skip_tags, so no task with it would run", tag).
				Do("leave it out of one of them")
		}
	}

	return nil
}

// Selection returns the tasks that the playbooks run on nodes of the named group.
func (gs Groups) Selection(name string) Selection {
	for i := range gs {
		if gs[i].Name == name {
			return gs[i].Selection()
		}
	}

	return Selection{}
}

// Selections returns the selections of the groups that have tags, by group.
func (gs Groups) Selections() map[string]Selection {
	all := map[string]Selection{}

	for i := range gs {
		if s := gs[i].Selection(); !s.Empty() {
			all[gs[i].Name] = s
		}
	}

	return all
}

// Within returns the selection of a request for nodes of a group whose selection is of: what
// both choose. It returns an error of KindInvalid if the request names a tag that the group
// does not run.
func (s Selection) Within(group string, of Selection) (Selection, error) {
	for _, tag := range s.Tags {
		switch {
		case slices.Contains(of.SkipTags, tag):
			return Selection{}, Errorf(KindInvalid, "tags: group %s skips the tag %q", group, tag).
				Do("leave it out, or change the skip_tags of the group").With(ShowSettings("groups"))
		case len(of.Tags) > 0 && !slices.Contains(of.Tags, tag):
			return Selection{}, Errorf(KindInvalid, "tags: %q is not among the tags of group %s: %s", tag, group,
				shorten(of.Tags)).
				Do("choose among these, or change the tags of the group").With(ShowSettings("groups"))
		}
	}

	both := Selection{Tags: s.Tags, SkipTags: slices.Clone(of.SkipTags)}
	if len(both.Tags) == 0 {
		both.Tags = of.Tags
	}

	for _, tag := range s.SkipTags {
		if !slices.Contains(both.SkipTags, tag) {
			both.SkipTags = append(both.SkipTags, tag)
		}
	}

	if err := checkTags("skip_tags", both.SkipTags); err != nil {
		return Selection{}, Errorf(KindInvalid, "with those of group %s, %w", group, err).Do("name fewer tags")
	}

	return both, nil
}
