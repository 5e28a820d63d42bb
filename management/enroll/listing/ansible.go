// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

// ansibleInventory is an inventory of Ansible.
type ansibleInventory struct {
	groups map[string]*ansibleGroup
	hosts  map[string]int // with the line of their first mention
	order  []string       // of the hosts
	vars   map[string]map[string]*yaml.Node
}

type ansibleGroup struct {
	hosts, children []string
	vars            map[string]*yaml.Node
	depth           int // below all
}

func newInventory() *ansibleInventory {
	return &ansibleInventory{
		groups: map[string]*ansibleGroup{}, hosts: map[string]int{}, vars: map[string]map[string]*yaml.Node{},
	}
}

func (a *ansibleInventory) group(name string) *ansibleGroup {
	g := a.groups[name]
	if g == nil {
		g = &ansibleGroup{vars: map[string]*yaml.Node{}, depth: 1}
		a.groups[name] = g
	}

	return g
}

// isAnsible reports whether a mapping is an inventory: its values are groups.
func isAnsible(root *yaml.Node) bool {
	for i := 1; i < len(root.Content); i += 2 {
		group := root.Content[i]
		if get(group, "hosts") != nil || get(group, "children") != nil ||
			root.Content[i-1].Value == "all" && group.Kind == yaml.MappingNode {
			return true
		}
	}

	return false
}

// ansible reads an inventory in YAML.
func (p *parser) ansible(root *yaml.Node) {
	a := newInventory()

	p.pairs(root, func(key, value *yaml.Node) { p.ansibleGroup(a, key, value) })
	p.inventory(a)
}

func (p *parser) ansibleGroup(a *ansibleInventory, name, n *yaml.Node) {
	g := a.group(name.Value)

	if n.Kind != yaml.MappingNode && n.Tag != "!!null" {
		p.whole(name.Line, "the group %s is no mapping", short(name.Value))
		return
	}

	p.pairs(n, func(key, value *yaml.Node) {
		if value.Kind != yaml.MappingNode && value.Tag != "!!null" {
			p.whole(key.Line, "%s of the group %s is no mapping", short(key.Value), short(name.Value))
			return
		}

		switch key.Value {
		case "hosts":
			p.pairs(value, func(host, vars *yaml.Node) {
				given := map[string]*yaml.Node{}
				p.pairs(vars, func(key, value *yaml.Node) { given[key.Value] = value })
				p.ansibleHosts(a, g, host.Value, host.Line, given)
			})
		case "children":
			p.pairs(value, func(child, body *yaml.Node) {
				g.children = append(g.children, child.Value)
				p.ansibleGroup(a, child, body)
			})
		case "vars":
			p.pairs(value, func(key, value *yaml.Node) { g.vars[key.Value] = value })
		default:
			p.whole(key.Line, "a group has hosts, children and vars, and no %s", short(key.Value))
		}
	})
}

// ansibleHosts adds the hosts of a pattern such as web[01:20] to a group.
func (p *parser) ansibleHosts(
	a *ansibleInventory, g *ansibleGroup, pattern string, line int, vars map[string]*yaml.Node,
) {
	names, err := hostRange(pattern)
	if err != nil {
		p.whole(line, "%v", err)
		return
	}

	for _, name := range names {
		if _, known := a.hosts[name]; !known {
			if len(a.order) == MaxEntries {
				p.whole(line, "it has more than %d hosts", MaxEntries)
				return
			}

			a.hosts[name] = line
			a.order = append(a.order, name)
			a.vars[name] = map[string]*yaml.Node{}
		}

		g.hosts = append(g.hosts, name)

		maps.Copy(a.vars[name], vars)
	}
}

var rangePart = regexp.MustCompile(`\[([0-9]+|[a-z]|[A-Z]):([0-9]+|[a-z]|[A-Z])\]`)

// hostRange returns the hosts of a pattern with at most one range.
func hostRange(pattern string) ([]string, error) {
	at := rangePart.FindStringSubmatchIndex(pattern)
	if at == nil {
		return []string{pattern}, nil
	}

	before, from, to, after := pattern[:at[0]], pattern[at[2]:at[3]], pattern[at[4]:at[5]], pattern[at[1]:]
	wrong := fmt.Errorf("%s is no range of at most %d hosts", short(pattern), MaxEntries)

	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	letter := err1 != nil && err2 != nil && len(from)+len(to) == 2

	if letter {
		first, last = int(from[0]), int(to[0])
	} else if err1 != nil || err2 != nil {
		return nil, wrong
	}

	if last < first || last-first >= MaxEntries || rangePart.MatchString(after) {
		return nil, wrong
	}

	var names []string

	for i := first; i <= last; i++ {
		part := fmt.Sprintf("%0*d", len(from), i)
		if letter {
			part = fmt.Sprintf("%c", i)
		}

		names = append(names, before+part+after)
	}

	return names, nil
}

