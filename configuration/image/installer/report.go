// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
)

const (
	// tryTime bounds one try to send a message.
	tryTime = 20 * time.Second
	// patience bounds all tries to send a message.
	patience = 15 * time.Minute

	// The bounds of the problems in a message, which keep it far below report.MaxMessage.
	maxProblems = 100
	maxProblem  = 500 // bytes
)

// inspect collects the facts and prints them. It reports to the manager before and after that, if there is one, and
// returns them and what the machine does then; empty if the manager did not answer.
func inspect(
	console io.Writer, collect Collect, manager *reporter, problems []string,
) (found facts.Facts, then string, err error) {
	problems = inventory.ShortenAll(problems, maxProblems, maxProblem)

	if manager != nil {
		then, err = manager.send(report.Message{Stage: report.Started, Problems: problems})
		if err != nil || then != report.Continue {
			return found, then, err
		}
	}

	found = collectFacts(collect)
	err = printFacts(console, found)

	if manager == nil {
		return found, report.Continue, err
	}

	m := report.Message{Stage: report.Facts, Facts: &found, Problems: problems}
	if wrong := found.Bound(); wrong != nil {
		m = report.Message{Stage: report.Problem, Message: wrong.Error(), Problems: problems}
	}

	then, sendErr := manager.send(m)

	return found, then, errors.Join(err, sendErr)
}

// ending is what the machine does in the end. The zero ending is to restart after a while.
type ending struct {
	text    string // for the console
	command int    // of reboot(2); zero: none
	wait    bool   // for a person
}

// endingOf returns the ending for an answer of the manager. off is the parameter clusterm.off, and ok is false after
// problems; both count if the manager leaves the ending to the environment.
func endingOf(then string, off, ok bool) ending {
	const (
		powerOff = unix.LINUX_REBOOT_CMD_POWER_OFF
		restart  = unix.LINUX_REBOOT_CMD_RESTART
	)

	switch {
	case then == report.Off:
		return ending{text: "The machine switches off, as the manager says.", command: powerOff}
	case then == report.Restart:
		return ending{text: "The machine restarts, as the manager says.", command: restart}
	case then == report.Wait:
		return ending{text: "The machine waits, as the manager says. Switch it off, or restart it.", wait: true}
	case then == report.Continue && off:
		text := "The machine switches off, as clusterm.off on the command line of the kernel says."
		return ending{text: text, command: powerOff}
	case then == report.Continue && ok:
		text := "These are the facts of this machine. Nothing was changed. Switch it off, or restart it."
		return ending{text: text, wait: true}
	}

	return ending{}
}

// reporter sends messages to a manager.
type reporter struct {
	to      Report
	console io.Writer
	client  http.Client
	within  time.Duration   // bounds each try
	delays  backoff.BackOff // between tries
}

// newClient returns a client for the manager, which follows no redirect with the token.
func newClient() http.Client {
	return http.Client{
		Transport: &http.Transport{
			// Without Proxy, the parameters of the kernel, which become the environment of the init, name none.
			DisableKeepAlives: true, MaxResponseHeaderBytes: report.MaxAnswer,
			// The digest of an image is that of the content as it is served.
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func newReporter(to Report, console io.Writer) *reporter {
	return &reporter{
		to: to, console: console, client: newClient(), within: tryTime,
		delays: &backoff.ExponentialBackOff{
			InitialInterval: time.Second, Multiplier: 2, MaxInterval: 15 * time.Second, RandomizationFactor: 0.1,
		},
	}
}

// send sends a message until the manager has answered, and returns what the machine does then.
func (r *reporter) send(m report.Message) (string, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("cannot report to the manager: %w", err)
	}

	said := ""
	failed := func(err error, _ time.Duration) {
		if text := err.Error(); text != said {
			said = text
			say(r.console, "Cannot report to the manager yet: %s.", text)
		}
	}

	then, err := backoff.Retry(
		context.Background(),
		func() (string, error) { return r.try(context.Background(), body) },
		backoff.WithBackOff(r.delays),
		backoff.WithNotify(failed),
		backoff.WithMaxElapsedTime(patience-tryTime),
	)

	if err != nil && inventory.KindOf(err) != inventory.KindRefused {
		return "", inventory.Errorf(inventory.KindUnavailable, "cannot report to the manager at %s for %s: %w",
			r.to.URL, patience, err).
			Do("look whether the manager runs, and whether this network reaches it")
	}
	return then, err
}

// try sends the body of a message once.
func (r *reporter) try(ctx context.Context, body []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.within)
	defer cancel()

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.to.URL, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+r.to.Token)
	request.Header.Set("Content-Type", "application/json")

	response, err := r.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()

	switch {
	case report.Final(response.StatusCode):
		return "", backoff.Permanent(inventory.Errorf(inventory.KindRefused,
			"the manager does not want this machine any more: it answered %s", response.Status).
			Do("boot the machine by the manager again"))
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the manager answered %s", response.Status)
	}

	b, err := io.ReadAll(io.LimitReader(response.Body, report.MaxAnswer+1))
	if err != nil {
		return "", fmt.Errorf("the answer of the manager broke off: %w", err)
	}
	if len(b) > report.MaxAnswer {
		return "", fmt.Errorf("the answer of the manager has more than %d bytes", report.MaxAnswer)
	}

	var answer report.Answer
	if err := json.Unmarshal(b, &answer); err != nil {
		return "", fmt.Errorf("the answer of the manager is no JSON: %w", err)
	}

	known := []string{report.Continue, report.Wait, report.Off, report.Restart}
	if !slices.Contains(known, answer.Then) {
		return "", fmt.Errorf("the manager answered with %q, which is nothing to do",
			inventory.Shorten(answer.Then, 40))
	}

	return answer.Then, nil
}
