// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// chaosHelper is the argument with which the program of these tests is the clients of TestChaos. They run in the lab's
// network, read a load from stdin, write what they did to stdout, and end with stdin.
const chaosHelper = "chaos-clients"

// load describes what the clients of a round do.
type load struct {
	URLs        []string
	Token       string
	Fingerprint string
	Nodes       []string          // that jobs act on
	Labels      map[string]string // their labels
	Seed        uint64
	Round       int
	Slow        bool // some commands on the hosts take ten seconds
	// Batch are nodes without a host, more than fit into a transaction, that jobs of many nodes act on.
	Batch []string
}

// operation is a request of a client, and what came of it. Times are in nanoseconds since 1970.
type operation struct {
	Kind     string // the fields of operation that count depend on it
	Client   int
	Begin    int64
	End      int64
	Outcome  string `json:",omitempty"`
	Error    string `json:",omitempty"`
	Key      string `json:",omitempty"` // of a variable
	Value    string `json:",omitempty"` // of the variable; "": it is not set
	Revision int64  `json:",omitempty"` // that the answer shows
	Where    string `json:",omitempty"` // the URL that a client prefers
	// Of a job:
	Job   string   `json:",omitempty"`
	Verb  string   `json:",omitempty"`
	Note  string   `json:",omitempty"`
	Nodes []string `json:",omitempty"`
}

// The kinds of operation.
const (
	opWrite  = "write"  // of a variable
	opRead   = "read"   // a linearizable one
	opView   = "view"   // a default read of the nodes
	opSubmit = "submit" // of a job
	opCancel = "cancel"
	opEdit   = "edit" // of the labels of a node
)

// The outcomes of an operation.
const (
	acknowledged = "acknowledged"
	refused      = "refused" // for certain, it changed nothing
	unknown      = "unknown"
)

// outcomeOf is conservative: only an answer that refuses is certain.
func outcomeOf(err error) string {
	switch inventory.KindOf(err) {
	case inventory.KindRefused, inventory.KindInvalid, inventory.KindConflict, inventory.KindPrecondition,
		inventory.KindNotFound, inventory.KindBusy:
		return refused
	}

	if err == nil {
		return acknowledged
	}

	return unknown
}

// The numbers of clients, and the keys that those of variables share.
const (
	registerClients = 4
	registerKeys    = 2
	viewClients     = 3
	jobClients      = 3
	batchClients    = 2
	editClients     = 2
)

// registerKey is the name of a variable of a round.
func registerKey(round, key int) string { return fmt.Sprintf("chaos_%d_%d", round, key) }

// serveChaos is the process of the clients.
func serveChaos() {
	in := json.NewDecoder(os.Stdin)

	var l load
	if err := in.Decode(&l); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}

	ctx, stop := context.WithCancel(context.Background())

	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)

		stop()
	}()

	var (
		all sync.WaitGroup
		mu  sync.Mutex
		out = json.NewEncoder(os.Stdout)
	)

	start := func(number int, run func(*chaosClient)) {
		urls := slices.Concat(l.URLs[number%len(l.URLs):], l.URLs[:number%len(l.URLs)])

		one := &chaosClient{}

		c, err := client.New(client.Options{
			URL: strings.Join(urls, ","), Token: l.Token, Trust: client.Trust{Fingerprint: l.Fingerprint},
			Timeout: 10 * time.Second, Patience: 15 * time.Second,
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			os.Exit(1)
		}

		one.Client, one.ctx, one.load, one.number, one.where = c, ctx, l, number, urls[0]
		one.random = rand.New(rand.NewPCG(l.Seed, uint64(l.Round*100+number)))
		one.emit = func(o operation) {
			mu.Lock()
			defer mu.Unlock()

			_ = out.Encode(o)
		}

		all.Go(func() { run(one) })
	}

	for i := range registerClients {
		start(i, (*chaosClient).registers)
	}
	for i := range viewClients {
		start(10+i, (*chaosClient).views)
	}
	for i := range jobClients {
		start(20+i, (*chaosClient).jobs)
	}

	if len(l.Batch) > 0 {
		for i := range batchClients {
			start(30+i, (*chaosClient).batches)
		}
		for i := range editClients {
			start(40+i, (*chaosClient).edits)
		}
	}

	all.Wait()
}

