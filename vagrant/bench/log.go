// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// emit stands in for a playbook with much output. It prints count lines as fast as they
// are read, and writes two figures to a file: the seconds in all, and those of the
// slowest single write. For a run of clusterm it reports the hosts as done.
func emit(count, file string, hosts []string) {
	n := must(strconv.Atoi(count))

	if path := os.Getenv("CLUSTERM_EVENTS"); path != "" {
		reportRun(path, hosts)
	}

	out := &slowest{to: os.Stdout}
	w := bufio.NewWriterSize(out, 4<<10)

	seconds := timed(func() {
		for i := range n {
			fmt.Fprintf(w, "%08d the quick brown fox jumps over the lazy dog, a line in the log of a job\n", i)
		}

		check(w.Flush())
	})

	check(os.WriteFile(file, fmt.Appendf(nil, "%g %g", seconds, out.longest.Seconds()), 0o600))
}

// reportRun writes the events of a play with one task on the hosts, in the form of the
// callback plugin clusterm_events.
func reportRun(path string, hosts []string) {
	type event map[string]any

	stats, events := event{}, []event{{"event": "playbook"}, {"event": "play", "hosts": hosts}, {"event": "task"}}
	for _, host := range hosts {
		events = append(events, event{"event": "ok", "host": host})
		stats[host] = map[string]int{"ok": 1, "judged": 1}
	}

	out := must(os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0))
	defer out.Close()

	for _, e := range append(events, event{"event": "stats", "stats": stats}) {
		e["time"], e["play"], e["task"], e["action"] = time.Now().UTC(), "bench", "print", "debug"
		check(json.NewEncoder(out).Encode(e))
	}
}

// times is the file with the figures of the newest emit.
func (b *bench) times() string { return filepath.Join(b.dir, "times") }

// playbookScript writes a stand-in for ansible-playbook whose runs are emit, with a line of shell
// before it. It returns its path.
func (b *bench) playbookScript(before string, lines int, hosts ...string) string {
	script := filepath.Join(b.dir, "ansible-playbook")
	text := fmt.Sprintf(`#!/bin/sh
case " $* " in
*' --version '*) echo 'ansible-playbook [core 2.16.3]'; exit 0;;
*' --syntax-check '*) exit 0;;
esac
%s
exec %s emit %d %s %s
`, before, must(os.Executable()), lines, b.times(), strings.Join(hosts, " "))

	check(os.WriteFile(script, []byte(text), 0o700))

	return script
}

// slowest is a writer that measures its slowest write.
type slowest struct {
	to      io.Writer
	longest time.Duration
}

func (s *slowest) Write(b []byte) (int, error) {
	begun := time.Now()
	n, err := s.to.Write(b)
	s.longest = max(s.longest, time.Since(begun))
	return n, err
}

const followers = 4

// logs measures how fast clusterm reads a job's output.
func logs(ctx context.Context, b *bench) []row {
	script := b.playbookScript("", b.lines, name(0))
	w := b.world(ctx, "ansible_playbook: "+script+"\njobs: {output_limit: 67108864}\n")
	w.fill(ctx, 10)

	speed := func() float64 {
		var seconds, longest float64

		_ = must(fmt.Sscan(string(must(os.ReadFile(b.times()))), &seconds, &longest))

		// A slow follower must never block the playbook.
		if longest > 1 {
			fail("the playbook was blocked for %.1f s", longest)
		}

		return float64(b.lines) / seconds
	}

	// Rounds alternate between two verbs, so that each is legal.
	request, next := api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{name(0)}, Group: "service-master"},
		api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{name(0)}}
	latest := 0.0 // until the last follower had every line

	return []row{{
		Name:    "log read, 4 followers and a stalled one",
		Unit:    "lines/s",
		Against: "reading the same pipe to a file",
		Rounds:  5,
		floor:   atLeast(0.5),
		note: func() string {
			return fmt.Sprintf("%d lines; every follower had all of them at most %.1f s after the request; "+
				"no write of the playbook took a second", b.lines, latest)
		},
		product: func() float64 {
			latest = max(latest, timed(func() {
				id := must(w.Submit(ctx, request)).ID
				// The connection that never reads fills its buffers within the first lines.
				defer w.stall(ctx, id).Close()

				together(followers+1, func(i int) {
					if i < followers {
						w.followAll(ctx, id)
					} else {
						w.complete(ctx, id)
					}
				})
			}))
			request, next = next, request

			return speed()
		},
		baseline: func() float64 {
			cmd := exec.CommandContext(ctx, must(os.Executable()), "emit", strconv.Itoa(b.lines), b.times())
			out := must(cmd.StdoutPipe())

			f := must(os.Create(filepath.Join(b.dir, "plain")))
			defer f.Close()

			check(cmd.Start())

			// The wrappers hide ReadFrom and WriteTo, which would splice in the kernel.
			_, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{out}, make([]byte, 64<<10))
			check(errors.Join(err, cmd.Wait()))

			return speed()
		},
	}}
}

// followAll reads a log until its job has ended, and requires all lines of the playbook.
func (w *world) followAll(ctx context.Context, id string) {
	s := must(w.Log(ctx, id, 0, true))
	defer s.Close()

	count, lines := 0, bufio.NewScanner(s)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "the quick brown fox") {
			count++
		}
	}

	check(lines.Err())

	if count != w.bench.lines {
		fail("a follower has %d lines of %d", count, w.bench.lines)
	}
}

// stall follows a log and never reads the response.
func (w *world) stall(ctx context.Context, id string) net.Conn {
	var d net.Dialer

	c := must(d.DialContext(ctx, "tcp", strings.TrimPrefix(w.url, "http://")))

	// A small buffer, so that the server notices soon.
	check(c.(*net.TCPConn).SetReadBuffer(4 << 10))

	_ = must(fmt.Fprintf(c, "GET /v1/jobs/%s/log?follow=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id))

	return c
}
