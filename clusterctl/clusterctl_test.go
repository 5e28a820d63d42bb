// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// The command line must work on a machine that has nothing else of this project.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Skipf("go list does not run here: %v", err)
	}

	const own = "github.com/contiv/cluster/"

	allowed := map[string]bool{
		"clusterctl":        true,
		"management/client": true,
		"management/api":    true,
		"inventory":         true,
		"configuration":     true, /* pure: how variables are read */
	}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if name, ok := strings.CutPrefix(path, own); ok && !allowed[name] {
			t.Errorf("clusterctl depends on %s: it may know the client only", name)
		}

		for _, banned := range []string{"go.etcd.io/", "github.com/hashicorp/serf", "google.golang.org/grpc", "github.com/gorilla/mux"} {
			if strings.HasPrefix(path, banned) {
				t.Errorf("clusterctl links %s, which is the daemon's", path)
			}
		}
	}
}

func tree(t *testing.T) *cli.Command {
	t.Helper()
	return (&app{}).root()
}

func leaves(c *cli.Command, path string, f func(c *cli.Command, path string)) {
	for _, sub := range c.Commands {
		p := path + " " + sub.Name
		if len(sub.Commands) > 0 {
			leaves(sub, p, f)
			continue
		}

		f(sub, p)
	}
}

// Every command says what it does and shows how to call it, and every example
// is a command line that reaches the manager.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)

	for _, name := range []string{"vars.yml", "globals.yml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("a: 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	t.Setenv("CLUSTERM_URL", "unix://"+filepath.Join(dir, "nobody"))
	examples, _ := tree(t).Metadata[metaExamples].([]string)
	leaves(tree(t), "clusterctl", func(c *cli.Command, path string) {
		if c.Hidden {
			return
		}

		own := examplesOf(c)
		if c.Usage == "" || len(own) == 0 {
			t.Errorf("%s: no usage or no example", path)
		}

		for _, e := range own {
			if !strings.HasPrefix(e, path) {
				t.Errorf("%s: the example %q is of another command", path, e)
			}
		}

		examples = append(examples, own...)
	})

	for _, e := range examples {
		want := ExitUnreachable
		if strings.Contains(e, "--client") || strings.Contains(e, " completion ") {
			want = ExitDone
		}

		line, _, _ := strings.Cut(e, " > ")

		var out, errs bytes.Buffer
		if code := Run(
			t.Context(),
			words(line),
			Options{Stdin: strings.NewReader("{}"), Stdout: &out, Stderr: &errs},
		); code != want {
			t.Errorf("%s: exit code %d\n%s", e, code, errs.String())
		}
	}
}

// Every command that takes arguments says how they are completed.
func TestCompletions(t *testing.T) {
	left := maps.Clone(completions)
	leaves(tree(t), "", func(c *cli.Command, path string) {
		path = strings.TrimSpace(path)
		if _, ok := completions[path]; !ok && c.ArgsUsage != "" && !c.Hidden {
			t.Errorf("%s takes %s, and nothing says how that is completed", path, c.ArgsUsage)
		}

		delete(left, path)
	})

	for path := range left {
		t.Errorf("there is no command %q", path)
	}
}

