// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// The widths at which a line of text cuts a message, in terminal columns.
const (
	errorWidth = 200
	taskWidth  = 400
)

// NodeColumns are the columns of a table of nodes.
var NodeColumns = ColumnsOf(
	Cells[api.Node]{
		"job":        nodeJob,
		"labels":     func(_ Paint, n *api.Node) string { return LabelLine(n.Labels) },
		"configured": func(_ Paint, n *api.Node) string { return shortConfigured(n) },
		"desired":    func(_ Paint, n *api.Node) string { return shortConfiguration(desiredOf(n)) },
		"outdated":   Paint.outdated,
		"verified":   nodeVerdict,
		"seen-by":    nodeSeenBy,
		"note":       func(_ Paint, n *api.Node) string { return nodeNote(n) },
	},
	"name",
	"Address=addr",
	"status",
	"state",
	"group",
	"job",
	"created,age",
	"labels,wide",
	"applied,number,wide",
	"applied-at=configured.time,wide",
	"configured,wide",
	"desired,wide",
	"outdated,wide",
	"verified,wide",
	"power,wide",
	"image=installed.image,wide",
	"installed=installed.since,wide",
	"Previous=prev_status,wide",
	"seen-by,wide",
	"created,wide",
	"updated,wide",
	"note",
).
	sorted("job", ByNumber(func(n *api.Node) string { return n.Job }))

func nodeSeenBy(_ Paint, n *api.Node) string { return strings.Join(observers(n, true), ",") }

func nodeJob(_ Paint, n *api.Node) string {
	job := Line(n.Job)
	if n.Job != "" && n.Verb != "" {
		job += " (" + Line(string(n.Verb)) + ")"
	}
	return job
}

// sightings lists what the observers say that see a node.
func sightings(all map[string]inventory.Sighting) string {
	lines := make([]string, 0, len(all))
	for _, observer := range slices.Sorted(maps.Keys(all)) {
		s := all[observer]
		lines = append(lines, List(append([]string{s.Addr}, s.Others...))+" by "+Line(observer)+
			withPrefix(" since ", Time(s.Since)))
	}

	return strings.Join(lines, "\n")
}

// nodeNote lists the problems of a node beyond its status.
func nodeNote(n *api.Node) string {
	// The error, which can be long, comes last: a table cuts the end.
	var notes []string
	if len(n.Duplicates) > 0 {
		notes = append(notes, "also claimed by "+List(n.Duplicates))
	}

	if n.AnnouncedFrom != "" && len(n.HostKeys) == 0 {
		notes = append(notes, "announced by a member at "+Line(n.AnnouncedFrom))
	}

	if len(n.AddrRivals) > 0 {
		notes = append(notes, "address also of "+List(n.AddrRivals))
	}

	if len(n.Residue) > 0 {
		notes = append(notes, "residue of "+List(n.Residue))
	}

	if n.Uncleaned {
		notes = append(notes, "a cleaning failed, and none succeeded since")
	}

	for _, a := range n.Alerts {
		notes = append(notes, "alert: "+Line(a.Reason))
	}

	if n.BMCProblem != "" && n.LastError == "" {
		notes = append(notes, "BMC: "+Line(n.BMCProblem))
	}

	switch {
	case n.LastError != "":
		notes = append(notes, Line(n.LastError))
	case n.Cleaned:
		notes = append(notes, "cleaned, and not configured since")
	}

	return strings.Join(notes, "; ")
}

// SharedAddrs returns a sentence for each address that several of the nodes have,
// with the same port and jump host. It skips nodes that are neither seen nor
// configured.
func SharedAddrs(nodes []api.Node) []string {
	type endpoint struct {
		addr, jump string
		port       int
	}

	first := make(map[endpoint]int, len(nodes)) // the index of the first node at an address
	names := map[endpoint][]string{}            // of the nodes at a shared address

	var shared []endpoint
	for i := range nodes {
		n := &nodes[i]
		if n.State != inventory.Discovered && n.Group == "" && len(n.Residue) == 0 {
			continue
		}
		at := endpoint{addr: n.Addr}
		if n.Connection != nil {
			at.jump, at.port = n.Connection.Jump, n.Connection.Port
		}
		earlier, known := first[at]
		if !known {
			first[at] = i
			continue
		}

		if names[at] == nil {
			shared = append(shared, at)
			names[at] = []string{nodes[earlier].Name}
		}

		names[at] = append(names[at], n.Name)
	}

	sentences := make([]string, len(shared))
	for i, at := range shared {
		sentences[i] = fmt.Sprintf("several nodes have the address %s: %s", Line(at.addr), List(names[at]))
	}

	return sentences
}

// observers returns the observers that see the node, or those that have lost it.
func observers(n *api.Node, seeing bool) []string {
	var names []string
	for observer, sees := range n.Seen {
		if sees == seeing {
			names = append(names, Line(observer))
		}
	}

	slices.Sort(names)

	return names
}

// Labels formats labels, one per line.
func Labels(of map[string]string) string {
	lines := make([]string, 0, len(of))
	for _, key := range slices.Sorted(maps.Keys(of)) {
		lines = append(lines, Line(key)+"="+Line(of[key]))
	}

	return strings.Join(lines, "\n")
}

