// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// Repository prints the state of the git repository of playbooks.
func (p *Printer) Repository(r api.Repository) {
	if r.URL == "" {
		p.Printf("no repository: the playbooks come from the folder of the setting playbooks, or from clusterm\n")
	} else {
		repositoryDetails.Details(p, r)
	}

	rows := make([][]string, len(r.Nodes))
	for i, n := range r.Nodes {
		carries, current := "digest "+shortHash(n.PlaybookDigest), ""
		if n.Commit != "" {
			carries = shortHash(n.Commit)
		}
		if r.InUse != nil {
			current = map[bool]string{true: "in use", false: p.Paint.Changed("other")}[n.Current]
		}

		rows[i] = []string{Line(n.Name), Line(n.Group), carries, current}
	}

	if len(rows) > 0 {
		p.gap()
		p.Rows([]string{"NODE", "GROUP", "PLAYBOOKS", ""}, rows)
	}
}

var repositoryDetails = ColumnsOf(Cells[api.Repository]{
	"in use": func(p Paint, r *api.Repository) string {
		if r.InUse == nil {
			return p.Bad("none: no job is accepted")
		}
		return commitLine(r.InUse.Commit)
	},
	"newest": func(_ Paint, r *api.Repository) string {
		if r.Newest == nil || r.InUse != nil && r.Newest.Hash == r.InUse.Hash {
			return ""
		}
		return commitLine(*r.Newest)
	},
	"refused": func(p Paint, r *api.Repository) string {
		if r.Refused == nil {
			return ""
		}
		return p.Bad(commitLine(r.Refused.Commit))
	},
	"refused because": func(_ Paint, r *api.Repository) string {
		if r.Refused == nil {
			return ""
		}
		return Text(r.Refused.Reason + withPrefix("; ", r.Refused.Remedy))
	},
	"history": func(p Paint, r *api.Repository) string {
		return p.Changed(withPrefix("rewritten: the commit in use does not descend from the former one, ",
			shortHash(r.Rewritten)))
	},
	"error": func(p Paint, r *api.Repository) string { return p.Bad(Text(r.Error)) },
}, "URL=url", "Uses=reference", "folder", "in use", "in_use.since", "in_use.playbook_digest", "newest", "refused",
	"refused because", "history", "fetched", "Failing since=failing", "error", "next_fetch")

// shortHash returns the first digits of a hash.
func shortHash(hash string) string { return Line(hash[:min(len(hash), 12)]) }

func commitLine(c api.Commit) string {
	return fmt.Sprintf("%s %s (%s, %s)", shortHash(c.Hash), Line(c.Subject), Line(c.Author), timeOf(&c.Time))
}

var commitColumns = ColumnsOf(Cells[api.LogCommit]{
	"commit": func(_ Paint, c *api.LogCommit) string { return shortHash(c.Hash) },
	"used": func(p Paint, c *api.LogCommit) string {
		var marks []string

		if c.InUse {
			marks = append(marks, p.Good("in use"))
		}

		if c.Refused {
			marks = append(marks, p.Bad("refused"))
		}

		return strings.Join(nonEmpty(append(marks, List(c.Nodes))...), ", ")
	},
}, "commit", "time", "author", "used", "subject")

// RepositoryLog prints commits, the newest first.
func (p *Printer) RepositoryLog(log api.RepositoryLog) {
	commitColumns.Table(p, log.Commits)

	if log.More {
		p.Printf("older commits are left out; raise --limit\n")
	}
}

// RepositoryDiff prints the difference between two sets of playbooks.
func (p *Printer) RepositoryDiff(d api.RepositoryDiff) {
	p.Printf("from %s\nto   %s\n", diffSide(d.From), diffSide(d.To))

	if len(d.Files) == 0 {
		p.Printf("they do not differ\n")
		return
	}

	for _, f := range d.Files {
		p.gap()
		p.Printf("%s: %s%s\n", Line(f.Change), Line(f.Path), withPrefix("; ", Line(f.Note)))

		if f.Text == "" {
			continue
		}

		for line := range strings.SplitSeq(strings.TrimSuffix(Text(f.Text), "\n"), "\n") {
			switch {
			case strings.HasPrefix(line, "+"):
				line = p.Paint.Good(line)
			case strings.HasPrefix(line, "-"):
				line = p.Paint.Bad(line)
			}

			p.Printf("  %s\n", line)
		}
	}

	if d.More {
		p.gap()
		p.Printf("The difference is longer: some files or texts are left out.\n")
	}
}

func diffSide(s api.DiffSide) string {
	if s.Commit == "" {
		return "the playbooks with the digest " + shortHash(s.PlaybookDigest)
	}
	return "commit " + shortHash(s.Commit)
}
