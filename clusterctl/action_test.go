// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// actionSamples returns every action with all arguments, and a submission of
// every verb.
func actionSamples() []inventory.Action {
	var samples []inventory.Action
	for _, row := range inventory.Actions {
		switch row.Name {
		case inventory.ActionSubmit:
			for _, verb := range inventory.Lifecycle {
				a := inventory.Submit(verb.Verb, "web-1", "web-2")
				if verb.TakesAddrs {
					a = inventory.Discover("10.0.0.1", "fd00::2")
				}
				samples = append(samples, a)
			}

			samples = append(samples, inventory.Submit(inventory.VerbCommission).Joining("service-worker"))
		case inventory.ActionForgetNodes:
			samples = append(samples, inventory.ForgetNodes(), inventory.ForgetNodes("web-1", "web-2").Forced())
		case inventory.ActionRetryJob:
			samples = append(samples, inventory.RetryJob("5", false),
				inventory.RetryJob("5", true).Cleaning("current").Within(2*time.Hour))
		case inventory.ActionRetryRollout:
			samples = append(samples, inventory.RetryRollout("r7b1e44d2", ""),
				inventory.RetryRollout("r7b1e44d2", inventory.PlaybooksCurrent))
		case inventory.ActionMakePlan:
			samples = append(samples, inventory.Submit(inventory.VerbApply, "web-1", "web-2").Planned(),
				inventory.Submit(inventory.VerbForget, "web-1").Planned(), inventory.Discover("10.0.0.1").Planned())

			for _, whole := range wholeActions() {
				samples = append(samples, whole.Planned())
			}
		default:
			samples = append(samples, inventory.Action{
				Name:  row.Name,
				Nodes: []string{"web-1"},
				Job:   "5",
				Plan:  "3f9a1c20-7b1e44d2",

				Rollout: "r7b1e44d2",

				Key:   "jobs.timeout",
				Value: "2h",
			})
		}
	}

	return samples
}

// wholeActions returns submissions with every option.
func wholeActions() []inventory.Action {
	apply := inventory.Submit(inventory.VerbApply, "web-1", "web-2").Within(90 * time.Minute).
		With(inventory.JobOptions{
			Serial: "1", MaxFailures: 2, Diff: true, Check: true, Verbosity: 2,
			SharedOptions: inventory.SharedOptions{
				Tags: []string{"web", "db"}, SkipTags: []string{"slow"}, Reason: "its time",
			},
		})
	apply.Extra = map[string]any{"release": "2.1"}

	discover := inventory.Discover("10.0.0.1").With(inventory.JobOptions{
		TakeOver: true, Verbosity: 1, SharedOptions: inventory.SharedOptions{Reason: "moved"},
	})
	discover.Ranges = []string{"10.0.0.5-10.0.0.9"}

	return []inventory.Action{
		apply,
		inventory.Submit(inventory.VerbCommission, "web-1").Joining("service-worker").
			With(inventory.JobOptions{OnFailure: "failed"}),
		inventory.Submit(inventory.VerbVerify, "web-1").With(inventory.JobOptions{Strict: true}).Cleaning("current"),
		inventory.Submit(inventory.VerbClear, "web-1").
			With(inventory.JobOptions{SharedOptions: inventory.SharedOptions{Reason: "new", OverrideWindow: true}}).
			Forced(),
		discover,
	}
}

