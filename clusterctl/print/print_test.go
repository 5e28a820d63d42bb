// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// TestYAML quotes text that a YAML 1.1 reader such as Ansible would read as another
// type: yes as a boolean, 12:30 as a number.
func TestYAML(t *testing.T) {
	const doc = `{"y":"yes","off":["on","No","text","12:30","1.10","null","2026-01-02","~",""],` +
		`"n":1.0,"b":true,"m":"a\nb"}`

	const want = `"y": "yes"
"off":
  - "on"
  - "No"
  - text
  - "12:30"
  - "1.10"
  - "null"
  - "2026-01-02"
  - "~"
  - ""
"n": 1.0
b: true
m: |-
  a
  b
`
	if got, err := toYAML([]byte(doc)); err != nil || string(got) != want {
		t.Errorf("toYAML: %v\n%s", err, got)
	}
}

// fill sets every field below v to a distinct value.
func fill(v reflect.Value, n *int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			*n++
			v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local).Add(time.Duration(*n) * time.Minute)))
			return
		}

		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(k, n)
		fill(e, n)
		v.SetMapIndex(k, e)
	case reflect.String:
		*n++
		v.SetString(fmt.Sprintf("text-%d-", *n))
	case reflect.Int, reflect.Int64:
		*n++
		v.SetInt(int64(900000 + *n))
	case reflect.Uint64:
		*n++
		v.SetUint(uint64(900000 + *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Interface:
		*n++
		v.Set(reflect.ValueOf(fmt.Sprintf("text-%d-", *n)))
	}
}

// missing returns the values below v that do not occur in text.
func missing(v reflect.Value, path, text string) (all []string) {
	check := func(s string) {
		if !strings.Contains(text, s) {
			all = append(all, path+" = "+s)
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return missing(v.Elem(), path, text)
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			check(Time(at))
			return all
		}

		for i := range v.NumField() {
			all = append(all, missing(v.Field(i), path+"."+v.Type().Field(i).Name, text)...)
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, missing(v.Index(i), path, text)...)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			all = append(all, missing(k, path, text)...)
			all = append(all, missing(v.MapIndex(k), path, text)...)
		}
	case reflect.String, reflect.Interface, reflect.Int, reflect.Int64, reflect.Uint64:
		check(fmt.Sprint(v.Interface()))
	}

	return all
}

// TestLongShowsEverything compares -o long with every field of the wire.
func TestLongShowsEverything(t *testing.T) {
	n := 0

	var node api.Node
	fill(reflect.ValueOf(&node).Elem(), &n)
	checkShown(t, "node", node, printed(func(p *Printer) { NodeDetails.Details(p, node) }))

	var j api.Job
	fill(reflect.ValueOf(&j).Elem(), &n)
	j.Status, j.CancelledByYou = api.Queued, false // else it is "you" in place of a name
	checkShown(t, "job", j, printed(func(p *Printer) { p.Job(j, true) }))

	var e inventory.HistoryEntry
	fill(reflect.ValueOf(&e).Elem(), &n)
	text := printed(func(p *Printer) { HistoryDetails.Details(p, e) })

	checkShown(t, "entry", e, text)
}

// TestListHidesOutputSize leaves the size of the output out where it is not loaded.
func TestListHidesOutputSize(t *testing.T) {
	if text := printed(func(p *Printer) { p.Job(api.Job{ID: "7"}, true) }); strings.Contains(text, "Output") {
		t.Errorf("a job of a list shows the size of its output:\n%s", text)
	}
}

func printed(do func(p *Printer)) string {
	p := &Printer{}
	do(p)
	return string(p.Bytes())
}

func checkShown(t *testing.T, name string, v any, text string) {
	t.Helper()

	for _, m := range missing(reflect.ValueOf(v), name, text) {
		t.Errorf("-o long does not show %s:\n%s", m, text)
	}
}

// TestTablesFitTheTerminal prints nodes, jobs, history and a summary with long values
// at several widths: no row is wider, the first column is whole from 80 columns on,
// and a file gets whole text.
func TestTablesFitTheTerminal(t *testing.T) {
	long := strings.Repeat("the task failed ", 20)
	now := time.Now()
	node := api.Node{
		Name: "host2-cc31d6b268d4", Addr: "192.168.100.112", Status: "Decommissioning", State: "Disappeared",
		Group: "service-master", Job: "1234", Verb: "decommission", LastError: long, Created: now.Add(-100 * time.Hour),
	}
	j := api.Job{
		ID:       "1234",
		Verb:     "decommission",
		Status:   api.Complete,
		Group:    "service-master",
		Actor:    "administrator",
		Nodes:    []string{node.Name, "host3-0cd9833055b3", "host4-74b65965837b"},
		Message:  long,
		Accepted: now,
		Started:  &now,
		Ended:    &now,
		Hosts:    []api.HostSummary{{Host: node.Name, Status: node.Status, Error: "here: " + long}},
		Runs: []api.Run{
			{Phase: "configure", Kind: "playbook", Playbook: "rolling-upgrade.yml", Hosts: []string{node.Name}},
		},
	}
	entry := inventory.HistoryEntry{
		Time: now, Verb: "decommission", From: "Decommissioning", To: "Unallocated", State: "Disappeared",
		Group: "service-master", Job: "1234", Actor: "monitor:host2-cc31d6b268d4", Reason: long,
	}

	event := api.RolloutEvent{
		Time: now, Kind: "failed", Node: node.Name, Actor: "monitor:host2-cc31d6b268d4", Text: long,
	}

	nodes, err := NodeColumns.Layout(nil, nil, FormatTable)
	errtest.None(t, err)

	jobs, err := JobColumns.Layout(nil, nil, FormatTable)
	errtest.None(t, err)

	tables := map[string]func(p *Printer){
		node.Name:       func(p *Printer) { nodes.Print(p, []api.Node{node}) },
		"1234":          func(p *Printer) { jobs.Print(p, []api.Job{j}) },
		node.Name + " ": func(p *Printer) { p.Summary(j) },
		"configure":     func(p *Printer) { runColumns.Table(p, j.Runs) },
		Time(now):       func(p *Printer) { HistoryColumns.Table(p, []inventory.HistoryEntry{entry}) },
		Time(now) + " ": func(p *Printer) { RolloutEventColumns.Table(p, []api.RolloutEvent{event}) },
	}

	for key, table := range tables {
		for _, columns := range []int{0, 20, 40, 80, 100, 132, 400} {
			for _, paint := range []Paint{false, true} {
				p := &Printer{Style: Style{Paint: paint, Width: columns}}
				table(p)
				text := string(p.Bytes())

				for line := range strings.Lines(text) {
					if w := width(strings.TrimSuffix(line, "\n")); columns > 0 && w > columns {
						t.Errorf("a row of %d columns on a terminal of %d:\n%s", w, columns, text)
					}
				}

				if (columns == 0 || columns >= 80) && !strings.Contains(text, "\n"+key) {
					t.Errorf("at %d columns, the first column is not whole:\n%s", columns, text)
				}

				if columns == 0 && key != "configure" && !strings.Contains(text, strings.TrimSpace(long)) {
					t.Errorf("the text is not whole:\n%s", text)
				}
			}
		}
	}

	p := &Printer{Style: Style{NoHeaders: true, Width: 80}}
	nodes.Print(p, []api.Node{node})

	const want = "host2-cc31d6b268d4  Decommissioning  service-master  1234 (dec…  4d   the task …\n"
	if got := string(p.Bytes()); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
