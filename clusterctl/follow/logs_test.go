// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// timedEvents is the source of the events of one job without a text.
type timedEvents []api.Event

func (timedEvents) Job(_ context.Context, id string) (api.Job, error) {
	return api.Job{ID: id, Nodes: []string{"a-1", "bb-1"}}, nil
}

func (timedEvents) Log(context.Context, string, int64, bool) (*client.Stream, error) {
	panic("the lines with times come from the events")
}

func (e timedEvents) Events(_ context.Context, _ string, _ int64, _ bool, each func(api.Event) error) error {
	for _, event := range e {
		if err := each(event); err != nil {
			return err
		}
	}

	return nil
}

// TestLogTimes prints the results of hosts with their times, and leaves out those
// before --since.
func TestLogTimes(t *testing.T) {
	t.Parallel()

	at := func(minute int) time.Time { return time.Date(2026, 1, 2, 15, minute, 0, 0, time.Local) }
	const hostile = "no\x1b[31m room"

	events := timedEvents{
		{Event: "ok", Host: "a-1", Task: "untimed"},
		{Event: "playbook", Time: at(1)},
		{Event: "ok", Host: "a-1", Task: "one", Time: at(2)},
		{Event: "ok", Host: "bb-1", Task: "one"}, // as of the event before it
		{Event: "task", Task: "two", Time: at(3)},
		{Event: "failed", Host: "a-1", Task: "two", Message: hostile, Time: at(4)},
	}

	blank := strings.Repeat(" ", len(time.DateTime))
	untimed := blank + "  a-1   ok       untimed\n"
	one := "2026-01-02 15:02:00  a-1   ok       one\n2026-01-02 15:02:00  bb-1  ok       one\n"
	two := "2026-01-02 15:04:00  a-1   FAILED   two: " + print.Line(hostile) + "\n"

	for name, tt := range map[string]struct {
		since      time.Time
		want       string
		host, task string
	}{
		"all":                     {want: untimed + one + two},
		"at the time of an event": {since: at(2), want: untimed + one + two},
		"later":                   {since: at(3), want: untimed + two},
		"after the last":          {since: at(5), want: untimed},
		"of a host":               {host: "bb-1", want: strings.SplitAfter(one, "\n")[1]},
		"of a task":               {task: "tw", want: two},
		"of a task on a host":     {host: "a-1", task: "one", want: strings.SplitAfter(one, "\n")[0]},
		"later, of a host":        {since: at(3), host: "a-1", want: untimed + two},
		"of another host":         {host: "a", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var got strings.Builder

			out := Output{
				Write: func(b []byte) error { got.Write(b); return nil },
				Say:   func(string, ...any) {},
				Style: print.Style{},
			}

			o := LogOptions{Timed: true, Since: tt.since, Host: tt.host, Task: tt.task}
			errtest.None(t, Log(t.Context(), events, "1", o, out))

			if got.String() != tt.want {
				t.Errorf("the output is\n%swant\n%s", &got, tt.want)
			}

			if strings.Contains(got.String(), "\x1b") {
				t.Errorf("a control character of a host reaches the output: %q", &got)
			}
		})
	}
}
