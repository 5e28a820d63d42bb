// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// TestThreeAgainstOne commissions 60 hosts in six batches, with one instance and then with three. It prints both times,
// their ratio, and how busy this machine was, which all hosts of the lab share.
func TestThreeAgainstOne(t *testing.T) {
	if os.Getenv("CLUSTERM_SCALE") != "1" {
		t.Skip("it is a measurement, of minutes; set CLUSTERM_SCALE=1, as make scale does")
	}

	const batch = 10

	s := setup{
		hosts: 63, playbooks: "testdata/chaos", config: "listen: 0.0.0.0:9443\njobs: {limit: 6}\n",
	}
	w := newWorld(t, s)
	fleet := w.hosts[3:]

	measure := func(instances int) time.Duration {
		var ids []string

		busy, all := w.processors()

		for i := 0; i < len(fleet); i += batch {
			at := w.at(fmt.Sprintf("host%d", 1+i/batch%instances))
			ids = append(ids, at.submit(append([]string{"nodes", "commission", "-g", master},
				w.nodeNames(fleet[i:i+batch]...)...)...))
		}

		var (
			begin, end time.Time
			where      = map[string]int{}
		)

		for _, id := range ids {
			j := w.awaitJob(id)
			if j.Status != api.Complete {
				t.Fatalf("job %s is %s: %s", id, j.Status, j.Message)
			}
			if begin.IsZero() || j.Accepted.Before(begin) {
				begin = j.Accepted
			}
			if j.Ended.After(end) {
				end = *j.Ended
			}
			where[j.Instance]++
		}

		busyThen, allThen := w.processors()
		took := end.Sub(begin)
		t.Logf("%d instances: %d hosts in %s, jobs by instance %v, processors busy for %.0f %%",
			instances, len(fleet), took, where, 100*(busyThen-busy)/(allThen-all))

		return took
	}

	one := measure(1)

	w.do(append([]string{"nodes", "decommission"}, w.nodeNames(fleet...)...)...)

	s.instances = 3
	w.grow(s)

	three := measure(3)
	t.Logf("three instances are %.2f times as fast", one.Seconds()/three.Seconds())
}

// processors returns how long those of this machine were busy, and in all.
func (w *world) processors() (busy, all float64) {
	w.t.Helper()

	line, _, _ := strings.Cut(w.sh("host1", "cat /proc/stat").stdout, "\n")

	for i, field := range strings.Fields(line)[1:] {
		var ticks float64
		if _, err := fmt.Sscan(field, &ticks); err != nil {
			w.t.Fatalf("%q: %v", line, err)
		}

		all += ticks
		if i != 3 && i != 4 { // idle, and waiting for a disk
			busy += ticks
		}
	}

	return busy, all
}
