// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// Files of the receiver of webhooks, on its host.
const (
	receiverSecret = "/root/receiver.secret"
	receiverMode   = "/root/receiver.mode"
	receiverLog    = "/root/receiver.log"
)

// received is one request that the receiver got.
type received struct {
	ID     string            `json:"id"`
	Path   string            `json:"path"`
	Mode   string            `json:"mode"`
	Event  api.NotifiedEvent `json:"event"`
	Signed bool              `json:"signed"`
	Age    float64           `json:"age"` // seconds
}

// received returns the requests that the receiver on the host got, the oldest first.
func (w *world) received(host string) []received {
	w.t.Helper()

	var list []received

	for line := range strings.Lines(w.sh(host, "cat "+receiverLog).stdout) {
		var r received
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			w.t.Fatalf("the receiver logged %q: %v", line, err)
		}

		list = append(list, r)
	}

	return list
}

// awaitDelivery waits until a delivery of the target hook satisfies the condition.
func (w *world) awaitDelivery(what string, ok func(api.Delivery) bool) {
	w.t.Helper()
	await(w.t, 2*time.Minute, what, func() (bool, string) {
		r := w.ctl("notification", "log", "hook", "-o", "json")
		return slices.ContainsFunc(decode[api.Deliveries](w, r).Items, ok), r.stdout
	})
}

// TestNotifications: a receiver of webhooks that is down, answers 500, redirects and is
// slow gets every event once and signed, although the manager is restarted and killed
// meanwhile.
func TestNotifications(t *testing.T) {
	const secret = "a-secret-of-the-lab-with-enough-bytes"

	w := newWorld(t, setup{testPlaybooks: true, hosts: 2, config: fmt.Sprintf("notifications:\n"+
		"  - {name: hook, events: [node.status, job.ended], url: 'http://%s:8080/hook', "+
		"secret_file: /etc/clusterm/hook.secret}\n",
		addr("host2"))})

	w.write("host1", "/etc/clusterm/hook.secret", secret+"\n")
	w.write("host2", receiverSecret, secret+"\n")
	w.labDo("cp", "testdata/receiver.py", "host2:/root/receiver.py")
	w.sh("host1", "systemctl reload clusterm")

	// Nobody listens yet, and the manager is restarted.
	w.commission(master, "host2")
	w.awaitDelivery("an attempt without a receiver", func(d api.Delivery) bool {
		return d.Status == "pending" && strings.Contains(d.Error, "refused")
	})
	w.replaceProcess(daemonProcess, restartDaemon)

	for i, mode := range []struct{ answer, why string }{
		{"500", "answered 500"}, {"404", "answered 404"}, {"307", "redirects are not followed"},
		{"slow", "did not answer in time"},
	} {
		w.write("host2", receiverMode, mode.answer)

		if i == 0 {
			w.sh(
				"host2",
				fmt.Sprintf("touch %s && systemd-run --quiet --unit receiver python3 /root/receiver.py 8080 %s %s %s",
					receiverLog, receiverSecret, receiverMode, receiverLog),
			)
		}

		// A reload tries the target at once.
		w.sh("host1", "systemctl reload clusterm")
		w.awaitDelivery("an attempt that ends with "+mode.why, func(d api.Delivery) bool {
			return d.Status == "pending" && strings.Contains(d.Error, mode.why)
		})
	}

	w.replaceProcess(daemonProcess, killDaemon)
	w.do("nodes", "verify", w.name("host2"))
	w.write("host2", receiverMode, "200")
	w.sh("host1", "systemctl reload clusterm")

	var log []api.Delivery

	await(t, 2*time.Minute, "everything is delivered", func() (bool, string) {
		r := w.ctl("notification", "log", "hook", "-o", "json")
		log = decode[api.Deliveries](w, r).Items
		open := slices.ContainsFunc(log, func(d api.Delivery) bool { return d.Status != "delivered" })
		return !open && len(log) >= 3, r.stdout
	})

	// The receiver and the log agree.
	var accepted, delivered []string

	for _, r := range w.received("host2") {
		if !r.Signed || r.Age > 60 || r.Path != "/hook" || r.ID != r.Event.ID {
			t.Errorf("the receiver got %+v", r)
		}

		if r.Mode == "200" {
			accepted = append(accepted, r.ID)
		}
	}

	for _, d := range log {
		delivered = append(delivered, d.Event.ID)
	}

	if !slices.Equal(accepted, delivered) {
		t.Errorf("the receiver accepted %q, and the log has %q", accepted, delivered)
	}

	// The first one had an attempt at each of the troubles.
	if d := log[0]; d.Attempts < 6 || d.Error != "" || d.Event.Actor == "" {
		t.Errorf("the first delivery is %+v", d)
	}

	// A receiver at the address of a cloud's metadata is refused, and nothing changes.
	before := w.sh("host1", "cat "+configFile).stdout

	w.write("host1", configFile, strings.ReplaceAll(before, addr("host2"), "169.254.169.254"))

	if r := w.try("host1", "systemctl reload clusterm"); r.code == 0 {
		t.Error("a reload accepts the address of the metadata")
	}

	if said := w.sh("host1", "journalctl -q -u clusterm -n 20").stdout; !strings.Contains(said, "cloud's metadata") {
		t.Errorf("the journal does not have the reason: %s", said)
	}

	if n := decode[api.Notifications](w, w.ctl("notification", "list", "-o", "json")).Items; len(n) != 1 ||
		!strings.Contains(n[0].To, addr("host2")) {
		t.Errorf("the targets are %+v", n)
	}
}
