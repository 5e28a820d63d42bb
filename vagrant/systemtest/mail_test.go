// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// mailTargets reach one relay in several ways.
const mailTargets = `
notifications:
  - {name: ops, events: [job.ended], ca_file: /etc/clusterm/relay.pem,
     mail: {relay: "10.77.0.1:2525", from: clusterm@example.com, to: [ops@example.com]}}
  - {name: busy, events: [job.ended], ca_file: /etc/clusterm/relay.pem,
     mail: {relay: "10.77.0.1:2525", from: clusterm@example.com, to: [busy@example.com]}}
  - {name: gone, events: [job.ended], ca_file: /etc/clusterm/relay.pem,
     mail: {relay: "10.77.0.1:2525", from: clusterm@example.com, to: [nobody@example.com]}}
  - {name: untrusted, events: [job.ended],
     mail: {relay: "10.77.0.1:2525", from: clusterm@example.com, to: [untrusted@example.com]}}
  - {name: plain, events: [job.ended],
     mail: {relay: "10.77.0.1:2525", from: clusterm@example.com, to: [plain@example.com], tls: off}}
`

// awaitMails waits until the target has that many deliveries, and each satisfies the condition.
func (w *world) awaitMails(target string, number int, ok func(api.Delivery) bool) []api.Delivery {
	w.t.Helper()

	var list []api.Delivery

	await(w.t, 2*time.Minute, "the deliveries of "+target, func() (bool, string) {
		r := w.ctl("notification", "log", target, "-o", "json")
		list = decode[api.Deliveries](w, r).Items

		for _, d := range list {
			if !ok(d) {
				return false, r.stdout
			}
		}

		return len(list) == number, r.stdout
	})

	return list
}

// TestMail: mail is sent by a relay that is down at first, while the manager is killed. Each
// event is one mail, encrypted unless that is off. A busy relay is asked again, a refused
// recipient is final, and a relay with an unknown certificate gets nothing.
func TestMail(t *testing.T) {
	dir := t.TempDir()
	ca := writeRelayFiles(t, dir)

	w := newWorld(t, setup{testPlaybooks: true, hosts: 2})
	config := w.sh("host1", "cat "+configFile).stdout

	w.write("host1", "/etc/clusterm/relay.pem", ca)
	w.write("host1", configFile, config+mailTargets)
	w.sh("host1", "systemctl reload clusterm")

	first := w.commission(master, "host2")

	for _, target := range []string{"ops", "busy", "gone", "untrusted", "plain"} {
		w.awaitMails(target, 1, func(d api.Delivery) bool {
			return d.Status == "pending" && strings.Contains(d.Error, "refused")
		})
	}

	w.replaceProcess(daemonProcess, killDaemon)
	w.startRelay(dir)

	// A reload tries each target at once.
	w.sh("host1", "systemctl reload clusterm")

	second := w.do("nodes", "verify", w.name("host2"))

	delivered := func(d api.Delivery) bool { return d.Status == "delivered" && d.Error == "" }

	// After many attempts the next one is far away, unless a reload brings it.
	await(t, time.Minute, "the relay is busy", func() (bool, string) {
		r := w.ctl("notification", "log", "busy", "-o", "json")
		d := decode[api.Deliveries](w, r).Items[0]
		return delivered(d) || strings.Contains(d.Error, "try again later"), r.stdout
	})
	w.sh("host1", "systemctl reload clusterm")

	// One attempt was without a relay, and one was refused by the busy one.
	for target, attempts := range map[string]int{"ops": 2, "busy": 3, "plain": 2} {
		list := w.awaitMails(target, 2, delivered)
		w.wantMails(dir, target, list, first.ID, second.ID)

		if list[0].Attempts < attempts {
			t.Errorf("%s had the first mail too early: %+v", target, list[0])
		}
	}

	w.awaitMails("gone", 2, func(d api.Delivery) bool {
		return d.Status == "dead" && strings.Contains(d.Error, "no such user")
	})

	await(t, time.Minute, "the certificate is refused", func() (bool, string) {
		r := w.ctl("notification", "log", "untrusted", "-o", "json")

		// The second one is not tried before the first.
		d := decode[api.Deliveries](w, r).Items[0]
		if d.Status != "pending" {
			t.Fatalf("a relay with an unknown certificate: %+v", d)
		}
		return strings.Contains(d.Error, "certificate"), r.stdout
	})

	for _, to := range []string{"nobody@example.com", "untrusted@example.com"} {
		if got := w.mails(dir, to); len(got) > 0 {
			t.Errorf("%s got %+v", to, got)
		}
	}
}

// wantMails requires one mail for each of the deliveries, which are about these jobs.
func (w *world) wantMails(dir, target string, list []api.Delivery, jobs ...string) {
	w.t.Helper()

	got := w.mails(dir, target+"@example.com")
	if len(got) != len(list) {
		w.t.Fatalf("%s got %d mails for %d deliveries: %+v", target, len(got), len(list), got)
	}

	for i, m := range got {
		event := list[i].Event

		message, err := mail.ReadMessage(strings.NewReader(m.Data))
		if err != nil {
			w.t.Fatalf("%s: %v in\n%s", target, err, m.Data)
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(message.Header.Get("Subject"))
		if err != nil {
			w.t.Error(err)
		}

		body, err := io.ReadAll(quotedprintable.NewReader(message.Body))
		if err != nil {
			w.t.Error(err)
		}

		if subject != "["+event.Manager+"] "+event.Summary || event.Job != jobs[i] || m.TLS == (target == "plain") ||
			!strings.Contains(string(body), "job      "+jobs[i]) || !strings.Contains(string(body), "actor    root") ||
			!strings.HasPrefix(message.Header.Get("Message-ID"), "<"+event.ID+"@clusterm.") {
			w.t.Errorf("about job %s and event %s, %s got (TLS: %t)\n%s", jobs[i], event.ID, target, m.TLS, m.Data)
		}
	}
}
