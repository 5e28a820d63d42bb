// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mount is a file system of the kernel.
type mount struct {
	kind, target string
	flags        uintptr
	data         string
}

// mounts are the file systems of the environment, in order.
var mounts = []mount{
	{kind: "proc", target: "/proc", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{kind: "sysfs", target: "/sys", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{kind: "devtmpfs", target: "/dev", flags: unix.MS_NOSUID | unix.MS_NOEXEC, data: "mode=0755"},
	{kind: "tmpfs", target: "/run", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=0755"},
}

// mountAll mounts each by call, which is unix.Mount, and goes on where one fails.
func mountAll(call func(source, target, kind string, flags uintptr, data string) error) []error {
	var problems []error

	for _, m := range mounts {
		err := os.MkdirAll(m.target, 0o755) //nolint:gosec // as on every system
		if err == nil {
			err = call(m.kind, m.target, m.kind, m.flags, m.data)
		}

		// The kernel may have mounted it.
		if err != nil && !errors.Is(err, unix.EBUSY) {
			problems = append(problems, fmt.Errorf("cannot mount %s: %w", m.target, err))
		}
	}

	return problems
}
