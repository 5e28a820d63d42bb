// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/contexts"
	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// TestImports keeps the daemon out of the command line, which must work on a
// machine without anything else of this project.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Skipf("go list failed: %v", err)
	}

	const module = "github.com/contiv/cluster/"

	allowed := []string{
		"clusterctl",
		"clusterctl/exit",
		"clusterctl/print",
		"clusterctl/follow",
		"clusterctl/hosts",
		"clusterctl/bundle",
		"clusterctl/bootstrap",
		"clusterctl/contexts",
		"clusterctl/fleet",
		"management/backup",   // pure: the format of a backup, which it checks on the way
		"management/selector", // pure: which node is in which group of a fleet file
		"inventory/localfile", // the file with the contexts: replaced as a whole
		"inventory/yamlfile",  // read strictly
		"management/client",
		"management/api",
		"inventory",
		"inventory/facts",           // pure: what a machine is made of
		"inventory/machine",         // pure: the records of machines
		"configuration",             // pure: the grammar of variables
		"configuration/image",       // what an image is, by its first bytes
		"configuration/image/build", // runs the tools of this machine
		"configuration/image/compression",
		"configuration/image/disk",        // what its order is about
		"configuration/image/environment", // the files of the boot environment
		"configuration/image/installer",   // its order
		"configuration/image/installer/report",
		"configuration/image/kernel",  // pure: the kernel and the modules of a package
		"configuration/image/program", // the init of the boot environment
	}
	banned := []string{"go.etcd.io/", "github.com/hashicorp/serf", "google.golang.org/grpc", "github.com/gorilla/mux"}

	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if name, ok := strings.CutPrefix(path, module); ok && !slices.Contains(allowed, name) {
			t.Errorf("clusterctl depends on %s: it may use the client only", name)
		}

		for _, prefix := range banned {
			if strings.HasPrefix(path, prefix) {
				t.Errorf("clusterctl links %s, a dependency of the daemon", path)
			}
		}
	}
}

func tree(t *testing.T) *cli.Command {
	t.Helper()
	return (&app{}).root()
}

// leaves calls f for every command without subcommands, hidden ones included.
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

// TestExamples runs every example in the help: each must be valid up to the
// point where it contacts the manager.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)

	errtest.None(t, os.WriteFile(filepath.Join(dir, "hosts.txt"), []byte("192.0.2.1\n"), 0o600))

	known := "192.168.2.11,192.168.2.12 ssh-ed25519 AAAA\n"
	errtest.None(t, os.WriteFile(filepath.Join(dir, "site_known_hosts"), []byte(known), 0o600))

	for _, name := range []string{"vars.yml", "globals.yml", "pin.txt"} {
		errtest.None(t, os.WriteFile(filepath.Join(dir, name), []byte("a: 1\n"), 0o600))
	}

	for name, content := range map[string]string{
		"fleet.yaml": "fleet: 1\n", "nodes.json": `{"items": []}`, "instackenv.json": `{"nodes": []}`,
		"hosts.ini": "a b=c\n",
	} {
		errtest.None(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}

	t.Setenv("CLUSTERM_URL", "unix://"+filepath.Join(dir, "missing"))
	t.Setenv("XDG_CONFIG_HOME", dir)

	errtest.None(t, os.WriteFile(filepath.Join(dir, "token"), []byte("t\n"), 0o600))

	if err := updateContexts(func(f *contexts.File) error {
		f.Contexts = []contexts.Context{{Name: "prod", URL: "https://prod"}, {Name: "lab", URL: "https://lab"}}
		f.Current = "prod"
		return nil
	}, func() {}); err != nil {
		t.Fatal(err)
	}

	examples, _ := tree(t).Metadata[metaExamples].([]string)
	leaves(tree(t), "clusterctl", func(c *cli.Command, path string) {
		if c.Hidden {
			return
		}

		own := examplesOf(c)
		if c.Usage == "" || len(own) == 0 {
			t.Errorf("%s has no usage or no example", path)
		}

		for _, e := range own {
			if !strings.HasPrefix(e, path) {
				t.Errorf("%s has the example of another command: %q", path, e)
			}
		}

		examples = append(examples, own...)
	})

	for _, e := range examples {
		want := exit.Unreachable
		if strings.Contains(e, "--client") || strings.Contains(e, " completion ") || strings.Contains(e, " --script") ||
			strings.HasPrefix(
				e,
				"clusterctl fleet schema",
			) || strings.HasPrefix(e, "clusterctl logout") || strings.HasPrefix(e, "clusterctl context ") {
			want = exit.Done
		}

		if strings.Contains(e, " --package ") || strings.Contains(e, " --packages ") { // which there is not
			want = exit.Usage
		}

		line, _, _ := strings.Cut(strings.ReplaceAll(e, "sha256:…", strings.Repeat("0a", 32)), " > ")
		line = strings.ReplaceAll(line, "https://manager:9443", "https://127.0.0.1:1")

		var out, errs bytes.Buffer
		o := Options{Stdin: strings.NewReader("{}"), Stdout: &out, Stderr: &errs}

		if code := Run(t.Context(), shellWords(line), o); code != want {
			t.Errorf("%s: exit code %d, want %d\n%s", e, code, want, errs.String())
		}
	}
}

