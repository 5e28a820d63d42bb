// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"io/fs"
	"os"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
)

// maxImports bounds the depth of playbooks that import others.
const maxImports = 20

// Plays returns the plays of a playbook in the copy with that digest, those of
// imported playbooks included. A part that only Ansible can resolve, such as an
// import with a template, is an unknown play.
func (s *Store) Plays(digest, playbook string) []configuration.Play {
	return plays(os.DirFS(s.Path(digest)), playbook, nil, 0)
}

var unknown = []configuration.Play{{Unknown: true}}

// plays returns the plays of a file. o collects the tasks of each, unless it is nil.
func plays(src fs.FS, file string, o *outliner, depth int) []configuration.Play {
	data, err := fs.ReadFile(src, file)
	if err != nil || depth > maxImports {
		return unknown
	}

	var entries []yaml.Node
	if yaml.Unmarshal(data, &entries) != nil {
		return unknown
	}

	var found []configuration.Play
	for i := range entries {
		entry := fields(&entries[i])

		switch imported := importOf(entry); {
		case imported != nil:
			// Paths are relative to the playbook that imports.
			name := path.Join(path.Dir(file), strings.Trim(imported.Value, `"'`))
			if imported.Kind != yaml.ScalarNode || strings.Contains(name, "{") || path.IsAbs(imported.Value) {
				found = append(found, o.imported(file, imported)...)
				continue
			}

			next := plays(src, name, o, depth+1)
			if len(next) == 1 && next[0].Unknown && next[0].Executed == nil {
				next = o.imported(file, imported)
			}
			found = append(found, next...)
		case entry["hosts"] != nil:
			p := play(entry["hosts"])
			p.Asks = asks(entry["vars_prompt"])
			p.Executed = o.play(file, entry)
			found = append(found, p)
		default:
			found = append(found, unknown...)
		}
	}

	return found
}

// fields returns the values of a mapping by key, with those that it merges by <<. Of
// anything else it is empty.
func fields(n *yaml.Node) map[string]*yaml.Node {
	// An anchor may merge itself.
	left := 100
	return merged(n, &left)
}

// merged is fields with a bound for the merges.
func merged(n *yaml.Node, left *int) map[string]*yaml.Node {
	out := map[string]*yaml.Node{}
	if *left--; n == nil || *left < 0 {
		return out
	}

	n = resolve(n)
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if key := n.Content[i].Value; key != "<<" {
			out[key] = resolve(n.Content[i+1])
		}
	}

	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "<<" {
			continue
		}

		sources := []*yaml.Node{resolve(n.Content[i+1])}
		if sources[0].Kind == yaml.SequenceNode {
			sources = sources[0].Content
		}

		for _, source := range sources {
			for key, value := range merged(source, left) {
				if _, ok := out[key]; !ok {
					out[key] = value
				}
			}
		}
	}

	return out
}

// asks returns the variables of a play's prompts that have no default.
func asks(prompts *yaml.Node) []string {
	if prompts == nil || prompts.Kind != yaml.SequenceNode {
		return nil
	}

	var names []string

	for _, n := range prompts.Content {
		prompt := fields(n)

		given := prompt["default"]
		if name := scalar(prompt["name"]); name != "" && (given == nil || given.ShortTag() == "!!null") {
			names = append(names, name)
		}
	}

	return names
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// importOf returns the value of the entry's import, or nil.
func importOf(entry map[string]*yaml.Node) *yaml.Node {
	for _, collection := range []string{"", "ansible.builtin.", "ansible.legacy."} {
		if value := entry[collection+"import_playbook"]; value != nil {
			return value
		}
	}

	return nil
}

// play returns the play with those hosts: a pattern, or a list of patterns.
func play(hosts *yaml.Node) configuration.Play {
	patterns := []*yaml.Node{hosts}
	if hosts.Kind == yaml.SequenceNode {
		patterns = hosts.Content
	}

	var p configuration.Play
	for _, pattern := range patterns {
		pattern = resolve(pattern)
		if pattern.Kind != yaml.ScalarNode {
			return unknown[0]
		}
		p.Hosts = append(p.Hosts, pattern.Value)
	}

	return p
}
