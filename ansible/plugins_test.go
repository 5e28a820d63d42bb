// SPDX-License-Identifier: Apache-2.0

package ansible_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/inventory/errtest"
)

// playbooks copies the embedded playbooks to a directory, as a run uses them.
func playbooks(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	errtest.None(t, os.CopyFS(dir, ansible.FS()))
	return dir
}

func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()

	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("runs the real Ansible; set CLUSTERM_LAB=1, as make system does")
	}

	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed here", name)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	home := t.TempDir()

	// An empty configuration, so that the machine's own has no effect.
	config := filepath.Join(home, "ansible.cfg")
	errtest.None(t, os.WriteFile(config, nil, 0o600))

	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "ANSIBLE_") || strings.HasPrefix(s, "CLUSTERM_")
	}), "LC_ALL=C.UTF-8", "HOME="+home, "PYTHONDONTWRITEBYTECODE=1", "ANSIBLE_NOCOLOR=1",
		"ANSIBLE_CONFIG="+config, "ANSIBLE_TRANSFORM_INVALID_GROUP_CHARS=ignore")

	return cmd
}

func TestEveryFileIsEmbedded(t *testing.T) {
	for _, name := range []string{
		"site.yml", "cleanup.yml", "verify.yml", "rolling-upgrade.yml",
		ansible.CallbackDir + "/clusterm_events.py",
		ansible.CacheDir + "/clusterm_facts.py",
		ansible.ConnectionDir + "/ssh.py",
		ansible.ConnectionDir + "/fence.sh",
		ansible.RolesDir + "/etcd/filter_plugins/etcd.py",
		ansible.RolesDir + "/etcd/templates/member.env.j2",
		ansible.RolesDir + "/agent/files/clusterm-agent.service",
		ansible.RolesDir + "/agent/filter_plugins/agent.py",
	} {
		if info, err := fs.Stat(ansible.FS(), name); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}

	embedded := map[string]bool{}
	if err := fs.WalkDir(ansible.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		embedded[path] = true
		return err
	}); err != nil {
		t.Fatal(err)
	}

	for _, top := range []string{"roles", "plugins"} {
		if err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".pyc") && !embedded[path] {
				t.Errorf("%s is not embedded: add its folder in embed.go", path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPlaybooksParse(t *testing.T) {
	t.Parallel()
	cmd := command(t, "ansible-playbook", "--syntax-check", "-i", "localhost,",
		"site.yml", "cleanup.yml", "verify.yml", "rolling-upgrade.yml")

	cmd.Dir = playbooks(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPluginUnits(t *testing.T) {
	t.Parallel()

	const python = "/usr/bin/python3"
	if err := command(t, python, "-c", "import ansible").Run(); err != nil {
		t.Skipf("%s has no ansible module", python)
	}

	cmd := command(t, python, "testdata/plugins_test.py", playbooks(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// event is a line of the events file, decoded strictly.
type event struct {
	Time       time.Time
	Event      string
	Play       string
	Task       string
	Role       string
	Action     string
	Host       string
	Changed    bool
	Executed   bool
	Foreseen   bool
	Diff       string
	Unjudged   bool
	Unselected bool
	Path       string
	Ignored    bool
	Item       string
	Message    string
	Seconds    float64
	Hosts      []string
	Stats      map[string]stats
	Unfinished []string
	Lost       int
}

type stats struct {
	OK, Changed, Failures, Unreachable, Skipped, Rescued, Ignored int
	Judged, Foreseen, Unjudged, Executed                          int
	Doubt                                                         string
}

// play runs a playbook of testdata with the callback plugin, and further arguments.
func play(t *testing.T, playbook string, args ...string) (events []event, raw string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "events")
	cmd := command(
		t,
		"ansible-playbook",
		append([]string{"-i", "testdata/hosts.yml", filepath.Join("testdata", playbook)}, args...)...)
	cmd.Env = append(cmd.Env, "CLUSTERM_EVENTS="+path, "ANSIBLE_CALLBACKS_ENABLED=clusterm_events",
		"ANSIBLE_CALLBACK_PLUGINS="+filepath.Join(playbooks(t), filepath.FromSlash(ansible.CallbackDir)))

	out, _ := cmd.CombinedOutput() // the playbooks fail on purpose
	if bytes.Contains(out, []byte("clusterm_events")) {
		t.Errorf("the plugin printed a warning:\n%s", out)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	for line := range strings.Lines(string(text)) {
		var e event
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()

		if err := d.Decode(&e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}

		if e.Time.IsZero() || e.Event == "" {
			t.Errorf("no time or kind: %s", line)
		}

		events = append(events, e)
	}

	return events, string(text)
}

func TestEvents(t *testing.T) {
	t.Parallel()
	events, raw := play(t, "events.yml")

	find := func(kind, task, host string) event {
		t.Helper()

		for _, e := range events {
			if e.Event == kind && e.Task == task && e.Host == host && e.Item == "" {
				return e
			}
		}

		t.Errorf("no event %s of task %q on host %q in\n%s", kind, task, host, raw)

		return event{}
	}

	if events[0].Event != "playbook" {
		t.Errorf("the first event is %+v, want a playbook", events[0])
	}

	if e := events[1]; e.Event != "play" || e.Play != "Kinds" || !slices.Equal(e.Hosts, []string{"one", "two"}) {
		t.Errorf("play: %+v", e)
	}

	if e := find("task", "Changed", ""); e.Play != "Kinds" || e.Action != "ansible.builtin.command" {
		t.Errorf("task: %+v", e)
	}

	if e := find("ok", "Changed", "two"); !e.Changed || e.Seconds <= 0 || e.Play != "Kinds" {
		t.Errorf("changed: %+v", e)
	}

	find("skipped", "Skipped on two", "two")

	if e := find("ok", "Delegated", "one"); e.Changed {
		t.Errorf("delegated: %+v", e)
	}

	const wantMessage = "the cause\nnon-zero return code\nrc=3\nstdout: out of it"
	if e := find("failed", "Ignored", "one"); !e.Ignored || e.Message != wantMessage {
		t.Errorf("ignored: %+v", e)
	}

	if e := find("failed", "Secret", "one"); e.Message != "the result is hidden by no_log" {
		t.Errorf("secret: %+v", e)
	}

	find("failed", "Argument", "one")

	if strings.Contains(raw, "hunter2") {
		t.Error("the events contain a secret")
	}

	message := find("failed", "Long", "one").Message
	if len(message) > 4096 || len(message) < 4090 || !strings.HasSuffix(message, "é…") || !utf8.ValidString(message) {
		t.Errorf("a long message has %d bytes and ends with %q", len(message), message[max(0, len(message)-8):])
	}

	if e := find("retry", "Retried", "one"); !strings.HasPrefix(e.Message, "attempt 1 of 2: ") {
		t.Errorf("retry: %+v", e)
	}

	var items []event
	for _, e := range events {
		if e.Item != "" {
			items = append(items, e)
		}
	}

	if len(items) != 1 || items[0].Item != "b" || items[0].Event != "failed" || items[0].Host != "two" {
		t.Errorf("items: %+v", items)
	}

	if e := find("failed", "Loop", "two"); e.Ignored || !strings.HasPrefix(e.Message, "no b\n") {
		t.Errorf("loop: %+v", e)
	}

	if e := find("ok", "Notify", "one"); e.Role != "small" {
		t.Errorf("role: %+v", e)
	}

	find("ok", "Handle", "one")

	if _, err := exec.LookPath("ssh"); err == nil {
		if e := find("unreachable", "Knock", "dark"); !e.Ignored || !strings.Contains(e.Message, "refused") {
			t.Errorf("unreachable: %+v", e)
		}
	}

	last := events[len(events)-1]
	if last.Event != "stats" || last.Stats["two"].Failures != 1 || last.Stats["one"].Ignored != 5 {
		t.Errorf("stats: %+v", last)
	}
	if last.Unfinished != nil {
		t.Errorf("unfinished: %v", last.Unfinished)
	}
}

func TestEventsOfARunThatStopsEarly(t *testing.T) {
	t.Parallel()
	events, raw := play(t, "stops-early.yml")

	last := events[len(events)-1]
	if last.Stats["two"].Failures != 1 || last.Stats["three"].Failures != 0 {
		t.Errorf("stats: %+v", last)
	}

	// The last play of host one never began.
	if want := []string{"one", "three"}; !slices.Equal(last.Unfinished, want) {
		t.Errorf("unfinished: got %v, want %v in\n%s", last.Unfinished, want, raw)
	}
}

// TestEventsOfACheck: a check reports what would change, with its difference, and what it cannot judge.
func TestEventsOfACheck(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	for name, content := range map[string]string{"a": "new a\n", "b": "by hand\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	events, raw := play(t, "check.yml", "--check", "--diff", "-e", "folder="+folder)

	var found []string

	for _, e := range events {
		if e.Host == "" {
			continue
		}

		line := e.Event + " " + e.Task
		for _, mark := range []struct {
			word string
			set  bool
		}{{" foreseen", e.Foreseen}, {" unjudged", e.Unjudged}, {" executed", e.Executed}} {
			if mark.set {
				line += mark.word
			}
		}

		if (e.Path != "") != (e.Foreseen || e.Unjudged || e.Executed) {
			t.Errorf("%s has the path %q", line, e.Path)
		}

		found = append(found, line)
	}

	want := []string{
		"ok Differs foreseen", "ok Hidden foreseen", "skipped Not judged unjudged", "ok Judged by what it creates",
		"skipped Not judged in a loop unjudged", "skipped Skipped for its condition", "skipped Skipped without items",
		"ok Executed executed",
	}
	if !slices.Equal(found, want) {
		t.Fatalf("got %q, want %q in\n%s", found, want, raw)
	}

	for _, e := range events {
		switch {
		case e.Task == "Differs" && e.Host != "":
			if !strings.Contains(e.Diff, "\n-by hand\n+new b") || strings.Contains(e.Diff, "new a") {
				t.Errorf("the difference is %q", e.Diff)
			}

			if e.Path != "testdata/check.yml:8" {
				t.Errorf("the path is %q", e.Path)
			}
		case e.Task == "Hidden" && e.Host != "" && e.Diff != "the result is hidden by no_log":
			t.Errorf("the hidden difference is %q", e.Diff)
		}
	}

	if got, want := events[len(events)-1].Stats["one"], (stats{
		OK: 4, Changed: 3, Skipped: 4, Judged: 3, Foreseen: 2, Unjudged: 2, Executed: 1,
	}); got != want {
		t.Errorf("the counts are %+v, want %+v", got, want)
	}

	if strings.Contains(raw, "hunter2") {
		t.Error("the events contain a secret")
	}
}

// TestEventsOfABlindCheck: the last event of a check names the blind spots of the check on
// each host.
func TestEventsOfABlindCheck(t *testing.T) {
	t.Parallel()

	events, raw := play(t, "blind.yml", "--check", "--diff", "-e", "folder="+t.TempDir())
	got := events[len(events)-1].Stats

	for host, want := range map[string]stats{
		"guarded": {Unjudged: 10},
		"ignores": {Doubt: `task "Cannot judge" failed, which the playbook ignores: `},
		"excuses": {Unjudged: 1},
		"rescues": {Doubt: `task "Cannot judge" failed, which the playbook rescues: `},
		"probes":  {Judged: 1, Executed: 1},
		"items":   {Foreseen: 1, Doubt: `task "One differs, one fails" failed, which the playbook ignores: `},
		"ends":    {Judged: 1, Doubt: "a check skips what follows testdata/blind.yml:"},
		"goes_on": {Judged: 1},
		"nothing": {},
		"dark":    {Doubt: `task "Knock" did not reach its host, which the playbook ignores: `},
		"scripts": {Unjudged: 3},
	} {
		s, ok := got[host]
		if !ok {
			t.Errorf("%s has no counts in\n%s", host, raw)
			continue
		}

		seen := stats{
			Judged: s.Judged, Foreseen: s.Foreseen, Unjudged: s.Unjudged, Executed: s.Executed,
			Doubt: s.Doubt[:min(len(s.Doubt), len(want.Doubt))],
		}
		if seen != want || (s.Doubt == "") != (want.Doubt == "") || s.Failures+s.Unreachable > 0 {
			t.Errorf("%s: got %+v, want %+v", host, s, want)
		}
	}

	for _, e := range events {
		if e.Host == "guarded" && e.Unjudged == strings.HasPrefix(e.Task, "Guarded") ||
			e.Host != "guarded" || e.Task == "Keep it" {
			continue
		}

		t.Errorf("%s %s: unjudged %t", e.Event, e.Task, e.Unjudged)
	}
}

// TestEventsOfChecksInARun: tasks with check_mode: true foresee differences although the
// run is no check, and a success of any other judges its host.
func TestEventsOfChecksInARun(t *testing.T) {
	t.Parallel()

	events, raw := play(t, "checks.yml", "-e", "folder="+t.TempDir())

	want := stats{OK: 3, Changed: 1, Judged: 3, Foreseen: 1, Skipped: 1, Unjudged: 1}
	if got := events[len(events)-1].Stats["one"]; got != want {
		t.Errorf("got %+v, want %+v in\n%s", got, want, raw)
	}

	if got := events[len(events)-1].Stats["two"]; got.Doubt == "" || got.Failures > 0 {
		t.Errorf("two: %+v", got)
	}
}
