// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/pki"
)

// TestInventoryOfTheFile: variables of the configuration file are templates, secrets
// are missing at every level, and a reload changes the tag, although no record changes.
func TestInventoryOfTheFile(t *testing.T) {
	t.Parallel()

	s := begin(t, `vars: {path: "{{ motd }}", db_password: s3cret}`, "ssh: {user: admin, jump: gate}")
	s.report("a b")
	_, err := s.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"motd": "{{ evil }}", "api_token": "s3cret"})
	s.must(err)

	status, text := s.get(api.PathInventory)
	if status != 200 || strings.Contains(text, "s3cret") {
		t.Errorf("%d: %s", status, text)
	}

	list, err := s.Inventory(s.ctx(), client.NodeFilter{Names: []string{"b-1"}})
	s.must(err)

	h := list.Items[0]
	if len(list.Items) != 1 || h.Templates["path"] != "{{ motd }}" || h.Vars["motd"] != "{{ evil }}" ||
		h.Vars["ansible_user"] != "admin" || strings.Join(h.Omitted, " ") != "api_token db_password" {
		t.Errorf("got %+v", list.Items)
	}

	// Any write to the store in between makes another tag.
	tag := ""

	s.eventually("the same inventory has its tag", func() bool {
		var again int
		tag, status = s.inventoryTag("")
		_, again = s.inventoryTag(tag)
		return status == http.StatusOK && again == http.StatusNotModified
	})

	s.write(`vars: {path: "{{ motd }}", db_password: s3cret}`, "ssh: {user: operator, jump: gate}")
	s.must(s.Reload())

	if _, status = s.inventoryTag(tag); status != http.StatusOK {
		t.Errorf("after a reload: %d", status)
	}

	if _, err := s.Inventory(s.ctx(), client.NodeFilter{Names: []string{"b-10"}}); inventory.KindOf(err) !=
		inventory.KindNotFound {
		t.Errorf("an unknown node: %v", err)
	}
}

// inventoryTag reads the inventory, unless it still has the tag, and returns its tag.
func (s *site) inventoryTag(known string) (tag string, status int) {
	s.t.Helper()

	req, err := http.NewRequestWithContext(s.ctx(), http.MethodGet, "http://clusterm"+api.PathInventory, nil)
	s.must(err)

	if known != "" {
		req.Header.Set("If-None-Match", known)
	}

	resp, err := s.checked().Do(req)
	s.must(err)
	s.must(resp.Body.Close())

	return resp.Header.Get("ETag"), resp.StatusCode
}

// TestLiveInventoryPlugin: the plugin reaches a manager over HTTPS with a pinned CA or
// a file of CAs, and sends nothing to a manager with another CA.
func TestLiveInventoryPlugin(t *testing.T) {
	a := newController(t)
	t.Parallel()

	s := secureSite(t, `vars: {path: "{{ motd }}/x{{ 40 + 2 }}"}`)
	s.report("a b")
	_, err := s.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"motd": "{{ 1 + 1 }}"})
	s.must(err)

	token, err := s.CreateToken(s.ctx(), api.TokenRequest{Name: "viewer", Role: string(access.RoleViewer)})
	s.must(err)

	ca, err := pki.ReadCA(s.pkiDir())
	s.must(err)

	pin := client.Fingerprint(ca)
	digits := strings.ToUpper(strings.TrimPrefix(pin, "sha256:"))
	a.write("token", token.Token+"\n")

	for _, c := range []struct{ options, want string }{
		{"ca_fingerprint: " + pin + "\ntoken_file: " + a.path("token"), `"a-1"`},
		{"ca_fingerprint: '" + digits + "'\ntoken_file: " + a.path("token"), `"a-1"`},
		{"ca_file: " + filepath.Join(s.pkiDir(), "ca.pem") + "\ntoken_file: " + a.path("token"), `"a-1"`},
		{"ca_fingerprint: sha256:" + strings.Repeat("0", 64) + "\ntoken_file: " + a.path("token"), "has another CA"},
		{"ca_fingerprint: sha256:12\ntoken_file: " + a.path("token"), "is not a fingerprint"},
		{"token_file: " + a.path("token"), "is not valid"},
		{"ca_file: " + a.path("missing"), "cannot read the CAs"},
		{"ca_fingerprint: " + pin, "clusterm refuses the request"},
		{"ca_fingerprint: " + pin + "\ntoken_file: " + a.path("missing"), "cannot read the token"},
	} {
		a.write("clusterm_inventory.yml", "plugin: contiv.clusterm.nodes\nurl: "+s.secureURL()+"\n"+c.options+"\n")

		out := a.run("ansible-inventory", "-i", a.path("clusterm_inventory.yml"), "--list")
		if !strings.Contains(out, c.want) || strings.Contains(out, "Traceback") {
			t.Errorf("%s: want %s\n%s", c.options, c.want, out)
		}
	}

	// The instances of a manager, each with a CA of its own.
	zeros := "sha256:" + strings.Repeat("0", 64)
	for urls, want := range map[string]string{
		"https://127.0.0.1:1, " + s.secureURL():      `"a-1"`,
		"https://127.0.0.1:1,https://127.0.0.2:1":    "cannot reach clusterm at https://127.0.0.2:1",
		"https://127.0.0.1:1,ftp://" + s.secureURL(): "is not one of a manager",
	} {
		a.write("clusterm_inventory.yml", "plugin: contiv.clusterm.nodes\nurl: '"+urls+"'\n"+
			"ca_fingerprint: "+zeros+","+pin+"\ntoken_file: "+a.path("token")+"\n")

		out := a.run("ansible-inventory", "-i", a.path("clusterm_inventory.yml"), "--list")
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) || strings.Contains(out, "Traceback") {
			t.Errorf("%s: want %s\n%s", urls, want, out)
		}
	}

	// A template of the configuration file is evaluated, the data in it is not.
	a.write("clusterm_inventory.yml", "plugin: contiv.clusterm.nodes\nurl: unix://"+filepath.Join(s.dir, "s")+"\n")

	out := a.run("ansible", "-i", a.path("clusterm_inventory.yml"), "a-1", "-m", "debug", "-a", "var=path")
	if !strings.Contains(out, `"path": "{{ 1 + 1 }}/x42"`) {
		t.Errorf("got %s", out)
	}
}

