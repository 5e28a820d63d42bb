// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"reflect"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/repository"
)

// TestRepository: another instance reads the record that one has stored.
func TestRepository(t *testing.T) {
	t.Parallel()

	s := store(t)

	r, err := s.LoadRepository(t.Context())
	if err != nil || !reflect.DeepEqual(r, repository.Record{}) {
		t.Fatalf("an empty store has %+v, %v", r, err)
	}

	at := time.Unix(1_700_000_000, 0).UTC()
	one := repository.Use{Commit: configuration.Commit{Hash: "1", Author: "a", Time: at}, Digest: "d", Since: at}
	want := repository.Record{
		Source: "here", InUse: &one, Past: []repository.Use{one}, Rewritten: "0",
		Bad: &repository.Refusal{Commit: one.Commit, Reason: "why", Remedy: "do", Time: at},
	}

	errtest.None(t, s.SaveRepository(t.Context(), want))

	if r, err = open(t, s.client).LoadRepository(t.Context()); err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v, %v", r, err)
	}
}
