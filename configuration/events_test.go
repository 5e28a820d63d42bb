// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const eventLines = `{"time":"2026-01-02T03:04:05.5Z","event":"playbook","future":{"x":1}}
not json
{"event":"play","play":"site","hosts":["a","b","c"]}
{"time":1767323045.5,"event":"ok","host":"a","task":"facts","changed":true,"seconds":0.5}
{"event":"failed","host":"a","task":"maybe","ignored":true,"message":"never mind"}
{"event":"failed","host":"b","task":"install","item":{"pkg":"x"},"message":"no such package"}
{"event":"failed","host":"b","task":"install","message":"One or more items failed"}
{"event":"unreachable","host":"c","task":"facts","message":["odd"]}
{"event":"skipped","host":"a","task":"x"}
[1]
{"nothing":1}
{"event":"failed","host":"a","task":"risky","message":"boom"}
`

const statsLine = `{"event":"stats","unfinished":["e","f"],` +
	`"stats":{"a":{"ok":2,"changed":1,"rescued":1},"b":{"failures":1},"d":{},"e":{"ok":1}}}`

func TestSummarize(t *testing.T) {
	for _, size := range []int{1, 7, len(eventLines)} {
		var s EventStream

		var events []Event
		for rest := eventLines; rest != ""; {
			n := min(size, len(rest))
			events = append(events, s.Write([]byte(rest[:n]))...)
			rest = rest[n:]
		}

		if len(events) != 9 {
			t.Fatalf("got %d events in chunks of %d bytes, want 9", len(events), size)
		}

		if want := time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC); !events[0].Time.Equal(want) {
			t.Errorf("time %v", events[0].Time)
		}

		if events[2].Time.Unix() != 1767323045 {
			t.Errorf("time %v", events[2].Time)
		}

		got := Summarize(events)

		want := map[string]HostResult{
			"a": {
				Host:     "a",
				Begun:    true,
				Selected: true,
				OK:       1,
				Changed:  1,
				Ignored:  1,
				Skipped:  1,
				Failed:   1,
				Task:     "risky",
				Message:  "boom",
			},
			"b": {
				Host: "b", Begun: true, Selected: true, Failed: 1, Task: "install", Item: `{"pkg":"x"}`,
				Message: "no such package",
			},
			"c": {Host: "c", Begun: true, Selected: true, Unreachable: 1, Task: "facts", Message: `["odd"]`},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v", got)
		}

		stats, ok := ParseEvent([]byte(statsLine))
		if !ok {
			t.Fatal("the stats are not an event")
		}
		got = Summarize(append(events, stats))
		if a := got["a"]; !a.Good() || a.Task != "" || a.OK != 2 {
			t.Errorf("rescued host: %+v", a)
		}
		if b := got["b"]; b.Good() || b.Item == "" {
			t.Errorf("failed host: %+v", b)
		}

		if e, f := got["e"], got["f"]; e.Good() || !e.Begun || f.Good() || f.Begun || !f.Unfinished {
			t.Errorf("unfinished hosts: %+v, %+v", e, f)
		}

		if d := got["d"]; d.Begun {
			t.Errorf("idle host: %+v", d)
		}
	}
}

func TestHostHasBegunWithoutAResult(t *testing.T) {
	got := Summarize([]Event{
		{Event: EventPlay, Hosts: []string{"a"}},
		{Event: EventTask},
		{Event: EventPlay, Hosts: []string{"b"}},
	})
	if !got["a"].Begun || got["b"].Begun || got["a"].Good() {
		t.Errorf("got %+v", got)
	}
}

// TestSelectedAndExecuted: a task that runs for its tag always is no selected task, and
// one that a check executed counts if it changed the host or failed.
func TestSelectedAndExecuted(t *testing.T) {
	t.Parallel()

	got := Summarize([]Event{
		{Event: EventPlay, Hosts: []string{"a", "b", "c"}},
		{Event: EventOK, Host: "a", Unselected: true, Changed: true},
		{Event: EventOK, Host: "b", Unselected: true},
		{Event: EventSkipped, Host: "b"},
		{Event: EventOK, Host: "b", Executed: true},
		{Event: EventOK, Host: "b", Executed: true, Changed: true},
		{Event: EventFailed, Host: "b", Executed: true},
		{Event: EventOK, Host: "b", Changed: true},
	})

	if a, b, c := got["a"], got["b"], got["c"]; a.Selected || !b.Selected || c.Selected || b.Executed != 2 ||
		a.Executed != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestEventStreamSkipsLongLines(t *testing.T) {
	var s EventStream
	for range 40 {
		if got := s.Write([]byte(strings.Repeat("x", 64<<10))); got != nil {
			t.Fatal(got)
		}
	}

	if len(s.rest) > maxEventLine {
		t.Errorf("%d bytes are buffered", len(s.rest))
	}

	if got := s.Write([]byte("\n{\"event\":\"ok\"}\n")); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestExplainFailure(t *testing.T) {
	const (
		changed = "Failed to connect to the host via ssh: @@@@\r\n" +
			"Host key for web-1 has changed and you have requested strict checking.\r\n" +
			"Host key verification failed."
		unknown = "No RSA host key is known for web-1 and you have requested strict checking."
		denied  = "root@10.0.0.1: Permission denied (publickey,password)."
		closed  = `Data could not be sent to remote host "10.0.0.1". Make sure this host can be reached over ssh: ` +
			"kex_exchange_identification: Connection closed by remote host\r\n"
		unsent = `Data could not be sent to remote host "10.0.0.1". Make sure this host can be reached over ssh: `
		trust  = "trust the new key"
	)

	for _, c := range []struct {
		message, node, want string
		aboutKey            bool
	}{
		{changed, "web-1", trust, true},
		{unknown, "web-1", trust, true},
		{"Host key verification failed.", "web-1", "jump host", true},
		{denied, "web-1", "access as root@10.0.0.1 was denied", false},
		{denied, "web-1", "the node's connection", false},
		{denied, "", "ssh.user and ssh.key_file of the configuration", false},
		{
			"ssh: connect to host 10.0.0.1 port 22: Connection timed out", "",
			"10.0.0.1, port 22: connection timed out", false,
		},
		{
			"ssh: Could not resolve hostname x: Name or service not known", "",
			"the host name x cannot be resolved", false,
		},
		{
			closed, "web-1", "no ssh connection to 10.0.0.1: it was closed before the login " +
				"(Connection closed by remote host); check that an sshd", false,
		},
		{"Task failed: Missing sudo password\n", "web-1", "Missing sudo password: allow sudo without", false},
		{"it said: Missing sudo password, and went on", "web-1", "it said: Missing sudo password, and went on", false},
		{
			"Failed to connect to the host via ssh: Connection timed out during banner exchange\r\n" +
				"Connection to 10.0.0.1 port 22 timed out", "web-1",
			"no ssh connection to 10.0.0.1: the host accepts connections, and its sshd does not answer", false,
		},
		{unsent + "[Errno 32] Broken pipe", "web-1", "no ssh connection to 10.0.0.1: it broke before", false},
		{unsent + "client_loop: send disconnect: Broken pipe\r\n", "web-1", "send disconnect: Broken pipe", false},
		{" other text about a host key\n", "web-1", "other text about a host key", false},
	} {
		got := ExplainFailure(c.message, hostNamed(c.node))
		if !strings.Contains(got, c.want) {
			t.Errorf("%q: got %q, which lacks %q", c.message, got, c.want)
		}
		if AboutHostKey(got) != c.aboutKey {
			t.Errorf("%q: AboutHostKey is %t, want %t", got, !c.aboutKey, c.aboutKey)
		}

		if c.node == "" && strings.Contains(got, "the node's connection") {
			t.Errorf("%q: the remedy for an address is one for nodes: %q", c.message, got)
		}
	}

	// Where ssh speaks, it may have ended while the module ran.
	for reason, never := range map[string]bool{
		"[Errno 32] Broken pipe": true, "client_loop: send disconnect: Broken pipe\r\n": false,
		"Timeout, server 10.0.0.1 not responding.\r\n": false,
	} {
		if got := ExplainFailure(unsent+reason, hostNamed("web-1")); NeverConnected(got) != never {
			t.Errorf("%q: never connected is not %t", got, never)
		}
	}

	if got := ExplainFailure(denied, hostNamed("web-1")); !AboutAccess(got) || AboutAccess("permission denied") {
		t.Errorf("AboutAccess misjudges %q", got)
	}

	for addr, want := range map[string]bool{"10.0.0.1": true, "10.0.0.11": false, "0.0.0.1": false, "": false} {
		if got := ExplainFailure(denied, hostNamed("web-1")); DeniedBy(Host{Addr: addr}, got) != want {
			t.Errorf("%q is by %q: not %t", got, addr, want)
		}
	}

	if got := ExplainFailure(changed, hostNamed("")); !AboutHostKey(got) || strings.Contains(got, trust) {
		t.Errorf("the remedy for an address is one for nodes: %q", got)
	}
}

// hostNamed is a node with that name, or an address without one.
func hostNamed(name string) Host {
	label, _, _ := strings.Cut(name, "-")
	return Host{Name: name, Label: label}
}

// TestExplainJumpFailure: what ssh reports about a jump host names it, with a remedy for
// it; the same about the node behind it is about the node.
func TestExplainJumpFailure(t *testing.T) {
	t.Parallel()

	const (
		verification = "\r\nHost key verification failed.\r\nConnection closed by UNKNOWN port 65535"
		strict       = " has changed and you have requested strict checking."
	)

	for _, c := range []struct {
		jump, message, want          string
		recorded, jumpKey, jumpLogin bool
	}{
		{
			"ops@10.0.0.9", "Host key for 10.0.0.9" + strict + verification,
			"the ssh host key of the jump host 10.0.0.9 has changed: another machine answers under its address, or " +
				"it was installed anew; if that is expected, remove its old key as the account that clusterm runs as" +
				": ssh-keygen -R '10.0.0.9'", false, true, false,
		},
		{
			"10.0.0.9:2222", "Host key for [10.0.0.9]:2222" + strict + verification,
			"ssh-keygen -R '[10.0.0.9]:2222'", false, true, false,
		},
		{"[fd00::9]:22", "Host key for fd00::9" + strict, "jump host fd00::9 has changed", false, true, false},
		{"Gate.example", "Host key for gate.example" + strict, "host Gate.example has changed", false, true, false},
		{"10.0.0.9", "Host key for web-1" + strict, "the ssh host key of web-1 is not the one", true, false, false},
		{"", "Host key for 10.0.0.9" + strict, "the ssh host key of 10.0.0.9 is not the one", true, false, false},
		{
			"ops@10.0.0.9", "ops@10.0.0.9: Permission denied (publickey).\r\nConnection closed by UNKNOWN port 65535",
			"a user of the jump host 10.0.0.9 was denied (publickey; user ops): check the user in the jump",
			false, false, true,
		},
		{"10.0.0.9", "root@10.0.0.1: Permission denied (publickey).", "root@10.0.0.1 was denied", false, false, false},
		{
			"10.0.0.9", "ssh: connect to host 10.0.0.9 port 22: Connection refused",
			"no ssh connection to the jump host 10.0.0.9, port 22: connection refused", false, false, false,
		},
		{
			"10.0.0.9", `Data could not be sent to remote host "10.0.0.1". Make sure this host can be reached over ` +
				"ssh: kex_exchange_identification: Connection closed by remote host\r\n",
			"no ssh connection to 10.0.0.1 by the jump host 10.0.0.9: it was closed before the login (Connection " +
				"closed by remote host); a ping of the node shows which", false, false, false,
		},
		{
			"gate.example", "ssh: Could not resolve hostname gate.example: Name or service not known",
			"the name of the jump host gate.example cannot be resolved", false, false, false,
		},
	} {
		h := hostNamed("web-1")
		h.Addr, h.Connection.Jump = "10.0.0.1", c.jump

		got := ExplainFailure(c.message, h)
		if !strings.Contains(got, c.want) {
			t.Errorf("%q: got %q, which lacks %q", c.message, got, c.want)
		}
		if byHost := strings.Contains(got, "as root@10.0.0.1 was denied"); DeniedBy(h, got) != byHost {
			t.Errorf("%q: denied by the host behind the jump host: %t", got, !byHost)
		}

		if AboutRecordedKey(got) != c.recorded || AboutJumpKey(got) != c.jumpKey ||
			AboutJumpAccess(got) != c.jumpLogin || c.jumpKey && !AboutHostKey(got) ||
			c.jumpLogin && !AboutAccess(got) {
			t.Errorf("%q is about the wrong host", got)
		}

		if !NeverConnected(got) {
			t.Errorf("%q counts as connected", got)
		}
	}
}

// TestSummarizeCheck counts what a check found, apart from what it executed.
func TestSummarizeCheck(t *testing.T) {
	t.Parallel()

	var s EventStream

	got := Summarize(s.Write([]byte(`{"event":"ok","host":"a","changed":true,"foreseen":true,"diff":"-x\n+y"}
{"event":"ok","host":"a","changed":true,"foreseen":true,"unjudged":true}
{"event":"ok","host":"a","changed":true,"executed":true}
{"event":"skipped","host":"a","unjudged":true}
{"event":"skipped","host":"a"}
`)))["a"]

	want := HostResult{
		Host: "a", Begun: true, Selected: true, OK: 3, Changed: 3, Skipped: 2, Executed: 1, Foreseen: 2, Unjudged: 2,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestSummarizeCut: the last event has the counts of a run whose other events were cut,
// and events that are missing altogether cast doubt on the result.
func TestSummarizeCut(t *testing.T) {
	t.Parallel()

	const (
		cut  = `{"event":"truncated","message":"the limit is reached"}` + "\n"
		ok   = `{"event":"ok","host":"a"}` + "\n"
		last = `{"event":"stats","stats":{"a":{"ok":9,"judged":5,"foreseen":2,"unjudged":1,"executed":1}}}` + "\n"
	)

	for name, tt := range map[string]struct {
		events, doubt string
		judged        int
	}{
		"the end is kept": {ok + cut + last, "", 5},
		"the end is cut": {
			ok + cut, "the events of the run exceeded their limit, and its end is not among those that were kept", 0,
		},
		"events are lost": {ok + `{"event":"stats","lost":2,"stats":{"a":{"ok":1,"judged":1}}}` + "\n",
			"2 events of the run could not be written", 1},
		"a failure is ignored": {
			ok + `{"event":"stats","stats":{"a":{"ok":1,"judged":1,"doubt":"why"}}}` + "\n", "why", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var s EventStream

			got := Summarize(s.Write([]byte(tt.events)))["a"]
			if got.Doubt != tt.doubt || got.Judged != tt.judged {
				t.Errorf("%+v", got)
			}
			if strings.HasSuffix(tt.events, last) && (got.Foreseen != 2 || got.Unjudged != 1 || got.Executed != 1) {
				t.Errorf("the counts are %+v", got)
			}
		})
	}
}
