// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration/image"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
)

const (
	// KeepFor is how long content stays that no image needs.
	KeepFor = time.Hour
	// KeepParts is how long incomplete content stays that an image needs, after its last write.
	KeepParts = 7 * 24 * time.Hour
	// lookEvery is the longest time between two looks at the folder.
	lookEvery = 10 * time.Minute
)

// round looks after the content, and after the boot environments that are made of it.
func (s *Images) round(ctx context.Context) (control.Next, error) {
	next, err := s.tidy(ctx)
	if err == nil {
		next.Acts, err = s.prepare()
	}

	return next, err
}

// tidy records which content this instance has, and removes what no image needs.
func (s *Images) tidy(ctx context.Context) (control.Next, error) {
	owned := s.Contents.Owned()
	s.problem.Store(&owned)

	if owned != nil {
		return control.Next{}, owned
	}

	release, err := s.take(ctx)
	if err != nil {
		return control.Next{}, err
	}
	defer release()

	if err := s.reconcile(ctx); err != nil {
		return control.Next{}, err
	}

	entries, err := s.Contents.List()
	if err != nil {
		return control.Next{}, err
	}

	r, _ := s.Store.Latest()
	due, next := s.due(r, entries, time.Now())

	if len(due) == 0 {
		return control.Next{At: next}, nil
	}

	// Another instance may have added an image a moment ago that needs it.
	if err := s.Sync(ctx); err != nil {
		return control.Next{}, err
	}

	r, _ = s.Store.Latest()
	due, next = s.due(r, entries, time.Now())

	for _, e := range due {
		err := s.Contents.Remove(e)
		if inventory.KindOf(err) == inventory.KindConflict {
			continue // it is being written; the next round looks again
		}
		if err != nil {
			return control.Next{}, err
		}

		delete(s.told, e.Digest)
		s.Logger.WithField("digest", e.Digest).Info("content that no image needs is removed")
	}

	return control.Next{At: next}, nil
}

// due returns the content to remove now, and when the next is due; zero: none is.
func (s *Images) due(r record.Reader, entries []image.Entry, now time.Time) (all []image.Entry, next time.Time) {
	needed := map[string]bool{}
	for _, i := range record.List(r, &Kind) {
		for _, f := range i.Files {
			needed[f.Digest] = true
		}
	}

	seen := map[string]time.Time{}

	for _, e := range entries {
		at := e.Changed.Add(KeepParts)

		switch {
		case needed[e.Digest] && e.Complete:
			continue
		case !needed[e.Digest]:
			since, known := s.unneeded[e.Digest]
			if !known {
				since = now
			}

			seen[e.Digest], at = since, since.Add(KeepFor)
		}

		if at.After(now) {
			next = control.Earliest(next, at)
			continue
		}

		all = append(all, e)
	}

	s.unneeded = seen

	return all, next
}

// reconcile corrects what the records say about this instance and about those that left.
func (s *Images) reconcile(ctx context.Context) error {
	has, lacks := map[string]image.Found{}, []string(nil)
	members := s.Members()
	left := func(p api.ImagePlace) bool {
		return len(members) > 0 && p.ID != s.Self.ID && !slices.Contains(members, p.ID)
	}

	gone := false
	r, _ := s.Store.Latest()

	for _, i := range record.List(r, &Kind) {
		for _, f := range i.Files {
			recorded := slices.ContainsFunc(f.Instances, func(p api.ImagePlace) bool { return p.ID == s.Self.ID })
			gone = gone || slices.ContainsFunc(f.Instances, left)

			// Later than the records: what is recorded, and not here now, is not here any more.
			_, complete := s.Contents.Received(f.Digest)

			switch {
			case recorded && !complete:
				lacks = append(lacks, f.Digest)
			case !recorded && complete:
				if found, complete := s.look(f); complete && fits(i.Kind, i.Arch, f.Role, found) == nil {
					has[f.Digest] = found
				}
			}
		}
	}

	if len(has)+len(lacks) == 0 && !gone {
		return nil
	}

	_, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (any, error) {
		s.putPlaces(tx, has, lacks, left)
		return nil, nil
	})

	return err
}
