// SPDX-License-Identifier: Apache-2.0

package ansible_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/inventory/errtest"
)

// host is a folder that the scripts of the role agent take for a host, with a
// systemctl that keeps the state of units in files.
type host struct {
	t    *testing.T
	root string
	bin  string
}

const systemctl = `#!/bin/sh
verb=$1
for unit; do :; done
cd "$ROOT/units" || exit 1
case "$*" in
*--now*) rm -f "$unit.active" ;;
esac
case $verb in
is-active) if [ -e "$unit.active" ]; then echo active; else echo inactive; exit 3; fi ;;
is-enabled) if [ -e "$unit.enabled" ]; then echo enabled; else echo disabled; exit 1; fi ;;
enable) : >"$unit.enabled" ;;
start) : >"$unit.active" ;;
disable) rm -f "$unit.enabled" ;;
esac
`

func newHost(t *testing.T, files map[string]string) host {
	t.Helper()

	h := host{t: t, root: t.TempDir(), bin: t.TempDir()}
	errtest.None(t, os.WriteFile(filepath.Join(h.bin, "systemctl"), []byte(systemctl), 0o700))
	errtest.None(t, os.Mkdir(filepath.Join(h.root, "units"), 0o700))

	h.write(files)

	return h
}

// write replaces files, as the modules of Ansible do.
func (h host) write(files map[string]string) {
	h.t.Helper()

	for path, content := range files {
		path = filepath.Join(h.root, path)
		errtest.None(h.t, os.MkdirAll(filepath.Dir(path), 0o700))
		_ = os.Remove(path)
		errtest.None(h.t, os.WriteFile(path, []byte(content), 0o600))
	}
}

func (h host) run(script string, args ...string) string {
	h.t.Helper()

	content, err := fs.ReadFile(ansible.FS(), ansible.RolesDir+"/agent/files/"+script)
	errtest.None(h.t, err)
	cmd := exec.CommandContext(h.t.Context(), "sh", append([]string{"-c", string(content), script}, args...)...)
	cmd.Env = []string{"PATH=" + h.bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "ROOT=" + h.root}

	var stderr strings.Builder
	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("%s: %v: %s", script, err, stderr.String())
	}
	return string(out)
}

// files are the contents of all files, without the records of the role.
func (h host) files() map[string]string {
	h.t.Helper()

	all := map[string]string{}

	err := fs.WalkDir(os.DirFS(h.root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		content, err := os.ReadFile(filepath.Join(h.root, path))
		all["/"+path] = string(content)

		return err
	})
	errtest.None(h.t, err)

	return all
}

const (
	program  = "/usr/local/bin/clusterm"
	unitFile = "/etc/systemd/system/clusterm-agent.service"
	identity = "/etc/clusterm/manager.json"
	stateID  = "/var/lib/clusterm-agent/state.json"
)

// TestUndoOfDiscover: a failed discover leaves a host as it was before, and the
// undo of another job leaves it alone, also that of another manager with its number.
func TestUndoOfDiscover(t *testing.T) {
	t.Parallel()

	touched := []string{program, unitFile, identity}
	for name, before := range map[string]map[string]string{
		"a fresh host":   {"/etc/hostname": "a"},
		"an older agent": {program: "old", unitFile: "old", stateID: "old", "/units/clusterm-agent.service.active": ""},
		"another manager's agent": {
			program: "foreign", unitFile: "foreign", identity: "foreign", stateID: "foreign",
			"/units/clusterm-agent.service.active": "", "/units/clusterm-agent.service.enabled": "",
		},
		"another manager": {
			program: "foreign", "/var/lib/clusterm/instance.id": "b",
			"/units/clusterm.service.active": "", "/units/clusterm.service.enabled": "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := newHost(t, before)
			was := h.files()

			h.run("record.sh", append([]string{"aa-17"}, touched...)...)

			// The role installs the agent and stops another manager.
			h.write(map[string]string{program: "new", unitFile: "new", identity: "new"})

			for _, path := range []string{"/units/clusterm.service.active", "/units/clusterm.service.enabled"} {
				_ = os.Remove(filepath.Join(h.root, path))
			}

			if name == "another manager's agent" {
				state := filepath.Join(h.root, "/var/lib/clusterm-agent")
				if err := os.Rename(
					state,
					filepath.Join(h.root, "/var/lib/clusterm/before/discover/state.taken"),
				); err != nil {
					t.Fatal(err)
				}
			}

			h.write(map[string]string{
				stateID: "new", "/units/clusterm-agent.service.active": "", "/units/clusterm-agent.service.enabled": "",
			})

			if was[stateID] == "old" {
				// An agent of this manager keeps its state.
				was[stateID] = "new"
			}

			// The same job again must not record its own files.
			h.run("record.sh", append([]string{"aa-17"}, touched...)...)

			installed := h.files()
			for _, other := range []string{"aa-16", "bb-17"} {
				if out := h.run("restore.sh", append([]string{other}, touched...)...); out != "" {
					t.Errorf("the undo of %s printed %q", other, out)
				}
			}

			if now := h.files(); !maps.Equal(now, installed) {
				t.Errorf("the undo of another job changed the host: %v, before %v", now, installed)
			}

			if out := h.run("restore.sh", append([]string{"aa-17"}, touched...)...); out != "restored\n" {
				t.Errorf("the undo printed %q", out)
			}

			if now := h.files(); !maps.Equal(now, was) {
				t.Errorf("the host has %v, before %v", now, was)
			}
		})
	}
}

