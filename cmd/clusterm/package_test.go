// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestPurge runs the scripts of the Debian package as dpkg does for a purge, on a tree of its own.
func TestPurge(t *testing.T) {
	t.Parallel()

	const data = "/var/lib/clusterm/etcd/data/member"

	for name, c := range map[string]struct {
		data   bool
		nodes  string // what clusterctl prints; "-": no manager answers
		env    string
		purged bool
		says   []string
	}{
		"in service": {data: true, nodes: "web-1\nweb-2\n", says: []string{
			"web-1", "web-2", "CLUSTERM_PURGE=yes apt-get purge clusterm", "clusterm-backup.tar.gz", "secrets",
			"clusterm.yaml.removed", "systemctl enable --now clusterm",
		}},
		"no manager to ask":     {data: true, nodes: "-", says: []string{"could not be asked"}},
		"confirmed":             {data: true, nodes: "web-1\n", env: "CLUSTERM_PURGE=yes", purged: true},
		"nothing in service":    {data: true, purged: true},
		"never started":         {nodes: "-", purged: true},
		"confirmed by the word": {data: true, nodes: "web-1\n", env: "CLUSTERM_PURGE=no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			root := t.TempDir()
			config := filepath.Join(root, "etc/clusterm/clusterm.yaml")
			bin := filepath.Join(root, "bin")

			clusterctl := "printf '" + strings.ReplaceAll(c.nodes, "\n", "\\n") + "'"
			if c.nodes == "-" {
				clusterctl = "exit 6"
			}

			for file, text := range map[string]string{
				config: "playbooks: /srv/playbooks\n", bin + "/clusterctl": "#!/bin/sh\n" + clusterctl + "\n",
				bin + "/systemctl": "#!/bin/sh\n", root + "/var/lib/clusterm/instance.id": "a\n",
			} {
				errtest.None(t, os.MkdirAll(filepath.Dir(file), 0o700))
				errtest.None(t, os.WriteFile(file, []byte(text), 0o700))
			}

			if c.data {
				errtest.None(t, os.MkdirAll(root+data, 0o700))
			}

			run := func(script, action string) (string, error) {
				text, err := os.ReadFile("package/deb/" + script)
				errtest.None(t, err)

				paths := strings.NewReplacer(
					"/var/lib/",
					root+"/var/lib/",
					"/etc/",
					root+"/etc/",
					" /run/",
					" "+root+"/run/",
				)

				cmd := exec.Command("sh", "-c", paths.Replace(string(text)), script, action)
				cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), c.env)
				out, err := cmd.CombinedOutput()

				return string(out), err
			}

			if out, err := run("prerm.sh", "remove"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}

			if out, err := run("postrm.sh", "remove"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}

			// dpkg removes the files of the configuration first.
			errtest.None(t, os.Remove(config))

			out, err := run("postrm.sh", "purge")

			_, kept := os.Stat(root + "/var/lib/clusterm")
			if purged := os.IsNotExist(kept); (err == nil) != c.purged || purged != c.purged {
				t.Errorf("%v, purged %t: %s", err, purged, out)
			}

			saved, _ := os.ReadFile(root + "/var/lib/clusterm/clusterm.yaml.removed")
			if !c.purged && string(saved) != "playbooks: /srv/playbooks\n" {
				t.Errorf("the configuration is lost: %q", saved)
			}

			for _, words := range c.says {
				if !strings.Contains(out, words) {
					t.Errorf("%q is not in %s", words, out)
				}
			}
		})
	}
}