// LabelLine formats labels on one line.
func LabelLine(of map[string]string) string { return strings.ReplaceAll(Labels(of), "\n", ",") }

// playbooks returns the playbooks that configured a node, a line for each group.
func playbooks(digests map[string]string) string {
	var lines []string
	for _, group := range slices.Sorted(maps.Keys(digests)) {
		lines = append(lines, Line(digests[group])+" ("+Line(group)+")")
	}

	return strings.Join(lines, "\n")
}

var connection = ColumnsOf[api.Node](nil,
	"ssh user=connection.user", "ssh port=connection.port", "ssh key file=connection.key_file",
	"Jump host=connection.jump", "connection.python", "connection.become", "connection.become_user")

var (
	// ConnectionDetails are the ssh settings of a node.
	ConnectionDetails = slices.Concat(ColumnsOf[api.Node](nil, "name"), connection)
	// LabelDetails are the labels of a node.
	LabelDetails = ColumnsOf[api.Node](nil, "name", "labels")
	// HostKeyDetails are the recorded ssh host keys of a node.
	HostKeyDetails = ColumnsOf[api.Node](nil, "name", "host_keys,lines")
)

// NodeDetails are everything about a node.
var NodeDetails = slices.Concat(ColumnsOf(
	Cells[api.Node]{
		"address": func(_ Paint, n *api.Node) string {
			return Line(n.Addr) + withPrefix(", also of ", List(n.AddrRivals)) +
				withPrefix(", announced by a member at ", Line(n.AnnouncedFrom))
		},
		"status": func(p Paint, n *api.Node) string {
			return withPrevious(p.Status(n.Status), string(n.Status), string(n.PrevStatus))
		},
		"verified": Paint.verified,
		"state": func(p Paint, n *api.Node) string {
			return withPrevious(p.State(n.State), string(n.State), string(n.PrevState))
		},
		"outdated": Paint.outdated,
		"applied by job": func(_ Paint, n *api.Node) string {
			return Line(n.Applied) + withPrefix(" at ", appliedAt(n))
		},
		"applied":        func(_ Paint, n *api.Node) string { return appliedText(n) },
		"desired":        func(_ Paint, n *api.Node) string { return desiredText(n) },
		"playbooks":      func(_ Paint, n *api.Node) string { return playbooks(n.Playbooks) },
		"before the job": func(_ Paint, n *api.Node) string { return beforeJob(n.Before) },
		"alerts":         func(_ Paint, n *api.Node) string { return alertLines(n.Alerts) },
		"observers":      func(_ Paint, n *api.Node) string { return observations(n.Seen) },
		"seen at":        func(_ Paint, n *api.Node) string { return sightings(n.Sightings) },
		"hardware":       func(_ Paint, n *api.Node) string { return hardware(n) },
		"installed":      func(_ Paint, n *api.Node) string { return installed(n) },
	},
	"name",
	"label",
	"serial",
	"address",
	"status",
	"verified",
	"state",
	"power",
	"group",
	"outdated",
	"applied by job",
	"applied",
	"desired",
	"playbooks",
	"Residue of=residue",
	"last_error,text",
	"Claimed by job=job",
	"verb",
	"before the job",
	"labels",
	"alerts",
	"hardware",
	"installed",
	"BMC=bmc_problem,text",
	"observers",
	"seen at",
	"duplicates",
	"set_aside",
	"host_keys,lines",
),
	connection, hardwareDetails, ColumnsOf[api.Node](nil, "History entries=entries", "created", "updated", "revision"))

// installed says what the manager has installed on a node.
func installed(n *api.Node) string {
	if n.Installed == nil {
		return ""
	}
	return fmt.Sprintf("%s, since %s (job %s)", Line(n.Installed.Image), Time(n.Installed.Since), Line(n.Installed.Job))
}

// observations lists the observers with what they say.
func observations(seen map[string]bool) string {
	lines := make([]string, 0, len(seen))
	for _, observer := range slices.Sorted(maps.Keys(seen)) {
		lines = append(lines, Line(observer)+": "+map[bool]string{true: "seen", false: "lost"}[seen[observer]])
	}

	return strings.Join(lines, "\n")
}

// hardwareDetails are what the newest inspection of a node found.
var hardwareDetails = ColumnsOf(Cells[api.Node]{"neighbours": neighbours},
	"Architecture=hardware.arch", "Serial number=hardware.serial", "UUID=hardware.uuid", "TPM=hardware.tpm",
	"Boot mode=hardware.boot_mode",
	"Firmware=hardware.firmware", "Kernel=hardware.kernel", "BMC=hardware.bmc", "MACs=hardware.macs",
	"Cores=hardware.cores", "DIMMs=hardware.dimms", "Disks in GB=hardware.disk_gb", "PCI devices=hardware.pci",
	"Neighbours=neighbours")

