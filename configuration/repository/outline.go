// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	dir          string // of the playbook
	found        []configuration.Executed
	seen         map[string]bool // files that were read
	left         int             // tasks that may still be looked at
	unread       int             // bytes of variables and templates that may still be searched
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

// mode is whether tasks respect check mode.
type mode int

const (
	respects mode = iota
	perhaps       // check_mode is an expression, which only Ansible can evaluate
	ignores
)

// modeOf returns the mode of a play, role, block or task.
func modeOf(entry map[string]*yaml.Node, inherited mode) mode {
	value := entry["check_mode"]

	switch {
	case value == nil || value.ShortTag() == "!!null":
		return inherited
	case strings.Contains(value.Value, "{"):
		return perhaps
	case slices.Contains([]string{"y", "yes", "on", "1", "true", "t"}, strings.ToLower(value.Value)):
		return respects
	}

	return ignores
}

// play returns the tasks of a play that run even in check mode.
func (o *outliner) play(file string, play map[string]*yaml.Node) []configuration.Executed {
	if o == nil {
		return nil
	}

	o.found, o.seen, o.left, o.dir = nil, map[string]bool{}, maxTasks, path.Dir(file)
	o.unread = maxLookupBytes
	at := place{fs: o.src, path: file, name: file}
	runs := modeOf(play, respects)

	for _, section := range []string{"pre_tasks", "tasks", "post_tasks", "handlers"} {
		o.tasks(at, play[section], runs)
	}

	o.roles(at, play["roles"], runs)
	o.playLookups(at, play)

	if o.unread < 0 {
		o.found = append(o.found, configuration.Executed{
			Name: "lookups in the variables and templates of " + file, Path: file, Dynamic: true,
		})
	}

	if o.left <= 0 || len(o.found) >= maxExecuted {
		cut := configuration.Executed{Name: "tasks beyond the first ones of " + file, Path: file, Dynamic: true}
		o.found = append(o.found, cut)
	}

	return o.found
}

// imported returns the play behind an import that only Ansible can resolve.
func (o *outliner) imported(file string, n *yaml.Node) []configuration.Play {
	if o == nil {
		return unknown
	}

	found := configuration.Executed{
		Name: "the playbook " + n.Value, Path: fmt.Sprintf("%s:%d", file, n.Line), Dynamic: true,
	}

	return []configuration.Play{{Unknown: true, Executed: []configuration.Executed{found}}}
}

// tasks adds those of a list of tasks.
func (o *outliner) tasks(at place, list *yaml.Node, runs mode) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}

	for _, n := range list.Content {
		o.task(at, resolve(n), runs)
	}
}

func (o *outliner) task(at place, n *yaml.Node, runs mode) {
	task := fields(n)
	if len(task) == 0 || o.left <= 0 || at.depth > maxIncludes {
		return
	}

	o.left--

	inherited := runs
	runs = modeOf(task, runs)

	if task["block"] != nil {
		at.depth++ // an alias may contain itself

		for _, section := range []string{"block", "rescue", "always"} {
			o.tasks(at, task[section], runs)
		}

		return
	}

	action, value := actionOf(task)

	args := arguments(value)
	maps.Copy(args, fields(task["args"]))

	// The tasks of an include inherit from its apply and from its block, not from itself.
	if strings.HasPrefix(action, "include") {
		runs = modeOf(fields(args["apply"]), inherited)
	}

	switch action {
	case "import_tasks", "include_tasks", "include":
		o.file(at, n, scalar(cmp.Or(args["file"], args[""])), runs)
	case "import_role", "include_role":
		o.role(at, n, scalar(args["name"]), cmp.Or(scalar(args["tasks_from"]), "main"), runs)
	default:
		o.module(at, n, action, task, runs)
	}
}

// module adds a task that runs a module.
func (o *outliner) module(at place, n *yaml.Node, action string, task map[string]*yaml.Node, runs mode) {
	name := cmp.Or(scalar(task["name"]), action)

	switch {
	case runs == ignores:
		o.add(configuration.Executed{Name: name, Path: position(at, n), Reads: reads(task)})
	case runs == perhaps:
		o.dynamic(at, n, name+", whose check_mode is an expression")
	case strings.HasPrefix(action, "{"):
		o.dynamic(at, n, name+", whose module is an expression")
	default:
		// Code of the folder need not respect check mode.
		if plugin := o.actionPlugin(at, action); plugin != "" {
			o.add(configuration.Executed{Name: "the action plugin " + action, Path: plugin, Dynamic: true})
		}
	}
}

