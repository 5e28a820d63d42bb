// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// journalTime bounds the time that journalctl may take.
const journalTime = 20 * time.Second

// Manager is the manager that a bundle describes.
type Manager interface {
	Daemon
	Nodes
	Jobs
	Variables
}

// Daemon describes the manager itself.
type Daemon interface {
	Version(ctx context.Context) (api.Version, error)
	Health(ctx context.Context) (api.Health, error)
	Config(ctx context.Context) (api.Config, error)
	Metrics(ctx context.Context) (string, error)
	Instances(ctx context.Context, page ...client.Page) (api.List[api.Instance], error)
}

// Nodes gives access to nodes.
type Nodes interface {
	Nodes(ctx context.Context, f client.NodeFilter) (api.List[api.Node], error)
	History(ctx context.Context, name string, limit int) (api.List[api.HistoryEntry], error)
	Explain(ctx context.Context, name string) (api.NodeExplanation, error)
}

// Jobs gives access to jobs and their output.
type Jobs interface {
	Jobs(ctx context.Context, f client.JobFilter) (api.List[api.Job], error)
	Job(ctx context.Context, id string) (api.Job, error)
	Log(ctx context.Context, id string, offset int64, follow bool) (*client.Stream, error)
	Events(ctx context.Context, id string, offset int64, follow bool, each func(api.Event) error) error
}

// Variables gives access to the variables of groups.
type Variables interface {
	Groups(ctx context.Context, page ...client.Page) (api.List[api.Group], error)
	Vars(ctx context.Context, s client.Scope) (api.Vars, error)
}

// collect adds every file, the README last.
func (b *archive) collect(ctx context.Context) error {
	about := map[string]any{"version": b.options.Version, "manager": b.options.Where, "time": b.now.UTC()}
	if err := b.add("clusterctl.json", "the version of clusterctl, and the manager it used", about, nil); err != nil {
		return err
	}

	steps := []func(context.Context) error{b.collectDaemon, b.collectNodes, b.collectJobs}
	if b.options.Journal {
		steps = append(steps, b.collectJournal)
	}

	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}

	// With nothing but clusterctl.json there is nothing to report.
	if len(b.contents) == 1 && b.unreachable != nil {
		return b.unreachable
	}

	return b.addReadme()
}

func (b *archive) collectDaemon(ctx context.Context) error {
	m := b.options.Manager
	// A step that fails is left out; the others still help.
	for _, s := range []struct {
		name, description string
		get               func() (any, error)
	}{
		{"version.json", "versions of the manager and its programs", func() (any, error) { return m.Version(ctx) }},
		{"health.json", "health of the manager", func() (any, error) { return m.Health(ctx) }},
		{"config.json", "configuration in force, with origins", func() (any, error) { return b.config(ctx) }},
		{"metrics.txt", "metrics of the manager", func() (any, error) { return m.Metrics(ctx) }},
		{"instances.json", "running instances", func() (any, error) { return m.Instances(ctx) }},
		{"groups.json", "host groups", func() (any, error) { return m.Groups(ctx) }},
		{"vars.json", "names of variables, without values", func() (any, error) { return b.varNames(ctx) }},
	} {
		v, err := s.get()
		if err := b.add(s.name, s.description, v, err); err != nil {
			return err
		}
	}

	return nil
}

// collectNodes adds all nodes, and the history and explanation of nodes with a problem.
func (b *archive) collectNodes(ctx context.Context) error {
	nodes, err := b.options.Manager.Nodes(ctx, client.NodeFilter{})
	if err := b.add("nodes.json", "all nodes", nodes, err); err != nil {
		return err
	}

	n := 0
	for _, node := range nodes.Items {
		if !hasProblem(node) {
			continue
		}

		if n++; n > maxNodes {
			b.leftOut = append(b.leftOut, fmt.Sprintf("nodes/: more than %d nodes have a problem", maxNodes))
			return nil
		}

		history, err := b.options.Manager.History(ctx, node.Name, maxHistory)
		if err := b.add("nodes/"+node.Name+".history.json", "history of a node", history, err); err != nil {
			return err
		}

		explanation, err := b.options.Manager.Explain(ctx, node.Name)
		if err := b.add("nodes/"+node.Name+".explanation.json", "explanation of a node", explanation, err); err != nil {
			return err
		}
	}

	return nil
}

func hasProblem(n api.Node) bool {
	return n.Status == inventory.Quarantined || n.State != inventory.Discovered ||
		n.LastError != "" || len(n.Residue) > 0 || len(n.Duplicates) > 0
}

