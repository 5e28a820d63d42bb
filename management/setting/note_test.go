// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"testing"

	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
)

// TestNoteOfFile: the same file is noted once, and another one again.
func TestNoteOfFile(t *testing.T) {
	t.Parallel()

	records := recordtest.NewStore(&state.ConfigFiles)
	s := &Settings{opts: Options{Store: records}, file: File{Config: Default()}}

	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			s.file.Config.LogLevel = "debug"
		}

		if err := s.writeNote(t.Context(), "i1"); err != nil || records.Commits() != want {
			t.Errorf("write %d: %d commits, %v", i, records.Commits(), err)
		}
	}
}