// actionPlugin returns the file of the folder that carries out the action on the
// manager, or "".
func (o *outliner) actionPlugin(at place, action string) string {
	files := []string{path.Join(o.dir, "action_plugins", action+".py"), path.Join("action_plugins", action+".py")}
	if parts := strings.Split(action, "."); len(parts) == 3 {
		files = []string{path.Join(collections, parts[0], parts[1], "plugins/action", parts[2]+".py")}
	}

	for _, file := range files {
		if _, err := fs.Stat(o.src, file); err == nil {
			return file
		}
	}

	if role, _, _ := strings.Cut(at.path, "/"); at.role {
		file := path.Join(role, "action_plugins", action+".py")
		if _, err := fs.Stat(at.fs, file); err == nil {
			return at.in(file).name
		}
	}

	return ""
}

// reads reports whether a task declares that it changes nothing.
func reads(task map[string]*yaml.Node) bool {
	return slices.Contains([]string{"false", "no", "off"}, strings.ToLower(scalar(task["changed_when"])))
}

func position(at place, n *yaml.Node) string { return fmt.Sprintf("%s:%d", at.name, n.Line) }

func (o *outliner) add(found configuration.Executed) {
	if len(o.found) < maxExecuted && !slices.Contains(o.found, found) {
		o.found = append(o.found, found)
	}
}

// dynamic adds a part that only Ansible can resolve.
func (o *outliner) dynamic(at place, n *yaml.Node, what string) {
	o.add(configuration.Executed{Name: what, Path: position(at, n), Dynamic: true})
}

// file adds the tasks of an included file. Its path is relative to the file that
// includes it, in a role to the folder tasks, else to the playbook.
func (o *outliner) file(at place, n *yaml.Node, name string, runs mode) {
	if name == "" || strings.Contains(name, "{") || path.IsAbs(name) || at.depth > maxIncludes {
		o.dynamic(at, n, name)
		return
	}

	for _, dir := range []string{path.Dir(at.path), o.tasksDir(at)} {
		if next := at.in(path.Join(dir, name)); o.read(next, runs) {
			return
		}
	}

	o.dynamic(at, n, name)
}

func (o *outliner) tasksDir(at place) string {
	if !at.role {
		return o.dir
	}

	role, _, _ := strings.Cut(at.path, "/")
	return path.Join(role, "tasks")
}

// read adds the tasks of a file, and reports whether it exists.
func (o *outliner) read(at place, runs mode) bool {
	key := fmt.Sprint(at.name, runs)
	if o.seen[key] {
		return true
	}

	data, err := fs.ReadFile(at.fs, at.path)
	if err != nil {
		return false
	}

	o.seen[key] = true
	o.fileLookups(at)

	var list yaml.Node

	err = yaml.Unmarshal(data, &list)
	if err == nil && len(list.Content) == 0 {
		return true
	}

	// It may be encrypted.
	if err != nil || resolve(list.Content[0]).Kind != yaml.SequenceNode {
		o.dynamic(at, &yaml.Node{Line: 1}, at.name)
		return true
	}

	o.tasks(at, resolve(list.Content[0]), runs)

	return true
}

// roles adds the tasks of the roles of a play, or of the dependencies of a role.
func (o *outliner) roles(at place, list *yaml.Node, runs mode) {
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

		o.role(at, n, name, "main", modeOf(entry, runs))
	}
}

// collections is the folder of the collections that a folder of playbooks brings.
const collections = "collections/ansible_collections"

// roleFolder is a folder of roles, under the name that a person knows it by.
type roleFolder struct {
	fs   fs.FS
	name string
}

// roleFolders returns the folders that may have the role, and its name there: that of
// its collection, those of the playbook, and the one of the bundled roles.
func (o *outliner) roleFolders(role string) (folders []roleFolder, name string) {
	names := []string{path.Join(o.dir, "roles"), "roles"}

	if parts := strings.Split(role, "."); len(parts) == 3 {
		names, role = []string{path.Join(collections, parts[0], parts[1], "roles")}, parts[2]
	}

	for _, name := range names {
		if within, err := fs.Sub(o.src, name); err == nil {
			folders = append(folders, roleFolder{within, name})
		}
	}

	return append(folders, roleFolder{o.bundled, "roles"}), role
}

