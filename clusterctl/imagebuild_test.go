// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// TestBuildRefuses: what can be known before is refused before anything is built or asked.
func TestBuildRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("PATH", dir)

	errtest.None(t, os.WriteFile("there.zst", nil, 0o600))
	errtest.None(t, os.WriteFile("list.txt", []byte("lldpd # ours\n--keyring\n"), 0o600))

	asked := 0
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		_ = json.NewEncoder(w).Encode(api.Image{Name: "debian"})
	}))
	t.Cleanup(manager.Close)

	for args, want := range map[string]struct {
		code  int
		text  string
		asked int
	}{
		"":                                       {exit.Usage, "either the NAME of a new image, or --save FILE", 0},
		"debian --save new.zst":                  {exit.Usage, "either the NAME of a new image, or --save FILE", 0},
		"--no-agent --save there.zst":            {exit.Usage, "there.zst already exists", 0},
		"--save new.zst":                         {exit.Usage, "no program clusterm here", 0},
		"debian --agent x --no-agent":            {exit.Usage, "exclude each other", 0},
		"debian --no-agent --size much":          {exit.Usage, "is no size", 0},
		"debian --no-agent --packages nope":      {exit.Usage, "cannot read the list of packages", 0},
		"debian --no-agent --packages list.txt":  {exit.Usage, `"--keyring" is no name of a package`, 0},
		"--no-agent --save new.zst --suite a/b":  {exit.Usage, `"a/b" is no suite`, 0},
		"--save new.zst --agent list.txt":        {exit.Usage, "cannot read the agent", 0},
		"debian --no-agent":                      {exit.Refused, "there is an image debian already", 1},
		"--no-agent --save n --arch riscv64":     {exit.Refused, "makes no images for", 0},
		"--no-agent --save n --mirror bookworm":  {exit.Usage, "is no mirror", 0},
		"--no-agent --save n --package Lldpd":    {exit.Usage, "is no name of a package", 0},
		"--no-agent --save n --size 1000000":     {exit.Usage, "cannot be made", 0},
		"debian --no-agent --size 2G --save n.x": {exit.Usage, "either", 0},
	} {
		var errs bytes.Buffer

		asked = 0
		words := append([]string{"clusterctl", "-u", manager.URL, "image", "build"}, strings.Fields(args)...)
		o := Options{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &errs}

		if code := Run(t.Context(), words, o); code != want.code || !strings.Contains(errs.String(), want.text) ||
			asked != want.asked {
			t.Errorf("%q: exit code %d, %d requests\n%s", args, code, asked, errs.String())
		}
	}

	left, err := filepath.Glob(".clusterm-image-*")
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %q, %v", left, err)
	}
}
