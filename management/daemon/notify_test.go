// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
)

// hook is a receiver of webhooks. It answers 500 as long as it is down.
type hook struct {
	*httptest.Server

	mu     sync.Mutex
	down   bool
	tries  int
	events []api.NotifiedEvent
	got    chan struct{} // has room for every event of a test
}

func newHook(t *testing.T, secret string) *hook {
	t.Helper()

	verifier, err := webhooks.NewWebhookRaw([]byte(secret))
	errtest.None(t, err)

	h := &hook{down: true, got: make(chan struct{}, 100)}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verifier.Verify(body, r.Header); err != nil {
			t.Errorf("the signature: %v", err)
		}

		var e api.NotifiedEvent
		if err := json.Unmarshal(body, &e); err != nil {
			t.Errorf("the body %s: %v", body, err)
		}

		h.mu.Lock()
		defer h.mu.Unlock()

		if h.tries++; h.down {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}

		h.events = append(h.events, e)
		h.got <- struct{}{}
	}))
	t.Cleanup(h.Close)

	return h
}

// TestNotifications: an event reaches a receiver that was down, over a restart of the
// daemon as well, signed and once. A reload takes over another secret file.
func TestNotifications(t *testing.T) {
	t.Parallel()

	const secret = "a-secret-of-enough-bytes-for-a-test"

	h := newHook(t, secret)
	s := prepare(t)
	file := filepath.Join(s.dir, "secret")
	settings := fmt.Sprintf("notifications: [{name: hook, events: [node.new, node.state], url: '%s/secret-path', "+
		"secret_file: %s, allow_local: true}]", h.URL, file)

	// Without its secret, a target is named by the health and keeps its deliveries.
	s.write(settings)
	s.up()

	if problem := s.health(t.Context()).Checks["notifications"]; !strings.Contains(problem, file) {
		t.Errorf("the check says %q", problem)
	}

	s.must(os.WriteFile(file, []byte(secret+"\n"), 0o600))
	s.must(second(s.Client.ReloadConfig(s.ctx())))
	s.eventually("the notifier follows the store", func() bool {
		return record.One(s.store.View(), &notify.PositionKind).Revision > 0
	})
	s.report("a")
	s.eventually("a first attempt", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.tries > 0
	})

	// The daemon stops before the receiver is back.
	s.down()

	h.mu.Lock()
	h.down = false
	h.mu.Unlock()

	s.up()
	t.Cleanup(s.down)
	<-h.got
	s.report("b")
	<-h.got

	var said []string

	h.mu.Lock()

	for _, e := range h.events {
		said = append(said, string(e.Kind)+" "+e.Node)
	}

	h.mu.Unlock()

	if want := []string{"node.new a-1", "node.new b-1"}; !slices.Equal(said, want) {
		t.Errorf("the receiver got %q", said)
	}

	// The receiver has it before the answer, and the answer before the result is stored.
	s.eventually("both results are stored", func() bool {
		list, err := s.Client.Deliveries(s.ctx(), "hook", "delivered")
		return err == nil && len(list.Items) == 2
	})

	n, err := s.Client.TestNotification(s.ctx(), "hook")
	s.must(err)

	if strings.Contains(n.To, "secret-path") || n.Delivered != 2 || n.Dead != 0 {
		t.Errorf("the target is %+v", n)
	}

	c, err := s.Client.Config(s.ctx())
	s.must(err)

	if text := fmt.Sprint(c); strings.Contains(text, "secret-path") {
		t.Errorf("the configuration shows the URL: %s", text)
	}

	if _, err := s.Client.TestNotification(s.ctx(), "nobody"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("a test of an unknown target: %v", err)
	}
}

// TestRolloutIsNotified: a rollout that stops and one that ends are told once each, also
// when the manager is killed while the receiver is down.
func TestRolloutIsNotified(t *testing.T) {
	t.Parallel()

	const secret = "a-secret-of-enough-bytes-for-a-test"

	h := newHook(t, secret)
	s := prepare(t)
	file := filepath.Join(s.dir, "secret")
	s.must(os.WriteFile(file, []byte(secret+"\n"), 0o600))
	s.write(fmt.Sprintf("notifications: [{name: hook, events: [rollout.ended, rollout.stopped, rollout.waiting], "+
		"url: '%s', secret_file: %s, allow_local: true}]", h.URL, file))
	s.up()
	t.Cleanup(func() { s.down() })

	s.eventually("the notifier follows the store", func() bool {
		return record.One(s.store.View(), &notify.PositionKind).Revision > 0
	})

	names, fault := s.fleet("a b c")
	s.must(os.WriteFile(fault, []byte("a-1\n"), 0o600))

	r, err := s.Rollouts().Start(s.ctx(), ann, apply(names, nil))
	s.must(err)
	s.reach(r.ID, "it stops", is(rollout.Stopped))
	s.restart()

	h.mu.Lock()
	h.down = false
	h.mu.Unlock()

	<-h.got
	s.must(os.WriteFile(fault, nil, 0o600))
	s.must(second(s.Rollouts().Control(s.ctx(), bob, r.ID, rollout.ActRetry, rollout.ActOptions{})))
	s.reach(r.ID, "it is done", is(rollout.Done))
	<-h.got

	// Otherwise the delivery would be repeated, under its id.
	s.eventually("both results are stored", func() bool {
		list, err := s.Client.Deliveries(s.ctx(), "hook", "delivered")
		return err == nil && len(list.Items) == 2
	})
	s.restart()

	// This event comes after all that the restart could have repeated.
	later, err := s.Rollouts().Start(s.ctx(), ann, apply(names, func(r *rollout.Request) { r.RequireApproval = true }))
	s.must(err)
	<-h.got

	h.mu.Lock()
	defer h.mu.Unlock()

	var told []string
	for _, e := range h.events {
		told = append(told, fmt.Sprintf("%s %s %s>%s by %s", e.Kind, e.Rollout, e.From, e.To, e.Actor))
	}

	want := []string{
		"rollout.stopped " + r.ID + " Running>Stopped by ann", "rollout.ended " + r.ID + " Running>Done by ann",
		"rollout.waiting " + later.ID + " >AwaitingApproval by ann",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
}