var (
	section  = regexp.MustCompile(`^\[([A-Za-z0-9_.-]+)(?::(vars|children|hosts))?\]\s*([#;].*)?$`)
	hostWord = regexp.MustCompile(`^[A-Za-z0-9_.:\[\]-]+$`)
)

// ini reads an inventory in INI.
func (p *parser) ini(data []byte) {
	a := newInventory()
	group, part, line := "ungrouped", "", 0

	for text := range bytes.Lines(data) {
		line++

		text := strings.TrimSpace(string(text))
		if text == "" || text[0] == '#' || text[0] == ';' {
			continue
		}

		if m := section.FindStringSubmatch(text); m != nil {
			group, part = m[1], m[2]
			a.group(group)

			continue
		}

		switch part {
		case "vars":
			key, value, ok := strings.Cut(text, "=")
			if !ok {
				p.whole(line, "it is no VARIABLE=VALUE")
				continue
			}

			a.group(group).vars[strings.TrimSpace(key)] = iniValue(unquote(strings.TrimSpace(value)), line)
		case "children":
			a.group(group).children = append(a.group(group).children, text)
			a.group(text)
		default:
			p.iniHost(a, a.group(group), text, line)
		}
	}

	p.inventory(a)
}

// iniHost reads a line such as "web1 ansible_host=10.0.0.1 rack=r1".
func (p *parser) iniHost(a *ansibleInventory, g *ansibleGroup, text string, line int) {
	words := splitWords(text)
	if !hostWord.MatchString(words[0]) {
		p.whole(line, "it begins with no name of a host, so this is no list in a known form")
		return
	}

	vars := map[string]*yaml.Node{}

	for _, w := range words[1:] {
		if strings.HasPrefix(w, "#") {
			break
		}

		key, value, ok := strings.Cut(w, "=")
		if !ok {
			// The word may be a secret of another form.
			p.whole(line, "what follows the host %s is no VARIABLE=VALUE", short(words[0]))
			return
		}

		vars[key] = iniValue(unquote(value), line)
	}

	p.ansibleHosts(a, g, words[0], line, vars)
}

// splitWords splits a line at the blanks outside of quotes.
func splitWords(text string) (words []string) {
	var quote rune

	words = strings.FieldsFunc(text, func(c rune) bool {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		}

		return quote == 0 && (c == ' ' || c == '\t')
	})

	return words
}

func unquote(text string) string {
	if n := len(text); n > 1 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

// iniValue returns a value as Ansible takes it, a literal of Python: a number, True or False, a list or a dictionary.
// All else is text.
func iniValue(text string, line int) *yaml.Node {
	if len(text) > 1 && (text[0] == '[' && text[len(text)-1] == ']' || text[0] == '{' && text[len(text)-1] == '}') {
		var doc yaml.Node
		if yaml.Unmarshal([]byte(text), &doc) == nil && len(doc.Content) == 1 && isLiteral(doc.Content[0], line) {
			return doc.Content[0]
		}
	}

	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: line}
	if _, err := strconv.Atoi(text); err == nil && (text == "0" || text[0] != '0') {
		n.Tag = "!!int"
	} else if text == "True" || text == "False" {
		n.Tag, n.Value = "!!bool", strings.ToLower(text)
	}

	return n
}

// isLiteral reports whether a node of YAML, all on one line of the list, is a literal of Python as well, and makes it
// one: text is quoted, and the words for true, false and null are others.
func isLiteral(n *yaml.Node, line int) bool {
	n.Line = line

	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return false
	case n.Kind != yaml.ScalarNode:
		return !slices.ContainsFunc(n.Content, func(part *yaml.Node) bool { return !isLiteral(part, line) })
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0, n.Tag == "!!int", n.Tag == "!!float":
		return true
	case n.Value == "True" || n.Value == "False":
		n.Tag, n.Value = "!!bool", strings.ToLower(n.Value)
		return true
	case n.Value == "None":
		n.Tag, n.Value = "!!null", "null"
		return true
	}

	return false
}

