// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/management/api"
)

// TestSummaryOfACleanedHost: a host on which nothing failed was only cleaned, and
// the error of the job is not repeated there.
func TestSummaryOfACleanedHost(t *testing.T) {
	j := api.Job{
		Status: api.Errored, Message: "site.yml failed on a-1: boom",
		Hosts: []api.HostSummary{
			{Host: "a-1", Error: "boom"}, {Host: "b-1", Error: "site.yml failed on a-1: boom"},
		},
		Runs: []api.Run{
			{Phase: "configure", Exit: "failed", Results: []api.HostResult{{Host: "a-1", Failed: 1}, {Host: "b-1"}}},
			{Phase: "undo", Exit: "done", Results: []api.HostResult{{Host: "a-1"}, {Host: "b-1"}}},
		},
	}

	p := &Printer{}
	p.Summary(j)

	text := string(p.Bytes())
	if strings.Count(text, "boom") != 1 || strings.Count(text, "cleaned") != 1 || strings.Count(text, "failed") != 1 {
		t.Errorf("the summary is\n%s", text)
	}

	// A cleanup that did not succeed cleaned nothing.
	j.Runs[1].Exit = "interrupted"
	p = &Printer{}
	p.Summary(j)

	if text := string(p.Bytes()); strings.Contains(text, "cleaned") {
		t.Errorf("the summary is\n%s", text)
	}
}
