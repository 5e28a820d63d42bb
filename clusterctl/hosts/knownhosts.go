// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/api"
)

// sshArgs is the variable with the options of ssh.
const sshArgs = "ansible_ssh_common_args"

// lockTime limits the wait for another process that writes the same file.
const lockTime = 10 * time.Second

// plainPath matches the paths that ssh and Ansible take literally.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9._/@+=,-]+$`)

// CheckFile returns the absolute path of a file for KnownHosts. A path that ssh would
// split or expand is an error of kind invalid.
func CheckFile(file string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}

	if !plainPath.MatchString(path) {
		return "", inventory.Errorf(inventory.KindInvalid, "ssh cannot take the path %q for host keys", path).
			Do("use a path of letters, digits and ._/@+=,-")
	}

	return path, nil
}

// knownHostsArgs are the options of ssh that make it use the file and no other.
func knownHostsArgs(file string) []string {
	// ssh adds the key of a first contact in a form that KnownHosts can replace.
	return []string{
		"-o", "UserKnownHostsFile=" + file,
		"-o", "GlobalKnownHostsFile=/dev/null",
		"-o", "HashKnownHosts=no",
	}
}

// KnownHosts writes the recorded keys of the hosts to the file, in place of other keys
// of theirs. It keeps all other lines: those of other nodes, which another inventory
// may need, and those of a first contact. The file changes as a whole or not at all.
func KnownHosts(ctx context.Context, file string, all []api.InventoryHost) error {
	unlock, err := lock(ctx, file+".lock")
	if err != nil {
		return failed(file, err)
	}
	defer unlock()

	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(file, err)
	}
	text := merge(old, all)
	if err == nil && bytes.Equal(text, old) {
		return nil
	}
	if err := localfile.Replace(file, text); err != nil {
		return failed(file, err)
	}

	return nil
}

func failed(file string, err error) error {
	return inventory.Errorf(inventory.KindInvalid, "cannot write the host keys to %s: %w", file, err).
		Do("name a file in a folder of your own")
}

// merge returns the lines of old with the keys of the hosts.
func merge(old []byte, all []api.InventoryHost) []byte {
	// ssh ignores case.
	recorded := make(map[string]bool, len(all))
	for _, h := range all {
		if len(h.HostKeys) > 0 {
			recorded[strings.ToLower(h.Name)] = true
		}
	}

	var b bytes.Buffer
	for line := range strings.Lines(string(old)) {
		name, _, _ := strings.Cut(line, " ")
		if !recorded[strings.ToLower(name)] {
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}

	for _, h := range all {
		for _, key := range h.HostKeys {
			b.WriteString(h.Name + " " + key + "\n")
		}
	}

	return b.Bytes()
}

// lock locks the file, and waits for another process.
func lock(ctx context.Context, file string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()

	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()

	for {
		l, err := localfile.TryLock(file)
		if err == nil {
			return func() { _ = l.Unlock() }, nil
		}

		if !errors.Is(err, localfile.ErrLocked) {
			return nil, err
		}

		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}
