// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/contiv/cluster/clusterctl/contexts"
	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory/errtest"
)

// dialogue is a command on a terminal, and a person before it.
type dialogue struct {
	*testing.T
	master, slave *os.File
	code          chan int

	mu    sync.Mutex
	shown bytes.Buffer
	more  chan struct{} // closed at the next output
}

// begin runs a command line on a terminal.
func (m *remoteManager) begin(ctx context.Context, line string) *dialogue {
	m.Helper()

	master, slave, err := pty.Open()
	errtest.None(m, err)
	m.Cleanup(func() { _, _ = master.Close(), slave.Close() })
	d := &dialogue{T: m.T, master: master, slave: slave, code: make(chan int, 1), more: make(chan struct{})}

	go func() { _, _ = io.Copy(d, master) }() // it ends with the terminal

	go func() {
		d.code <- Run(ctx, strings.Fields("clusterctl "+line), Options{Stdin: slave, Stdout: slave, Stderr: slave})
	}()

	return d
}

// Write adds output of the terminal.
func (d *dialogue) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	close(d.more)
	d.more = make(chan struct{})
	return d.shown.Write(p)
}

// output returns the text of the terminal so far, and a channel that more output closes.
func (d *dialogue) output() (string, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown.String(), d.more
}

// patience bounds the wait for a step of a dialogue.
const patience = time.Minute

// shows waits until the terminal has shown a text.
func (d *dialogue) shows(text string) {
	d.Helper()

	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()

	for {
		shown, more := d.output()
		if strings.Contains(shown, text) {
			return
		}

		select {
		case <-more:
		case <-ctx.Done():
			d.Fatalf("the terminal never showed %q:\n%s", text, shown)
		}
	}
}

func (d *dialogue) types(text string) {
	d.Helper()

	if _, err := d.master.WriteString(text); err != nil {
		d.Fatal(err)
	}
}

// ends waits for the end of the command, with an exit code and a last output. The
// terminal must echo again, and must not have shown the token.
func (d *dialogue) ends(code int, text string) {
	d.Helper()
	d.shows(text)

	select {
	case got := <-d.code:
		if got != code {
			d.Errorf("exit code %d, want %d", got, code)
		}
	case <-time.After(patience):
		d.Fatal("the command goes on")
	}

	// The terminal shows what is typed at the end, and after everything before it.
	d.types("echo-on\n")
	d.shows("echo-on")

	if shown, _ := d.output(); strings.Contains(shown, goodToken) {
		d.Errorf("the terminal shows the token:\n%s", shown)
	}
}

// stored returns the contexts of the person.
func (m *remoteManager) stored() []contexts.Context {
	m.Helper()
	f, err := contexts.Load(m.path())
	errtest.None(m, err)
	return f.Contexts
}

// TestLoginDialogue logs in at a terminal: the fingerprint is shown and confirmed, and
// the token is typed without echo.
func TestLoginDialogue(t *testing.T) {
	m := remote(t)

	for _, answer := range []string{"\n", "n\n", "no\n", "yess\n", "N\n", " \n", "y y\n", "\x04"} {
		d := m.begin(t.Context(), "login "+m.url)
		d.shows(m.pin)
		d.shows("[y/N] ")
		d.types(answer)
		d.ends(exit.Failed, "not confirmed; nothing was sent or stored")

		if shown, _ := d.output(); strings.Contains(shown, "token:") {
			t.Errorf("%q: the token was asked for:\n%s", answer, shown)
		}
	}

	if stored := m.stored(); len(stored) != 0 {
		t.Fatalf("refused, and stored: %+v", stored)
	}

	// A token that the manager refuses is not stored either.
	d := m.begin(t.Context(), "login "+m.url)
	d.shows("[y/N] ")
	d.types("y\n")
	d.shows("token: ")
	d.types("wrong-" + goodToken + "\n")
	d.ends(exit.Refused, "the bearer token is not valid")

	if stored := m.stored(); len(stored) != 0 {
		t.Fatalf("a wrong token was stored: %+v", stored)
	}

	d = m.begin(t.Context(), "login "+m.url+" --context lab")
	d.shows(m.pin)
	d.shows("[y/N] ")
	d.types("YES\n")
	d.shows("token: ")
	d.types(goodToken + "\n")
	d.ends(exit.Done, "as context lab")

	stored := m.stored()
	if len(stored) != 1 || stored[0].Token != goodToken || stored[0].Fingerprint != m.pin {
		t.Errorf("stored: %+v", stored)
	}
}

// TestLoginInterrupted ends a login that asks for the token: the terminal echoes again. Nothing
// is typed, because a terminal handles that later than the interruption, which is no key here.
func TestLoginInterrupted(t *testing.T) {
	m := remote(t)
	ctx, cancel := context.WithCancel(t.Context())
	d := m.begin(ctx, "login "+m.url+" --fingerprint "+m.pin)
	d.shows("token: ")

	before, err := term.GetState(int(d.slave.Fd()))
	errtest.None(t, err)

	cancel()

	select {
	case <-d.code:
	case <-time.After(patience):
		t.Fatal("the login goes on")
	}

	after, err := term.GetState(int(d.slave.Fd()))
	if err != nil || *after == *before {
		t.Errorf("the terminal does not echo: %v", err)
	}

	if stored := m.stored(); len(stored) != 0 {
		t.Errorf("interrupted, with %+v stored", stored)
	}
}
