// SPDX-License-Identifier: Apache-2.0

package print

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

type part struct {
	Error string `json:"error,omitempty"`
	Count int    `json:"count"`
}

type thing struct {
	ID      string             `json:"id"`
	Status  inventory.Status   `json:"status"`
	Made    time.Time          `json:"made_at"`
	Ended   *time.Time         `json:"ended,omitempty"`
	Soak    api.Duration       `json:"soak,omitempty"`
	Tried   int                `json:"tried"`
	Limit   int                `json:"limit,omitempty"`
	Strict  bool               `json:"strict,omitempty"`
	Open    bool               `json:"open"`
	Become  *bool              `json:"become,omitempty"`
	Nodes   []string           `json:"nodes,omitempty"`
	Notes   []string           `json:"notes,omitempty"`
	Reached []inventory.Status `json:"reached,omitempty"`
	Scope   *api.Scope         `json:"scope,omitempty"`
	Message string             `json:"message,omitempty"`
	Last    *part              `json:"last,omitempty"`
	Value   any                `json:"value"`
}

var thingColumns = ColumnsOf(Cells[thing]{
	"in short": func(_ Paint, t *thing) string { return t.ID + "!" },
}, "id,number", "status", "made_at", "ended", "soak", "tried", "limit", "strict,else never", "open", "become", "nodes",
	"notes,lines", "reached", "scope", "Reason given=message,text", "Last error=last.error", "last.count,wide", "value",
	"in short")

// TestColumnsOf prints values of each type of field, and of none.
func TestColumnsOf(t *testing.T) {
	at, no := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), false
	full := thing{
		ID: "7", Status: inventory.Allocated, Made: at, Ended: &at, Soak: api.Duration(90 * time.Second), Tried: 3,
		Limit: 2, Strict: true, Open: true, Become: &no, Nodes: []string{"a", "b"}, Notes: []string{"one", "two"},
		Reached: []inventory.Status{inventory.Enrolled, inventory.Manageable},
		Scope:   &api.Scope{Selector: "rack=r1"}, Message: "one\ntwo\x1b[31m", Last: &part{"bad\n", 4}, Value: 1.5,
	}

	const want = `Id            7
Status        Allocated
Made at       2026-01-02 03:04:05
Ended         2026-01-02 03:04:05
Soak          1m30s
Tried         3
Limit         2
Strict        yes
Open          yes
Become        no
Nodes         a, b
Notes         one
              two
Reached       Enrolled, Manageable
Scope         selector rack=r1
Reason given  one
              two
Last error    bad
Count         4
Value         1.5
In short      7!

Status    Allocated
Tried     0
Strict    never
Open      no
Value     null
In short  !
`
	if got := printed(func(p *Printer) {
		thingColumns.Blocks(p, []thing{full, {Status: inventory.Allocated}})
	}); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	layout, err := thingColumns.Layout([]string{"id", "made-at", "reason-given", "in-short"}, nil, FormatTable)
	errtest.None(t, err)

	const table = "ID   MADE AT               REASON GIVEN   IN SHORT\n" +
		"7    2026-01-02 03:04:05   one            7!\n                           two\n"
	if got := printed(func(p *Printer) { layout.Print(p, []thing{full}) }); got != table {
		t.Errorf("got\n%swant\n%s", got, table)
	}
}

// TestColumnsSort: numbers and times are no text, and what has no time comes last.
func TestColumnsSort(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later := at.Add(time.Hour)
	things := []thing{
		{ID: "10", Tried: 9, Made: later, Ended: &later, Last: &part{Count: 1}},
		{ID: "9", Tried: 10, Made: at, Ended: &at},
		{ID: "100", Tried: 1, Made: at.Add(time.Minute)},
	}

	for by, want := range map[string]string{
		"id": "9 10 100", "-id": "100 10 9", "tried": "100 10 9", "ended": "9 10 100", "age": "10 100 9",
		"count": "9 100 10",
	} {
		layout, err := append(
			thingColumns,
			ColumnsOf[thing](nil, "made_at,age")...).Layout(nil, []string{by}, FormatTable)
		errtest.None(t, err)

		sorted := slices.Clone(things)
		layout.Sort(sorted)

		var ids []string
		for _, v := range sorted {
			ids = append(ids, v.ID)
		}

		if got := strings.Join(ids, " "); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
}

// TestWordsNotJSON: a list of words of any type is joined, and what could only be JSON is refused.
func TestWordsNotJSON(t *testing.T) {
	seen := api.ExpectedMachine{Node: "r1", Seen: []api.SeenBy{api.SeenByGossip, api.SeenByScan}}.Judged()

	got := printed(func(p *Printer) { ExpectedColumns.Table(p, []api.ExpectedMachine{seen}) })
	if !strings.Contains(got, "gossip, scan") || strings.ContainsAny(got, `["`) {
		t.Errorf("got\n%s", got)
	}

	type parts struct {
		Parts []part         `json:"parts"`
		Any   map[string]any `json:"any"`
	}

	for _, spec := range []string{"parts", "any"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("the column %q was accepted", spec)
				}
			}()

			ColumnsOf[parts](nil, spec)
		}()
	}
}

// TestColumnsThatAreNot: a column or an option that does not exist is found by the first test.
func TestColumnsThatAreNot(t *testing.T) {
	for _, spec := range []string{"nosuch", "last.nosuch", "Title=nosuch", "id,nosuch"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("the column %q was accepted", spec)
				}
			}()

			ColumnsOf[thing](nil, spec)
		}()
	}
}
