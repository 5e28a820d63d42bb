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
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

const followers = 4

// emit stands in for a playbook with much output. It prints count lines as fast as they
// are read, and writes two figures to a file: the seconds in all, and those of the
// slowest single write. For a run of clusterm it reports the hosts as done.
func emit(count, file string, hosts []string) int {
	n, err := strconv.Atoi(count)
	if err == nil {
		err = reportRun(os.Getenv("CLUSTERM_EVENTS"), hosts)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}

	out := &slowest{to: os.Stdout}
	w := bufio.NewWriterSize(out, 4<<10)
	begun := time.Now()

	for i := range n {
		fmt.Fprintf(w, "%08d the quick brown fox jumps over the lazy dog, a line in the log of a job\n", i)
	}

	if err := w.Flush(); err != nil {
		return 1
	}

	took := time.Since(begun)
	if err := os.WriteFile(file, fmt.Appendf(nil, "%g %g", took.Seconds(), out.longest.Seconds()), 0o600); err != nil {
		return 1
	}

	return 0
}

// reportRun writes the events of a play with one task on the hosts, in the form of the
// callback plugin clusterm_events. An empty path is a run without that plugin.
func reportRun(path string, hosts []string) error {
	if path == "" {
		return nil
	}

	events := []map[string]any{
		{"event": "playbook"},
		{"event": "play", "play": "bench", "hosts": hosts},
		{"event": "task", "play": "bench", "task": "print", "action": "debug"},
	}

	stats := map[string]any{}
	for _, host := range hosts {
		events = append(events, map[string]any{
			"event": "ok", "host": host, "play": "bench", "task": "print", "action": "debug",
		})
		stats[host] = map[string]int{"ok": 1, "judged": 1}
	}

	events = append(events, map[string]any{"event": "stats", "stats": stats})

	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer out.Close()

	encoder := json.NewEncoder(out)
	for _, event := range events {
		event["time"] = time.Now().UTC()
		if err := encoder.Encode(event); err != nil {
			return err
		}
	}

	return nil
}

// playbookScript writes a stand-in for ansible-playbook whose runs are emit, with the
// check before it, a line of shell. It returns its path.
func (b *bench) playbookScript(check string, lines int, times string, hosts ...string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}

	text := fmt.Sprintf(`#!/bin/sh
case " $* " in
*' --version '*) echo 'ansible-playbook [core 2.16.3]'; exit 0;;
*' --syntax-check '*) exit 0;;
esac
%s
exec %s emit %d %s %s
`, check, self, lines, times, strings.Join(hosts, " "))
	script := filepath.Join(b.dir, "ansible-playbook")

	return script, os.WriteFile(script, []byte(text), 0o700)
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

// logs measures how fast clusterm reads a job's output.
func logs(ctx context.Context, b *bench) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}

	times := filepath.Join(b.dir, "times")

	script, err := b.playbookScript("", b.lines, times, name(0))
	if err != nil {
		return err
	}

	w, err := b.world(ctx, "ansible_playbook: "+script+"\njobs: {output_limit: 67108864}\n")
	if err != nil {
		return err
	}
	defer w.discard()

	if err := w.fill(ctx, 10); err != nil {
		return err
	}

	speed := func() (float64, error) {
		text, err := os.ReadFile(times)
		if err != nil {
			return 0, err
		}

		var seconds, longest float64
		if _, err := fmt.Sscan(string(text), &seconds, &longest); err != nil {
			return 0, err
		}

		// A slow follower must never block the playbook.
		if longest > 1 {
			return 0, fmt.Errorf("the playbook was blocked for %.1f s", longest)
		}

		return float64(b.lines) / seconds, nil
	}

	verb := inventory.VerbCommission

	var latest time.Duration // until the last follower had every line

	product := func(ctx context.Context) (float64, error) {
		// Rounds alternate between two verbs, so that each is legal.
		request := api.JobRequest{Verb: verb, Nodes: []string{name(0)}}
		if verb == inventory.VerbCommission {
			request.Group, verb = "service-master", inventory.VerbDecommission
		} else {
			verb = inventory.VerbCommission
		}

		begun := time.Now()

		j, err := w.Submit(ctx, request)
		if err != nil {
			return 0, err
		}

		// The connection that never reads fills its buffers within the first lines.
		stalled, err := w.stall(ctx, j.ID)
		if err != nil {
			return 0, err
		}
		defer stalled.Close()

		errs := make([]error, followers)

		var all sync.WaitGroup
		for i := range followers {
			all.Go(func() { errs[i] = w.followAll(ctx, j.ID, b.lines) })
		}

		if j, err = w.WaitJob(ctx, j.ID); err == nil && j.Status != api.Complete {
			err = fmt.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
		}

		all.Wait()
		latest = max(latest, time.Since(begun))

		if err := errors.Join(append(errs, err)...); err != nil {
			return 0, err
		}

		return speed()
	}

	baseline := func(ctx context.Context) (float64, error) {
		cmd := exec.CommandContext(ctx, self, "emit", strconv.Itoa(b.lines), times)

		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}

		f, err := os.Create(filepath.Join(b.dir, "plain"))
		if err != nil {
			return 0, err
		}
		defer f.Close()

		if err := cmd.Start(); err != nil {
			return 0, err
		}

		// The wrappers hide ReadFrom and WriteTo, which would splice in the kernel.
		_, err = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{out}, make([]byte, 64<<10))
		if err = errors.Join(err, cmd.Wait()); err != nil {
			return 0, err
		}

		return speed()
	}

	err = b.compare(ctx, comparison{
		name:     "log read, 4 followers and a stalled one",
		unit:     "lines/s",
		against:  "reading the same pipe to a file",
		rounds:   5,
		floor:    atLeast(0.5),
		product:  product,
		baseline: baseline,
	})
	if err == nil {
		b.out.Rows[len(b.out.Rows)-1].Note = fmt.Sprintf(
			"%d lines; every follower had all of them at most %.1f s after the request; "+
				"no write of the playbook took a second", b.lines, latest.Seconds())
	}

	return err
}

// followAll reads a log until its job has ended, and requires all lines of the playbook.
func (w *world) followAll(ctx context.Context, id string, lines int) error {
	s, err := w.Log(ctx, id, 0, true)
	if err != nil {
		return err
	}
	defer s.Close()

	in := bufio.NewReaderSize(s, 64<<10)

	count := 0
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return err
		}

		if strings.Contains(string(line), "the quick brown fox") {
			count++
		}
	}

	if count != lines {
		return fmt.Errorf("a follower has %d lines of %d", count, lines)
	}

	return nil
}

// stall follows a log and never reads the response.
func (w *world) stall(ctx context.Context, id string) (net.Conn, error) {
	var d net.Dialer

	c, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		return nil, err
	}

	// A small buffer, so that the server notices soon.
	if t, ok := c.(*net.TCPConn); ok {
		err = t.SetReadBuffer(4 << 10)
	}

	_, werr := fmt.Fprintf(c, "GET /v1/jobs/%s/log?follow=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id)

	return c, errors.Join(err, werr)
}