// TestLiveInventoryOfManyNodes reads the limit of nodes in one request.
func TestLiveInventoryOfManyNodes(t *testing.T) {
	a := newController(t)
	s := begin(t)

	for part := 0; part < node.MaxNodes; part += api.MaxObservations {
		r := api.Report{Observer: fmt.Sprintf("rack%d", part)}
		for i := part; i < part+api.MaxObservations; i++ {
			r.Observations = append(r.Observations, api.Observation{
				Label: "n", Serial: fmt.Sprintf("%05d", i),
				Addr: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), Alive: true,
			})
		}

		_, err := s.Observe(s.ctx(), r)
		s.must(err)
	}

	vars := api.Vars{"motd": "hello", "dns": []string{"10.0.0.1", "10.0.0.2"}}
	_, err := s.PatchVars(s.ctx(), client.ScopeGlobal, vars)
	s.must(err)

	begun := time.Now()
	list, err := s.Inventory(s.ctx(), client.NodeFilter{})
	s.must(err)
	t.Logf("the client: %d hosts in %s", len(list.Items), time.Since(begun).Round(time.Millisecond))

	if len(list.Items) != node.MaxNodes {
		t.Errorf("%d hosts", len(list.Items))
	}

	a.write("clusterm_inventory.yml", "plugin: contiv.clusterm.nodes\nurl: unix://"+filepath.Join(s.dir, "s")+"\n")

	begun = time.Now()
	out := a.run("ansible", "-i", a.path("clusterm_inventory.yml"), "all", "--list-hosts")
	t.Logf("ansible --list-hosts: %s", time.Since(begun).Round(time.Millisecond))

	if !strings.Contains(out, fmt.Sprintf("hosts (%d)", node.MaxNodes)) {
		t.Errorf("got %.2000s", out)
	}
}

// controller is a folder with the collection, for the real Ansible.
type controller struct {
	t   *testing.T
	dir string
}

func newController(t *testing.T) controller {
	t.Helper()

	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("runs the real Ansible; set CLUSTERM_LAB=1, as make system does")
	}

	if _, err := exec.LookPath("ansible-inventory"); err != nil {
		t.Skip(err)
	}

	a := controller{t, t.TempDir()}
	if err := os.CopyFS(a.path("ansible_collections/contiv/clusterm"),
		os.DirFS(filepath.Join(root, "ansible/collection"))); err != nil {
		t.Fatal(err)
	}

	a.write("ansible.cfg", "[defaults]\nforce_valid_group_names = ignore\n")

	return a
}

func (a controller) path(name string) string { return filepath.Join(a.dir, name) }

func (a controller) write(name, text string) {
	a.t.Helper()
	errtest.None(a.t, os.WriteFile(a.path(name), []byte(text), 0o600))
}

// run returns stdout and stderr in one line: Ansible folds its warnings.
func (a controller) run(program string, args ...string) string {
	a.t.Helper()

	ctx, cancel := context.WithTimeout(a.t.Context(), 3*time.Minute)
	defer cancel()

	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "LC_ALL=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1",
		"ANSIBLE_NOCOLOR=1", "ANSIBLE_CONFIG=" + a.path("ansible.cfg"), "ANSIBLE_COLLECTIONS_PATHS=" + a.dir,
	}

	out, err := cmd.CombinedOutput()
	if err != nil {
		a.t.Errorf("%s: %v\n%.2000s", cmd, err, out)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}
