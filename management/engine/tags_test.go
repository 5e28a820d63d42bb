// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
)

// tag gives the groups tags, by name.
func (b *bench) tag(tags map[string]inventory.Selection) {
	b.set(func(s *Settings) {
		s.Groups = slices.Clone(s.Groups)
		for i, g := range s.Groups {
			s.Groups[i].Tags, s.Groups[i].SkipTags = tags[g.Name].Tags, tags[g.Name].SkipTags
		}
	})
}

// lastOptions returns the options of the last run that was started.
func (b *bench) lastOptions() string {
	specs := b.books.started()
	return specs[len(specs)-1].Ansible.String()
}

// TestGroupTags runs the playbooks with the tags of the group: those of the acceptance, and
// in a cleanup none. What was applied is known, other than after tags of a request.
func TestGroupTags(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a b")
	b.tag(map[string]inventory.Selection{master: {Tags: []string{"web", "base"}, SkipTags: []string{"slow"}}})

	selected := resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, OK: 1, Selected: true})
	b.books.on(job.PlaybookSite, selected)
	b.do(commission, "a", master, "Complete")

	const tags = "tags base, web; skip_tags slow"
	if got := b.lastOptions(); got != tags {
		t.Errorf("commission: %q", got)
	}

	if n := b.node("a-1"); n.Applied != "1" || n.Configured == nil || n.Configured.Tags != tags {
		t.Errorf("%+v", n)
	}

	if text := b.log("1", job.StreamText); !strings.Contains(text, "(site.yml), "+tags+"\n") {
		t.Errorf("%q", text)
	}

	// A job that waits keeps the tags of its acceptance.
	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	b.ask(apply, "a", "")
	b.begun(g)

	waits := b.ask(apply, "a", "")
	b.tag(map[string]inventory.Selection{master: {Tags: []string{"later"}}})
	b.books.on(job.PlaybookSite, selected)
	g.open <- selected
	b.end(waits.ID, "Complete")

	if got := b.lastOptions(); got != tags {
		t.Errorf("the job that waited: %q", got)
	}

	// Tags of a request are among those of the group.
	request := job.Request{
		Verb:       apply,
		Nodes:      names("a"),
		JobOptions: inventory.JobOptions{SharedOptions: inventory.SharedOptions{Tags: []string{"web"}}},
	}
	_, err := b.Submit(t.Context(), request)
	b.refused(err, inventory.KindInvalid, `"web" is not among the tags of group service-master: later`)

	b.books.on(job.PlaybookSite, resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, OK: 1}))
	b.do(apply, "a", "", "Errored failed")

	if n := b.node("a-1"); n.LastError != "no task of site.yml for it is selected (tags later), so nothing was done" {
		t.Errorf("%q", n.LastError)
	}

	b.do(decommission, "a", "", "Complete")

	if got := b.lastOptions(); got != "" {
		t.Errorf("the cleanup: %q", got)
	}
}

// TestRetryGroupTags: a retry has the tags of today and says so, a pinned one those of then.
func TestRetryGroupTags(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")
	b.tag(map[string]inventory.Selection{master: {Tags: []string{"old"}}})
	b.books.on(job.PlaybookSite, failsOn("a-1"))
	failed := b.do(commission, "a", master, "Errored failed")

	b.tag(map[string]inventory.Selection{master: {Tags: []string{"new"}}})

	for _, tt := range []struct {
		pinned             bool
		options, different string
	}{
		{true, "tags old", ""},
		{false, "tags new", "tags of group service-master: tags new now, tags old then"},
	} {
		j, err := b.Engine.Retry(t.Context(), access.Caller{Principal: "ben"}, failed.ID,
			job.RetryRequest{Pinned: tt.pinned})
		b.must(err)

		j = b.end(j.ID, "Errored failed")
		if got := strings.Join(j.Differences, "; "); got != tt.different {
			t.Errorf("pinned %t: %q", tt.pinned, got)
		}

		if got := b.optionsOf(job.PlaybookSite); got != tt.options {
			t.Errorf("pinned %t: %q", tt.pinned, got)
		}
	}
}

// optionsOf returns the options of the last run of the playbook.
func (b *bench) optionsOf(playbook string) string {
	for _, s := range slices.Backward(b.books.started()) {
		if s.Playbook == playbook {
			return s.Ansible.String()
		}
	}

	return ""
}
