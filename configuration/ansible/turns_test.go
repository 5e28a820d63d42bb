// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestTurns: a party whose hosts all stand still leaves turns for the others, and the
// party with the fewest logins is next.
func TestTurns(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		hold := func(ctx context.Context, party string, got chan<- string) {
			if release, err := turns.take(ctx, party); err == nil {
				got <- party
				<-ctx.Done()
				release()
			} else {
				got <- err.Error()
			}
		}

		slow, end := context.WithCancel(t.Context())
		held := make(chan string, 2*maxWaiting)

		for range 3 * logins {
			go hold(slow, "slow", held)
		}

		synctest.Wait()

		if len(held) != share {
			t.Fatalf("one party has %d logins", len(held))
		}

		good := make(chan string, 100)
		for i := range logins - share {
			go hold(t.Context(), fmt.Sprint("good", i), good)
		}

		synctest.Wait()

		if len(good) != logins-share {
			t.Fatalf("%d of the others have a turn", len(good))
		}

		// When turns become free, each goes to the party that has the fewest.
		waits, late := context.WithTimeout(t.Context(), time.Second)
		defer late()

		next := make(chan string, 100)
		go hold(waits, "good0", next)
		synctest.Wait()

		go hold(waits, "new", next)
		synctest.Wait()
		turns.release("slow")
		synctest.Wait()

		if len(next) != 1 || <-next != "new" {
			t.Error("the turn went to a party that had one")
		}

		// good0 gives up, and its place in the queue is free.
		if got := <-next; !strings.Contains(got, "before its turn") {
			t.Errorf("a wait that ended: %s", got)
		}

		turns.mu.Lock()
		turns.held["slow"]++ // the end releases it again
		turns.free--
		turns.mu.Unlock()

		end()
		synctest.Wait()
		turns.mu.Lock()
		defer turns.mu.Unlock()

		if turns.free != logins-(logins-share) || len(turns.waiting) > 0 || turns.held["slow"] != 0 {
			t.Errorf("afterwards: %d free, %v held, %d wait", turns.free, turns.held, len(turns.waiting))
		}
	})
}

// TestTurnsBusy: a party with too many waiting logins is refused, and others are served.
func TestTurnsBusy(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		for range share + maxWaiting {
			go func() {
				if release, err := turns.take(t.Context(), "slow"); err == nil {
					<-t.Context().Done()
					release()
				}
			}()
		}

		synctest.Wait()

		_, err := turns.take(t.Context(), "slow")
		if inventory.KindOf(err) != inventory.KindBusy || !strings.Contains(err.Error(), "logins of slow wait") {
			t.Errorf("too many: %v", err)
		}

		release, err := turns.take(t.Context(), "good")
		errtest.None(t, err)
		release()
	})
}

// TestScansLeaveTurns: scans of hosts that stand still do not keep the ping of another
// caller from its login.
func TestScansLeaveTurns(t *testing.T) {
	t.Parallel()

	p := &Prober{Dir: t.TempDir(), SSH: fakeSSH(t, `case "$*" in *HostKeyAlgorithms=*) exec sleep 60 ;; esac`)}
	h := host(serve(t, "SSH-2.0-test\r\n"))

	scans, end := context.WithCancel(t.Context())
	ended := make(chan struct{}, logins)

	for range logins {
		go func() {
			_, _ = p.For("slow").HostKeys(scans, h)
			ended <- struct{}{}
		}()
	}

	// The scans have all turns that one caller may have.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for deadline := within(t, patience); ; {
		turns := p.pool()
		turns.mu.Lock()
		full := turns.held["slow"] == share
		turns.mu.Unlock()

		if full {
			break
		}

		select {
		case <-tick.C:
		case <-deadline.Done():
			t.Fatal("the scans have no turns")
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	if r := p.For("good").Probe(ctx, []configuration.Host{h})[0]; !r.OK() {
		t.Errorf("the ping of another caller: %+v", r)
	}

	end()

	for range logins {
		<-ended
	}
}
