// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// scheduled verifies every host but the manager's each minute, and tells a receiver on host2 of
// drift.
const scheduled = `
notifications:
  - {name: hook, events: [node.drifted], url: 'http://%s:8080/hook', secret_file: /etc/clusterm/hook.secret}
policies:
  verify:
    minutely: {match: label!=host1, cron: "* * * * *", spread: 0s}
`

// awaitScheduled waits until a scheduled verification of the host has the result.
func (w *world) awaitScheduled(host string, want inventory.VerdictResult) {
	w.t.Helper()
	await(w.t, 5*time.Minute, "a scheduled verification finds "+host+" "+string(want), func() (bool, string) {
		v := w.node(host).Verification
		return v != nil && v.Result == want, fmt.Sprintf("%+v\n%s", v, w.tryCtl("policy", "show", "minutely"))
	})
}

// TestScheduledVerification: a file is changed by hand. The next run of the schedule finds the
// drift and mends nothing, a webhook tells of it, and the decision of the policy is shown.
func TestScheduledVerification(t *testing.T) {
	w := newWorld(t, setup{hosts: 3, testPlaybooks: true, config: fmt.Sprintf(scheduled, addr("host2"))})
	w.ctl("vars", "set", "--global", "--secret", "note=hunter2")

	w.write("host1", "/etc/clusterm/hook.secret", "a-secret-of-the-lab-with-enough-bytes\n")
	w.write("host2", receiverSecret, "a-secret-of-the-lab-with-enough-bytes\n")
	w.write("host2", receiverMode, "200")
	w.labDo("cp", "testdata/receiver.py", "host2:/root/receiver.py")
	w.sh("host2", fmt.Sprintf("touch %s && systemd-run --quiet --unit receiver python3 /root/receiver.py 8080 %s %s %s",
		receiverLog, receiverSecret, receiverMode, receiverLog))
	w.sh("host1", "systemctl reload clusterm")

	w.commission(master, "host2")
	w.commission(worker, "host3")
	w.ctl("policy", "enable", "minutely", "--reason", "drift is to be found")
	w.awaitScheduled("host2", inventory.Clean)
	w.awaitScheduled("host3", inventory.Clean)

	w.sh("host3", "echo changed >/etc/systemtest")
	w.awaitScheduled("host3", inventory.Drifted)
	w.ctl("policy", "disable", "minutely", "--reason", "the drift is found")

	text := w.ctl("nodes", "diff", w.name("host3")).stdout
	if !strings.Contains(text, "would change: Write the file") || strings.Contains(text, "hunter2") {
		t.Errorf("the difference is\n%s", text)
	}

	w.sh("host3", "grep -q changed /etc/systemtest")
	w.wantNode("host3", inventory.Allocated, worker)
	w.wantVerdict("host2", inventory.Clean)

	var event api.NotifiedEvent

	w.awaitDelivery("the drift is delivered", func(d api.Delivery) bool {
		event = d.Event
		return d.Status == "delivered" && event.Kind == "node.drifted"
	})

	if event.Node != w.name("host3") || event.Actor != "policy:minutely" || event.To != string(inventory.Drifted) {
		t.Errorf("the event is %+v", event)
	}

	got := w.received("host2")
	if len(got) != 1 || got[0].Event.ID != event.ID || !got[0].Signed {
		t.Errorf("the receiver got %+v", got)
	}

	w.wantScheduled(event.Job, "host3")
}

// wantScheduled checks that the policy shows the decision that led to the job.
func (w *world) wantScheduled(job, host string) {
	w.t.Helper()

	r := w.ctl("policy", "show", "minutely", "-o", "json")
	decisions := decode[api.Policy](w, r).Decisions

	i := slices.IndexFunc(decisions, func(d api.Decision) bool { return d.Job == job })
	if i < 0 {
		w.t.Fatalf("no decision names job %s: %s", job, r.stdout)
	}
	d := decisions[i]
	evidence := strings.Join(d.Evidence, "\n")

	if d.Action != "verify" || d.Phase != "done" || !slices.Contains(d.Nodes, w.name(host)) ||
		!strings.Contains(evidence, "* * * * *") || !strings.Contains(evidence, w.name(host)+" was verified at") {
		w.t.Errorf("the decision is %+v", d)
	}

	if text := w.ctl("policy", "show", "minutely").stdout; !strings.Contains(text, job) ||
		!strings.Contains(text, "scheduled verification of") {
		w.t.Errorf("the policy shows\n%s", text)
	}
}
