// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
)

// maxLookupBytes bounds the text of variables and templates that is searched for one play.
const maxLookupBytes = 4 << 20

// lookupUse matches the use of a lookup that acts on the host of the manager when its
// expression is evaluated: pipe and lines run a command, and password writes a file.
var lookupUse = sync.OnceValue(func() *regexp.Regexp {
	const names = `(?:ansible\.builtin\.|ansible\.legacy\.)?(pipe|lines|password)`
	return regexp.MustCompile(`\b(?:lookup|query|q)\(\s*['"]` + names + `['"]|\bwith_` + names + `['"]?\s*:`)
})

// addLookups adds those of a text. line returns the position of an offset.
func (o *outliner) addLookups(text []byte, line func(offset int) string) {
	for _, m := range lookupUse().FindAllSubmatchIndex(text, -1) {
		begin, end := m[2], m[3]
		if begin < 0 {
			begin, end = m[4], m[5]
		}
		name := string(text[begin:end])
		o.add(configuration.Executed{
			Name: "the lookup " + name, Path: line(m[0]), Manager: true,
			Loses: name == "password" && inFolder().Match(text[m[1]:]),
		})
	}
}

// inFolder matches a file of the folder as the first argument of a lookup: a relative path, or
// one that is made of the folder's own.
var inFolder = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*,\s*(?:['"][^'"/~{\s]|(?:['"]\{\{\s*)?(?:playbook_dir|inventory_dir|role_path)\b)`)
})

// nodeLookups adds those of a part of a playbook.
func (o *outliner) nodeLookups(at place, n *yaml.Node, walked map[*yaml.Node]bool) {
	if n = resolve(n); walked[n] {
		return
	}

	walked[n] = true
	here := func(int) string { return position(at, n) }

	if n.Kind == yaml.ScalarNode {
		o.addLookups([]byte(n.Value), here)
	}

	for i, part := range n.Content {
		if isKey := n.Kind == yaml.MappingNode && i%2 == 0; isKey {
			o.addLookups([]byte(part.Value+":"), here)
		} else {
			o.nodeLookups(at, part, walked)
		}
	}
}

// textLookups adds those of a file. In YAML, a comment has none.
func (o *outliner) textLookups(at place, data []byte) {
	if o.unread -= len(data); o.unread < 0 {
		return
	}

	isYAML := slices.Contains([]string{"", ".yml", ".yaml"}, path.Ext(at.path))

	if isYAML {
		data = yamlComment().ReplaceAllFunc(data, func(c []byte) []byte { return bytes.Repeat([]byte(" "), len(c)) })
	}

	o.addLookups(data, func(offset int) string {
		return fmt.Sprintf("%s:%d", at.name, 1+bytes.Count(data[:offset], []byte("\n")))
	})
}

// yamlComment matches a line that is only a comment.
var yamlComment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]*#.*$`) })

// folderLookups adds those of the files in the folders beside at.
func (o *outliner) folderLookups(at place, folders ...string) {
	for _, folder := range folders {
		_ = fs.WalkDir(at.fs, path.Join(at.path, folder), func(file string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || o.unread < 0 {
				return nil //nolint:nilerr // a folder that does not exist has no lookups
			}

			o.fileLookups(at.in(file))
			return nil
		})
	}
}

// fileLookups adds those of a file, once.
func (o *outliner) fileLookups(at place) {
	key := "lookups of " + at.name
	if o.seen[key] || o.unread < 0 {
		return
	}
	o.seen[key] = true

	if info, err := fs.Stat(at.fs, at.path); err != nil || info.Size() > int64(o.unread) {
		if err == nil {
			o.unread = -1
		}
		return
	}

	if data, err := fs.ReadFile(at.fs, at.path); err == nil {
		o.textLookups(at, data)
	}
}

// playLookups adds those of a play, and of the variables and templates beside it.
func (o *outliner) playLookups(at place, play map[string]*yaml.Node) {
	walked := map[*yaml.Node]bool{}
	for _, key := range slices.Sorted(maps.Keys(play)) {
		o.nodeLookups(at, play[key], walked)
	}

	beside := at
	beside.path, beside.name = o.dir, o.dir
	o.folderLookups(beside, "group_vars", "host_vars", "templates")

	var files []string
	if list := play["vars_files"]; list != nil {
		for _, n := range resolve(list).Content {
			files = append(files, scalar(resolve(n)))
		}
	}

	for _, file := range files {
		if name := path.Join(o.dir, file); file != "" && !strings.Contains(file, "{") && fs.ValidPath(name) {
			o.fileLookups(at.in(name))
		}
	}
}
