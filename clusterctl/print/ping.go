// SPDX-License-Identifier: Apache-2.0

package print

import (
	"time"

	"github.com/contiv/cluster/management/api"
)

// PingColumns are the columns of a table of pinged nodes.
var PingColumns = Columns[api.PingResult]{
	textColumn("name", func(r *api.PingResult) string { return r.Node }),
	textColumn("address", func(r *api.PingResult) string { return r.Addr }),
	{Name: "result", Cell: func(p Paint, r *api.PingResult) string { return pingResult(p, r) }},
	{Name: "time", Cell: func(_ Paint, r *api.PingResult) string { return pingTime(r) }},
	{Name: "note", Cell: func(_ Paint, r *api.PingResult) string { return pingNote(r) }},
}

// Ping prints the result of the ping of one node, without the remedy.
func (p *Printer) Ping(r api.PingResult) {
	p.Fields([]Field{
		{"Name", Line(r.Node)},
		{"Address", Line(r.Addr)},
		{"Result", pingResult(p.Paint, &r)},
		{"Host key verified", YesNo(r.HostKeyVerified)},
		{"Time", pingTime(&r)},
		{"Cause", Text(r.Message)},
	})
}

func pingResult(p Paint, r *api.PingResult) string {
	if r.Answered {
		return p.Good("answered")
	}

	return p.Bad("no answer")
}

// pingTime has milliseconds, unlike the times of jobs.
func pingTime(r *api.PingResult) string {
	if r.Took == 0 {
		return ""
	}

	return max(time.Duration(r.Took).Round(time.Millisecond), time.Millisecond).String()
}

func pingNote(r *api.PingResult) string {
	if r.Answered && !r.HostKeyVerified {
		return "no host key is recorded yet"
	}

	return Line(r.Message)
}
