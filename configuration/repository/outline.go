// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
)

// Bounds of an outline: a playbook is untrusted text.
const (
	maxIncludes = 50
	maxExecuted = 500    // tasks of one play
	maxTasks    = 20_000 // looked at for one play
)

// Outline returns what the text of a playbook in the copy with that digest shows about
// a run in check mode. bundledRoles is the folder of the roles that every playbook may
// use.
func (s *Store) Outline(digest, playbook, bundledRoles string) configuration.Outline {
	src := os.DirFS(s.Path(digest))
	if _, err := fs.Stat(src, playbook); errors.Is(err, fs.ErrNotExist) {
		return configuration.Outline{Missing: true}
	}

	o := &outliner{src: src, bundled: os.DirFS(bundledRoles)}

	return configuration.Outline{Plays: plays(src, playbook, o, 0)}
}

// outliner collects the tasks of plays that run even in check mode.
type outliner struct {
	src, bundled fs.FS
	found        []configuration.Executed
	seen         map[string]bool // files that were read
	left         int             // tasks that may still be looked at
}

// place is a file of tasks: in a file system that has it at path, under the name that
// a person knows it by.
type place struct {
	fs    fs.FS
	path  string
	name  string
	role  bool
	depth int
}

func (at place) in(file string) place {
	at.path, at.name, at.depth = file, path.Join(strings.TrimSuffix(at.name, at.path), file), at.depth+1
	return at
}

// play returns the tasks of a play that run even in check mode.
func (o *outliner) play(file string, play map[string]*yaml.Node) []configuration.Executed {
	if o == nil {
		return nil
	}

	o.found, o.seen, o.left = nil, map[string]bool{}, maxTasks
	at := place{fs: o.src, path: file, name: file}
	runs := executes(play, false)

	for _, section := range []string{"pre_tasks", "tasks", "post_tasks", "handlers"} {
		o.tasks(at, play[section], runs)
	}

	o.roles(at, play["roles"], runs)

	return o.found
}

// executes reports whether a play, role, block or task runs even in check mode. An
// expression counts: only Ansible can evaluate it.
func executes(entry map[string]*yaml.Node, inherited bool) bool {
	mode := entry["check_mode"]
	if mode == nil {
		return inherited
	}

	var value bool

	return mode.Decode(&value) != nil || !value
}

// tasks adds those of a list of tasks.
func (o *outliner) tasks(at place, list *yaml.Node, runs bool) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}

	for _, n := range list.Content {
		o.task(at, resolve(n), runs)
	}
}

func (o *outliner) task(at place, n *yaml.Node, runs bool) {
	task := fields(n)
	if len(task) == 0 || o.left <= 0 || at.depth > maxIncludes {
		return
	}

	o.left--

	runs = executes(task, runs)
	if task["block"] != nil {
		at.depth++ // an alias may contain itself

		for _, section := range []string{"block", "rescue", "always"} {
			o.tasks(at, task[section], runs)
		}

		return
	}

	action, value := actionOf(task)

	switch action {
	case "import_tasks", "include_tasks", "include":
		o.file(at, n, fileOf(value), runs && action == "import_tasks")
	case "import_role", "include_role":
		parts := fields(value)
		o.role(
			at,
			n,
			scalar(parts["name"]),
			cmp.Or(scalar(parts["tasks_from"]), "main"),
			runs && action == "import_role",
		)
	default:
		if runs {
			o.add(at, n, cmp.Or(scalar(task["name"]), action), task)
		}
	}
}

func (o *outliner) add(at place, n *yaml.Node, name string, task map[string]*yaml.Node) {
	if len(o.found) >= maxExecuted {
		return
	}

	changes := true
	reads := task["changed_when"] != nil && task["changed_when"].Decode(&changes) == nil && !changes
	found := configuration.Executed{Name: name, Path: fmt.Sprintf("%s:%d", at.name, n.Line), Reads: reads}

	if !slices.Contains(o.found, found) {
		o.found = append(o.found, found)
	}
}

// dynamic adds an include that only Ansible can resolve.
func (o *outliner) dynamic(at place, n *yaml.Node, what string) {
	found := configuration.Executed{Name: what, Path: fmt.Sprintf("%s:%d", at.name, n.Line), Dynamic: true}
	if len(o.found) < maxExecuted && !slices.Contains(o.found, found) {
		o.found = append(o.found, found)
	}
}

