// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"strings"
)

// Play is one play of a playbook, with the hosts of an inventory that it selects.
type Play struct {
	Name    string
	Pattern []string // its hosts, as Ansible reads them
	Hosts   []string
}

// Plays lists the plays of a playbook in folder, an absolute path, those of imported
// playbooks included. groups are the groups of the inventory with their hosts, none
// of which is contacted. An error is as that of Check.
func (c *SyntaxChecker) Plays(
	ctx context.Context, folder, playbook, bundledRoles string, groups map[string][]string,
) ([]Play, error) {
	if err := checkPlaybook(folder, playbook); err != nil {
		return nil, err
	}

	inv, err := listInventory(groups)
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	out, err := c.parse(
		ctx,
		syntaxKey{folder: folder, playbook: playbook, bundledRoles: bundledRoles},
		inv,
		"--list-hosts",
	)
	if err != nil {
		return nil, err
	}
	return playsIn(string(out)), nil
}

// playsIn reads the output of ansible-playbook --list-hosts:
//
//	play #1 (all): Every node	TAGS: []
//	  pattern: ['all']
//	  hosts (1):
//	    web-1
func playsIn(out string) []Play {
	var plays []Play

	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")

		if header, ok := strings.CutPrefix(line, "  play #"); ok {
			header, _, _ = strings.Cut(header, "\tTAGS: ")
			plays = append(plays, Play{Name: header})
			continue
		}

		if len(plays) == 0 {
			continue
		}

		play := &plays[len(plays)-1]

		if list, ok := strings.CutPrefix(line, "    pattern: "); ok {
			play.Pattern = pythonList(list)

			// The header has the pattern before the name, which may contain anything.
			_, name, _ := strings.Cut(play.Name, "("+strings.Join(play.Pattern, ",")+"): ")
			play.Name = name
		} else if host, ok := strings.CutPrefix(line, "      "); ok {
			play.Hosts = append(play.Hosts, host)
		}
	}

	return plays
}

// pythonList reads a list of texts as Python prints it.
func pythonList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(strings.Trim(text, "[]"), ", ") {
		if part = strings.Trim(part, `'"`); part != "" {
			list = append(list, part)
		}
	}

	return list
}
