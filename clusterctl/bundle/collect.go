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

// collect adds every file, the README last.
func (b *archive) collect(ctx context.Context) error {
	about := map[string]any{"version": b.options.Version, "manager": b.options.Where, "time": b.now.UTC()}
	b.add("clusterctl.json", "the version of clusterctl, and the manager it used", about, nil)
	b.collectDaemon(ctx)
	b.collectNodes(ctx)
	b.collectJobs(ctx)

	if b.options.Journal {
		text, err := journal(ctx)
		b.add("journal.txt", "end of the journal of clusterm on this host", text, err)
	}

	// With nothing but clusterctl.json there is nothing to report.
	if b.failed == nil && len(b.contents) == 1 && b.unreachable != nil {
		return b.unreachable
	}

	b.addFile("README.txt", "the contents of the bundle", []byte(b.readme()))

	return b.failed
}

func (b *archive) collectDaemon(ctx context.Context) {
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
		b.add(s.name, s.description, v, err)
	}
}

// collectNodes adds all nodes, and the history and explanation of nodes with a problem.
func (b *archive) collectNodes(ctx context.Context) {
	nodes, err := b.options.Manager.Nodes(ctx, client.NodeFilter{})
	b.add("nodes.json", "all nodes", nodes, err)

	n := 0
	for _, node := range nodes.Items {
		if !hasProblem(node) {
			continue
		}

		if n++; n > maxNodes {
			b.leftOut = append(b.leftOut, fmt.Sprintf("nodes/: more than %d nodes have a problem", maxNodes))
			return
		}

		history, err := b.options.Manager.History(ctx, node.Name, maxHistory)
		b.add("nodes/"+node.Name+".history.json", "history of a node", history, err)

		explanation, err := b.options.Manager.Explain(ctx, node.Name)
		b.add("nodes/"+node.Name+".explanation.json", "explanation of a node", explanation, err)
	}
}

func hasProblem(n api.Node) bool {
	return n.Status == inventory.Quarantined || n.State != inventory.Discovered ||
		n.LastError != "" || len(n.Residue) > 0 || len(n.Duplicates) > 0
}

// collectJobs adds all jobs, and the details of the newest that failed or run.
func (b *archive) collectJobs(ctx context.Context) {
	jobs, err := b.options.Manager.Jobs(ctx, client.JobFilter{})
	b.add("jobs.json", "all jobs on record", jobs, err)

	n := 0
	for _, j := range slices.Backward(jobs.Items) {
		if j.Status == api.Complete || j.Status == api.Queued {
			continue
		}

		if n++; n > maxJobs {
			b.leftOut = append(b.leftOut, fmt.Sprintf("jobs/: more than %d jobs failed or run", maxJobs))
			return
		}

		job, err := b.options.Manager.Job(ctx, j.ID)
		// The merged variables contain values.
		job.Vars = nil
		b.add("jobs/"+j.ID+".json", "record of a job", job, err)

		text, err := b.log(ctx, j.ID, job.LogBytes)
		b.add("jobs/"+j.ID+".log", "end of its output", text, err)

		events, err := b.events(ctx, j.ID)
		b.add("jobs/"+j.ID+".events.json", "its last events", events, err)
	}
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

// journal returns the end of the journal of clusterm on this host.
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
