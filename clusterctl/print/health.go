// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// InstanceColumns are the columns of a table of manager instances.
var InstanceColumns = ColumnsOf[api.Instance](nil,
	"id", "node", "leads", "addr", "version", "started,age", "started,wide", "api,wide")

// MemberColumns are the columns of a table of the members of the manager.
var MemberColumns = ColumnsOf[api.Member](nil,
	"id", "node", "addr", "alive", "leads", "etcd", "version", "joined,age", "joined,wide")

// PowerColumns are the columns of a table of the power of nodes.
var PowerColumns = ColumnsOf[api.Power](nil, "node", "power,else unknown", "since", "problem", "problem_since,wide")

// ExpectedColumns are the columns of the comparison of what is registered with what is seen.
var ExpectedColumns = ColumnsOf[api.ExpectedMachine](nil, "result", "node", "addr", "bmc", "lldp", "kind", "ports",
	"listed", "seen", "product")

// TokenColumns are the columns of a table of bearer tokens.
var TokenColumns = ColumnsOf[api.Token](nil,
	"id", "name", "role", "scope", "expires", "used", "created,wide", "by=created_by,wide")

// IdentityDetails are the caller as the manager knows it.
var IdentityDetails = ColumnsOf[api.Identity](nil,
	"principal", "role", "scope,else every node", "credential", "issuer", "expires")

// CertificateColumns are the columns of a table of client certificates.
var CertificateColumns = ColumnsOf[api.Certificate](nil,
	"serial", "name", "role", "scope", "expires", "revoked", "issued,wide", "by=revoked_by,wide")

var healthDetails = ColumnsOf(Cells[api.Health]{
	"status": func(p Paint, h *api.Health) string { return p.goodIf(h.Status == api.HealthOK, h.Status) },
	"outdated": func(_ Paint, h *api.Health) string {
		if h.Unknown > 0 {
			return fmt.Sprintf("%d (not known of %d)", h.Outdated, h.Unknown)
		}
		return fmt.Sprint(h.Outdated)
	},
	"jobs": func(_ Paint, h *api.Health) string {
		var jobs []string
		for _, s := range []api.JobStatus{api.Queued, api.Running} {
			if h.Jobs[s] > 0 {
				jobs = append(jobs, fmt.Sprintf("%d %s", h.Jobs[s], s))
			}
		}

		return strings.Join(jobs, ", ")
	},
}, "status", "instance", "revision", "stale", "nodes", "outdated", "jobs,else none") // no line is no check

// Health prints the health of the manager.
func (p *Printer) Health(h api.Health) {
	healthDetails.Details(p, h)

	if len(h.Checks) == 0 {
		return
	}

	p.gap()

	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(h.Checks)) {
		result := h.Checks[name]
		rows = append(rows, []string{Line(name), p.Paint.goodIf(result == "ok", result)})
	}

	p.Rows([]string{"CHECK", "RESULT"}, rows)
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
