// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/facts"
	machines "github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/daemon"
	jobs "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/inspect"
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
				w.count(ctx, "status=Enrolled", round*b.bmcs)
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

// count lists the nodes of a selector, and requires a number of them.
func (w *world) count(ctx context.Context, selector string, want int) {
	count := 0

	for _, err := range w.EachNode(ctx, client.NodeFilter{Selector: selector}) {
		check(err)
		count++
	}

	if count != want {
		fail("%d nodes have %s, want %d", count, selector, want)
	}
}

// machineName is the name of a machine of a list.
func machineName(round, i int) string { return fmt.Sprintf("r%d-%05d", round, i) }

// instackenv is a list of machines in the form of TripleO. Nobody answers at their addresses.
func (b *bench) instackenv(round int) string {
	nodes := make([]map[string]any, b.bmcs)

	for i := range nodes {
		nodes[i] = map[string]any{
			"name": machineName(round, i), "pm_type": "ipmi", "pm_user": "admin", "pm_password": "secret",
			"pm_addr": fmt.Sprintf("127.%d.%d.%d", round, i>>8&255, i&255), "cpu": 64, "memory": 262144, "disk": 960,
			"arch": "x86_64", "capabilities": "profile:compute,boot_option:local",
			"ports": []map[string]any{{"address": fmt.Sprintf("52:54:%02x:%02x:%02x:00", round, i>>8&255, i&255)}},
		}
	}

	return string(must(json.Marshal(map[string]any{"nodes": nodes})))
}

// readied measures the way of machines from Enrolled to Unallocated: a job for each of the three verbs, one after the
// other. Their hosts are scripted; the jobs, the facts and the store are not.
func readied(ctx context.Context, b *bench) []row {
	dir := must(os.MkdirTemp(b.dir, "w"))
	config, socket := filepath.Join(dir, "clusterm.yaml"), filepath.Join(dir, "api.sock")
	check(os.WriteFile(config, fmt.Appendf(nil, settings, dir, freePort()), 0o600))

	log := logrus.New()
	log.SetOutput(io.Discard)

	d := must(daemon.New(daemon.Options{
		ConfigPath: config, Command: []string{filepath.Join(b.bin, "clusterm")}, Logger: log,
		Executors: scripted,
	}))
	check(d.Start(ctx))
	b.cleanup(func() { check(d.Stop(context.WithoutCancel(ctx))) })

	w := &world{Client: must(client.New(client.Options{Socket: socket})), bench: b}
	took := map[inventory.Verb]float64{}
	round := 0

	return []row{{
		Name: fmt.Sprintf("%d machines from Enrolled to Unallocated", b.bmcs), Unit: "s", Rounds: 3,
		floor: atMost(0, 3, "<= 3 s"),
		note: func() string {
			return fmt.Sprintf(
				"other machines in each round; the last one took %.2f s to manage, %.2f to inspect, and "+
					"%.2f to provide",
				took[inventory.VerbManage],
				took[inventory.VerbInspect],
				took[inventory.VerbProvide],
			)
		},
		product: func() float64 {
			round++
			_ = must(w.Import(ctx, api.Import{File: b.hostList(round)}))
			w.count(ctx, "status=Enrolled", b.bmcs)

			nodes := make([]string, b.bmcs)
			for i := range nodes {
				nodes[i] = machineName(round, i)
			}

			seconds := timed(func() {
				for _, verb := range []inventory.Verb{
					inventory.VerbManage, inventory.VerbInspect, inventory.VerbProvide,
				} {
					took[verb] = timed(func() { w.carryOut(ctx, api.JobRequest{Verb: verb, Nodes: nodes}) })
				}

				w.count(ctx, "status=Unallocated", round*b.bmcs)
			})

			for _, node := range []string{nodes[0], nodes[len(nodes)-1]} {
				if found := must(w.Node(ctx, node)).Hardware; found == nil || found.MemoryMB != ready.Memory.TotalMB {
					fail("the record of %s has the hardware %+v", node, found)
				}
			}

			return seconds
		},
	}}
}

// hostList is a list of machines with an address for ssh.
func (b *bench) hostList(round int) string {
	nodes := make([]map[string]any, b.bmcs)
	for i := range nodes {
		nodes[i] = map[string]any{
			"name": machineName(round, i), "addr": fmt.Sprintf("127.%d.%d.%d", round, i>>8&255, i&255),
			"cpu": 64, "memory": 262144, "disk": 960, "arch": "x86_64",
			"ports": []map[string]any{{"address": fmt.Sprintf("52:54:%02x:%02x:%02x:00", round, i>>8&255, i&255)}},
		}
	}

	return string(must(json.Marshal(map[string]any{"nodes": nodes})))
}

// scripted are executors for hosts on which everything works at once. What they find is kept as usual.
func scripted(store record.Store) step.Executors {
	return step.Executors{
		jobs.StepCredentials: worker{name: "check credentials", do: func(context.Context, step.Step, string) error {
			return nil
		}},
		jobs.StepPlaybook: worker{name: "clean", do: func(context.Context, step.Step, string) error { return nil }},
		jobs.StepInspect: worker{name: "inspect", do: func(ctx context.Context, s step.Step, node string) error {
			_, err := inspect.KeepIn(store, nil)(ctx, node, s.Job.ID, facts.Found{Facts: ready})
			return err
		}},
	}
}

// worker does the same on every host of a step.
type worker struct {
	step.Plain

	name string
	do   func(ctx context.Context, s step.Step, node string) error
}

func (w worker) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	return step.Each(
		ctx,
		s,
		out,
		100,
		w.name,
		func(ctx context.Context, node string) error { return w.do(ctx, s, node) },
	)
}

// ready is what is found of each machine.
var ready = facts.Facts{
	Schema: facts.Schema, Arch: "x86_64", System: facts.System{Vendor: "Dell Inc.", Product: "R640"},
	Memory: facts.Memory{TotalMB: 262144}, CPU: facts.CPU{Threads: 64},
	Disks: []facts.Disk{
		{
			Name:      "sda",
			Serial:    "S1",
			SizeBytes: 960_000_000_000,
		},
		{Name: "sdb", Serial: "S2", SizeBytes: 960_000_000_000},
	},
	Interfaces: []facts.Interface{{Name: "eno1", MAC: "52:54:00:aa:00:01"}, {Name: "eno2", MAC: "52:54:00:aa:00:02"}},
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
