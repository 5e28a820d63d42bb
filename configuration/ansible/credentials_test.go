// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
)

// TestCredentials: one login checks the key and the account of the plays, and shows the host key of a first contact.
func TestCredentials(t *testing.T) {
	t.Parallel()

	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFirst"

	port := serve(t, "SSH-2.0-test\r\n")
	plain := host(port)
	plain.Name, plain.Label = "r1", "r1"

	known := plain
	known.HostKeys = []string{key}

	yes := true
	root, db := plain, plain
	root.Connection.Become = &yes
	db.Connection.Become, db.Connection.BecomeUser = &yes, "postgres"

	dead := plain
	dead.Connection.Port = serve(t, "nonsense\r\n")

	// record is what ssh does at a first contact.
	const record = `for a; do
		case $a in
		UserKnownHostsFile=*) echo 'r1 ` + key + `' >> "${a#*=}" ;;
		esac
	done
	`

	for _, tt := range []struct {
		name    string
		host    configuration.Host
		script  string
		keys    []string
		problem []string // parts of it
	}{
		{"a first contact", plain, record, []string{key}, nil},
		{"a known host", known, "exit 0", nil, nil},
		{
			"sudo", root, record + `case "$*" in *" -- 127.0.0.1 sudo -n -u root true") ;; *) exit 3 ;; esac`,
			[]string{key}, nil,
		},
		{"another account", db, `case "$*" in *"sudo -n -u postgres true") ;; *) exit 3 ;; esac`, nil, nil},
		{
			"a refused key", plain, record + "echo 'root@127.0.0.1: Permission denied (publickey).' >&2; exit 255", nil,
			[]string{
				"ssh to 127.0.0.1: ssh access as root@127.0.0.1 was denied",
				"check user and key_file of the node's connection",
			},
		},
		{
			"sudo wants a password", root, record + "echo 'sudo: a password is required' >&2; exit 1", nil,
			[]string{"ssh to 127.0.0.1 works, but sudo to root fails", "a password is required", "NOPASSWD"},
		},
		{"no shell", plain, "exit 1", nil, []string{"can run no command", "give the account a shell"}},
		{"no ssh server", dead, "exit 0", nil, []string{"no ssh server answers", "the port of its sshd"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			p := &Prober{Dir: filepath.Join(t.TempDir(), "tmp"), SSH: fakeSSH(t, tt.script)}

			keys, err := p.Credentials(t.Context(), tt.host)
			if (err != nil) != (len(tt.problem) > 0) || !slices.Equal(keys, tt.keys) {
				t.Errorf("got %q, %v", keys, err)
			}

			for _, part := range tt.problem {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}

			if left, _ := os.ReadDir(p.Dir); len(left) > 0 {
				t.Errorf("files are left: %v", left)
			}
		})
	}
}
