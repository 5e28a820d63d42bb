// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Window returns the number of the nodes that may be out of service at a time. size is that
// of MaxUnavailable, or empty for 1. A share is rounded down, and at least 1.
func Window(size string, nodes int) (int, error) {
	if size == "" {
		return 1, nil
	}

	number, isShare := strings.CutSuffix(size, "%")
	n, err := strconv.Atoi(number)

	switch {
	case err != nil || n < 1 || isShare && n > 100 || number != strconv.Itoa(n):
		return 0, inventory.Errorf(inventory.KindInvalid, "max_unavailable is %q", inventory.Shorten(size, 100)).
			Do("write a number of nodes such as 2, or their share from 1%% to 100%%, such as 10%%")
	case isShare:
		return max(nodes*n/100, 1), nil
	}

	return n, nil
}

// use is the use of the places of a window.
type use struct {
	window     int
	inProgress int
	down       int // other nodes out of service
	example    string
}

// full returns why no further node may begin, or "". isDown: the node is out of service
// already, so that beginning it takes no further one. own: only nodes of the rollout in
// progress fill the window, which is the usual state of a rollout.
func (u *use) full(isDown bool) (reason string, own bool) {
	if isDown {
		return "max_unavailable is used up", u.inProgress >= u.window
	}

	if u.inProgress+u.down < u.window {
		return "", false
	}

	if u.inProgress >= u.window {
		return "max_unavailable is used up", true
	}

	return fmt.Sprintf("%s out of service already, such as %s, and max_unavailable is %d",
		inventory.Count(u.down, "node is", "nodes are"), u.example, u.window), false
}

// picker chooses the nodes to be begun.
type picker struct {
	*decision

	all     use
	groups  map[string]*use
	racks   map[string]string // the node in progress of each
	working []string          // names of nodes in progress
	allowed int               // nodes that the canary and the room in the queue allow
	own     bool              // the rollout is busy with nodes, and waits for them
	permits Permits           // of the budgets; nil: not asked yet
}

// pick chooses the nodes to be begun now, and says why if there are none.
func (d *decision) pick() {
	d.Waits, d.WaitsUntil = "", time.Time{}

	if d.w.Halted != "" {
		d.Waits = inventory.Shorten(d.w.Halted, maxText)
		return
	}

	p := d.picker()

	for i := range d.Nodes {
		if d.Nodes[i].State != Waiting {
			continue
		}

		full := p.all.inProgress >= p.all.window
		p.own = p.own || full

		if full || p.allowed <= 0 {
			break
		}

		p.consider(&d.Nodes[i])
	}

	// While nodes are in progress, it waits for their end.
	if len(d.begin) > 0 || p.own {
		d.Waits, d.WaitsUntil = "", time.Time{}
	}

	d.wake(d.WaitsUntil)
}

// picker counts the use of the windows.
func (d *decision) picker() *picker {
	p := &picker{decision: d, groups: map[string]*use{}, racks: map[string]string{}}
	// Make has refused a bad size, so there is no error here.
	p.all.window, _ = Window(d.Spec.MaxUnavailable, len(d.Nodes))

	// A share of a strategy is one of the group's nodes.
	sizes := map[string]int{}
	for i := range d.Nodes {
		sizes[d.Nodes[i].Group]++
	}

	for group, s := range d.Spec.Strategies {
		if s.MaxUnavailable != "" {
			window, _ := Window(s.MaxUnavailable, sizes[group])
			p.groups[group] = &use{window: window}
		}
	}

	for i := range d.Nodes {
		p.occupy(&d.Nodes[i])
	}

	p.allowed = d.w.Room - len(d.begin)
	if p.allowed <= 0 {
		d.Waits = "the queue of jobs is full"
	}

	// Before the canary is done, no more nodes are begun than it has.
	if left := d.canaryLeft() - len(p.working); d.Spec.Canary > 0 && d.CanaryDone.IsZero() {
		p.own = left <= 0
		p.allowed = min(p.allowed, left)
	}

	return p
}

// occupy counts the node.
func (p *picker) occupy(n *Node) {
	uses := []*use{&p.all}
	if u := p.groups[n.Group]; u != nil {
		uses = append(uses, u)
	}

	// A place is used once, even if several cases are true of the node.
	switch {
	case n.State.InProgress():
		p.working = append(p.working, n.Name)
		p.racks[n.Rack] = n.Name

		for _, u := range uses {
			u.inProgress++
		}
	case p.isDown(n):
		for _, u := range uses {
			u.down++

			if u.example == "" {
				u.example = n.Name
			}
		}
	}
}