// TestOwnerFacts: the facts about a host's manager include the digest of the
// gossip key, never the key.
func TestOwnerFacts(t *testing.T) {
	t.Parallel()

	out := newHost(t, nil).run("owner.sh")
	if out != "active=inactive\nenabled=disabled\n" {
		t.Errorf("a fresh host prints %q", out)
	}

	h := newHost(t, map[string]string{
		"/etc/clusterm/clusterm.yaml": "log_level: info\ndata_dir: \"/srv/manager\"\n",
		"/srv/manager/manager.json":   "{\n  \"id\": \"b\"\n}\n", "/srv/manager/instance.id": "b",
		"/etc/clusterm/manager.json": "a=b\x00\nactive=no", "/etc/clusterm/gossip.key": "secret\n",
		"/etc/clusterm/agent.yaml":        "gossip:\n  join: [\"10.0.0.9:7946\"]\n",
		"/units/clusterm.service.active":  "",
		"/units/clusterm.service.enabled": "",
	})

	want := `agent=a=b  active=no
manager={   "id": "b" } 
data=/srv/manager
active=active
enabled=enabled
joins=["10.0.0.9:7946"]
key=2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
`
	if out := h.run("owner.sh"); out != want {
		t.Errorf("the host prints\n%s\nwant\n%s", out, want)
	}
}

// TestAgentBesideManager: the agent starts, unless a manager is enabled that takes
// part in the gossip, with whatever data directory.
func TestAgentBesideManager(t *testing.T) {
	t.Parallel()

	const enabled = "/etc/systemd/system/multi-user.target.wants/clusterm.service"

	content, err := fs.ReadFile(ansible.FS(), ansible.RolesDir+"/agent/files/clusterm-agent.service")
	errtest.None(t, err)

	// As systemd reads it.
	_, script, _ := strings.Cut(strings.ReplaceAll(string(content), "\\\n", " "), "\nExecCondition=+/bin/sh -c '")
	script, _, _ = strings.Cut(script, "'\n")
	script = strings.ReplaceAll(script, "$$", "$")

	for name, tt := range map[string]struct {
		files  map[string]string
		starts bool
	}{
		"no manager":             {map[string]string{"/etc/hostname": "a"}, true},
		"a manager of old":       {map[string]string{"/srv/m/gossip/snapshot": ""}, true},
		"a manager":              {map[string]string{enabled: "", "/srv/m/gossip/snapshot": ""}, false},
		"a manager off gossip":   {map[string]string{enabled: "", "/srv/m/instance.id": ""}, true},
		"a manager without data": {map[string]string{enabled: ""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := newHost(t, tt.files)
			h.write(map[string]string{
				"/etc/clusterm/clusterm.yaml": "log_level: info\ndata_dir: \"" + h.root + "/srv/m\" # ours\n",
			})

			rooted := strings.ReplaceAll(script, "/etc/", h.root+"/etc/")
			if err := exec.CommandContext(t.Context(), "/bin/sh", "-c", rooted).Run(); (err == nil) != tt.starts {
				t.Errorf("the condition %q: %v", rooted, err)
			}
		})
	}
}
