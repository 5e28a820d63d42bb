// SPDX-License-Identifier: Apache-2.0

// Package serftest helps tests of the gossip: it runs agents of the
// distribution's serf, finds free ports, and waits for a condition.
package serftest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Agent is an agent of the distribution's serf. A test can kill it and restart it
// at the same addresses.
type Agent struct {
	RPC   string   // address of its RPC
	Bound string   // address of its gossip
	Args  []string // further arguments of the next start

	t    testing.TB
	name string
	log  string // file of its output
	cmd  *exec.Cmd
	done chan struct{}
}

// Need skips a test on a machine without serf.
func Need(t testing.TB) {
	t.Helper()

	if _, err := exec.LookPath("serf"); err != nil {
		t.Skipf("the distribution's serf is not installed: %v", err)
	}
}

// NeedLab skips a test that needs some seconds of a real serf, unless
// CLUSTERM_LAB=1.
func NeedLab(t testing.TB) {
	t.Helper()

	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("runs the real serf for some seconds; set CLUSTERM_LAB=1, as make system does")
	}

	Need(t)
}

// Tags returns the arguments that make an agent a node.
func Tags(label, serial, addr string) []string {
	return []string{"-tag", "NodeLabel=" + label, "-tag", "NodeSerial=" + serial, "-tag", "NodeAddr=" + addr}
}

// Start starts an agent at ip with further arguments, and waits until it answers.
// The agent ends with the test; a failed test logs its output.
func Start(t testing.TB, name, ip string, args ...string) *Agent {
	t.Helper()
	Need(t)
	a := &Agent{Args: args, t: t, name: name, log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		a.Kill()

		if text, err := os.ReadFile(a.log); t.Failed() {
			t.Logf("output of the serf agent %s at %s:\n%s (%v)", name, a.Bound, text, err)
		}
	})

	for {
		a.RPC, a.Bound = Free(t, ip), Free(t, ip)
		if a.start() {
			return a
		}

		// Another process may have taken one of its ports first.
		text, err := os.ReadFile(a.log)
		if !bytes.HasSuffix(bytes.TrimSpace(text), []byte("address already in use")) {
			t.Fatalf("the serf agent %s ended when it was started: %s (%v)", name, text, err)
		}
	}
}

// Restart starts an agent that has ended, at its former addresses.
func (a *Agent) Restart() {
	a.t.Helper()

	if !a.start() {
		a.t.Fatalf("the serf agent %s ended when it was started again", a.name)
	}
}

// start reports whether the agent answers; otherwise it has ended.
func (a *Agent) start() bool {
	a.t.Helper()

	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	defer log.Close()

	// The log of an earlier start contains the line that means ready, too.
	before, err := os.ReadFile(a.log)
	if err != nil {
		a.t.Fatal(err)
	}

	args := []string{"agent", "-node", a.name, "-bind", a.Bound, "-rpc-addr", a.RPC,
		"-profile", "local", "-retry-interval", "1s", "-broadcast-timeout", "1m", "-log-level", "debug"}
	cmd, done := exec.Command("serf", append(args, a.Args...)...), make(chan struct{})

	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}

	a.cmd, a.done = cmd, done
	go func() {
		defer close(done)
		_ = cmd.Wait() // tests end it in several ways
	}()

	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for {
		text, err := os.ReadFile(a.log)
		if err == nil && bytes.Contains(text[len(before):], []byte("Serf agent running!")) {
			return true // serf prints it once its RPC answers
		}

		select {
		case <-done:
			return false
		case <-deadline.C:
			a.t.Fatalf("the serf agent %s does not answer: %v", a.name, err)
		case <-tick.C:
		}
	}
}

// Done is closed when the process has ended.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Signal sends a signal to its process, which may have ended.
func (a *Agent) Signal(s os.Signal) { _ = a.cmd.Process.Signal(s) }

// Kill ends it at once, without a leave, and waits until it has ended.
func (a *Agent) Kill() {
	if a.cmd == nil {
		return
	}

	_ = a.cmd.Process.Kill() // an error means that it has ended
	<-a.done
}

// Ask runs a command of serf on it: leave, tags, ….
func (a *Agent) Ask(command string, args ...string) {
	a.t.Helper()

	args = append([]string{command, "-rpc-addr=" + a.RPC}, args...)
	if out, err := exec.Command("serf", args...).CombinedOutput(); err != nil {
		a.t.Fatalf("serf %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Free returns an address, with a port that no socket uses at the moment.
func Free(t testing.TB, ip string) string {
	t.Helper()

	// Below the ephemeral ports (32768 and up, ip(7)): an outgoing connection
	// could take one of those before the caller listens on it.
	for range 100 {
		addr := fmt.Sprintf("%s:%d", ip, 20000+rand.IntN(12000))

		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		l.Close()

		p, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		p.Close()

		return addr
	}

	t.Fatalf("no port is free on %s", ip)

	return ""
}

// patience bounds every wait. A stock agent may pass on a missed change only at
// its next full exchange, up to half a minute later.
const patience = 2 * time.Minute

// Eventually waits until the condition is true, for two minutes at most.
func Eventually(t testing.TB, condition string, ok func() bool) {
	t.Helper()

	deadline := time.NewTimer(patience)
	defer deadline.Stop()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not true after %v: %s", patience, condition)
		case <-tick.C:
		}
	}
}
