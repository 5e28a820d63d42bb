// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"fmt"

	"github.com/contiv/cluster/inventory/etcd"
)

// Space rates the size of databases against their quotas, and the alarms of etcd. A database below etcd.CheckShare is
// worth a warning only. embedded: clusterm looks after the database itself.
func Space(spaces []etcd.Space, embedded bool) (warnings []string, problem error) {
	for _, s := range spaces {
		switch {
		case s.Err != nil: // the check of the store reports it
		case s.Raised(etcd.AlarmCorrupt):
			problem = errors.Join(problem, fmt.Errorf("etcd found damaged data and refuses every change (alarm %s): "+
				"run clusterm store check and restore a backup; only if it finds no damage, run clusterm store disarm",
				etcd.AlarmCorrupt))
		case s.Raised(etcd.AlarmNoSpace):
			problem = errors.Join(problem, fmt.Errorf("the store is full: %s; etcd accepts only deletions (alarm %s), "+
				"so every change is refused; %s", s, etcd.AlarmNoSpace, fullRemedy(embedded)))
		case s.Share() >= etcd.CheckShare:
			problem = errors.Join(problem, fmt.Errorf("the store is almost full: %s; at 100 %% etcd refuses every "+
				"change; %s", s, crowdedRemedy))
		case s.Share() >= etcd.WarnShare:
			warnings = append(warnings, fmt.Sprintf("the store fills up: %s; at 100 %% etcd refuses every change; %s",
				s, crowdedRemedy))
		}
	}

	return warnings, problem
}

// crowdedRemedy is the remedy while changes are accepted.
const crowdedRemedy = "lower jobs.keep_bytes or jobs.keep (clusterctl config set), then run clusterm store compact " +
	"and clusterm store defragment"

// fullRemedy is the remedy under etcd.AlarmNoSpace. It needs no change.
func fullRemedy(embedded bool) string {
	if !embedded {
		return "run clusterm store compact, clusterm store defragment and clusterm store disarm with a user that " +
			"has the role root, or do the same with etcdctl"
	}

	return "the manager removes jobs outside the retention, compacts, defragments and accepts changes again by " +
		"itself; if that does not suffice, lower jobs.keep or jobs.keep_bytes in the configuration file and reload " +
		"it (systemctl reload clusterm), or accept changes for a while with clusterm store disarm"
}