// neighbours lists what LLDP sees at the network ports of a node.
func neighbours(_ Paint, n *api.Node) string {
	if n.Hardware == nil {
		return ""
	}

	lines := make([]string, len(n.Hardware.Neighbours))
	for i, b := range n.Hardware.Neighbours {
		lines[i] = Line(strings.TrimSpace(b.Port + ": " + strings.TrimSpace(b.Name+" "+b.Chassis)))
		if b.Forwards {
			lines[i] += " (switch)"
		}
	}

	return strings.Join(lines, "\n")
}

// hardware returns what the newest inspection of a node found, in short.
func hardware(n *api.Node) string {
	if n.Hardware == nil {
		return ""
	}
	h := n.Hardware

	return fmt.Sprintf("%s (inspection %d, %s)", Line(h.String()), h.Inspection, Time(h.Time))
}

// verified returns the last verdict on a node in service.
func (p Paint) verified(n *api.Node) string {
	v := n.Verification

	switch {
	case v != nil && v.Job == "": // by the gate of a rollout
		return fmt.Sprintf("%s (%s)", p.verdict(v), Time(v.Time))
	case v != nil:
		return fmt.Sprintf("%s (job %s, %s)", p.verdict(v), Line(v.Job), Time(v.Time))
	case n.Status == inventory.Allocated:
		return "not since it was last configured"
	}

	return ""
}

func withPrevious(shown, now, previous string) string {
	if previous == "" || previous == now {
		return shown
	}
	return shown + " (previously " + Line(previous) + ")"
}

// beforeJob formats the record that a node returns to if its job is undone.
func beforeJob(b *inventory.Before) string {
	if b == nil {
		return ""
	}

	parts := []string{Line(string(b.Status))}
	for _, part := range []string{
		withPrefix("previously ", string(b.PrevStatus)),
		withPrefix("group ", b.Group),
		withPrefix("applied by job ", b.Applied),
		withPrefix("residue of ", strings.Join(b.Residue, ", ")),
		withPrefix("last error: ", b.LastError),
	} {
		if part != "" {
			parts = append(parts, Line(part))
		}
	}

	parts = append(parts, inventory.Count(b.Entries, "history entry", "history entries"))

	return strings.Join(parts, "; ")
}

// NodeChanges describes the difference between two records of a node, as far as
// an operator sees it. An empty result means that there is none.
func (p *Printer) NodeChanges(before, after api.Node) []string {
	var out []string
	add := func(field, before, after string) {
		switch {
		case before == after:
		case before == "":
			out = append(out, field+" "+after)
		case after == "":
			out = append(out, "no "+field+", previously "+before)
		default:
			out = append(out, field+" "+before+" → "+after)
		}
	}

	add("status", p.Paint.Status(before.Status), p.Paint.Status(after.Status))
	add("state", p.Paint.State(before.State), p.Paint.State(after.State))
	add("group", Line(before.Group), Line(after.Group))
	add("address", Line(before.Addr), Line(after.Addr))

	// The end of a job shows as its new status.
	if before.Job != after.Job && after.Job != "" {
		out = append(out, fmt.Sprintf("job %s (%s)", Line(after.Job), Line(string(after.Verb))))
	}

	add("labels", LabelLine(before.Labels), LabelLine(after.Labels))
	add("residue", List(before.Residue), List(after.Residue))
	add("alerts", alertWords(before.Alerts), alertWords(after.Alerts))
	add("duplicates", List(before.Duplicates), List(after.Duplicates))

	switch {
	case before.LastError == after.LastError:
	case after.LastError == "":
		out = append(out, "error cleared")
	default:
		out = append(out, "error: "+p.Paint.Bad(Clip(Line(after.LastError), errorWidth)))
	}

	return out
}

// EntryChanges returns an entry of a history in words.
func (p *Printer) EntryChanges(e inventory.HistoryEntry) []string {
	out := []string{Line(string(e.Verb)), "status " + p.Paint.transition(e)}

	for _, f := range []Field{{"group", e.Group}, {"job", e.Job}, {"by", e.Actor}, {"reason:", e.Reason}} {
		if f.Value != "" {
			out = append(out, f.Name+" "+Clip(Line(f.Value), errorWidth))
		}
	}

	return out
}

// Change prints one line about the changes of an object at a time.
func (p *Printer) Change(at time.Time, name string, changes ...string) {
	p.Printf("%s  %s  %s\n", Time(at), Line(name), strings.Join(changes, "; "))
}

var historyCells = Cells[inventory.HistoryEntry]{
	"status": func(p Paint, e *inventory.HistoryEntry) string { return p.transition(*e) },
}

var (
	// HistoryColumns are the columns of a table of the history of a node.
	HistoryColumns = ColumnsOf(historyCells, "time", "verb", "status", "state", "group", "job", "actor", "reason")
	// HistoryDetails are an entry of the history of a node in whole.
	HistoryDetails = ColumnsOf(historyCells, "Entry=seq", "time", "verb", "status", "state", "group", "actor", "job",
		"reason,text", "Read revision=read_revision")
)

func (p Paint) transition(e inventory.HistoryEntry) string {
	if e.From == "" || e.From == e.To {
		return p.Status(e.To)
	}
	return Line(string(e.From)) + " → " + p.Status(e.To)
}
