// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	defer d.Close()

	names, _ := d.Readdirnames(-1)

	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}

	return pids
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// procStat reads a process's parent, state and start time. The start time, in
// clock ticks since boot, distinguishes processes with the same id.
func procStat(pid int) (parent int, state byte, start uint64, err error) {
	b, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0, 0, 0, err
	}

	// The name of the command, in parentheses, may contain spaces and parentheses.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, 0, fmt.Errorf("process %d: stat is cut short", pid)
	}
	parent, err1 := strconv.Atoi(fields[1])
	start, err2 := strconv.ParseUint(fields[19], 10, 64)

	return parent, fields[0][0], start, errors.Join(err1, err2)
}

// descendants lists the running processes below pid, breadth first.
func descendants(pid int) []int {
	children := map[int][]int{}

	dead := map[int]bool{}
	for _, p := range processes() {
		if parent, state, _, err := procStat(p); err == nil {
			children[parent] = append(children[parent], p)
			dead[p] = state == 'Z' || state == 'X'
		}
	}

	// A dead process may still have running children.
	var found []int
	for queue := children[pid]; len(queue) > 0; queue = queue[1:] {
		if !dead[queue[0]] {
			found = append(found, queue[0])
		}

		queue = append(queue, children[queue[0]]...)
	}

	return found
}

// marker is the environment variable of every process of a run. Its value is
// the run's directory.
const marker = "CLUSTERM_RUN"

// marked lists the processes of the run in dir, by their environment. It also
// finds those that are no longer descendants of the runner, because it is gone.
// An ssh master overwrites its environment with its title, which contains the
// path of its socket; sockets is the run's directory of sockets, or "" if it is
// unknown.
func marked(dir, sockets string) []int {
	variable := []byte(marker + "=" + dir)
	title := []byte("ssh: " + sockets + "/")

	isMarked := func(pid int) bool {
		env, err := os.ReadFile(procFile(pid, "environ"))
		if err != nil {
			return false
		}

		if sockets != "" {
			args, err := os.ReadFile(procFile(pid, "cmdline"))
			if err == nil && bytes.HasPrefix(args, title) {
				return true
			}
		}

		return slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return bytes.Equal(v, variable) })
	}

	var found []int
	for _, pid := range processes() {
		if pid != os.Getpid() && isMarked(pid) {
			found = append(found, pid)
		}
	}

	return found
}

// killMarked kills the processes of a run that lost its runner, and waits up to
// ten seconds until they are gone.
func killMarked(ctx context.Context, dir, sockets string) error {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()

	for range 100 {
		pids := marked(dir, sockets)
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
	}

	return fmt.Errorf("processes %v of the run in %s cannot be killed", marked(dir, sockets), dir)
}

// sinceBoot reads a clock that all processes share, that cannot be set, and
// that continues while the machine is suspended.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // every supported Linux has this clock
	}
	return time.Duration(ts.Nano())
}
