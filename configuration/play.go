// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Play is a play of a playbook, as far as its text shows the hosts it acts on.
type Play struct {
	Hosts []string // the patterns, as written
	// Unknown: the play is behind an import that only Ansible can resolve.
	Unknown bool
	// Asks are the variables that the play asks a person for (vars_prompt) and that have no
	// default. Nobody answers in a run, so they are null unless the request has them.
	Asks []string
	// Executed are the tasks that run even in check mode. Only an Outline has them.
	Executed []Executed
}

// Match is the answer of a play's text to the question of whether it acts on a host.
type Match int

// The answers. Maybe depends on a template, or on the order of hosts.
const (
	No Match = iota
	Maybe
	Yes
)

// Matches reports whether the play acts on a target of a run with that name, in
// that group.
func (p Play) Matches(name, group string) Match {
	if p.Unknown {
		return Maybe
	}

	names := []string{name, group, "all", TargetsGroup}
	positive, others := false, Yes
	some := No

	for _, pattern := range p.Hosts {
		for _, part := range splitPattern(pattern) {
			switch {
			case strings.HasPrefix(part, "!"):
				others = min(others, Yes-matchPart(part[1:], names))
			case strings.HasPrefix(part, "&"):
				others = min(others, matchPart(part[1:], names))
			default:
				positive = true
				some = max(some, matchPart(part, names))
			}
		}
	}

	// Ansible takes all hosts if there are only conditions.
	if !positive {
		some = Yes
	}

	return min(some, others)
}

// Helped reports whether the play acts on the helpers of a job, or may do so.
func (p Play) Helped() bool {
	return p.Unknown || slices.ContainsFunc(p.Hosts, func(pattern string) bool {
		return strings.Contains(pattern, HelpersGroup) || strings.Contains(pattern, "{")
	})
}

// splitPattern returns the parts of a pattern, which Ansible separates by colons or
// commas.
func splitPattern(pattern string) []string {
	// A template may contain any character.
	if strings.Contains(pattern, "{") {
		return []string{pattern}
	}

	var parts []string
	for _, part := range strings.FieldsFunc(pattern, func(r rune) bool { return r == ':' || r == ',' }) {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}

	return parts
}

// subscript selects one host of a group; a range has a colon, which splits it.
var subscript = lazy(`^([^\[*?]+)\[-?[0-9]+\]$`)

// matchPart matches one part of a pattern without its sign.
func matchPart(part string, names []string) Match {
	switch {
	case strings.Contains(part, "{"):
		return Maybe
	case strings.HasPrefix(part, "~"):
		// Ansible's regular expressions are Python's.
		expression, err := regexp.Compile("^(?:" + part[1:] + ")")
		if err != nil {
			return Maybe
		}
		return matchIf(slices.ContainsFunc(names, expression.MatchString))
	case strings.ContainsAny(part, "[]"):
		if m := subscript().FindStringSubmatch(part); m != nil && !slices.Contains(names, m[1]) {
			return No
		}
		return Maybe
	case strings.ContainsAny(part, "*?"):
		return matchIf(slices.ContainsFunc(names, func(name string) bool {
			matched, err := path.Match(part, name)
			return matched && err == nil
		}))
	}

	return matchIf(slices.Contains(names, part))
}

func matchIf(matched bool) Match {
	if matched {
		return Yes
	}
	return No
}

// Outline is what the text of a playbook shows about a run in check mode.
type Outline struct {
	Missing bool // the folder has no such playbook
	Plays   []Play
}

// Executed is a task that runs even in check mode, because it has check_mode: false, or
// something else that does.
type Executed struct {
	Name string
	Path string // FILE:LINE, in the folder of playbooks or in that of the bundled roles
	// Reads: the task declares that it changes nothing (changed_when: false).
	Reads bool
	// Dynamic: in place of a task, something that only Ansible can resolve, such as an include whose name is a
	// template, or that need not respect check mode, such as an action plugin of the folder.
	Dynamic bool
	// Manager: in place of a task, a lookup that acts on the host of the manager when its expression is evaluated.
	Manager bool
	// Loses: the lookup keeps a file in the copy of the folder, where the next edit of the folder leaves it behind.
	Loses bool
}
