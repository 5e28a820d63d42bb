// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// fenceLedger is where a host notes the commands of runs behind the fence, once the file exists.
const fenceLedger = "/var/lib/.clusterm-fence/ledger"

// keepLedgers has hosts note every remote command from now on.
func (w *world) keepLedgers(hosts ...string) {
	w.t.Helper()

	for _, host := range hosts {
		w.sh(host, `umask 077; mkdir -p "$(dirname `+fenceLedger+`)" && : >>`+fenceLedger)
	}
}

// ledger is what a host has noted.
func (w *world) ledger(host string) []command {
	w.t.Helper()

	ledger, err := parseLedger(w.sh(host, "cat "+fenceLedger).stdout)
	if err != nil {
		w.t.Fatalf("%s: %v", host, err)
	}

	return ledger
}

// wantFenced requires that runs on the hosts did not overlap, and that each host saw at least one.
func (w *world) wantFenced(hosts ...string) {
	w.t.Helper()

	for _, host := range hosts {
		ledger := w.ledger(host)
		if len(ledger) == 0 {
			w.t.Errorf("%s has no command in its ledger", host)
		}

		for _, problem := range overlaps(ledger) {
			w.t.Errorf("%s: %s", host, problem)
		}
	}
}

// command is a line of a ledger: an event of a remote command.
type command struct {
	at    string // seconds since 1970, as the host wrote it
	scope string
	token token
	job   string
	pid   string
	event string // raised: the token is the highest one, and all before it have ended; start; end
}

// token orders the runs on a host: the epoch, the revision of the ownership, and the run.
type token [3]int64

func (t token) String() string { return fmt.Sprintf("%d.%d.%d", t[0], t[1], t[2]) }

func parseLedger(text string) ([]command, error) {
	var all []command

	for line := range strings.Lines(text) {
		var c command

		_, err := fmt.Sscanf(
			line,
			"%s %s %d.%d.%d job %s pid %s %s",
			&c.at,
			&c.scope,
			&c.token[0],
			&c.token[1],
			&c.token[2],
			&c.job,
			&c.pid,
			&c.event,
		)
		if err != nil {
			return nil, fmt.Errorf("the line %q of the ledger: %w", line, err)
		}

		all = append(all, c)
	}

	return all, nil
}

// overlaps returns where a ledger shows that a command of one run began, or was still
// running, after another run had taken the host over. A command that was killed has no end.
func overlaps(ledger []command) []string {
	var problems []string

	highest := map[string]command{}

	for _, c := range ledger {
		top, known := highest[c.scope]

		switch order := slices.Compare(c.token[:], top.token[:]); {
		case !known || order > 0:
			if c.event != "raised" {
				problems = append(
					problems,
					fmt.Sprintf("at %s job %s %ss a command under token %s, which was not raised",
						c.at, c.job, c.event, c.token),
				)
			}

			highest[c.scope] = c
		case order < 0:
			problems = append(
				problems,
				fmt.Sprintf("at %s job %s has the event %q under token %s, after job %s had raised %s at %s",
					c.at, c.job, c.event, c.token, top.job, top.token, top.at),
			)
		}
	}

	return problems
}

// TestLedger has the check of the ledgers find what a host without a fence would show.
func TestLedger(t *testing.T) {
	line := func(token, event string) string {
		return "1.5 host " + token + " job " + token[2:3] + " pid 7 " + event + "\n"
	}

	for _, c := range []struct {
		name, ledger string
		want         int
	}{
		{"one after the other", line("0.1.0", "raised") + line("0.1.0", "start") + line("0.1.0", "end") +
			line("0.2.0", "raised") + line("0.2.0", "start") + line("0.2.0", "end"), 0},
		{"killed", line("0.1.0", "raised") + line("0.1.0", "start") + line("0.1.1", "raised") +
			line("0.1.1", "start"), 0},
		{"a lower one starts", line("0.2.0", "raised") + line("0.1.9", "start"), 1},
		{"a lower one runs on", line("0.1.0", "raised") + line("0.1.0", "start") + line("0.2.0", "raised") +
			line("0.1.0", "end"), 1},
		{"not raised", line("0.1.0", "start"), 1},
		{"of another scope", line("0.2.0", "raised") + "1.6 job-1 0.1.0 job 1 pid 8 raised\n", 0},
	} {
		ledger, err := parseLedger(c.ledger)
		if err != nil {
			t.Fatal(err)
		}

		if got := overlaps(ledger); len(got) != c.want {
			t.Errorf("%s: want %d problems, have %q", c.name, c.want, got)
		}
	}

	if _, err := parseLedger("nonsense\n"); err == nil {
		t.Error("nonsense passes for a ledger")
	}
}