// file adds the tasks of an included file. Its path is relative to the file that
// includes it, in a role to the folder tasks.
func (o *outliner) file(at place, n *yaml.Node, name string, runs bool) {
	if name == "" || strings.Contains(name, "{") || path.IsAbs(name) || at.depth > maxIncludes {
		o.dynamic(at, n, name)
		return
	}

	for _, dir := range []string{path.Dir(at.path), tasksDir(at)} {
		if next := at.in(path.Join(dir, name)); o.read(next, runs) {
			return
		}
	}

	o.dynamic(at, n, name)
}

func tasksDir(at place) string {
	if !at.role {
		return "."
	}

	role, _, _ := strings.Cut(at.path, "/")

	return path.Join(role, "tasks")
}

// read adds the tasks of a file, and reports whether it exists.
func (o *outliner) read(at place, runs bool) bool {
	key := fmt.Sprint(at.name, runs)
	if o.seen[key] {
		return true
	}

	data, err := fs.ReadFile(at.fs, at.path)
	if err != nil {
		return false
	}

	o.seen[key] = true

	var list yaml.Node
	if yaml.Unmarshal(data, &list) != nil || len(list.Content) == 0 {
		return true
	}

	o.tasks(at, resolve(list.Content[0]), runs)

	return true
}

// roles adds the tasks of the roles of a play, or of the dependencies of a role.
func (o *outliner) roles(at place, list *yaml.Node, runs bool) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}

	for _, n := range list.Content {
		n = resolve(n)
		entry := fields(n)
		name := cmp.Or(scalar(entry["role"]), scalar(entry["name"]))

		if n.Kind == yaml.ScalarNode {
			name = n.Value
		}

		o.role(at, n, name, "main", executes(entry, runs))
	}
}

// role adds the tasks and handlers of a role: of the folder of playbooks, or a bundled
// one.
func (o *outliner) role(at place, n *yaml.Node, name, from string, runs bool) {
	if !fs.ValidPath(name) || strings.ContainsAny(name, "{/") || at.depth > maxIncludes {
		o.dynamic(at, n, "the role "+name)
		return
	}

	key := fmt.Sprint(name, "/", from, runs)

	within, err := fs.Sub(o.src, "roles")
	if err != nil || o.seen[key] {
		return
	}

	o.seen[key] = true

	for _, folder := range []fs.FS{within, o.bundled} {
		if _, err := fs.Stat(folder, name); err != nil {
			continue
		}

		in := place{fs: folder, role: true, depth: at.depth}
		file := func(parts ...string) place {
			next := in
			next.path = path.Join(append([]string{name}, parts...)...)
			next.name, next.depth = "roles/"+next.path, in.depth+1

			return next
		}

		if data, err := fs.ReadFile(folder, path.Join(name, "meta", "main.yml")); err == nil {
			var meta yaml.Node
			if yaml.Unmarshal(data, &meta) == nil && len(meta.Content) > 0 {
				o.roles(file("meta", "main.yml"), fields(meta.Content[0])["dependencies"], runs)
			}
		}

		if !o.read(file("tasks", from), runs) && !o.read(file("tasks", from+".yml"), runs) {
			o.read(file("tasks", from+".yaml"), runs)
		}

		o.read(file("handlers", "main.yml"), runs)

		return
	}

	o.dynamic(at, n, "the role "+name)
}

// keywords are the keys of a task that name no module and may come before it.
var keywords = []string{
	"name", "when", "tags", "vars", "register", "loop", "loop_control", "check_mode", "changed_when", "failed_when",
	"become", "become_user", "become_method", "delegate_to", "delegate_facts", "run_once", "environment", "notify",
	"listen", "until", "retries", "delay", "ignore_errors", "ignore_unreachable", "no_log", "diff", "async", "poll",
	"args", "any_errors_fatal", "throttle", "timeout", "connection", "remote_user", "port", "collections",
	"module_defaults", "debugger", "become_exe", "become_flags", "with_items", "local_action", "first_available_file",
}

// actionOf returns the module of a task without the collection of Ansible itself, and
// its arguments.
func actionOf(task map[string]*yaml.Node) (string, *yaml.Node) {
	for key, value := range task {
		if slices.Contains(keywords, key) || strings.HasPrefix(key, "with_") {
			continue
		}

		for _, collection := range []string{"ansible.builtin.", "ansible.legacy."} {
			key = strings.TrimPrefix(key, collection)
		}

		return key, value
	}

	return "", nil
}

// fileOf returns the file of an include: its value, or the argument file.
func fileOf(value *yaml.Node) string {
	if value != nil && value.Kind == yaml.MappingNode {
		return scalar(fields(value)["file"])
	}

	return scalar(value)
}

func scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}

	return n.Value
}
