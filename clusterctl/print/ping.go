// SPDX-License-Identifier: Apache-2.0

package print

import (
	"time"

	"github.com/contiv/cluster/management/api"
)

// pingCells are what takes more than one field of an answer.
var pingCells = Cells[api.PingResult]{
	"result": pingResult,
	"note":   func(_ Paint, r *api.PingResult) string { return pingNote(r) },
	"time":   func(_ Paint, r *api.PingResult) string { return pingTime(r) },

	"host key verified": func(_ Paint, r *api.PingResult) string { return YesNo(r.HostKeyVerified) },
}

var (
	// PingColumns are the columns of a table of pinged nodes.
	PingColumns = ColumnsOf(pingCells, "Name=node", "Address=addr", "result", "time", "note")
	// PingDetails are the result of the ping of one node, without the remedy.
	PingDetails = ColumnsOf(pingCells,
		"Name=node", "Address=addr", "result", "host key verified", "time", "Cause=message,text")
)

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