// role adds the tasks and handlers of a role: of the folder of playbooks, or a bundled
// one.
func (o *outliner) role(at place, n *yaml.Node, name, from string, runs mode) {
	if !fs.ValidPath(name) || strings.ContainsAny(name+from, "{") || strings.Contains(name, "/") ||
		at.depth > maxIncludes {
		o.dynamic(at, n, "the role "+name)
		return
	}

	key := fmt.Sprint(name, "/", from, runs)
	if o.seen[key] {
		return
	}
	o.seen[key] = true

	folders, short := o.roleFolders(name)
	for _, folder := range folders {
		if _, err := fs.Stat(folder.fs, short); err != nil {
			continue
		}

		in := place{fs: folder.fs, path: short, name: path.Join(folder.name, short), role: true, depth: at.depth}
		if !o.roleIn(in, from, runs) && from != "main" {
			o.dynamic(at, n, "the file "+from+" of the role "+name)
		}

		return
	}

	o.dynamic(at, n, "the role "+name)
}

// roleIn adds the role at a place, and reports whether it has the file of tasks.
func (o *outliner) roleIn(in place, from string, runs mode) bool {
	anyOf := func(folder, name string, read func(place) bool) bool {
		for _, suffix := range []string{"", ".yml", ".yaml", ".json"} {
			if read(in.in(path.Join(in.path, folder, name+suffix))) {
				return true
			}
		}

		return false
	}

	anyOf("meta", "main", func(at place) bool {
		data, err := fs.ReadFile(at.fs, at.path)

		var meta yaml.Node
		if err == nil && yaml.Unmarshal(data, &meta) == nil && len(meta.Content) > 0 {
			o.roles(at, fields(meta.Content[0])["dependencies"], runs)
		}
		return err == nil
	})

	read := func(at place) bool { return o.read(at, runs) }
	found := anyOf("tasks", from, read)
	anyOf("handlers", "main", read)
	o.folderLookups(in, "defaults", "vars", "templates")

	return found
}

// keywords are the keys of a task that name no module and may come before it.
var keywords = []string{
	"name", "when", "tags", "vars", "register", "loop", "loop_control", "check_mode", "changed_when", "failed_when",
	"become", "become_user", "become_method", "delegate_to", "delegate_facts", "run_once", "environment", "notify",
	"listen", "until", "retries", "delay", "ignore_errors", "ignore_unreachable", "no_log", "diff", "async", "poll",
	"args", "any_errors_fatal", "throttle", "timeout", "connection", "remote_user", "port", "collections",
	"module_defaults", "debugger", "become_exe", "become_flags", "first_available_file",
}

// actionOf returns the module of a task without the collection of Ansible itself, and
// its arguments.
func actionOf(task map[string]*yaml.Node) (string, *yaml.Node) {
	for key, value := range task {
		if slices.Contains(keywords, key) || strings.HasPrefix(key, "with_") {
			continue
		}

		// The older forms name the module in the value.
		if key == "action" || key == "local_action" {
			key = scalar(fields(value)["module"])

			if value.Kind == yaml.ScalarNode {
				module, rest, _ := strings.Cut(strings.TrimSpace(value.Value), " ")
				key, value = module, &yaml.Node{Kind: yaml.ScalarNode, Value: rest, Line: value.Line}
			}
		}

		for _, collection := range []string{"ansible.builtin.", "ansible.legacy."} {
			key = strings.TrimPrefix(key, collection)
		}

		return key, value
	}

	return "", nil
}

// arguments returns those of an include: a mapping, or a text such as "name=x", whose
// part without a name is the value of the empty key.
func arguments(value *yaml.Node) map[string]*yaml.Node {
	args := map[string]*yaml.Node{}

	switch {
	case value == nil:
	case value.Kind == yaml.MappingNode:
		return fields(value)
	case strings.Contains(value.Value, "{"):
		args[""], args["name"] = value, value
	default:
		for _, word := range strings.Fields(value.Value) {
			name, text, named := strings.Cut(word, "=")
			if !named {
				name, text = "", word
			}
			args[name] = &yaml.Node{Kind: yaml.ScalarNode, Value: strings.Trim(text, `"'`), Line: value.Line}
		}
	}

	return args
}

func scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}
