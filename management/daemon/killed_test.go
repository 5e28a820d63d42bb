// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
)

// killRunner kills the runner of the job's newest run, and returns the folder of its
// sockets.
func (s *site) killRunner(id string) (sockets string) {
	s.t.Helper()

	j, err := s.Job(s.ctx(), id)
	s.must(err)

	run := fmt.Sprintf("%s-%d", id, len(j.Runs)-1)

	b, err := os.ReadFile(filepath.Join(s.dir, "d", "runs", run, "runner.json"))
	s.must(err)

	var info struct {
		PID     int
		Sockets string
	}

	s.must(json.Unmarshal(b, &info))
	s.must(unix.Kill(info.PID, unix.SIGKILL))

	return info.Sockets
}

// TestKilledRunner checks that the job of a killed runner is interrupted, that its
// node is cleaned up, and that no folder is left.
func TestKilledRunner(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")

	dead := filepath.Join(s.dir, "d", "tmp", "clusterm-check-dead")
	j, fifo := s.submitWaiting(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})

	sockets := s.killRunner(j.ID)
	s.until(j.ID, "the cleanup waits", func(j api.Job) bool { return j.Phase == "undo" })
	s.release(fifo) // of the cleanup

	j, err := s.Client.WaitJob(s.ctx(), j.ID)
	s.must(err)

	if j.Cause != string(job.CauseInterrupted) || s.status("a-1") != "Unallocated" || len(j.Runs) != 2 {
		t.Errorf("%+v", j)
	}

	if _, err := os.Stat(sockets); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the sockets are left: %v", err)
	}

	s.must(os.MkdirAll(dead, 0o700))
	s.restart()

	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", strings.TrimPrefix(dead, s.dir), err)
	}
}
