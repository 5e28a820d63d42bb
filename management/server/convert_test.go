// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// conversion pairs a domain type with its wire type.
type conversion struct {
	domain any
	wire   func(filled any) any
	// internal lists the domain fields that stay off the wire, with the reason.
	internal map[string]string
	// added lists the wire fields without a domain field, with their source.
	added map[string]string
}

// conversions covers every domain type that the server converts. A new field of
// a domain type fails TestConversions until it is converted or listed here.
var conversions = []conversion{
	{
		domain: inventory.Node{},
		wire:   func(n any) any { return nodeWith(n.(inventory.Node), nil) },
		internal: map[string]string{
			"Configured": "a type of its own: TestConfigured",
			"Presence":   "evidence for policies, in the explanation in words",
			"Actor":      "of the newest history entry, which is on the wire",
		},
		added: map[string]string{
			"Before":      "a type of its own: see the next row",
			"Configured":  "a type of its own: TestConfigured",
			"Connection":  "a record of its own",
			"AddrRivals":  "other records of the view: TestAddrRivals",
			"Desired":     "variables and playbooks of the view: TestDesired",
			"Outdated":    "variables and playbooks of the view: TestDesired",
			"Power":       "what its BMC said: TestPower of management/daemon",
			"BMCProblem":  "why it did not: TestPower of management/daemon",
			"Differs":     "variables and playbooks of the view: TestDesired",
			"RequestVars": "variables of the view and of the configuration: TestDesired",
		},
	},
	{
		domain:   configuration.Connection{},
		wire:     func(c any) any { connection := c.(configuration.Connection); return *connectionOf(&connection) },
		internal: map[string]string{"FormerKeyFile": "a rotation of the key sets it for the moment"},
	},
	{domain: variable.Change{}, wire: func(c any) any { return varsChangeOf(c.(variable.Change)) }},
	{
		domain: state.Instance{},
		wire:   func(in any) any { instance := in.(state.Instance); return instanceOf(&instance, instance) },
		internal: map[string]string{
			"Identity": "its fields ID and Node are on the wire",
			"Schema":   "for the other instances; people compare versions",
		},
		added: map[string]string{"Leads": "of the record of the lead"},
	},
	{
		domain: node.PingResult{},
		wire:   func(p any) any { return pingOf(p.(node.PingResult)) },
		internal: map[string]string{
			"Actions": "a conversion of its own, inventory.Action",
			"Took":    "text on the wire",
		},
		added: map[string]string{
			"Actions": "Actions of the domain, with their requests",
			"Took":    "Took of the domain as text",
		},
	},
	{
		domain: state.Decision{},
		wire:   func(d any) any { return policy.Shown(d.(state.Decision)) },
		internal: map[string]string{
			"Cancel":    "Job, once it is carried out",
			"Lost":      "Replaces is the one of them that it is about",
			"Playbooks": "Commit, whose playbooks they are",
		},
	},
	{domain: rotation.Laggard{}, wire: func(l any) any { return api.Laggard(l.(rotation.Laggard)) }},
	{
		domain: node.HostKeys{},
		wire:   func(k any) any { return hostKeysOf(k.(node.HostKeys)) },
		internal: map[string]string{
			"Recorded": "with the fingerprint of each on the wire",
			"Shown":    "with the fingerprint of each on the wire",
		},
		added: map[string]string{
			"Recorded": "Recorded of the domain, with fingerprints",
			"Shown":    "Shown of the domain, with fingerprints",
		},
	},
	{
		domain: access.Token{},
		wire:   func(in any) any { return tokenOf(in.(access.Token)) },
		internal: map[string]string{
			"Hash":  "it proves the token, and nothing needs it outside",
			"Scope": "a conversion of its own, access.Scope",
		},
		added: map[string]string{"Scope": "Scope of the domain, absent for every node"},
	},
	{domain: access.Scope{}, wire: func(s any) any { return *accessScopeOf(s.(access.Scope)) }},
	{
		domain:   explain.Finding{},
		wire:     func(f any) any { return findingsOf([]explain.Finding{f.(explain.Finding)})[0] },
		internal: map[string]string{"Actions": "a conversion of its own, inventory.Action"},
		added:    map[string]string{"Actions": "Actions of the domain, with their requests"},
	},
	{
		domain: inventory.Action{},
		wire:   func(a any) any { return api.ActionsOf([]inventory.Action{a.(inventory.Action)})[0] },
		internal: map[string]string{
			"Name":       "the member action on the wire",
			"JobOptions": "part of the request",
			"Ranges":     "part of the request",
			"HostKeys":   "part of the request",
			"Extra":      "part of the request",
			"Confirmed":  "only a client knows what its operator has confirmed",
		},
		added: map[string]string{
			"Action": "Name of the domain",
			"Method": "the request of the action",
			"Path":   "the request of the action",
			"Body":   "the request of the action",
		},
	},
	{
		domain: job.Run{},
		wire:   func(r any) any { return runOf(r.(job.Run)) },
		internal: map[string]string{
			"Results":     "a map here, a list in the order of Hosts on the wire: TestRunResults",
			"NotBegun":    "used only to decide on a cleanup",
			"TakenOver":   "used only to decide on a cleanup",
			"Bound":       "what the next owner of the job waits for",
			"Lost":        "the run's exit and message show it",
			"Masters":     "a checksum that the configuration of its nodes is compared with",
			"MasterNames": "what explains a difference of Masters",
			"Text":        "an offset that readers of the log do not need",
			"Events":      "an offset that readers of the events do not need",
		},
		added: map[string]string{"Results": "Results of the domain, in the order of Hosts"},
	},
	{
		domain: job.HostResult{},
		wire: func(r any) any {
			results := map[string]job.HostResult{"a-1": r.(job.HostResult)}
			return runOf(job.Run{Hosts: []string{"a-1"}, Results: results}).Results[0]
		},
		internal: map[string]string{
			"Begun":    "used only to decide on a cleanup",
			"Done":     "used only to decide on the outcome of the job",
			"Ignored":  "used only to decide on the verdict of a verification",
			"Selected": "used only to decide on the outcome of the job",
		},
		added: map[string]string{
			"Host":   "the key of the domain's map",
			"Helper": "the domain's run names its hosts: TestRunResults",
		},
	},
	{
		domain: job.Job{},
		wire:   func(j any) any { return jobOf(j.(job.Job)) },
		internal: map[string]string{
			"ExtraNames":    "the inputs of the job have them",
			"ExtraSums":     "checksums that the configuration of its nodes is compared with",
			"WithoutVerify": "a warning names them",

			"WithoutHelpers": "Helpers is what it holds",

			"Former":      "used only until another instance has taken the job over",
			"Targets":     "Nodes or Addrs name them",
			"Timeout":     "Deadline is the time that counts",
			"TimeoutFrom": "the explanation of the job has it",
			"Outage":      "Deadline counts it; the explanation of the job has it",
			"OutageUntil": "Deadline counts it",
			"Runs":        "left out of lists; wholeJob adds them",
			"Outcomes":    "progress of the store's own transaction",
			"LogBytes":    "left out of lists; wholeJob adds the current size",
		},
		added: map[string]string{
			"Nodes":      "names of Targets",
			"Addrs":      "names of Targets of a discover",
			"Phase":      "of the last run",
			"Position":   "from the queue",
			"WaitUntil":  "from the windows and the freeze",
			"WaitsFor":   "from the queue",
			"WaitReason": "from the queue",
			"Runs":       "wholeJob",
			"Hosts":      "wholeJob",
			"Vars":       "wholeJob, from the inputs",
			"LogBytes":   "wholeJob",

			"CancelledByYou": "depends on the reader: TestCancelledByYou",
		},
	},
}

