// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/management/api"
)

// InstanceColumns are the columns of a table of manager instances.
var InstanceColumns = Columns[api.Instance]{
	textColumn("id", func(in *api.Instance) string { return in.ID }),
	textColumn("node", func(in *api.Instance) string { return in.Node }),
	textColumn("addr", func(in *api.Instance) string { return in.Addr }),
	textColumn("version", func(in *api.Instance) string { return in.Version }),
	ageColumn(func(in *api.Instance) time.Time { return in.Started }),
	timeColumn("started", func(in *api.Instance) time.Time { return in.Started }).wide(),
	textColumn("api", func(in *api.Instance) string { return strings.Join(in.API, " ") }).wide(),
}

// TokenColumns are the columns of a table of bearer tokens.
var TokenColumns = Columns[api.Token]{
	textColumn("id", func(t *api.Token) string { return t.ID }),
	textColumn("name", func(t *api.Token) string { return t.Name }),
	textColumn("role", func(t *api.Token) string { return t.Role }),
	textColumn("scope", func(t *api.Token) string { return t.Scope.String() }),
	timeColumn("expires", func(t *api.Token) time.Time { return t.Expires }),
	timeColumn("used", func(t *api.Token) time.Time { return timeOrZero(t.Used) }),
	timeColumn("created", func(t *api.Token) time.Time { return t.Created }).wide(),
	textColumn("by", func(t *api.Token) string { return t.CreatedBy }).wide(),
}

// CertificateColumns are the columns of a table of client certificates.
var CertificateColumns = Columns[api.Certificate]{
	textColumn("serial", func(c *api.Certificate) string { return c.Serial }),
	textColumn("name", func(c *api.Certificate) string { return c.Name }),
	textColumn("role", func(c *api.Certificate) string { return c.Role }),
	textColumn("scope", func(c *api.Certificate) string { return c.Scope.String() }),
	timeColumn("expires", func(c *api.Certificate) time.Time { return timeOrZero(c.Expires) }),
	timeColumn("revoked", func(c *api.Certificate) time.Time { return timeOrZero(c.Revoked) }),
	timeColumn("issued", func(c *api.Certificate) time.Time { return timeOrZero(c.Issued) }).wide(),
	textColumn("by", func(c *api.Certificate) string { return c.RevokedBy }).wide(),
}

func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}

	return *t
}

// Health prints the health of the manager.
func (p *Printer) Health(h api.Health) {
	var jobs []string
	for _, s := range []api.JobStatus{api.Queued, api.Running} {
		if h.Jobs[s] > 0 {
			jobs = append(jobs, fmt.Sprintf("%d %s", h.Jobs[s], s))
		}
	}

	// A missing line would look like a missing check.
	if jobs == nil {
		jobs = []string{"none"}
	}

	p.Fields([]Field{
		{"Status", p.goodIf(h.Status == api.HealthOK, h.Status)},
		{"Instance", Line(h.Instance)},
		{"Revision", fmt.Sprint(h.Revision)},
		{"Stale", yesIf(h.Stale)},
		{"Nodes", fmt.Sprint(h.Nodes)},
		{"Outdated", outdatedCount(h)},
		{"Jobs", strings.Join(jobs, ", ")},
	})

	if len(h.Checks) == 0 {
		return
	}

	p.gap()

	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(h.Checks)) {
		result := h.Checks[name]
		rows = append(rows, []string{Line(name), p.goodIf(result == "ok", result)})
	}

	p.Rows([]string{"CHECK", "RESULT"}, rows)
}

// outdatedCount returns the number of outdated nodes, and of those of which that is not
// known.
func outdatedCount(h api.Health) string {
	text := fmt.Sprint(h.Outdated)
	if h.Unknown > 0 {
		text += fmt.Sprintf(" (not known of %d)", h.Unknown)
	}

	return text
}

func (p *Printer) goodIf(good bool, text string) string {
	if good {
		return p.Paint.Good(Line(text))
	}

	return p.Paint.Bad(Line(text))
}

// Versions prints the version of clusterctl, and of the manager if it has answered.
func (p *Printer) Versions(client api.Version, server *api.Version) {
	p.gap()
	p.Printf("%s\n", VersionLine("clusterctl", client))

	if server != nil {
		p.Printf("%s\n", VersionLine("clusterm  ", *server))
	}
}

// VersionLine formats the version of a program.
func VersionLine(program string, v api.Version) string {
	var details []string
	// A development build lacks some of these.
	for _, part := range []string{
		withPrefix("commit ", Line(v.Commit)),
		Line(v.Go),
		withPrefix("ansible ", Line(v.Ansible)),
		withPrefix("etcd ", Line(v.Etcd)),
	} {
		if part != "" {
			details = append(details, part)
		}
	}

	line := program + " " + Line(v.Version)
	if details != nil {
		line += " (" + strings.Join(details, ", ") + ")"
	}

	return line
}