// chaosClient is one of the clients. Its operations follow each other.
type chaosClient struct {
	*client.Client

	ctx    context.Context // ends with the load
	load   load
	number int
	where  string
	random *rand.Rand
	emit   func(operation)
}

// pause reports whether the load goes on.
func (c *chaosClient) pause(least, most time.Duration) bool {
	timer := time.NewTimer(least + time.Duration(c.random.Int64N(int64(most-least))))
	defer timer.Stop()

	select {
	case <-c.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// record carries out an operation, which outlives the end of the load.
func (c *chaosClient) record(o operation, limit time.Duration, do func(context.Context, *operation) error) operation {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), limit)
	defer cancel()

	o.Client, o.Where, o.Begin = c.number, c.where, time.Now().UnixNano()
	err := do(ctx, &o)
	o.End, o.Outcome = time.Now().UnixNano(), outcomeOf(err)

	if err != nil {
		o.Error = err.Error()
	}

	c.emit(o)

	return o
}

// registers writes and reads variables that several clients share.
func (c *chaosClient) registers() {
	for n := 0; c.pause(50*time.Millisecond, 250*time.Millisecond); n++ {
		key := registerKey(c.load.Round, c.random.IntN(registerKeys))

		if c.random.IntN(2) == 0 {
			value := fmt.Sprintf("%d-%d", c.number, n)
			c.record(operation{Kind: opWrite, Key: key, Value: value}, 12*time.Second,
				func(ctx context.Context, o *operation) error {
					_, err := c.PatchVars(ctx, client.ScopeGlobal, api.Vars{key: value})
					return err
				})

			continue
		}

		c.record(operation{Kind: opRead, Key: key}, 12*time.Second, func(ctx context.Context, o *operation) error {
			vars, err := c.Newest().Vars(ctx, client.ScopeGlobal)
			if err == nil && vars[key] != nil {
				o.Value = fmt.Sprint(vars[key])
			}
			return err
		})
	}
}

// views reads the nodes as a client does by default, all the time.
func (c *chaosClient) views() {
	for c.pause(40*time.Millisecond, 60*time.Millisecond) {
		c.record(operation{Kind: opView}, 12*time.Second, func(ctx context.Context, o *operation) error {
			list, err := c.Client.Nodes(ctx, client.NodeFilter{})
			o.Revision = list.Revision
			return err
		})
	}
}

// jobs submits jobs, repeats some requests, waits for some jobs and cancels some.
func (c *chaosClient) jobs() {
	for n := 0; c.pause(100*time.Millisecond, 600*time.Millisecond); n++ {
		r := c.request(n)
		o := operation{Kind: opSubmit, Verb: string(r.Verb), Nodes: r.Nodes, Note: c.note(n)}
		keyed := c.IdempotencyKey(c.note(n))
		submit := func(ctx context.Context, o *operation) error {
			j, err := keyed.Submit(ctx, r)
			o.Job = j.ID

			return err
		}

		first := c.record(o, 20*time.Second, submit)
		// A request without an answer is repeated, as a script would. The others are now and then, as a test.
		for i := 0; first.Outcome == unknown && i < 6 || i == 0 && c.random.IntN(4) == 0; i++ {
			if first.Outcome == unknown && !c.pause(time.Second, 2*time.Second) {
				break
			}
			if again := c.record(o, 20*time.Second, submit); first.Outcome == unknown {
				first = again
			}
		}

		if first.Job == "" {
			continue
		}

		if c.random.IntN(8) == 0 {
			c.record(operation{Kind: opCancel, Job: first.Job}, 20*time.Second,
				func(ctx context.Context, _ *operation) error {
					_, err := c.Cancel(ctx, first.Job)
					return err
				})
		}

		ctx, cancel := context.WithTimeout(c.ctx, 20*time.Second)
		_, _ = c.WaitJob(ctx, first.Job)

		cancel()
	}
}