// TestConversions fills every field of each domain type and expects its value
// in the wire field of the same name.
func TestConversions(t *testing.T) {
	t.Parallel()

	for _, c := range conversions {
		domainType := reflect.TypeOf(c.domain)
		t.Run(domainType.String(), func(t *testing.T) {
			t.Parallel()

			filled := reflect.New(domainType).Elem()
			next := 1
			fill(filled, &next)

			wire := reflect.ValueOf(c.wire(filled.Interface()))
			converted := map[string]bool{}

			for _, field := range reflect.VisibleFields(domainType) {
				if reason, ok := c.internal[field.Name]; ok {
					if reason == "" {
						t.Errorf("%s stays off the wire without a reason", field.Name)
					}

					continue
				}

				name := field.Name
				converted[name] = true
				onWire := wire.FieldByName(name)

				// The reason for an embedded struct is also that for its fields.
				if _, ok := c.internal[domainType.Field(field.Index[0]).Name]; ok && !onWire.IsValid() {
					continue
				}

				switch {
				case !onWire.IsValid():
					t.Errorf("the new field %s: convert it in convert.go, or list it in conversions with a reason",
						name)
				case !equalOnWire(t, filled.FieldByIndex(field.Index), onWire):
					t.Errorf("%s is %v in the domain, %v on the wire", name, filled.FieldByIndex(field.Index), onWire)
				}
			}

			for _, field := range reflect.VisibleFields(wire.Type()) {
				if _, ok := c.added[field.Name]; !ok && !converted[field.Name] {
					t.Errorf("the wire field %s has no domain field: list it in conversions with its source",
						field.Name)
				}
			}

			for name := range c.internal {
				if _, ok := domainType.FieldByName(name); !ok {
					t.Errorf("%s is listed, but is no longer a field of %s", name, domainType)
				}
			}

			for name := range c.added {
				if !wire.FieldByName(name).IsValid() {
					t.Errorf("%s is listed, but is no longer a field of %s", name, wire.Type())
				}
			}
		})
	}
}