// inventory makes entries of the hosts. A host has the variables of its groups, those of a child before those of its
// parents.
func (p *parser) inventory(a *ansibleInventory) {
	// A group is as deep as the longest way from all; a circle has no longest way.
	for range len(a.groups) + 1 {
		changed := false

		for name, g := range a.groups {
			for _, child := range g.children {
				depth := g.depth + 1
				if name == "all" {
					depth = 1
				}

				if c := a.group(child); c.depth < depth && depth <= maxDepth {
					c.depth, changed = depth, true
				}
			}
		}

		if !changed {
			break
		}
	}

	names := slices.SortedFunc(maps.Keys(a.groups), func(x, y string) int {
		isAll := func(name string) int {
			if name == "all" {
				return 0
			}
			return a.groups[name].depth
		}

		return cmp.Or(isAll(x)-isAll(y), strings.Compare(x, y))
	})

	// What each group passes on to its hosts and those of its children.
	inherited := map[string]map[string]*yaml.Node{}
	for _, host := range a.order {
		inherited[host] = map[string]*yaml.Node{}
	}

	for _, name := range names {
		g := a.groups[name]
		if len(g.vars) == 0 {
			continue
		}

		hosts := a.hostsOf(name, map[string]bool{})
		if name == "all" {
			hosts = a.order
		}

		for _, host := range hosts {
			maps.Copy(inherited[host], g.vars)
		}
	}

	for _, host := range a.order {
		vars := inherited[host]
		maps.Copy(vars, a.vars[host])

		if !p.push(p.ansibleHost(host, a.hosts[host], vars)) {
			return
		}
	}
}

// hostsOf returns the hosts of a group and of the groups below it.
func (a *ansibleInventory) hostsOf(name string, seen map[string]bool) []string {
	if seen[name] {
		return nil
	}

	seen[name] = true

	hosts := slices.Clone(a.groups[name].hosts)
	for _, child := range a.groups[name].children {
		hosts = append(hosts, a.hostsOf(child, seen)...)
	}

	return hosts
}

// connectionVars are the connection variables of Ansible and the settings that they become.
var connectionVars = map[string]string{
	"ansible_host": "addr", "ansible_ssh_host": "addr", "ansible_port": "port", "ansible_ssh_port": "port",
	"ansible_user": "user", "ansible_ssh_user": "user", "ansible_ssh_private_key_file": "key_file",
	"ansible_private_key_file": "key_file", "ansible_become": "become", "ansible_become_user": "become_user",
	"ansible_python_interpreter": "python",
}

// ansibleHost returns the entry of a host.
func (p *parser) ansibleHost(name string, line int, vars map[string]*yaml.Node) raw {
	r := raw{name: name, line: line, host: true}
	r.addText("name", name, line)

	number := len(p.raws) + 1
	addr := name
	connection := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: line}
	others := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: line}

	for _, key := range slices.Sorted(maps.Keys(vars)) {
		value := vars[key]

		note := func(list *[]Problem, message string) {
			*list = append(*list, Problem{number, name, value.Line, key, message})
		}

		setting, known := connectionVars[key]

		switch {
		case setting == "addr":
			addr = value.Value
		case known:
			connection.Content = append(connection.Content, scalar(setting, line), connectionValue(setting, value))
		case key == "ansible_connection" && (value.Value == "ssh" || value.Value == "smart"):
		case key == "ansible_connection":
			note(&p.problems, "only hosts that are reached by ssh can be imported")
		case key == "ansible_password" || key == "ansible_ssh_pass" || strings.HasSuffix(key, "_become_password") ||
			key == "ansible_become_pass":
			note(&p.warnings, "it is left out: the manager logs in with a key")
		case strings.HasPrefix(key, "ansible_"):
			note(&p.warnings, "it is left out: no connection setting stands for it")
		default:
			others.Content = append(others.Content, scalar(key, line), value)
		}
	}

	if err := inventory.CheckAddr(addr); err == nil || addr != name {
		r.addText("addr", addr, line)
	} else {
		p.problems = append(p.problems, Problem{
			number, name, line, "ansible_host", "it is missing, and the name of the host is no address",
		})
	}

	if len(connection.Content) > 0 {
		r.add("connection", connection)
	}

	if len(others.Content) > 0 {
		r.add("vars", others)
	}

	return r
}

func scalar(text string, line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: line}
}

// connectionValue returns the value of a connection variable as the setting takes it: INI has text alone, and Ansible
// takes yes for true.
func connectionValue(setting string, value *yaml.Node) *yaml.Node {
	v := *value

	switch {
	case setting == "port":
		v.Tag = "!!int"
	case setting == "become" && slices.Contains([]string{"yes", "true", "1", "on"}, strings.ToLower(v.Value)):
		v.Tag, v.Value, v.Style = "!!bool", "true", 0
	case setting == "become":
		v.Tag, v.Value, v.Style = "!!bool", "false", 0
	}

	return &v
}
