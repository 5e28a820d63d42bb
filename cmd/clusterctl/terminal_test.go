// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"
)

// terminal is a program on a terminal of 24 rows and 80 columns.
type terminal struct {
	ts     *testscript.TestScript
	cmd    *exec.Cmd
	master *os.File
	shown  syncBuffer
	over   chan struct{} // closed at the end of the output
}

// onTerminal starts the program with the terminal as stdout and stderr and, for
// typing, as stdin.
func onTerminal(ts *testscript.TestScript, c *exec.Cmd, typing bool) *terminal {
	master, slave, err := pty.Open()
	if err != nil {
		ts.Fatalf("no terminal: %v", err)
	}
	ts.Defer(func() { _ = master.Close() })

	if ts.Getenv("TERMINAL_SIZE") != "unknown" {
		ts.Check(pty.Setsize(master, &pty.Winsize{Rows: 24, Cols: 80}))
	}

	t := &terminal{ts: ts, cmd: c, master: master, over: make(chan struct{})}

	c.Stdout, c.Stderr = slave, slave
	if typing {
		c.Stdin = slave
	}

	err = c.Start()
	_ = slave.Close()
	ts.Check(err)

	go func() {
		defer close(t.over)
		_, _ = io.Copy(&t.shown, master) // ends with EIO at the end of the program
	}()

	return t
}

// types writes text to the terminal, as a keyboard does.
func (t *terminal) types(text string) {
	_, err := t.master.WriteString(text)
	t.ts.Check(err)
}

// shows waits until the output matches, or ends.
func (t *terminal) shows(pattern *regexp.Regexp) error {
	over := false
	_ = poll(func() bool {
		select {
		case <-t.over:
			over = true
		default:
		}

		return over || pattern.MatchString(t.shown.String())
	})

	if !pattern.MatchString(t.shown.String()) {
		return fmt.Errorf("the terminal never showed %s:\n%q", pattern, t.shown.String())
	}

	return nil
}

// ends waits for the end of the program, and leaves the output in $WORK/tty.
func (t *terminal) ends(code string) {
	err := waitFor(t.cmd)
	<-t.over
	t.ts.Check(os.WriteFile(t.ts.MkAbs("tty"), []byte(t.shown.String()), 0o644))
	checkCode(t.ts, code, err)
}

// cmdTerminal is `terminal CODE PATTERN PROGRAM ARG…`: it runs the program with a
// terminal as stdout and stderr, and opens the gate of hold once the output matches the
// pattern. The output is left in $WORK/tty.
func cmdTerminal(ts *testscript.TestScript, _ bool, args []string) {
	t := onTerminal(ts, command(ts, args[2:]), false)
	err := t.shows(regexp.MustCompile(args[1]))
	_ = os.Remove(proxyOf(ts).daemon.gate())
	t.ends(args[0])
	ts.Check(err)
}

// cmdAsked is `asked CODE ANSWERS PROGRAM ARG…`: it runs the program with a terminal as
// stdin, stdout and stderr, and answers its questions, such as y,n for two of them. Empty ANSWERS
// expect no question. The output is left in $WORK/tty.
func cmdAsked(ts *testscript.TestScript, _ bool, args []string) {
	t := onTerminal(ts, command(ts, args[2:]), true)

	var err error
	if args[1] != "" {
		for i, answer := range strings.Split(args[1], ",") {
			asked := regexp.MustCompile(fmt.Sprintf(`(?s)(\[y/N\].*){%d}`, i+1))
			if err = t.shows(asked); err != nil {
				break
			}
			t.types(answer + "\n")
		}
	}

	t.ends(args[0])
	ts.Check(err)
}

// cmdTab is `tab SETUP TYPED PATTERN SHELL ARG…`: it starts a shell on a terminal, runs
// SETUP, types TYPED, in which \t is the tab key, and waits until the output matches.
func cmdTab(ts *testscript.TestScript, _ bool, args []string) {
	c := command(ts, args[3:])
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}

	t := onTerminal(ts, c, true)
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		<-t.over
	}()
	t.types(args[0] + "; PS1='rea''dy> '\n") // the echo of this line must not match the prompt
	ts.Check(t.shows(regexp.MustCompile("ready> ")))
	t.types(strings.ReplaceAll(args[1], `\t`, "\t"))
	ts.Check(t.shows(regexp.MustCompile(args[2])))
}
