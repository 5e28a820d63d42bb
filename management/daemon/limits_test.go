// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// Sizes of records with their keys, in bytes, for the calculation of the limits. The
// operating guide states the assumed ones beside the result.
const (
	nodeBytes    = 2 << 10
	nodeVarBytes = 4 << 10 // the variables of one node
	historyBytes = 420     // TestHistorySize measures it
	jobBytes     = 64 << 10
	resultBytes  = 512

	// sharedScopes is the assumed number of groups with variables, and the globals.
	sharedScopes = 100
	// sharedBytes is the most that one of them takes: its variables, and its history, of
	// which the newest change is kept in any size, with the values before and after.
	sharedBytes = 3*configuration.MaxVarsBytes + variable.HistoryBytes
)

// limit is a bound on one kind of record.
type limit struct {
	records, bound string
	count          int64 // of records
	bytes          int64 // of one record
}

// limits lists the bounds of all records that can grow, from the constants and the
// defaults of the configuration.
func limits() []limit {
	jobs := setting.Default().Jobs

	return []limit{
		{"nodes", "", node.MaxNodes, nodeBytes},
		{"history of nodes", fmt.Sprintf("%d entries of each node", inventory.HistoryLimit),
			node.MaxNodes * inventory.HistoryLimit, historyBytes},
		{"variables of nodes", "each node", node.MaxNodes, nodeVarBytes},
		{"history of the variables of nodes", "each node", node.MaxNodes, variable.HistoryBytes},
		{"variables of groups and globals, with their history", "each group", sharedScopes, sharedBytes},
		{"jobs with their inputs", "`jobs.keep`, and the queue", int64(jobs.Keep) + job.MaxQueued, jobBytes},
		{"logs of ended jobs", "`jobs.keep_bytes`", 1, jobs.KeepBytes},
		{"logs of running jobs", "`jobs.limit`, output and events", 2 * int64(jobs.Limit), jobs.OutputLimit},
		{"audit trail", "`audit.keep`", int64(setting.Default().Audit.Keep), 200},
		{"results of idempotency keys", "", access.ResultLimit, resultBytes},
	}
}

const (
	limitsBegin = "<!-- limits:begin -->\n\n"
	limitsEnd   = "\n<!-- limits:end -->"
)

// limitsTable formats the calculation.
func limitsTable() (table string, total int64) {
	var text strings.Builder
	text.WriteString("| records | bound | number | bytes each | all, MiB |\n|---|---|---|---|---|\n")

	for _, l := range limits() {
		total += l.count * l.bytes
		fmt.Fprintf(&text, "| %s | %s | %d | %d | %d |\n", l.records, l.bound, l.count, l.bytes, l.count*l.bytes>>20)
	}

	fmt.Fprintf(&text, "| **all** | | | | **%d**, %d %% of the quota |\n", total>>20, 100*total/etcd.DefaultQuota)

	return text.String(), total
}

// TestLimitsFitTheQuota expects the largest documented manager to stay below the share
// at which the check of the health fails, and its calculation in the operating guide. The rest of
// the quota is for the revisions between two compactions.
func TestLimitsFitTheQuota(t *testing.T) {
	t.Parallel()

	table, total := limitsTable()
	if share := float64(total) / etcd.DefaultQuota; share >= etcd.CheckShare {
		t.Errorf("at its limits, the store has %.0f %% of its quota:\n%s", 100*share, table)
	}

	// More logs than by default are allowed up to a warning.
	most := setting.Jobs{KeepBytes: setting.LogRoom}
	byDefault := setting.Default().Jobs
	more := setting.LogRoom - byDefault.KeepBytes - 2*int64(byDefault.Limit)*byDefault.OutputLimit

	if share := float64(total+more) / etcd.DefaultQuota; share >= etcd.CheckShare || most.LogWarnings() != nil {
		t.Errorf("with all logs allowed, the store has %.0f %% of its quota", 100*share)
	}

	if most.Limit, most.OutputLimit = 1, 1; len(most.LogWarnings()) != 1 {
		t.Error("no warning of more logs than there is room for")
	}

	const page = root + "/docs/operating/store.md"

	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), limitsBegin)
	old, after, found := strings.Cut(rest, limitsEnd)

	switch {
	case !found:
		t.Fatalf("%s has no place for the limits", page)
	case old == table:
	case !*update:
		t.Errorf("%s is out of date: go test ./management/daemon -run Limits -update", page)
	default:
		if err := os.WriteFile(page, []byte(before+limitsBegin+table+limitsEnd+after), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// TestHistorySize measures the space of an entry of a node's history.
func TestHistorySize(t *testing.T) {
	t.Parallel()
	s := begin(t)

	// As long as usual: a name from host name and machine id, and a reason.
	const (
		nodes, chunks, chunk = 5, 20, 40
		entries              = nodes * chunks * chunk
	)

	inUse := func() int64 {
		t.Helper()

		tool := s.tool()
		defer tool.Close()

		s.must(tool.Compact(s.ctx()))
		s.must(tool.Defragment(s.ctx()))

		return tool.Spaces(s.ctx())[0].InUse
	}

	empty := inUse()

	for i := range nodes {
		n := inventory.Node{
			Name: fmt.Sprintf("host%d-d4fcc789da9d", i), Label: fmt.Sprintf("host%d", i), Serial: "d4fcc789da9d",
			Status: inventory.Unallocated, State: inventory.Discovered,
		}
		for c := range chunks {
			w := state.NodeWrite{Node: n}
			for e := range chunk {
				w.Entries = append(w.Entries, inventory.HistoryEntry{
					Seq: uint64(c*chunk + e + 1), Time: time.Now(), Verb: inventory.VerbDecommission,
					From: inventory.Allocated, To: inventory.Decommissioning, State: inventory.Discovered,
					Group: "service-worker", Actor: "an-operator", Job: "12345", Read: 123456789,
					Reason: "the rack is replaced on Monday",
				})
			}

			conflicts, err := s.store.PutNodes(s.ctx(), []state.NodeWrite{w})
			if s.must(err); len(conflicts) > 0 {
				t.Fatal(conflicts)
			}

			stored, err := s.store.View().Node(n.Name)
			s.must(err)

			n.Revision = stored.Revision
		}
	}

	if got := (inUse() - empty) / entries; got > historyBytes {
		t.Errorf("an entry takes %d bytes, more than the %d of the calculation", got, historyBytes)
	} else {
		t.Logf("an entry takes %d bytes", got)
	}
}