// batches submits jobs of many nodes each, which overlap with those of another client.
func (c *chaosClient) batches() {
	for n := 0; c.pause(time.Second, 3*time.Second); n++ {
		nodes := slices.Clone(c.load.Batch)
		c.random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })

		r := api.JobRequest{Verb: inventory.VerbManage, Nodes: nodes[:len(nodes)*3/4]}
		keyed := c.IdempotencyKey(c.note(n))
		o := operation{Kind: opSubmit, Verb: string(r.Verb), Note: c.note(n)}

		o = c.record(o, 20*time.Second, func(ctx context.Context, o *operation) error {
			j, err := keyed.Submit(ctx, r)
			o.Job = j.ID

			return err
		})
		if o.Job == "" {
			continue
		}

		ctx, cancel := context.WithTimeout(c.ctx, 20*time.Second)
		_, _ = c.WaitJob(ctx, o.Job)

		cancel()
	}
}

// edits changes nodes of the batches all the time, so that some claims of them meet a changed node.
func (c *chaosClient) edits() {
	for n := 0; c.pause(5*time.Millisecond, 15*time.Millisecond); n++ {
		value := fmt.Sprint(n)
		node := c.load.Batch[c.random.IntN(len(c.load.Batch))]

		c.record(operation{Kind: opEdit}, 12*time.Second, func(ctx context.Context, _ *operation) error {
			_, err := c.PatchNode(ctx, node, api.NodePatch{Labels: map[string]*string{"edit": &value}})
			return err
		})
	}
}

// note marks a request in all that its job leaves.
func (c *chaosClient) note(n int) string { return fmt.Sprintf("%d-%d-%d", c.load.Round, c.number, n) }

// request is a job that most likely is allowed: a verb for the status of a node, now and then with another node.
func (c *chaosClient) request(n int) api.JobRequest {
	nodes := slices.Clone(c.load.Nodes)
	c.random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })

	var status inventory.Status

	ctx, cancel := context.WithTimeout(c.ctx, 12*time.Second)
	defer cancel()

	if node, err := c.Node(ctx, nodes[0]); err == nil {
		status = node.Status
	}

	verbs := []inventory.Verb{
		inventory.VerbUpdate,
		inventory.VerbApply,
		inventory.VerbMaintenance,
		inventory.VerbDecommission,
	}

	// What is in the queue may change the status before.
	if c.random.IntN(3) == 0 {
		status = ""
		verbs = append(verbs, inventory.VerbCommission, inventory.VerbCommission, inventory.VerbClear)
	}

	switch status {
	case inventory.Unallocated, inventory.Decommissioned:
		verbs = []inventory.Verb{inventory.VerbCommission}
	case inventory.Quarantined:
		verbs = []inventory.Verb{inventory.VerbClear, inventory.VerbDecommission}
	}

	r := api.JobRequest{Verb: verbs[c.random.IntN(len(verbs))], Nodes: nodes[:1]}
	if c.random.IntN(3) == 0 {
		r.Nodes = nodes[:2]
	}

	vars := map[string]string{"note": c.note(n)}

	switch r.Verb {
	case inventory.VerbCommission, inventory.VerbUpdate:
		r.Group = master
		if c.random.IntN(6) == 0 {
			vars["fail_on"] = c.load.Labels[r.Nodes[0]]
			if c.random.IntN(2) == 0 {
				vars["fail_cleanup_on"] = vars["fail_on"]
			}
		}
	}

	if c.load.Slow && c.random.IntN(3) == 0 {
		vars["pause"] = "1"
	}

	// A map of strings is always JSON.
	r.ExtraVars, _ = json.Marshal(vars)

	return r
}