// TestActionKeepsOptions: the command of an action, the request of the API, and the command
// that a client renders from it have the same options.
func TestActionKeepsOptions(t *testing.T) {
	want := []string{
		"clusterctl nodes apply web-1 web-2 --serial 1 --max-failures 2 --check --diff --tags web,db " +
			`--skip-tags slow --ansible-verbosity 2 --reason 'its time' -e '{"release":"2.1"}' --timeout 1h30m`,
		"clusterctl nodes commission web-1 -g service-worker --on-failure failed",
		"clusterctl nodes verify web-1 --playbooks current --strict",
		"clusterctl nodes clear web-1 --force --override-window --reason new",
		"clusterctl discover 10.0.0.1 10.0.0.5-10.0.0.9 --take-over --ansible-verbosity 1 --reason moved",
	}

	actions := wholeActions()
	for name, got := range map[string][]string{
		"the command":  api.CommandsOf("clusterctl", actions),
		"over the API": api.CommandsOf("clusterctl", api.RestoreActions(api.ActionsOf(actions))),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}

	// Each option of a request is one of an action.
	var filled api.JobRequest

	for _, a := range api.ActionsOf(actions) {
		errtest.None(t, json.Unmarshal(a.Body, &filled))
	}

	v := reflect.ValueOf(filled)
	for i := range v.NumField() {
		// A condition is not repeated, and the key of a host is in no sample.
		name := v.Type().Field(i).Name
		if name != "Expect" && name != "HostKeys" && v.Field(i).IsZero() {
			t.Errorf("no action has the option %s", name)
		}
	}
}

// capitals matches a word in capitals, which an operator would have to replace.
var capitals = regexp.MustCompile(`\b[A-Z]{2,}\b`)

// TestActionCommands runs the command of every action. Each is a valid command
// line, and sends the request that the API has for the same action.
func TestActionCommands(t *testing.T) {
	for _, a := range actionSamples() {
		t.Run(a.String(), func(t *testing.T) {
			var (
				mu       sync.Mutex
				requests []string
			)

			// A refusal ends every command at its first change.
			manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()

				requests = append(requests, r.Method+" "+r.URL.Path)

				// What is forgotten is looked at before.
				if r.Method == http.MethodGet && r.URL.Path == api.PathNodes && len(a.Nodes) > 0 {
					_ = json.NewEncoder(w).
						Encode(api.List[api.Node]{Items: []api.Node{{Name: "web-1"}, {Name: "web-2"}}})

					return
				}

				w.Header().Set("Content-Type", api.TypeProblem)
				w.WriteHeader(http.StatusConflict)
				_ = json.NewEncoder(w).Encode(api.ProblemOf(inventory.Errorf(inventory.KindRefused, "refused")))
			}))
			defer manager.Close()

			actions := []inventory.Action{a}

			lines := api.CommandsOf("clusterctl -u "+manager.URL, actions)
			if len(lines) != 1 {
				t.Fatalf("the commands are %q", lines)
			}

			var out, problems bytes.Buffer

			// A person who pastes the command confirms it at the terminal.
			words := shellWords(lines[0])
			if slices.Contains(words, "web-2") || slices.Contains(words, "forget") {
				words = append(words, "--yes")
			}
			code := Run(t.Context(), words, Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problems})
			if code == exit.Usage {
				t.Fatalf("%s: %s", lines[0], &problems)
			}

			if capitals.MatchString(lines[0]) {
				t.Errorf("%s has words to replace", lines[0])
			}

			wire := api.ActionsOf(actions)[0]
			method := wire.Method
			path, _, _ := strings.Cut(wire.Path, "?")

			// Where the operator chooses, the command shows the nodes.
			unnamed := a.Name == inventory.ActionSubmit || a.Name == inventory.ActionForgetNodes
			unnamed = unnamed && len(a.Nodes) == 0 && len(a.Addrs) == 0

			if unnamed || a.Name == inventory.ActionSetConnection {
				method, path = http.MethodGet, api.PathNodes
			}

			if want := method + " " + path; !slices.Contains(requests, want) {
				t.Errorf("%s sends %q, which lacks %q", lines[0], requests, want)
			}
		})
	}
}

// TestUnknownAction expects no command for an action of a later version.
func TestUnknownAction(t *testing.T) {
	later := []inventory.Action{{Name: "of-the-future"}}
	if lines := api.CommandsOf("clusterctl", later); len(lines) != 0 {
		t.Errorf("the commands are %q", lines)
	}
}
