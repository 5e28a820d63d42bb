// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	machines "github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/step/power"
)

// imports measures the time from a list of machines until its nodes are listed as Enrolled.
func imports(ctx context.Context, b *bench) []row {
	w := b.world(ctx, "")
	round := 0

	return []row{{
		Name: fmt.Sprintf("import of %d machines, until listed", b.bmcs), Unit: "s", Rounds: 3,
		Against: "raw puts of their records, 100 per transaction",
		floor:   atMost(0, 1, "<= 1 s"),
		Note:    "other machines in each round; a machine has a node, an entry of its history, and its own record",
		product: func() float64 {
			round++
			file := b.instackenv(round)

			return timed(func() {
				_ = must(w.Import(ctx, api.Import{File: file}))
				w.enrolled(ctx, round*b.bmcs)
			})
		},
		baseline: func() float64 {
			records := []string{
				w.largest(ctx, "/v/nodes/"), w.largest(ctx, "/x/history/"), w.largest(ctx, "/v/machines/"),
			}
			prefix := w.unused()

			return timed(func() {
				w.puts(ctx, len(records)*b.bmcs, func(i int) clientv3.Op {
					return clientv3.OpPut(fmt.Sprint(prefix, i), records[i%len(records)])
				})
			})
		},
	}}
}

// enrolled lists the nodes that are Enrolled, and requires a number of them.
func (w *world) enrolled(ctx context.Context, want int) {
	count := 0

	for _, err := range w.EachNode(ctx, client.NodeFilter{Selector: "status=Enrolled"}) {
		check(err)
		count++
	}

	if count != want {
		fail("%d nodes are Enrolled, want %d", count, want)
	}
}

// instackenv is a list of machines in the form of TripleO. Nobody answers at their addresses.
func (b *bench) instackenv(round int) string {
	nodes := make([]map[string]any, b.bmcs)

	for i := range nodes {
		nodes[i] = map[string]any{
			"name": fmt.Sprintf("r%d-%05d", round, i), "pm_type": "ipmi", "pm_user": "admin", "pm_password": "secret",
			"pm_addr": fmt.Sprintf("127.%d.%d.%d", round, i>>8&255, i&255), "cpu": 64, "memory": 262144, "disk": 960,
			"arch": "x86_64", "capabilities": "profile:compute,boot_option:local",
			"ports": []map[string]any{{"address": fmt.Sprintf("52:54:%02x:%02x:%02x:00", round, i>>8&255, i&255)}},
		}
	}

	return string(must(json.Marshal(map[string]any{"nodes": nodes})))
}

// bmcDelay is how long a simulated BMC takes for each answer.
const bmcDelay = 20 * time.Millisecond

// powers measures the time for the power of simulated machines. A session with a BMC takes five answers, so most of it
// is waits.
func powers(ctx context.Context, b *bench) []row {
	of, pool := map[string]machines.BMC{}, bmc.New()

	for i := range b.bmcs {
		simulated := bmctest.NewIPMI(bmcHost{b}, bmcDelay)
		simulated.Machine.Switch(i%2 == 1)
		of[name(i)] = simulated.BMC
	}

	return []row{{
		Name: fmt.Sprintf("power of %d machines by IPMI", b.bmcs), Unit: "s", Rounds: 5,
		floor: atMost(0, 2, "<= 2 s"),
		Note:  fmt.Sprintf("in this process, with the BMCs; each answers after %s, five times for a session", bmcDelay),
		product: func() float64 {
			var seen []power.Seen

			seconds := timed(func() { seen = power.Ask(ctx, pool, of) })
			for i, one := range seen {
				check(one.Err)
				if want := []bmc.Power{bmc.Off, bmc.On}[i%2]; one.Power != want {
					fail("%s is %s, want %s", one.Node, one.Power, want)
				}
			}

			if len(seen) != b.bmcs {
				fail("%d machines have answered, want %d", len(seen), b.bmcs)
			}

			return seconds
		},
	}}
}

// bmcHost has simulated BMCs end with the measurement of the rows.
type bmcHost struct{ *bench }

func (bmcHost) Helper()             {}
func (bmcHost) Fatal(args ...any)   { fail("%s", fmt.Sprint(args...)) }
func (h bmcHost) Cleanup(do func()) { h.cleanup(do) }
