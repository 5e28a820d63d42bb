// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/management/api"
)

var update = flag.Bool("update", false, "rewrite docs/cli.md")

const document = "../docs/cli.md"

// TestReferenceDocument compares docs/cli.md with the command tree. With -update it
// rewrites the file.
func TestReferenceDocument(t *testing.T) {
	want := Reference()
	if *update {
		if err := os.WriteFile(document, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	if got, err := os.ReadFile(document); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s does not match the command tree (%v); to rewrite it: make docs", document, err)
	}
}

// TestReferenceIsWhole requires a section, an example and a manual page for every
// command, and has the man program check the page.
func TestReferenceIsWhole(t *testing.T) {
	reference, pages := string(Reference()), Man(api.Version{Version: "1.2-3"})
	each(tree(t), "clusterctl", func(c *cli.Command, path string) {
		page := string(pages[strings.ReplaceAll(path, " ", "-")+".1"])
		if len(c.VisibleCommands()) == 0 && !strings.Contains(reference, "\n## "+path+"\n") {
			t.Errorf("%s is missing from the reference", path)
		}

		if !strings.Contains(page, roff(c.Usage)) || len(examplesOf(c)) == 0 ||
			!strings.Contains(page, roff(examplesOf(c)[0])) {
			t.Errorf("%s has no manual page with an example:\n%s", path, page)
		}
	})

	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("man is not installed")
	}

	dir := t.TempDir()

	name := filepath.Join(dir, "clusterctl.1")
	if err := os.WriteFile(name, pages["clusterctl.1"], 0o600); err != nil {
		t.Fatal(err)
	}

	c := exec.Command(man, "--warnings", "-l", name)
	c.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANPAGER=cat", "MANWIDTH=80")
	var errs bytes.Buffer
	c.Stderr = &errs

	out, err := c.Output()
	if err != nil || errs.Len() > 0 || !bytes.Contains(out, []byte("EXIT STATUS")) {
		t.Errorf("man: %v\n%s\n%s", err, errs.String(), out)
	}
}
