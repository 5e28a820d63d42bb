// SPDX-License-Identifier: Apache-2.0

package gossipkey

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
)

// formerRotation is the form of a rotation in the file of an earlier version.
type formerRotation struct {
	Rotation

	New       string               `json:"new"`
	Old       []string             `json:"old"`
	Confirmed map[string]time.Time `json:"confirmed"`
	Removed   map[string]time.Time `json:"removed"`
}

// takeOver stores the rotation in the file of an earlier version, and removes the file, which has keys.
func (k *Keeper) takeOver(ctx context.Context) error {
	text, err := os.ReadFile(k.Former)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	var f formerRotation
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid,
			"the record of the rotation of the gossip key cannot be read: %s: %w", k.Former, err).
			Do("move the file away; an unfinished rotation can then be begun anew")
	}

	former := f.Rotation.withKeys(f.New, f.Old)
	former.Confirmed, former.Removed = slices.Sorted(maps.Keys(f.Confirmed)), slices.Sorted(maps.Keys(f.Removed))

	err = k.change(ctx, func(r *Rotation) error {
		// Another instance may have stored its own.
		if former.Started.After(r.Started) {
			*r = former
		}
		return nil
	})
	if err != nil {
		return err
	}

	return os.Remove(k.Former)
}