// TestOptionsAreNeverDropped gives each option of each command twice: an option with
// room for one value is refused by name, and any other takes both values.
func TestOptionsAreNeverDropped(t *testing.T) {
	t.Setenv("CLUSTERM_URL", "unix://"+filepath.Join(t.TempDir(), "missing"))
	root := tree(t)

	check := func(path string, f cli.Flag) {
		if _, several := f.(*cli.StringSliceFlag); several {
			return
		}

		var words []string

		names := f.Names()
		for _, name := range []string{names[0], names[len(names)-1]} {
			words = append(words, dashed(name))
			if takesValue(f) {
				words = append(words, "1")
			}
		}

		var errs bytes.Buffer

		o := Options{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &errs}
		args := append(strings.Fields(path), words...)

		code := Run(t.Context(), args, o)
		if named := strings.Contains(errs.String(), words[len(words)/2]); code != exit.Usage || !named {
			t.Errorf("%s: exit code %d, want a usage error that names the option\n%s", args, code, errs.String())
		}
	}

	for _, f := range root.Flags {
		check("clusterctl", f)
	}

	leaves(root, "clusterctl", func(c *cli.Command, path string) {
		for _, f := range slices.Concat(c.Flags, root.Flags) {
			if local, ok := f.(cli.LocalFlag); ok && local.IsLocal() && slices.Contains(root.Flags, f) {
				continue
			}

			check(path, f)
		}
	})
}

// TestVerbsHaveCommands requires a command with help for every row of the
// lifecycle table, and an option for each field of its request.
func TestVerbsHaveCommands(t *testing.T) {
	for _, row := range inventory.Lifecycle {
		for _, o := range row.Options {
			if len(flagsOf(inventory.Transition{Options: []inventory.Option{o}})) != 1 {
				t.Errorf("%s accepts %s without an option of the command line", row.Verb, o.Field)
			}
		}

		name, _, _ := strings.Cut(api.VerbWords(row.Verb), " ")

		path := "clusterctl nodes " + name
		if row.TakesAddrs {
			path = "clusterctl " + string(row.Verb)
		}
		if !strings.Contains(string(reference()), "\n## "+path+"\n") {
			t.Errorf("there is no command %q", path)
		}
	}
}

// TestCommandsText requires an entry of commands.md for every row, and a row for every entry that is no group. A verb
// has its row in the lifecycle table.
func TestCommandsText(t *testing.T) {
	b := commandBook()

	for path := range allRows() {
		if _, isVerb := verbAt(path); b.at[path] == nil && !isVerb {
			t.Errorf("commands.md lacks %q", path)
		}
	}

	leaves(tree(t), "", func(c *cli.Command, path string) {
		if path = path[1:]; allRows()[path].run == nil && path != "help" {
			t.Errorf("commands.md describes %q, which no row carries out", path)
		}
	})
}

// TestCompletions requires a completion for every command with arguments.
func TestCompletions(t *testing.T) {
	leaves(tree(t), "", func(c *cli.Command, path string) {
		complete, _ := c.Metadata[metaComplete].(positional)
		if (complete != nil) != (c.ArgsUsage != "") && !c.Hidden {
			t.Errorf("%s takes %q, and its completion is there: %t", path, c.ArgsUsage, complete != nil)
		}
	})
}

// shellWords splits a command line like a shell, as far as the examples need it.
func shellWords(line string) []string {
	var all []string
	var word strings.Builder

	quoted, began := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, began = !quoted, true
		case r == ' ' && !quoted:
			if began {
				all = append(all, word.String())
			}

			word.Reset()
			began = false
		default:
			word.WriteRune(r)
			began = true
		}
	}

	return append(all, word.String())
}

// TestReport prints a problem with its remedy, without control sequences.
func TestReport(t *testing.T) {
	var b bytes.Buffer

	err := inventory.Errorf(inventory.KindRefused, "web-1 is \x1b[31mAllocated").Do("wait\nor cancel").
		With(inventory.CancelJob("5"))
	code := report(&b, "clusterctl -u http://host", err)

	want := "clusterctl: web-1 is Allocated\n  wait\n  or cancel\n  clusterctl -u http://host job cancel 5\n"
	if b.String() != want || code != exit.Refused {
		t.Errorf("report = %d, %q", code, b.String())
	}
}

// TestValue parses the VALUE of KEY=VALUE.
func TestValue(t *testing.T) {
	for text, want := range map[string]string{
		// Numbers and booleans
		"true":                 "true",
		"False":                "false",
		"42":                   "42",
		"-1.50":                "-1.50",
		"1e3":                  "1e3",
		"12345678901234567890": "12345678901234567890",
		"null":                 "null",
		"~":                    "null",

		// Text
		"":           `""`,
		"yes":        `"yes"`,
		"007":        `"007"`,
		"1.2.3":      `"1.2.3"`,
		"12:30":      `"12:30"`,
		"a: b":       `"a: b"`,
		"# x":        `"# x"`,
		"2026-01-02": `"2026-01-02"`,
		"*x":         `"*x"`,
		"@x":         `"@x"`,
		"-":          `"-"`,
		".inf":       `".inf"`,
		"{{ x }}":    `"{{ x }}"`,

		// Quoted text, lists and objects
		`"42"`:            `"42"`,
		`'it''s'`:         `"it's"`,
		`[1, "a"]`:        `[1,"a"]`,
		`{"k": {"v": 1}}`: `{"k":{"v":1}}`,
	} {
		v, err := value(text)
		if err != nil {
			t.Errorf("value(%q): %v", text, err)
			continue
		}

		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("value(%q) = %s, %v, want %s", text, got, err, want)
		}
	}

	for _, text := range []string{"[1", "{a: ", `"x`, `{"a":}`, "[1, a]", "{k: 1}", `{"a":1} b`} {
		if v, err := value(text); err == nil {
			t.Errorf("value(%q) = %v, want an error", text, v)
		}
	}
}
