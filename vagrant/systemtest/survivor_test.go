// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// TestSurvivor cuts three instances off from each other at a site that prefers availability. Each goes on alone by
// itself. When they meet again, the one with the highest epoch and id goes on, and the others have exported what they
// accepted, and wait for an operator.
func TestSurvivor(t *testing.T) {
	w := newWorld(t, setup{
		hosts: 3, instances: 3, testPlaybooks: true,
		config: "listen: 0.0.0.0:9443\ninstances: {availability: survivor, survivor_after: 15s}\n",
	})
	w.ctl("vars", "set", "--global", "common=1")

	// Two that are lost for a moment come back as they were.
	w.sh("host2", stayDown+" && "+killDaemon)
	w.sh("host3", stayDown+" && "+killDaemon+"; sleep 5")
	w.sh("host2", comeBack)
	w.sh("host3", comeBack)
	w.awaitVoters(3)

	ids := map[string]string{}
	for host, m := range w.instances() {
		ids[host] = m.ID
	}

	cut := time.Now()
	for _, host := range w.hosts {
		w.sh(host, isolate)
	}

	// The count of the test: the highest pair of epoch and id.
	type side struct {
		epoch int64
		id    string
		host  string
	}

	var sides []side

	for _, host := range w.hosts {
		await(t, 2*time.Minute, host+" goes on alone", func() (bool, string) {
			// A command whose answer got lost goes on for minutes by itself.
			r := w.try(host, "timeout 20 clusterctl vars set --global "+host+"=1")
			return r.code == 0, r.String() + w.try(host, "systemctl status --no-pager -n 20 clusterm").stdout
		})
		t.Logf("%s takes changes %.0f s after it was cut off", host, time.Since(cut).Seconds())

		sides = append(sides, side{w.aloneSince(host), ids[host], host})
	}

	slices.SortFunc(sides, func(a, b side) int {
		if a.epoch != b.epoch {
			return int(b.epoch - a.epoch)
		}
		return strings.Compare(b.id, a.id)
	})
	winner, losers := sides[0].host, []string{sides[1].host, sides[2].host}

	for _, host := range w.hosts {
		w.sh(host, rejoin)
	}

	for _, host := range losers {
		await(t, time.Minute, host+" waits for an operator", func() (bool, string) {
			said := w.try(host, "systemctl status clusterm; cat "+dataDir+"/split-*/accepted.jsonl").stdout
			return strings.Contains(said, "the manager went on without this instance") &&
				strings.Contains(said, `"verb":"variables.patch"`), said
		})
	}

	there := w.at(winner)
	vars := decode[api.Vars](w, there.ctl("vars", "get", "--global", "-o", "json"))
	if len(vars) != 2 || vars["common"] == nil || vars[winner] == nil {
		t.Errorf("%s has the variables %v", winner, vars)
	}

	// The operator looks at what is missing, and lets one of them join anew.
	back := losers[0]
	w.sh(back, "clusterm restore --verify "+dataDir+"/split-*/store.backup")
	w.sh(back, "systemctl stop clusterm && mv "+dataDir+" /root/split")

	join, token, _ := strings.Cut(strings.TrimSpace(there.ctl("instance", "invite").stdout), "\n")
	w.sh(back, "echo "+token+" | "+join+" && systemctl start clusterm")
	await(t, time.Minute, back+" is an instance again", func() (bool, string) {
		text := there.ctl("instance", "list", "-o", "json").stdout
		return strings.Count(text, `"alive": true`) == 2, text
	})

	there.awaitHealthy()
}

// aloneSince is when the instance of a host went on alone, in seconds since 1970. The number of its epoch is the same.
func (w *world) aloneSince(host string) int64 {
	w.t.Helper()

	text := w.try(host, "clusterctl health").stdout
	_, after, _ := strings.Cut(text, "this instance has gone on alone since ")
	after, _, _ = strings.Cut(after, ",")

	at, err := time.Parse(time.RFC3339, after)
	if err != nil {
		w.t.Fatalf("%s does not say that it is alone: %v: %s", host, err, text)
	}

	return at.Unix()
}