// collectJobs adds all jobs, and the details of the newest that failed or run.
func (b *archive) collectJobs(ctx context.Context) error {
	jobs, err := b.options.Manager.Jobs(ctx, client.JobFilter{})
	if err := b.add("jobs.json", "all jobs on record", jobs, err); err != nil {
		return err
	}

	n := 0
	for _, j := range slices.Backward(jobs.Items) {
		if j.Status == api.Complete || j.Status == api.Queued {
			continue
		}

		if n++; n > maxJobs {
			b.leftOut = append(b.leftOut, fmt.Sprintf("jobs/: more than %d jobs failed or run", maxJobs))
			return nil
		}

		if err := b.collectJob(ctx, j.ID); err != nil {
			return err
		}
	}

	return nil
}

func (b *archive) collectJob(ctx context.Context, id string) error {
	job, err := b.options.Manager.Job(ctx, id)
	// The merged variables contain values.
	job.Vars = nil

	if err := b.add("jobs/"+id+".json", "record of a job", job, err); err != nil {
		return err
	}

	text, err := b.log(ctx, id, job.LogBytes)
	if err := b.add("jobs/"+id+".log", "end of its output", text, err); err != nil {
		return err
	}

	events, err := b.events(ctx, id)

	return b.add("jobs/"+id+".events.json", "its last events", events, err)
}

// log returns the end of a job's output.
func (b *archive) log(ctx context.Context, id string, size int64) (string, error) {
	log, err := b.options.Manager.Log(ctx, id, max(0, size-maxLog), false)
	if err != nil {
		return "", err
	}

	defer func() { _ = log.Close() }()
	text, err := io.ReadAll(io.LimitReader(log, maxLog))

	return string(text), err
}

// events returns the last events of a job, up to maxLog bytes.
func (b *archive) events(ctx context.Context, id string) ([]json.RawMessage, error) {
	var all []json.RawMessage
	size := 0
	err := b.options.Manager.Events(ctx, id, 0, false, func(e api.Event) error {
		raw, err := json.Marshal(e)
		if err != nil {
			return err
		}

		// One event at a time: the list may be long.
		all, size = append(all, raw), size+len(raw)
		// The last events show the failure.
		for size > maxLog {
			size -= len(all[0])
			all = all[1:]
		}

		return nil
	})

	return all, err
}

// varNames returns the names of the global variables and of those of each group.
func (b *archive) varNames(ctx context.Context) (map[string][]string, error) {
	groups, err := b.options.Manager.Groups(ctx)
	if err != nil {
		return nil, err
	}

	scopes := map[string]client.Scope{"global": client.ScopeGlobal}
	for _, g := range groups.Items {
		scopes["group "+g.Name] = client.ScopeGroup(g.Name)
	}

	names := map[string][]string{}
	for where, scope := range scopes {
		vars, err := b.options.Manager.Vars(ctx, scope)
		if err != nil {
			return nil, err
		}

		names[where] = sortedKeys(vars)
	}

	return names, nil
}

// sortedKeys returns the keys of vars; the result is never nil, which JSON would show as null.
func sortedKeys[V any](vars map[string]V) []string {
	keys := slices.AppendSeq(make([]string, 0, len(vars)), maps.Keys(vars))
	slices.Sort(keys)

	return keys
}

// config returns the configuration with the names of its variables in place of
// their values, and with secrets redacted even if the manager should show one.
func (b *archive) config(ctx context.Context) (api.Config, error) {
	config, err := b.options.Manager.Config(ctx)
	for key, setting := range config {
		variables := key == "vars" || strings.HasPrefix(key, "vars.")
		// secret_vars holds names of variables, and no secret.
		secret := key != "secret_vars" && secretName().MatchString(key)

		if !variables && !secret {
			continue
		}

		if vars, ok := setting.Value.(map[string]any); ok && key == "vars" {
			setting.Value = sortedKeys(vars)
		} else {
			setting.Value = redacted
		}

		config[key] = setting
	}

	return config, err
}

// collectJournal adds the end of the journal of clusterm on this host.
func (b *archive) collectJournal(ctx context.Context) error {
	text, err := journal(ctx)

	return b.add("journal.txt", "end of the journal of clusterm on this host", text, err)
}

func journal(ctx context.Context) (string, error) {
	path, err := exec.LookPath("journalctl")
	if err != nil {
		return "", errors.New("journalctl is not installed on this host")
	}

	ctx, cancel := context.WithTimeout(ctx, journalTime)
	defer cancel()
	//nolint:gosec // path is the journalctl of PATH
	cmd := exec.CommandContext(ctx, path, "--unit=clusterm", "--lines=5000", "--no-pager", "--output=short-iso")
	cmd.WaitDelay = time.Second

	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("journalctl: %w", err)
	}

	return string(out[max(0, len(out)-4*maxLog):]), nil
}