// What looks like a secret does not get into a bundle; everything else does.
func TestHide(t *testing.T) {
	for in, want := range map[string]string{
		"db_password: hunter2, next":        "db_password: [removed], next",
		`{"api_key": "abc def", "x": 1}`:    `{"api_key": [removed], "x": 1}`,
		`{"token": "a\"b c", "x": 1}`:       `{"token": [removed], "x": 1}`,
		`{"tokens": ["a", "b"], "x": 1}`:    `{"tokens": [removed], "x": 1}`,
		`{"my_secret":{"v":"a"}, "x": 1}`:   `{"my_secret":[removed], "x": 1}`,
		"TOKEN=abc; retry":                  "TOKEN=[removed]; retry",
		"Authorization: Bearer abcdefghijk": "Authorization: Bearer [removed]",
		"proxy http://user:pw@proxy:3128/":  "proxy http://[removed]@proxy:3128/",
		"a -----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY----- z": "a [removed] z",
		"-----BEGIN RSA PRIVATE KEY-----\ncut off":                                         "[removed]",
		"ssh-ed25519 AAAAC3 at http://[fd00::1]:9007/nodes/a":                              "ssh-ed25519 AAAAC3 at http://[fd00::1]:9007/nodes/a",
		"no host key is known": "no host key is known",
	} {
		if got := hideText(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}

	doc, err := hideJSON(
		[]byte(
			`{"a":[{"vault_password":"x","token":7,"key_file":"/k","note":"password=y"}],"ok":true,"n":12345678901234567890}`,
		),
		"",
	)
	if want := `{"a":[{"key_file":"/k","note":"password=[removed]","token":"[removed]","vault_password":"[removed]"}],"n":12345678901234567890,"ok":true}` + "\n"; err != nil ||
		string(doc) != want {
		t.Errorf("%v\n%s%s", err, doc, want)
	}
}

// words splits a command line as a shell does, as far as the examples need it.
func words(line string) []string {
	var all []string
	var word strings.Builder

	quoted, any := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, any = !quoted, true
		case r == ' ' && !quoted:
			if any {
				all = append(all, word.String())
			}

			word.Reset()
			any = false
		default:
			word.WriteRune(r)
			any = true
		}
	}

	return append(all, word.String())
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything"), 1},
		{inventory.Errorf(inventory.KindInternal, "x"), 1},
		{inventory.Errorf(inventory.KindConflict, "x"), 1},
		{inventory.Errorf(inventory.KindUnsupported, "x"), 1},
		{inventory.Errorf(inventory.KindInvalid, "x"), 2},
		{inventory.Errorf(inventory.KindTooLarge, "x"), 2},
		{usagef("x"), 2},
		{failf(ExitJobFailed, "x"), 3},
		{fmt.Errorf("wrapped: %w", inventory.Errorf(inventory.KindNotFound, "x")), 4},
		{inventory.Errorf(inventory.KindRefused, "x"), 5},
		{inventory.Errorf(inventory.KindUnauthenticated, "x"), 5},
		{inventory.Errorf(inventory.KindForbidden, "x"), 5},
		{inventory.Errorf(inventory.KindPrecondition, "x"), 5},
		{inventory.Errorf(inventory.KindKeyReused, "x"), 5},
		{inventory.Errorf(inventory.KindUnavailable, "x"), 6},
		{ErrInterrupted, 130},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("exitCode(%v) = %d, want %d", test.err, got, test.want)
		}
	}
}

func TestReport(t *testing.T) {
	var b bytes.Buffer

	code := report(&b, inventory.Errorf(inventory.KindRefused, "web-1 is \x1b[31mAllocated").Do("wait\nor cancel"))
	if want := "clusterctl: web-1 is Allocated\n  wait\n  or cancel\n"; b.String() != want || code != ExitRefused {
		t.Errorf("%d %q", code, b.String())
	}
}

func TestValue(t *testing.T) {
	for text, want := range map[string]string{
		"true": "true", "False": "false", "42": "42", "-1.50": "-1.50", "1e3": "1e3", "12345678901234567890": "12345678901234567890",
		"": `""`, "yes": `"yes"`, "007": `"007"`, "1.2.3": `"1.2.3"`, "12:30": `"12:30"`, "a: b": `"a: b"`, "# x": `"# x"`,
		"2026-01-02": `"2026-01-02"`, "*x": `"*x"`, "@x": `"@x"`, "-": `"-"`, ".inf": `".inf"`, "{{ x }}": `"{{ x }}"`,
		`"42"`: `"42"`, `'it''s'`: `"it's"`, "[1, a]": `[1,"a"]`, "{k: {v: 1}}": `{"k":{"v":1}}`, "null": "null", "~": "null",
	} {
		v, err := value(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}

		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("%q is %s, want %s (%v)", text, got, want, err)
		}
	}

	for _, text := range []string{"[1", "{a: ", `"x`} {
		if v, err := value(text); err == nil {
			t.Errorf("%q is %v", text, v)
		}
	}
}

