// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// TestFileInTagAndWatch checks that a reload of a changed file changes the entity tag
// and reaches watches.
func TestFileInTagAndWatch(t *testing.T) {
	t.Parallel()
	s := begin(t)
	tag := func() string {
		t.Helper()
		_, tag, err := s.TaggedConfig(s.ctx())
		s.must(err)
		return tag
	}
	ctx, cancel := context.WithCancel(s.ctx())

	next, stop := iter.Pull2(s.Watch(ctx, client.WatchOptions{Kinds: []api.WatchKind{api.WatchConfig}}))
	defer stop()
	defer cancel()

	nextForks := func() any {
		t.Helper()

		for {
			change, err, _ := next()
			s.must(err)

			if change.Type == api.ChangePut {
				config, err := change.Config()
				s.must(err)
				return config["jobs.forks"].Value
			}
		}
	}
	if got := nextForks(); got != 50.0 {
		t.Fatalf("at first %v", got)
	}

	first := tag()
	s.write("jobs: {forks: 8}")
	s.must(s.Reload())

	if got := nextForks(); got != 8.0 {
		t.Fatalf("reloaded: %v", got)
	}

	_, err := s.IfMatch(first).PatchConfig(s.ctx(), map[string]any{"jobs.limit": 3})
	if inventory.KindOf(err) != inventory.KindPrecondition {
		t.Errorf("a change that depends on what was read before: %v", err)
	}

	second := tag()
	s.must(s.Reload()) // the file is unchanged
	_, err = s.IfMatch(second).PatchConfig(s.ctx(), map[string]any{"jobs.limit": 3})
	s.must(err)

	if got := nextForks(); got != 8.0 {
		t.Errorf("%v", got)
	}

	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"jobs.limit": nil})
	s.must(err)
	revision := func() string { before, _, _ := strings.Cut(tag(), "."); return before }
	third := revision()
	s.restart()

	if got := revision(); got != third {
		t.Errorf("after a restart with the same file: %s, was %s", got, third)
	}

	s.write("jobs: {forks: 9}")
	s.restart()

	if got := revision(); got == third {
		t.Errorf("after a restart with another file it is still %s", got)
	}
}
