// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processes lists the ids of all processes.
func processes() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close() //nolint:errcheck // only read
	names, _ := d.Readdirnames(-1)

	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}

	return pids
}

// procStat reads a process's parent, state and start time (in clock ticks
// since the boot: with the id it names a process for good).
func procStat(pid int) (parent int, state byte, start uint64, err error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, 0, err
	}

	// The command's name, in parentheses, may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, 0, fmt.Errorf("process %d: stat is cut short", pid)
	}

	parent, err1 := strconv.Atoi(fields[1])
	start, err2 := strconv.ParseUint(fields[19], 10, 64)

	return parent, fields[0][0], start, errors.Join(err1, err2)
}

// descendants lists the processes below pid that still run.
func descendants(pid int) []int {
	children := map[int][]int{}

	dead := map[int]bool{}
	for _, p := range processes() {
		if parent, state, _, err := procStat(p); err == nil {
			children[parent] = append(children[parent], p)
			dead[p] = state == 'Z' || state == 'X'
		}
	}

	var found []int
	for todo := children[pid]; len(todo) > 0; todo = todo[1:] {
		if !dead[todo[0]] {
			found = append(found, todo[0])
		}

		todo = append(todo, children[todo[0]]...)
	}

	return found
}

// marker is the environment variable that every process of a run has, with the
// run's directory as its value.
const marker = "CLUSTERM_RUN"

// marked lists the processes of the run in dir, by their environment. It finds
// them where their runner is gone and they are nobody's descendants any more.
// ssh's master connections write their title over their environment; the title
// names the socket, which is in the run's directory of sockets ("": not known).
func marked(dir, sockets string) []int {
	want := []byte(marker + "=" + dir)
	title := []byte("ssh: " + sockets + "/")

	var found []int
	for _, p := range processes() {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p), "environ"))
		if err != nil || p == os.Getpid() {
			continue
		}

		if sockets != "" {
			if args, err := os.ReadFile(
				filepath.Join("/proc", strconv.Itoa(p), "cmdline"),
			); err == nil &&
				bytes.HasPrefix(args, title) {
				found = append(found, p)
				continue
			}
		}

		for v := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(v, want) {
				found = append(found, p)
				break
			}
		}
	}

	return found
}

// sweep kills what a run that lost its runner left behind.
func sweep(ctx context.Context, dir, sockets string) error {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()

	for range 100 {
		left := marked(dir, sockets)
		if len(left) == 0 {
			return nil
		}

		for _, p := range left {
			_ = unix.Kill(p, unix.SIGKILL)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
	}

	return fmt.Errorf("processes %v of the run in %s cannot be killed", marked(dir, sockets), dir)
}

// sinceBoot is a clock that all processes share, that nobody sets, and that
// goes on while the machine is suspended.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // every Linux has it
	}

	return time.Duration(ts.Nano())
}