// TestYAML: what is printed means the same to a reader of YAML 1.1, such as
// Ansible's, for which yes is true and 12:30 a number.
func TestYAML(t *testing.T) {
	const doc = `{"y":"yes","off":["on","No","text","12:30","1.10","null","2026-01-02","~",""],"n":1.0,"b":true,"m":"a\nb"}`

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
		t.Errorf("%v\n%s", err, got)
	}
}

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{"": "''", "unix:///run/a.sock": "unix:///run/a.sock", "a b": "'a b'", "it's": `'it'\''s'`} {
		if got := shellWord(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// fill sets every field below v to a value of its own.
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

// missing lists the values below v that text does not show.
func missing(v reflect.Value, path, text string) (all []string) {
	show := func(s string) {
		if !strings.Contains(text, s) {
			all = append(all, path+" = "+s)
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return missing(v.Elem(), path, text)
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			show(timeText(at))
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
		show(fmt.Sprint(v.Interface()))
	}

	return all
}

// -o long shows everything that the wire has.
func TestLongShowsEverything(t *testing.T) {
	n := 0
	var node api.Node
	fill(reflect.ValueOf(&node).Elem(), &n)
	var b bytes.Buffer
	(&printer{w: &b}).node(node)

	for _, m := range missing(reflect.ValueOf(node), "node", b.String()) {
		t.Errorf("%s is not shown in\n%s", m, b.String())
	}

	var j api.Job
	fill(reflect.ValueOf(&j).Elem(), &n)
	j.Status = api.Queued
	b.Reset()
	(&printer{w: &b}).job(j, true)
	// How a host stands in the summary and in a run's results goes by its name.
	for _, m := range missing(reflect.ValueOf(j), "job", b.String()) {
		t.Errorf("%s is not shown in\n%s", m, b.String())
	}

	b.Reset()
	(&printer{w: &b}).job(api.Job{ID: "7"}, true) // as in a list, which does not say how much output there is

	if strings.Contains(b.String(), "Output") {
		t.Errorf("output is shown in\n%s", b.String())
	}

	var e api.HistoryEntry
	fill(reflect.ValueOf(&e).Elem(), &n)
	b.Reset()
	(&printer{w: &b}).historyLong([]api.HistoryEntry{e})
	text := strings.ReplaceAll(b.String(), "T", " ") // RFC 3339

	e.From = ""
	for _, m := range missing(reflect.ValueOf(e), "entry", text) {
		t.Errorf("%s is not shown in\n%s", m, text)
	}
}

// Progress of a job in lines and in rows, from the same events.
func TestTracker(t *testing.T) {
	tr := newTracker(
		api.Job{
			ID:     "7",
			Verb:   inventory.VerbUpdate,
			Status: api.Running,
			Phase:  "configure",
			Nodes:  []string{"a-1", "longer-2"},
		},
	)
	for _, e := range []api.Event{
		{Event: "playbook"}, {Event: "play", Play: "p"}, {Event: "task", Task: "one"},
		{Event: "ok", Host: "a-1", Task: "one", Item: "x"}, {Event: "ok", Host: "a-1", Task: "one", Changed: true},
		{Event: "failed", Host: "longer-2", Task: "one", Ignored: true, Message: "never mind"},
		{Event: "task", Task: "two", Role: "r"},
		{Event: "unreachable", Host: "a-1", Task: "two", Role: "r", Message: "no route"},
		{Event: "skipped", Host: "longer-2", Task: "two", Role: "r"},
		{Event: "unreachable", Host: "helper-3", Task: "two", Role: "r", Ignored: true, Message: "gone"},
		{Event: "task", Task: "three"}, {Event: "ok", Host: "helper-3", Task: "three"}, {Event: "odd", Host: "a-1"}, {Event: "stats"},
	} {
		tr.add(e)
	}

	r := &rows{tracker: tr}

	var got []string
	for i := range 4 {
		got = append(got, strings.TrimRight(r.row(i, 3, 80), " "))
	}

	want := []string{
		"/ job 7 is running: configure  [##########----------] 1/2 hosts",
		"  a-1       ok 1   changed 1   unreachable: no route",
		"  longer-2  ok 1   changed 0   three",
		"  helper-3  ok 2   changed 0   three",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	for width := range 100 {
		for i := range 4 {
			if row := r.row(i, 3, width); len([]rune(row)) > width {
				t.Errorf("row %d is wider than %d: %q", i, width, row)
			}
		}
	}

	// More hosts than rows: those that failed come first, the last row counts the rest.
	if row := r.row(1, 2, 80); !strings.Contains(row, "unreachable") {
		t.Errorf("the first row is %q", row)
	}

	if row := r.row(2, 2, 80); row != "  and 2 more hosts" {
		t.Errorf("the last row is %q", row)
	}

	for _, event := range []string{"failed", "unreachable"} {
		if line := eventLine(
			api.Event{Event: event, Host: "a-1", Task: "two", Ignored: true},
			3,
			paint(false),
		); line != "a-1  ignored  two" {
			t.Errorf("%q", line)
		}
	}

	// A new run begins anew.
	tr.add(api.Event{Event: "playbook"})

	if row := r.row(1, 3, 80); strings.Contains(row, "unreachable") {
		t.Errorf("the first row is %q", row)
	}
}
