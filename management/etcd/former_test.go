// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// formerRecords are records of a store that the former version wrote under real use, by their
// keys below the prefix: testdata/former.json. A value that is no JSON there is in base64.
func formerRecords(t *testing.T) map[string][]byte {
	t.Helper()

	text, err := os.ReadFile("testdata/former.json")
	must(t, err)

	var stored map[string]json.RawMessage
	must(t, json.Unmarshal(text, &stored))

	records := map[string][]byte{}

	for key, value := range stored {
		name, isBytes := strings.CutSuffix(key, " (bytes)")
		records[name] = value

		if isBytes {
			var b []byte
			must(t, json.Unmarshal(value, &b))
			records[name] = b
		}
	}

	return records
}

// TestFormerRecords opens a store of the former version, and requires that nothing in it is
// unreadable or misread.
func TestFormerRecords(t *testing.T) {
	t.Parallel()

	first := store(t)
	for key, value := range formerRecords(t) {
		if _, err := first.client.Put(within(t, patience), first.key("/%s", key), string(value)); err != nil {
			t.Fatal(err)
		}
	}

	if count, unreadable, err := CheckRecords(within(t, patience), first.client, testKinds); err != nil || count == 0 ||
		len(unreadable) > 0 {
		t.Fatalf("%d records, unreadable: %v, %v", count, unreadable, err)
	}

	s := open(t, dial(t, shared, first.client.Prefix))

	if _, err := enter(t, s, instance("a"), 2*time.Second); err != nil || schema(t, s) != etcd.Schema {
		t.Fatalf("version %s, %v", schema(t, s), err)
	}

	v := s.View()
	if len(v.Unreadable) > 0 || len(v.Nodes()) != 4 || len(record.List(v, &plan.Kind)) != 1 || v.Newest() != 25 {
		t.Errorf("unreadable: %v; %d nodes, %d plans, job %d is the newest",
			v.Unreadable, len(v.Nodes()), len(record.List(v, &plan.Kind)), v.Newest())
	}

	for id, want := range map[string]job.Status{"4": job.Complete, "24": job.Running, "25": job.Queued} {
		if j, err := v.Job(id); err != nil || j.Status != want {
			t.Errorf("job %s is %s, %v, want %s", id, j.Status, err, want)
		}
	}

	for i, want := range []rollout.Status{rollout.Done, rollout.AwaitingApproval} {
		list := record.List(v, &rollout.Kind)
		if i >= len(list) || list[i].Status != want || len(list[i].Nodes) == 0 {
			t.Fatalf("the rollouts are %+v", list)
		}
	}

	a, frozen, rule := state.AutomationOf(v), window.FreezeOf(v), "nightly"
	if !frozen.On || !a.Switches[rule].On || a.Switches[rule].Selector == "" || a.Schedules[rule].Began.IsZero() {
		t.Errorf("freeze %+v, policies %+v", frozen, a)
	}

	for _, n := range v.Nodes() {
		if n.Cleaned || n.Group != "" && !n.Commissioned() {
			t.Errorf("%s is %s in %s, cleaned: %v", n.Name, n.Status, n.Group, n.Cleaned)
		}
	}
}

// formerEstimate is how long a plan may take, in a form that is not read any more. A plan lives for a day.
var formerEstimate = regexp.MustCompile(`,"expected":\{[^{}]*\}`)

// TestFormerRecordsKeepEveryField decodes records of the former version and encodes them again.
func TestFormerRecordsKeepEveryField(t *testing.T) {
	t.Parallel()

	seen := map[string]bool{}

	for key, value := range formerRecords(t) {
		kind, name, _ := strings.Cut(strings.TrimPrefix(key, "v/"), "/")

		var (
			again []byte
			err   error
		)

		switch kind {
		case "nodes":
			again, err = storedAgain(&job.Nodes, name, value)
		case "jobs":
			again, err = storedAgain(&job.Kind, name, value)
		case "tokens":
			again, err = storedAgain(&access.TokenKind, name, value)
		case "plans":
			if again, err = storedAgain(&plan.Kind, name, value); err == nil {
				value, again = expanded(t, value), expanded(t, again)
				value = formerEstimate.ReplaceAll(value, nil)
			}
		case "freeze":
			again, err = storedAgain(&window.FreezeKind, name, value)
		case "automation":
			again, err = storedAgain(&state.Memory, name, value)
		case "overlay":
			again, err = storedAgain(&state.Overlays, name, value)
		default:
			continue
		}

		must(t, err)

		seen[kind] = true

		if was, is := readRecord[any](t, value), readRecord[any](t, again); !reflect.DeepEqual(was, is) {
			t.Errorf("%s was\n%s\nand is\n%s", key, value, again)
		}
	}

	compareRollouts(t)

	if len(seen) != 7 {
		t.Errorf("only %v were read", seen)
	}
}

// compareRollouts decodes the rollouts of the former version, and encodes them again.
func compareRollouts(t *testing.T) {
	t.Helper()

	tables, again := record.NewTables([]record.Any{&rollout.Kind}), record.NewTx(recordtest.NewStore(&rollout.Kind))
	was := map[string][]byte{}

	for key, value := range formerRecords(t) {
		path := strings.TrimPrefix(key, "v/")
		if record.KindOf(path) == rollout.Kind.Name {
			must(t, tables.Apply(path, value, 1))
			was[path] = value
		}
	}

	for _, r := range record.All(tables.View(), &rollout.Kind) {
		record.Put(again, &rollout.Kind, r)
	}

	writes, err := again.Writes(nil)
	if err != nil || len(writes) != len(was) {
		t.Fatalf("%d keys are written, %d were read, %v", len(writes), len(was), err)
	}

	for _, w := range writes {
		before, now := expanded(t, was[w.Path]), expanded(t, w.Value)
		if was, is := readRecord[any](t, before), readRecord[any](t, now); !reflect.DeepEqual(was, is) {
			t.Errorf("%s was\n%s\nand is\n%s", w.Path, before, now)
		}
	}
}

func expanded(t *testing.T, value []byte) []byte {
	t.Helper()
	text, err := record.Expand(value)
	must(t, err)
	return text
}

func readRecord[R any](t *testing.T, value []byte) R {
	t.Helper()
	record, err := decode[R](value)
	must(t, err)
	return record
}

func encodedAgain[D, R any](t *testing.T, value []byte, toRecord func(D) R, toDomain func(R) D) ([]byte, error) {
	t.Helper()
	return json.Marshal(toRecord(toDomain(readRecord[R](t, value))))
}

// storedAgain decodes a record and encodes it.
func storedAgain[T any](k *record.Kind[T], key string, value []byte) ([]byte, error) {
	r, err := k.Decode(key, value, 1)
	if err != nil {
		return nil, err
	}
	return k.Encode(r)
}