// TestConnectionRoundTrip expects connectionFrom to be the inverse of connectionOf.
func TestConnectionRoundTrip(t *testing.T) {
	t.Parallel()

	var connection configuration.Connection
	next := 1
	fill(reflect.ValueOf(&connection).Elem(), &next)
	connection.FormerKeyFile = "" // not on the wire

	if back := connectionFrom(*connectionOf(&connection)); !reflect.DeepEqual(back, connection) {
		t.Errorf("%+v came back as %+v", connection, back)
	}
}

// TestRunResults expects the results of a run in the order of its hosts, and then
// those of helpers.
func TestRunResults(t *testing.T) {
	t.Parallel()

	run := runOf(job.Run{
		Hosts:   []string{"b-1", "c-1", "a-1"},
		Results: map[string]job.HostResult{"a-1": {OK: 1}, "b-1": {OK: 2}, "h-2": {OK: 3}, "h-1": {OK: 4}},
	})

	want := []api.HostResult{
		{Host: "b-1", OK: 2}, {Host: "a-1", OK: 1},
		{Host: "h-1", Helper: true, OK: 4}, {Host: "h-2", Helper: true, OK: 3},
	}
	if !slices.Equal(run.Results, want) {
		t.Errorf("got %v, want %v", run.Results, want)
	}
}

// fill sets every exported field to a value of its own.
func fill(v reflect.Value, next *int) {
	if at, ok := v.Addr().Interface().(*time.Time); ok {
		*at = time.Unix(int64(*next), 0).UTC()
		*next++
		return
	}

	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), next)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), next)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, next)
		fill(value, next)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", *next))
	case reflect.Interface:
		v.Set(reflect.ValueOf(fmt.Sprintf("value %d", *next)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Uint64:
		v.SetUint(uint64(*next))
	default:
		panic("fill cannot set a " + v.Type().String())
	}

	*next++
}

// equalOnWire compares a domain value with its wire form: structs field by field,
// other values by their JSON, because the types of both sides differ.
func equalOnWire(t *testing.T, domain, wire reflect.Value) bool {
	t.Helper()

	if domain.Kind() == reflect.Pointer && wire.Kind() == reflect.Pointer && domain.Type() != wire.Type() {
		return equalOnWire(t, domain.Elem(), wire.Elem())
	}

	if domain.Kind() == reflect.Struct && wire.Kind() == reflect.Struct && domain.Type() != wire.Type() {
		for _, field := range reflect.VisibleFields(domain.Type()) {
			onWire := wire.FieldByName(field.Name)
			if !onWire.IsValid() || !equalOnWire(t, domain.FieldByIndex(field.Index), onWire) {
				return false
			}
		}

		return true
	}

	if domain.Kind() == reflect.Map && domain.Type().Elem().Kind() == reflect.Struct {
		for _, key := range domain.MapKeys() {
			if !equalOnWire(t, domain.MapIndex(key), wire.MapIndex(key)) {
				return false
			}
		}

		return domain.Len() == wire.Len()
	}

	// A duration is a text on the wire.
	if wire.Type() == reflect.TypeFor[api.Duration]() {
		return domain.Int() == wire.Int()
	}

	texts := make([]string, 2)
	for i, v := range []reflect.Value{domain, wire} {
		text, err := json.Marshal(v.Interface())
		errtest.None(t, err)
		texts[i] = strings.TrimSpace(string(text))
	}

	return texts[0] == texts[1]
}

// TestConfigured converts the applied configuration of a node.
func TestConfigured(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

	encoded, err := json.Marshal(configuredOf(&inventory.Configured{
		Configuration: inventory.Configuration{Playbooks: "p", Commit: "c", Group: "g", Variables: "v", Image: "i"},
		Time:          at, Extra: []string{"e"},
	}))
	errtest.None(t, err)

	want := `{"playbooks":"p","commit":"c","group":"g","variables":"v","image":"i",` +
		`"time":"2026-01-02T12:00:00Z","extra_vars":["e"]}`
	if string(encoded) != want || configuredOf(nil) != nil {
		t.Errorf("got  %s\nwant %s", encoded, want)
	}
}
