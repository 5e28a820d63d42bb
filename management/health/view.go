// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// NodeWarnings counts the nodes in service that no observer sees, and those that a verification found to differ.
func NodeWarnings(nodes []*inventory.Node) (warnings []string) {
	var gone, drifted int

	for _, n := range nodes {
		if n.InService() && n.State == inventory.Disappeared {
			gone++
		}

		if n.Verification != nil && n.Verification.Result == inventory.Drifted {
			drifted++
		}
	}

	if gone > 0 {
		warnings = append(warnings, inventory.Count(gone, "node in service has", "nodes in service have")+
			" disappeared: clusterctl nodes get -l state=Disappeared")
	}

	if drifted > 0 {
		warnings = append(warnings, inventory.Count(drifted, "node differs", "nodes differ")+
			" from the configuration: clusterctl nodes get -l verification=drifted")
	}

	return warnings
}

// BudgetWarnings reports the budgets that allow no job to take a node of their group.
func BudgetWarnings(groups inventory.Groups, nodes []*inventory.Node) (warnings []string) {
	for _, problem := range groups.BudgetProblems(nodes) {
		warnings = append(warnings, problem+"; add a node to the group, or lower the budget in the setting groups: "+
			"clusterctl config get groups")
	}

	return warnings
}

// PlaybookWarnings reports playbooks that this instance cannot read, and instances with
// others: which nodes are outdated depends on the instance then.
func PlaybookWarnings(v *state.View, self string) (warnings []string) {
	own := state.PlaybooksOf(v, self)
	if own.Problem != "" {
		warnings = append(warnings, "it is not known which nodes are outdated, because the playbooks of this instance "+
			"cannot be read: "+own.Problem)
	}

	for _, in := range record.All(v, &state.Instances) {
		other := state.PlaybooksOf(v, in.ID)
		if in.ID != self && own.Digest != "" && other.Digest != "" && own.Digest != other.Digest {
			warnings = append(warnings, fmt.Sprintf(
				"the instance on %s has other playbooks than this one, so the same job configures a node differently "+
					"there; give both the same folder", in.Node))
		}
	}

	return warnings
}

// VersionWarnings warns while the live instances have different versions, as during an upgrade.
func VersionWarnings(v *state.View) []string {
	versions, schemas := map[string]bool{}, map[string]bool{}

	var named []string

	for _, in := range record.List(v, &state.Instances) {
		versions[in.Version], schemas[in.Schema] = true, true
		named = append(named, in.Node+" "+in.Version)
	}

	if len(versions) < 2 {
		return nil
	}

	slices.Sort(named)

	waits := "what only the newer one has works"
	if len(schemas) > 1 {
		waits += ", and the stored data change to its version,"
	}

	return []string{fmt.Sprintf("the instances run different versions: %s; %s once all have it",
		strings.Join(named, ", "), waits)}
}

// maxUnreadable is the number of unreadable records that the health names.
const maxUnreadable = 10

// Unreadable reports the records that cannot be read, by their keys and reasons.
func Unreadable(_ context.Context, v *state.View) error {
	reasons := v.Unreadable
	if len(reasons) == 0 {
		return nil
	}

	var named []string
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		if len(named) == maxUnreadable {
			named = append(named, "and others")
			break
		}

		named = append(named, fmt.Sprintf("%s (%s)", key, reasons[key]))
	}

	return fmt.Errorf("%d records in the store cannot be read: %s; restore the data directory from a backup, or "+
		"remove each of them with clusterm store remove KEY", len(reasons), strings.Join(named, ", "))
}

// minFree is the space that the data directory needs, in bytes: etcd
// allocates the next segment of its log in advance.
const minFree = 64 << 20

// FreeSpace refuses a directory on a file system with less free space than minFree.
func FreeSpace(dir string) error { return freeSpace(dir, minFree) }

// freeSpace refuses one with less than the minimum, in bytes.
func freeSpace(dir string, minimum uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("cannot read the free space of %s: %w", dir, err)
	}

	// Blocks reserved for root are not counted: they are the last resort.
	//nolint:gosec // a block size is positive
	free := fs.Bavail * uint64(fs.Frsize)
	if free < minimum {
		return inventory.Errorf(inventory.KindUnavailable,
			"only %.1f MiB are left on the file system of %s, of the %d MiB that clusterm needs for jobs and records; "+
				"it refuses changes until there is room", float64(free)/(1<<20), dir, minimum>>20).
			Do("free some space there")
	}

	return nil
}