// isDown reports whether a node that is not in progress is out of service, as far as that
// matters for the action: a commission finds its nodes so, a verification changes nothing,
// and a decommission leaves them so.
func (p *picker) isDown(n *Node) bool {
	if p.row.Verifies || !slices.Contains(p.row.From, inventory.Allocated) {
		return false
	}

	node := p.w.Node(n.Name)
	if node == nil || n.State == Succeeded && p.row.Success != inventory.Allocated {
		return false
	}
	return !node.Serves() || node.State != inventory.Discovered
}

// consider begins the node, skips it, or notes why it waits.
func (p *picker) consider(n *Node) {
	node := p.w.Node(n.Name)
	if node == nil {
		p.move(n, Skipped, "it was forgotten")
		return
	}

	if p.backsOff(n) {
		return
	}

	isDown := p.isDown(n)
	if p.bounded(n, isDown) {
		return
	}

	// A job of somebody else holds it: its turn comes later.
	if node.Status.InProgress() {
		p.wait(fmt.Sprintf("job %s holds %s", node.Job, n.Name), time.Time{})
		return
	}

	if err := p.row.Check(*node); err != nil {
		p.move(n, Skipped, job.Message(err))
		return
	}

	// The policy that started it leaves the node as it is.
	if a := node.Alerted(inventory.Excluded); a != nil && state.IsPolicy(p.Actor) {
		p.move(n, Skipped, "it has an alert that excludes it from policies: "+a.String())
		return
	}

	if !p.permitted(node) {
		return
	}

	// The next node is judged as if this one had begun.
	p.begin = append(p.begin, Begin{Node: n.Name})
	p.working = append(p.working, n.Name)
	p.racks[n.Rack] = n.Name
	p.allowed--
	p.take(n, isDown)
}

// backsOff reports whether the node waits after it could not be begun.
func (p *picker) backsOff(n *Node) bool {
	if n.Reason == "" {
		return false
	}

	left := p.remains(n, backoff(n))
	if left > 0 {
		p.wait(n.Name+": "+n.Reason, p.now.Add(left))
	}
	return left > 0
}

// backoff is how long a node waits after it could not be begun.
func backoff(n *Node) time.Duration {
	return min(15*time.Second<<min(n.Attempt, 10), 10*time.Minute)
}

// take occupies a place of the windows for a node that is begun.
func (p *picker) take(n *Node, isDown bool) {
	uses := []*use{&p.all}
	if u := p.groups[n.Group]; u != nil {
		uses = append(uses, u)
	}

	for _, u := range uses {
		u.inProgress++

		// It was counted as out of service, and must not use two places.
		if isDown {
			u.down--
		}
	}
}

// bounded reports whether a window, or another node of the rack, keeps the node waiting.
func (p *picker) bounded(n *Node, isDown bool) bool {
	uses := []*use{&p.all}
	if u := p.groups[n.Group]; u != nil {
		uses = append(uses, u)
	}

	// A node that is out of service already uses no further place, but may not wait for ever.
	for _, u := range uses {
		if reason, own := u.full(isDown); own {
			p.own = true
			return true
		} else if reason != "" && !isDown {
			p.wait(reason, time.Time{})
			return true
		}
	}

	if other, busy := p.racks[n.Rack]; busy && p.Spec.Order.By == ByLabel && other != n.Name {
		p.own = true
		return true
	}

	return false
}

// permitted reports whether the maintenance window and the budgets permit the node.
func (p *picker) permitted(node *inventory.Node) bool {
	if p.w.Allowed != nil {
		answer := p.w.Allowed(node, p.now)

		if !answer.OK {
			p.wake(answer.Until)
			p.wait(answer.Reason, answer.Until)
			return false
		}
	}

	if p.w.Permits == nil {
		return true
	}

	// All nodes are counted for the first answer, and not again for the next ones.
	if p.permits == nil {
		p.permits = p.w.Permits(p.working)
	}

	ok, reason := p.permits(node)
	if !ok {
		p.wait(reason, time.Time{})
	}
	return ok
}

// wait notes the first reason for which a node waits.
func (p *picker) wait(reason string, until time.Time) {
	if p.Waits == "" {
		p.Waits, p.WaitsUntil = inventory.Shorten(reason, maxText), until
	}
}
