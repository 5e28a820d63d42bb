// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/state"
)

// formerDefaults are the keys of rules, by the setting, in which version 2 of the stored data
// took zero for the default. Now zero means zero, or is refused.
var formerDefaults = map[string][][]string{
	"policies.commission": {{"rate"}, {"quiet"}, {"failures"}, {"roles", "replace_after"}},
	"policies.upgrade":    {{"settle"}, {"timeout"}, {"gate", "http", "timeout"}},
	"policies.verify":     {{"spread"}, {"batch"}, {"jobs"}},
}

func (s *Store) overlayKey() string { return s.key("/v/%s", state.Overlays.Path("")) }

// upgradeOps returns the operations that make data of the former version those of this one,
// and what they change, in words. Without former data it only requires that the version stays.
func (s *Store) upgradeOps(ctx context.Context) (ops etcd.Ops, changes []string, err error) {
	ops, upgraded, err := s.client.SchemaOps(ctx)
	if err != nil || !upgraded {
		return ops, nil, err
	}

	changes = []string{"the stored data has version " + etcd.Schema + " now; an older clusterm refuses it"}

	resp, err := s.client.Get(ctx, s.overlayKey())
	if err != nil || len(resp.Kvs) == 0 {
		return ops, changes, etcd.Error(err)
	}
	overlay, removed, err := withoutFormerDefaults(resp.Kvs[0].Value)
	if err != nil || len(removed) == 0 {
		return ops, changes, err
	}

	ops.If = append(ops.If, unchanged(s.overlayKey(), resp.Kvs[0].ModRevision))
	ops.Then = append(ops.Then, clientv3.OpPut(s.overlayKey(), string(overlay)))
	changes = append(changes, "these settings were 0, which meant the default, and are left out now: "+
		strings.Join(removed, ", "))

	return ops, changes, nil
}

// StoredSettings returns the settings that were set at run time, as an instance of this version
// would take them over, without the variables. It changes nothing. Settings that cannot be read
// are none: CheckRecords reports them.
func StoredSettings(ctx context.Context, client *etcd.Client) (map[string]any, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	_, upgraded, err := client.SchemaOps(ctx)
	if err != nil {
		return nil, err
	}

	resp, err := client.Get(ctx, (&Store{client: client}).overlayKey())
	if err != nil || len(resp.Kvs) == 0 {
		return nil, etcd.Error(err)
	}
	stored := resp.Kvs[0].Value

	if upgraded {
		now, removed, err := withoutFormerDefaults(stored)
		if err != nil {
			return nil, err
		}
		if len(removed) > 0 {
			stored = now
		}
	}

	overlay, err := state.Overlays.Decode("", stored, 0)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	delete(overlay.Keys, state.OverlayVars)

	return overlay.Keys, nil
}

// withoutFormerDefaults returns the stored settings without the zeros that stood for defaults, and
// the keys of those. Settings that cannot be read are left to their reader, which reports them.
func withoutFormerDefaults(stored []byte) (overlay []byte, removed []string, err error) {
	var record struct {
		Keys map[string]json.RawMessage `json:"keys"`
	}

	if json.Unmarshal(stored, &record) != nil {
		return nil, nil, nil
	}

	for _, setting := range slices.Sorted(maps.Keys(formerDefaults)) {
		var rules map[string]any

		// Every digit of a number stays.
		dec := json.NewDecoder(bytes.NewReader(record.Keys[setting]))
		dec.UseNumber()

		if dec.Decode(&rules) != nil {
			continue
		}

		before := len(removed)

		for _, name := range slices.Sorted(maps.Keys(rules)) {
			for _, path := range formerDefaults[setting] {
				removed = append(removed, removeZero(rules[name], setting+"."+name, path)...)
			}
		}

		if len(removed) == before {
			continue
		}

		if record.Keys[setting], err = json.Marshal(rules); err != nil {
			return nil, nil, inventory.Errorf(inventory.KindInternal, "the setting %s: %w", setting, err)
		}
	}

	overlay, err = json.Marshal(record)

	return overlay, removed, err
}

// removeZero removes the key at the path of a value, or of each element of a list, if it is
// zero. It returns the keys in words, which begin with at.
func removeZero(value any, at string, path []string) []string {
	var removed []string

	switch value := value.(type) {
	case []any:
		for i, element := range value {
			removed = append(removed, removeZero(element, fmt.Sprintf("%s[%d]", at, i), path)...)
		}
	case map[string]any:
		at += "." + path[0]

		if len(path) > 1 {
			return removeZero(value[path[0]], at, path[1:])
		}

		if isZeroSetting(value[path[0]]) {
			delete(value, path[0])
			removed = append(removed, at)
		}
	}

	return removed
}

// isZeroSetting reports whether a value is the number or the duration 0.
func isZeroSetting(value any) bool {
	switch value := value.(type) {
	case json.Number:
		number, err := value.Float64()
		return err == nil && number == 0
	case string:
		duration, err := time.ParseDuration(value)
		return err == nil && duration == 0
	}

	return false
}

// moveDeliveries moves deliveries of notifications, and their position, from where the view did not have them.
func (s *Store) moveDeliveries(ctx context.Context) error {
	const page = etcd.MaxOps/2 - 1 // a key is written and removed

	for _, move := range [][2]string{{"/x/deliveries/", "/v/deliveries/"}, {"/x/notified/position", "/v/notified"}} {
		from, to := s.client.Prefix+move[0], s.client.Prefix+move[1]

		for {
			resp, err := s.client.Get(ctx, from, clientv3.WithPrefix(), clientv3.WithLimit(page))
			if err != nil {
				return etcd.Error(err)
			}
			if len(resp.Kvs) == 0 {
				break
			}

			var ops etcd.Ops

			for _, kv := range resp.Kvs {
				key := to + strings.TrimPrefix(string(kv.Key), from)
				ops.Then = append(ops.Then, clientv3.OpPut(key, string(kv.Value)), clientv3.OpDelete(string(kv.Key)))
			}

			if _, err := s.commit(ctx, ops); err != nil {
				return err
			}
		}
	}

	return nil
}
