// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"strings"
	"testing"
)

// TestBadInput: a refused request names the culprit, the reason and the remedy, exits
// with the code of its kind, and changes nothing.
func TestBadInput(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 3})
	w.commission(master, "host2")
	w.sh("host1", "head -c 2000000 /dev/zero | tr '\\0' x | sed 's/^/a: /' >/root/large.yml")
	w.sh("host1", "printf 'a: 1\\n b: 2\\n' >/root/broken.yml; mkdir /root/empty")
	w.write("host1", "/root/old-ansible", "#!/bin/sh\necho 'ansible-playbook [core 2.9.6]'\n")
	w.sh("host1", "chmod 755 /root/old-ansible")
	up, free := w.name("host2"), w.name("host3")

	type refusal struct {
		code  int
		words []string
		args  []string
	}

	// In words and commands, UP is a commissioned node and FREE is not.
	split := func(s string) []string {
		return strings.Split(strings.NewReplacer("UP", up, "FREE", free).Replace(s), "|")
	}
	words, cmd := split, split
	all := []refusal{
		// nodes
		{4, words("nobody-1|other-2|nodes get"), cmd("nodes|commission|nobody-1|FREE|other-2|-g|service-worker")},
		{4, words("nobody-1"), cmd("nodes|get|nobody-1")},
		{4, words("nobody-1"), cmd("nodes|history|nobody-1")},
		{4, words("nobody-1"), cmd("nodes|forget|nobody-1")},
		{4, words("nobody-1"), cmd("nodes|set|nobody-1|--port|22")},
		{2, words("at least one"), cmd("nodes|commission")},
		{2, words("more than once|FREE"), cmd("nodes|commission|FREE|FREE|-g|service-worker")},
		{2, words("node name"), cmd("nodes|commission|a;reboot|-g|service-worker")},
		{2, words("node name"), cmd("nodes|commission|{{x}}-1|-g|service-worker")},
		{5, words("UP|Allocated|Unallocated"), cmd("nodes|commission|UP|FREE|-g|service-worker")},
		{5, words("FREE|Unallocated|Allocated"), cmd("nodes|update|FREE")},
		{5, words("FREE|Unallocated"), cmd("nodes|maintenance|UP|FREE")},
		{5, words("FREE|Unallocated"), cmd("nodes|decommission|FREE")},
		{5, words("FREE|Quarantined"), cmd("nodes|clear|FREE")},
		{5, words("FREE|Discovered|--force"), cmd("nodes|forget|FREE")},
		{2, words("port"), cmd("nodes|set|FREE|--port|99999")},
		{2, words("key"), cmd("nodes|set|FREE|--key-file|relative")},
		{2, words("needs a setting"), cmd("nodes|set|FREE")},
		// groups, options
		{4, words("nonsense|service-master|service-worker"), cmd("nodes|commission|FREE|-g|nonsense")},
		{2, words("on_failure|batch|failed"), cmd("nodes|commission|FREE|-g|service-worker|--on-failure|nothing")},
		{2, words("duration"), cmd("nodes|commission|FREE|-g|service-worker|--timeout|soon")},
		{2, words("--hostgroup|--host-group"), cmd("nodes|commission|FREE|--hostgroup|service-worker")},
		{2, words("commision|commission"), cmd("nodes|commision|FREE")},
		// variables
		{2, words("object"), cmd("nodes|commission|FREE|-g|service-worker|-e|[1, 2]")},
		{2, words("object"), cmd("nodes|commission|FREE|-g|service-worker|-e|just words")},
		{2, words("ansible_host"), cmd("nodes|commission|FREE|-g|service-worker|-e|ansible_host: 10.0.0.1")},
		{2, words("line 1"), cmd(`nodes|commission|FREE|-g|service-worker|-e|{"a": `)},
		{2, words("broken.yml|line 2"), cmd("nodes|commission|FREE|-g|service-worker|-e|@/root/broken.yml")},
		{2, words("/no/such/file"), cmd("nodes|commission|FREE|-g|service-worker|-e|@/no/such/file")},
		{2, words("1048576"), cmd("nodes|commission|FREE|-g|service-worker|-e|@/root/large.yml")},
		{2, words("ansible_user"), cmd("vars|set|--global|ansible_user=root")},
		{4, words("nobody-1"), cmd("vars|set|--node|nobody-1|a=1")},
		{4, words("nonsense"), cmd("vars|set|--group|nonsense|a=1")},
		{2, words("--global"), cmd("vars|set|a=1")},
		{2, words("-e"), cmd("global|set")},
		{2, words("a-b|underscore"), cmd("vars|set|--global|a-b=1")},
		// addresses
		{2, words("address"), cmd("discover|10.77.0.300")},
		{2, words("address"), cmd("discover|host name")},
		{2, words("before its first"), cmd("discover|10.77.0.99-10.77.0.90")},
		{2, words("1024"), cmd("discover|10.0.0.0/8")},
		{5, words("FREE|Discovered"), cmd("discover|" + addr("host3"))},
		// jobs
		{4, words("job"), cmd("job|get|99")},
		{4, words("job"), cmd("job|logs|99")},
		{4, words("job"), cmd("job|cancel|99")},
		{4, words("job"), cmd("job|cancel|active")},
		{2, words("Queued|Running"), cmd("job|list|--status|Asleep")},
		// configuration
		{2, words("nonsense"), cmd("config|set|nonsense=1")},
		{5, words("data_dir|file"), cmd("config|set|data_dir=/elsewhere")},
		{2, words("jobs.limit"), cmd("config|set|jobs.limit=0")},
		{2, words("jobs.limit"), cmd("config|set|jobs.limit=many")},
		{2, words("/root/none"), cmd("config|set|playbooks=/root/none")},
		{5, words("groups|UP|service-master"), cmd(`config|set|groups=[{"name": "other"}]`)},
		{4, words("nonsense"), cmd("config|get|nonsense")},
		// the manager
		{6, words("127.0.0.1:1"), cmd("-u|http://127.0.0.1:1|nodes|get")},
		{2, words("url"), cmd("-u|ftp://host|nodes|get")},
	}
	w.wantUnchanged(func() {
		before := w.ctl("config", "get", "-o", "json").stdout
		for _, c := range all {
			r := w.wantRefused(c.code, c.words, c.args...)
			if r.stdout != "" {
				t.Errorf("stdout is not empty: %s", r)
			}

			if c.code != 2 && !strings.Contains(r.stderr, "\n  ") {
				t.Errorf("the message lacks a remedy: %s", r)
			}
		}

		if now := w.ctl("config", "get", "-o", "json").stdout; now != before {
			t.Errorf("the configuration changed: %s", difference(before, now))
		}
	})

	t.Run("bodies", func(t *testing.T) {
		w := w.forSubtest(t)
		w.wantUnchanged(func() {
			post := func(file string) string {
				return w.sh("host1", "curl -s -w '\\n%{http_code}' --unix-socket /run/clusterm/clusterm.sock "+
					"-H 'Content-Type: application/json' --data-binary @"+file+" http://clusterm/v1/jobs").stdout
			}

			for _, c := range []struct{ body, status, word string }{
				{`{"verb": "commission", "nodes": ["` + free + `"], "bogus": 1}`, "400", "bogus"},
				{`{"verb": "commission", "nodes": ["` + free + `"`, "400", "line 1"},
				{`{"verb": "dance", "nodes": ["` + free + `"]}`, "400", "dance"},
				{`[]`, "400", "object"},
				{``, "400", "no body"},
				{`{"verb": "commission", "nodes": []}`, "400", "at least one"},
			} {
				w.write("host1", "/root/body", c.body)

				out := post("/root/body")
				if !strings.HasSuffix(out, "\n"+c.status) || !strings.Contains(out, c.word) {
					t.Errorf("%s: want %s with %q, got %s", c.body, c.status, c.word, out)
				}
			}

			if out := post("/root/large.yml"); !strings.HasSuffix(out, "\n413") {
				t.Errorf("a body that is too large: want 413, got %s", out)
			}
		})
	})

	t.Run("playbooks", func(t *testing.T) {
		w := w.forSubtest(t)
		request := []string{"nodes", "commission", "-g", worker, free}
		// The configuration refuses unusable values.
		w.wantUnchanged(func() {
			w.wantRefused(2, []string{"site.yml", "/root/empty"}, "config", "set", "playbooks=/root/empty")

			inFileOnly := []string{"ansible_playbook", "file"}
			w.wantRefused(5, inFileOnly, "config", "set", "ansible_playbook=/root/old-ansible")
		})
		// Playbooks that are removed later are missed before a job is accepted.
		w.sh("host1", "mv "+testPlaybooks+" /root/moved")
		w.wantUnchanged(func() { w.wantRefused(2, []string{testPlaybooks}, request...) })
		w.sh("host1", "mv /root/moved "+testPlaybooks)
		w.commission(worker, "host3")
	})

	t.Run("starts", func(t *testing.T) {
		w := w.forSubtest(t)
		w.write("host1", "/root/typo.yml", "jobs:\n  limit: 3\n  limmit: 4\n")
		w.write("host1", "/root/same.yml", "socket: /run/other.sock\ngossip: off\n")
		w.write("host1", "/root/socket.yml", "data_dir: /var/lib/other\ngossip: off\n")
		w.write("host1", "/root/port.yml", "data_dir: /var/lib/other\nsocket: /run/other.sock\n")
		w.write("host1", "/root/tcp.yml",
			"data_dir: /var/lib/other\nsocket: /run/other.sock\ngossip: off\nplain_http: 127.0.0.1:22\n")
		w.write("host1", "/root/open.yml", "plain_http: 0.0.0.0:9007\n")
		w.write("host1", "/root/readonly.yml", "data_dir: /sys/clusterm\nsocket: /run/other.sock\ngossip: off\n")

		for file, words := range map[string][]string{
			"typo.yml":     {"limmit", "line 3"},
			"same.yml":     {dataDir, "in use"},
			"socket.yml":   {"/run/clusterm/clusterm.sock", "another process"},
			"port.yml":     {"7946", "in use"},
			"tcp.yml":      {"127.0.0.1:22", "in use"},
			"open.yml":     {"loopback"},
			"readonly.yml": {"/sys/clusterm"},
			"missing.yml":  {"missing.yml"},
		} {
			// An invalid configuration has a status of its own.
			want := 1
			if file == "typo.yml" || file == "open.yml" || file == "missing.yml" {
				want = 78
			}

			r := w.try("host1", "timeout 30 clusterm --config /root/"+file)
			if r.code != want {
				t.Errorf("%s: exit %d, want %d: %s", file, r.code, want, r)
			}

			for _, word := range words {
				if !strings.Contains(r.stderr, word) {
					t.Errorf("%s: stderr lacks %q: %s", file, word, r)
				}
			}
		}

		w.ctl("health")
	})
}
