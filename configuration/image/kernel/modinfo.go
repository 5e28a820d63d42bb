// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"debug/elf"
	"errors"
	"maps"
	"slices"
	"strings"
)

// maxInfo is the size in bytes of the section of a module that describes it.
const maxInfo = 1 << 20

// candidate is a module of a package, or one that is built into its kernel.
type candidate struct {
	Module

	file   string   // in the package; empty: it is built in
	pre    []string // names, or aliases, of modules that it would like to be loaded before
	post   []string // and after it
	wanted bool
	said   int // bytes that it says about itself
	state  int // of the search
}

// The states of a candidate. An open one waits for those that it depends on.
const (
	unseen = iota
	open
	added
)

// preAsked are modules that others ask the kernel for while they work, and do not say so.
var preAsked = map[string][]string{"vfat": {"nls_cp437", "nls_ascii", "nls_iso8859_1"}}

// postAsked are modules that others ask the kernel for once they have found their device, as there is no modprobe.
var postAsked = map[string][]string{"mlx4_core": {"mlx4_en"}}

// set takes a line of what describes a module.
func (c *candidate) set(line string) {
	key, value, _ := strings.Cut(line, "=")

	switch key {
	case "alias":
		c.Aliases = append(c.Aliases, value)
	case "depends":
		for name := range strings.SplitSeq(value, ",") {
			if name != "" {
				c.Depends = append(c.Depends, underscored(name))
			}
		}
	case "softdep":
		// As in: pre: crypto-crc32c crypto-sha256 post: x
		part := ""
		for _, word := range strings.Fields(value) {
			switch {
			case strings.HasSuffix(word, ":"):
				part = word
			case part == "pre:":
				c.pre = append(c.pre, word)
			case part == "post:":
				c.post = append(c.post, word)
			}
		}
	}
}

func underscored(name string) string { return strings.ReplaceAll(name, "-", "_") }

// describe reads what a module says about itself.
func describe(content []byte) (*candidate, error) {
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}

	section := file.Section(".modinfo")
	switch {
	case section == nil:
		return nil, errors.New("it has no .modinfo")
	case section.Type == elf.SHT_NOBITS || section.Flags&elf.SHF_COMPRESSED != 0 || section.FileSize > maxInfo:
		return nil, errors.New("its .modinfo is compressed or too large")
	}

	info, err := section.Data()
	if err != nil {
		return nil, err
	}

	c := &candidate{said: len(info)}
	for line := range strings.SplitSeq(string(info), "\x00") {
		c.set(line)
	}

	return c, nil
}

// addBuiltIn adds the modules in a file modules.builtin.modinfo, whose lines begin with the name of a module. It
// reports whether they are not too many.
func addBuiltIn(all map[string]*candidate, content []byte) bool {
	for line := range strings.SplitSeq(string(content), "\x00") {
		name, rest, ok := strings.Cut(line, ".")
		if name = underscored(name); !ok || all[name] != nil && all[name].file != "" {
			continue
		}

		if all[name] == nil {
			if len(all) == maxModules {
				return false
			}
			all[name] = &candidate{Module: Module{Name: name}}
		}

		all[name].set(rest)
	}

	return true
}

// chooser collects the modules of an environment.
type chooser struct {
	all     map[string]*candidate // by name
	byAlias map[string][]string   // names
	chosen  []Module              // each after those that it depends on
	wishes  []string              // names of modules that the chosen would like to have
}

// choose returns the wanted modules, all that they depend on, and what these would like to have.
func choose(all map[string]*candidate) ([]Module, error) {
	c := chooser{all: all, byAlias: map[string][]string{}}
	names := slices.Sorted(maps.Keys(all))

	for _, name := range names {
		for _, alias := range all[name].Aliases {
			c.byAlias[alias] = append(c.byAlias[alias], name)
		}
	}

	// What a module would like to have comes after it: no wish can make a circle.
	queue := slices.DeleteFunc(names, func(name string) bool { return !all[name].wanted })
	for ; len(queue) > 0; queue = queue[1:] {
		if err := c.add(all[queue[0]]); err != nil {
			return nil, err
		}

		queue = append(queue, c.wishes...)
		c.wishes = nil
	}

	return c.chosen, nil
}

// add adds a module after those that it depends on, and collects its wishes.
func (c *chooser) add(m *candidate) error {
	if m.state != unseen || m.file == "" {
		return nil
	}

	m.state = open
	depends := distinct(m.Depends)
	m.Depends = nil

	for _, name := range depends {
		first := c.all[name]
		switch {
		case first == nil:
			return invalid("the module %s depends on %s, which is not in the package", shown(m.Name), shown(name))
		case first.state == open:
			return invalid("the modules %s and %s depend on each other", shown(m.Name), shown(name))
		case first.file == "":
			continue
		}

		if err := c.add(first); err != nil {
			return err
		}

		m.Depends = append(m.Depends, name)
	}

	m.Before = c.providers(slices.Concat(m.pre, preAsked[m.Name]))
	m.After = c.providers(slices.Concat(m.post, postAsked[m.Name]))
	c.wishes = slices.Concat(c.wishes, m.Before, m.After)

	m.state = added
	c.chosen = append(c.chosen, m.Module)

	return nil
}

func distinct(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// providers returns the modules in files that names or aliases mean. What nothing provides is left out.
func (c *chooser) providers(wishes []string) []string {
	var all []string
	for _, wish := range wishes {
		if name := c.provider(wish); name != "" && c.all[name].file != "" {
			all = append(all, name)
		}
	}

	return distinct(all)
}

// provider returns the module that a name or an alias means; empty: there is none. Of several with the alias it is the
// one that works on every processor; a kernel that has one built in needs none.
func (c *chooser) provider(wish string) string {
	if name := underscored(wish); c.all[name] != nil {
		return name
	}

	names := c.byAlias[wish]

	for _, fits := range []func(string) bool{
		func(n string) bool { return c.all[n].file == "" },
		func(n string) bool { return strings.HasSuffix(n, "_generic") },
		func(string) bool { return true },
	} {
		if i := slices.IndexFunc(names, fits); i >= 0 {
			return names[i]
		}
	}

	return ""
}
