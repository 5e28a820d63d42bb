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

// schemaStep makes data of the former version those of this one.
type schemaStep struct {
	ops     etcd.Ops
	is      bool     // there is something to do
	waits   string   // the instance for which it waits; empty: it is made
	removed []string // settings that mean something else in the former version
}

// schemaStep returns what makes data of the former version those of this one. Without former data it only requires that
// the version stays.
func (s *Store) schemaStep(ctx context.Context) (step schemaStep, err error) {
	if step.ops, step.is, err = s.client.SchemaOps(ctx); err != nil || !step.is {
		return step, err
	}

	resp, err := s.client.Get(ctx, s.overlayKey())
	if err != nil || len(resp.Kvs) == 0 {
		return step, etcd.Error(err)
	}

	overlay, removed, err := withoutFormerDefaults(resp.Kvs[0].Value)
	if err != nil || len(removed) == 0 {
		return step, err
	}

	step.removed = removed
	step.ops.If = append(step.ops.If, unchanged(s.overlayKey(), resp.Kvs[0].ModRevision))
	step.ops.Then = append(step.ops.Then, clientv3.OpPut(s.overlayKey(), string(overlay)))

	return step, nil
}

// waitFor returns a step that only requires that the version stays, if there is an instance to wait for.
func (s schemaStep) waitFor(instance string) schemaStep {
	if !s.is || instance == "" {
		return s
	}
	return schemaStep{ops: etcd.Ops{If: s.ops.If[:1]}, waits: instance}
}

// former returns an instance that would lose what this version writes: one of the former version, or one that is not
// alive, whose version nobody knows. Empty: there is none.
func (n *Session) former(f found) string {
	for id, p := range f.others {
		if p.Schema != etcd.Schema {
			return id
		}
	}

	if n.others == nil {
		return ""
	}

	for _, id := range n.others() {
		if id != n.self.ID && f.others[id] == nil {
			return id
		}
	}

	return ""
}

// addStep adds a step to the operations of an instance that has found the others.
func (n *Session) addStep(ops *etcd.Ops, step schemaStep, f found) {
	// One of the former version may have entered since.
	if step.is {
		ops.If = append(ops.If, unchanged(n.store.instancesPrefix(), f.revision).WithPrefix())
	}

	ops.Add(step.ops)
}

// upgrade brings the stored data to the version of this build, if they are not.
func (n *Session) upgrade(ctx context.Context, f found) error {
	step, err := n.store.schemaStep(ctx)
	if err != nil {
		return err
	}

	if step.is {
		ops := etcd.Ops{If: []clientv3.Cmp{atRevision(n.store.holderKey(), f.holder.at())}}
		n.addStep(&ops, step, f)

		if _, err := n.store.commit(ctx, ops); err != nil {
			return err
		}
	}

	n.noteStep(step)

	return nil
}

// noteStep notes a step that was made, or waits.
func (n *Session) noteStep(step schemaStep) {
	n.upgraded = step.waits == ""

	switch {
	case step.waits != "":
		n.log.Infof("the stored data keep their version until the instance %s has this one or is removed", step.waits)
		return
	case !step.is:
		return
	}

	n.log.Infof("the stored data has version %s now; an older clusterm refuses it", etcd.Schema)

	if len(step.removed) > 0 {
		n.log.Info("these settings were 0, which meant the default, and are left out now: " +
			strings.Join(step.removed, ", "))
	}
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
