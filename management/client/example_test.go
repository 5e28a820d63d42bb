// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// Connect with the address of the manager; on its own host use the zero Options.
// The client sends nothing before the first call.
func Example() {
	c, err := client.New(client.Options{Socket: socket(), UserAgent: "example/1"})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	health, err := c.Health(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(health.Status, health.Nodes)
	// Output: ok 6
}

// A list arrives whole; request pages of a long one.
func ExampleClient_Nodes() {
	ctx, c := connect()

	masters, err := c.Nodes(
		ctx,
		client.NodeFilter{Group: []string{inventory.GroupMaster}, Status: []inventory.Status{inventory.Allocated}},
	)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range masters.Items {
		fmt.Println(n.Name, n.Addr, n.Status, n.State)
	}

	// Output: host1-a 10.0.0.1 Allocated Discovered
}

// EachNode fetches page after page while the loop goes on.
func ExampleClient_EachNode() {
	ctx, c := connect()
	filter := client.NodeFilter{Selector: "status=Unallocated", Sort: []string{"-name"}, Limit: 2}

	for n, err := range c.EachNode(ctx, filter) {
		if err != nil {
			log.Fatal(err)
		}

		fmt.Println(n.Name)

		if n.Name == "host5-e" {
			break
		}
	}

	// Output:
	// host6-f
	// host5-e
}

// A change to nodes is a job. Submit returns after the acceptance, WaitJob after
// the end; a failed job is not an error of the call.
func ExampleClient_Submit() {
	ctx, c := connect()

	job, err := c.Submit(ctx, api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"host2-b"}, Group: inventory.GroupWorker,
		ExtraVars: []byte(`{"fleet": "blue"}`), Timeout: api.Duration(30 * time.Minute),
	})
	if err != nil {
		log.Fatal(err)
	}
	job, err = c.WaitJob(ctx, job.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Status)

	for _, h := range job.Hosts {
		fmt.Printf("%s is %s, %d changed\n", h.Host, h.Status, h.Changed)
	}

	// Output:
	// Complete
	// host2-b is Allocated, 1 changed
}

// WaitJob reports every change of the job to an optional function.
func ExampleClient_WaitJob() {
	ctx, c := connect()

	job, err := c.Submit(
		ctx,
		api.JobRequest{
			Verb:      inventory.VerbCommission,
			Nodes:     []string{"host3-c"},
			ExtraVars: []byte(`{"fails_on": "host3-c"}`),
		},
	)
	if err != nil {
		log.Fatal(err)
	}

	seen := 0

	job, err = c.WaitJob(ctx, job.ID, func(api.Job) { seen++ })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen > 1, job.Status, job.Message)
	fmt.Println(job.Hosts[0].Host, "is", job.Hosts[0].Status)
	// Output:
	// true Errored site.yml failed on host3-c: task "Install": no such package
	// host3-c is Unallocated
}

// Log is an io.Reader that ends with the job. It survives a restart of the
// manager.
func ExampleClient_Log() {
	ctx, c := connect()

	job, err := c.Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"host4-d"}})
	if err != nil {
		log.Fatal(err)
	}
	output, err := c.Log(ctx, job.ID, 0, true)
	if err != nil {
		log.Fatal(err)
	}
	defer output.Close()

	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "PLAY") {
			fmt.Println(lines.Text())
		}
	}

	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}

	// The events show the same by host and task.
	err = c.Events(ctx, job.ID, 0, true, func(e api.Event) error {
		if e.Host != "" {
			fmt.Println(e.Host, e.Task, e.Event, e.Changed)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// PLAY [site.yml]
	// PLAY RECAP
	// host4-d Install ok true
}

// A watch begins with the current objects and continues with every change.
func ExampleClient_Watch() {
	ctx, c := connect()
	for change, err := range c.Watch(ctx, client.WatchOptions{Names: []string{"host6-f"}}) {
		if err != nil {
			log.Fatal(err)
		}

		switch change.Type {
		case api.ChangePut:
			n, err := change.Node()
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(n.Name, n.Labels)

			if n.Labels["rack"] == "r7" {
				return
			}

		case api.ChangeSync: // the initial state is complete: change something
			rack := "r7"
			if _, err := c.PatchNode(
				ctx,
				"host6-f",
				api.NodePatch{Labels: map[string]*string{"rack": &rack}},
			); err != nil {
				log.Fatal(err)
			}
		}
	}

	// Output:
	// host6-f map[]
	// host6-f map[rack:r7]
}

// An error has a kind for the program, and a text with a remedy for the operator.
func Example_errors() {
	ctx, c := connect()

	_, err := c.Submit(ctx, api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: []string{"host1-a", "host77-x"}})
	switch inventory.KindOf(err) {
	case "":
		fmt.Println("accepted")
	case inventory.KindNotFound, inventory.KindInvalid:
		fmt.Println("invalid request:", err)
	case inventory.KindRefused:
		fmt.Println("not now:", err)
	case inventory.KindUnavailable:
		fmt.Println("try again later:", err)
	default:
		log.Fatal(err)
	}

	// Output: invalid request: no such node: host77-x; check the name
}

// With IfMatch a change fails if the record has changed since the read.
func ExampleClient_IfMatch() {
	ctx, c := connect()

	vars, tag, err := c.TaggedVars(ctx, client.ScopeGlobal)
	if err != nil {
		log.Fatal(err)
	}

	if _, err := c.PatchVars(ctx, client.ScopeGlobal, api.Vars{"dns": "10.0.0.2"}); err != nil { // a concurrent change
		log.Fatal(err)
	}

	vars["env"] = "prod"
	_, err = c.IfMatch(tag).SetVars(ctx, client.ScopeGlobal, vars)
	fmt.Println(inventory.KindOf(err))
	// Output: precondition
}

// connect returns a client and the context of all examples.
func connect() (context.Context, *client.Client) {
	c, err := client.New(client.Options{Socket: socket()})
	if err != nil {
		log.Fatal(err)
	}
	return all, c
}
