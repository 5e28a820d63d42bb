// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestRolloutShowsWhatIsApproved: an approver of a rollout sees all that changes it.
func TestRolloutShowsWhatIsApproved(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := api.Rollout{
		ID: "r7b1e44d2", Status: "AwaitingApproval", ExtraNames: []string{"release"},
		Spec: api.RolloutSpec{
			Action:  "apply",
			Canary:  2,
			Promote: true,
			Soak:    api.Duration(5 * time.Minute),
			Timeout: api.Duration(time.Hour),
			SharedOptions: inventory.SharedOptions{
				Tags:     []string{"web", "db"},
				SkipTags: []string{"slow"},
				Reason:   "as agreed",
			},
			RequireApproval: true,
		},
	}

	shown := func() string {
		p := &Printer{}
		p.Rollout(r)
		return string(p.Bytes())
	}

	for _, want := range []string{
		"Needs approval", "web, db", "slow", "release", "5m", "1h", "2, then it waits for its promotion", "as agreed",
	} {
		if text := shown(); !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}

	r.Approved = &api.RolloutMark{By: "ann", At: at}
	r.Promoted = &api.RolloutMark{By: "bob", At: at, Reason: "looks well"}

	for _, want := range []string{"by ann at 2026-03-01", "2, promoted by bob at 2026-03-01", "looks well"} {
		if text := shown(); !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// TestRolloutEvents: an event in one line has what there is, and no control characters of a host.
func TestRolloutEvents(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)

	for want, e := range map[string]api.RolloutEvent{
		"2026-03-01 12:00:00  started  by ann: as agreed":     {Kind: "started", Actor: "ann", Text: "as agreed"},
		"2026-03-01 12:00:00  failed  web-1: ab":              {Kind: "failed", Node: "web-1", Text: "a\x1b[2Jb"},
		"2026-03-01 12:00:00  promoted  by ann":               {Kind: "promoted", Actor: "ann"},
		"2026-03-01 12:00:00  canary: the canary is done":     {Kind: "canary", Text: "the canary is done"},
		"2026-03-01 12:00:00  retried  by ann: 1 node is to…": {Kind: "retried", Actor: "ann", Text: "1 node is to…"},
	} {
		e.Time = at
		if got := RolloutEventLine(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}

	p := &Printer{Style: Style{Width: 80}}
	RolloutEventColumns.Table(p, []api.RolloutEvent{{Time: at, Kind: "canary", Text: "the canary is done"}})

	if text := string(p.Bytes()); !strings.Contains(text, "clusterm   the canary is done") {
		t.Errorf("%s", text)
	}
}

// TestTimeLeft: only a rollout that goes on has an estimate in its line.
func TestTimeLeft(t *testing.T) {
	t.Parallel()

	left := api.Duration(time.Minute)

	for status, want := range map[api.RolloutStatus]bool{
		"Running": true, "Paused": false, "Stopped": false, "AwaitingPromotion": false, "Done": false,
	} {
		line := RolloutLine(api.Rollout{Status: status, Remaining: &left})
		if got := strings.Contains(line, "left"); got != want {
			t.Errorf("%s: %s", status, line)
		}
	}
}

// TestGate: the plan that a person confirms has every part of the gate.
func TestGate(t *testing.T) {
	t.Parallel()

	for want, g := range map[string]*api.RolloutGate{
		"":                nil,
		"no verification": {SkipVerify: true},
		"no verification; HTTP check of port 80, /; command smoke": {
			SkipVerify: true, HTTP: &api.RolloutHTTPCheck{Port: 80}, Command: &api.RolloutCommand{Name: "smoke"},
		},
	} {
		if got := gateOf(g); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
