// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/variable"
)

// inKey is the reason not to store a revision.
const inKey = "etcd keeps the revision of the key"

// TestRecordsMatchDomain fails for a field of a domain type that is not stored, and
// for a field of a record that no domain type has.
func TestRecordsMatchDomain(t *testing.T) {
	t.Parallel()

	revision := map[string]string{"Revision": inKey}

	t.Run("node", func(t *testing.T) {
		t.Parallel()
		checkRecord(t, same[inventory.Node], same, revision)
	})
	t.Run("history", func(t *testing.T) {
		t.Parallel()
		checkRecord(t, same[inventory.HistoryEntry], same, nil)
	})
	t.Run("change of variables", func(t *testing.T) {
		t.Parallel()
		checkRecord(t, newVariablesChangeRecord,
			func(r variablesChangeRecord) variable.Change { return r.change(0) }, revision)
	})
	t.Run("repository", func(t *testing.T) {
		t.Parallel()
		checkRecord(t, newRepositoryRecord, repositoryRecord.record, nil)
	})
	t.Run("job", func(t *testing.T) {
		t.Parallel()
		checkRecord(t, same[job.Job], same, revision)
	})
	t.Run("inputs", func(t *testing.T) {
		t.Parallel()
		checkRecord(t, newInputsRecord, inputsRecord.inputs, nil)
	})
	t.Run("owner", func(t *testing.T) {
		t.Parallel()
		checkRecord(t, same[cluster.Identity], same, nil)
	})
	t.Run("delivery", func(t *testing.T) {
		t.Parallel()
		checkRecord(t, same[notify.Delivery], same, revision)
	})
	t.Run("position", func(t *testing.T) {
		t.Parallel()
		checkRecord(t, same[notify.Position], same[notify.Position], nil)
	})
}

// same is the conversion of a domain type that is stored as it is.
func same[T any](value T) T { return value }

// checkRecord converts a domain value with every field set to its record, to JSON and
// back, and a record with every field set to the domain and back. notStored has the
// reason for each field of the domain type that is not stored.
func checkRecord[D, R any](t *testing.T, toRecord func(D) R, toDomain func(R) D, notStored map[string]string) {
	t.Helper()

	var value D
	fill(t, reflect.ValueOf(&value).Elem(), new(int))

	encoded, err := json.Marshal(toRecord(value))
	must(t, err)
	decoded, err := decode[R](encoded)
	must(t, err)

	want := reflect.ValueOf(&value).Elem()
	for _, field := range slices.Sorted(maps.Keys(notStored)) {
		want.FieldByName(field).SetZero()
	}

	if got := toDomain(decoded); !reflect.DeepEqual(got, value) {
		t.Errorf("%T is not stored as a whole: add the missing field to %T and its conversions\nread\n%+v\nwant\n%+v",
			value, decoded, got, value)
	}

	var record R
	fill(t, reflect.ValueOf(&record).Elem(), new(int))

	if got := toRecord(toDomain(record)); !reflect.DeepEqual(got, record) {
		t.Errorf("%T does not survive its conversions\ngot\n%+v\nwant\n%+v", record, got, record)
	}
}

// fill sets every field below v to a distinct value; each slice and map gets one element.
func fill(t *testing.T, v reflect.Value, count *int) {
	t.Helper()

	*count++

	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(noon.Add(time.Duration(*count) * time.Second)))
		return
	}

	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("text-", *count))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*count))
	case reflect.Uint64:
		v.SetUint(uint64(*count))
	case reflect.Interface:
		v.Set(reflect.ValueOf(fmt.Sprint("any-", *count)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), count)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), count)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, count)
		fill(t, value, count)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), count)
		}
	default:
		t.Fatalf("fill cannot set a value of type %s: add its kind", v.Type())
	}
}

// TestRecordsHaveJSONNames fails for a record whose name in etcd depends on the name
// of a Go field.
func TestRecordsHaveJSONNames(t *testing.T) {
	t.Parallel()

	for _, record := range []any{
		inventory.Node{}, inventory.Before{}, inventory.HistoryEntry{}, inventory.Sighting{},
		inventory.Presence{}, inventory.Contact{},
		inputsRecord{}, cluster.Identity{}, access.Result{},
		job.Job{}, job.Target{}, job.Run{}, job.HostResult{}, inventory.Outcome{}, inventory.Verdict{},
		inventory.Configured{}, plan.Plan{}, plan.Node{}, api.PlanRule{}, api.PlanService{}, api.PlanTime{},
		rollout.Record{}, rollout.Node{}, rollout.Mark{}, rollout.Event{}, rollout.Pace{}, rollout.Spec{},
		rollout.Order{}, rollout.Strategy{}, rollout.Gate{}, rollout.HTTPCheck{}, rollout.CommandCheck{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(record)) {
			if name := field.Tag.Get("json"); !field.Anonymous && field.Name != "Revision" &&
				(name == "" || name[0] == ',' || name == "-") {
				t.Errorf("%T.%s has no JSON name", record, field.Name)
			}
		}
	}
}

// BenchmarkDecodeNode measures the decoding of one node of the view.
func BenchmarkDecodeNode(b *testing.B) {
	n, _ := inventory.NewNode(inventory.Observation{
		Observer: "gossip", Label: "n", Serial: "0001", Addr: "10.0.0.1", Alive: true,
	}, nil, noon)
	n.Labels = map[string]string{"rack": "r1"}
	n.HostKeys = []string{"ssh-ed25519 AAAA"}

	value, err := json.Marshal(n)
	if err != nil {
		b.Fatal(err)
	}
	kv := &mvccpb.KeyValue{Value: value, ModRevision: 1}

	b.ReportAllocs()

	for b.Loop() {
		if _, err := job.Nodes.Decode(n.Name, kv.Value, kv.ModRevision); err != nil {
			b.Fatal(err)
		}
	}
}
