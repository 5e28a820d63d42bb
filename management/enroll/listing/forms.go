// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory/yamlfile"
)

// json reads a list that is JSON. What is none may be YAML in the flow style.
func (p *parser) json(data []byte) {
	r := &jsonReader{dec: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1}
	r.dec.UseNumber()

	root, err := r.value(0)
	if err == nil {
		_, err = r.dec.Token()
		if err == nil {
			err = errors.New("there is something after its end")
		}
	}

	switch {
	case errors.Is(err, io.EOF) && root != nil:
		p.document(root)
	case errors.Is(err, errDeep):
		p.whole(r.at(), "it is nested deeper than %d levels", maxDepth)
	case !p.yaml(data):
		// In the words of the form that it looks like.
		p.whole(r.at(), "it is not JSON: %v", err)
	}
}

var (
	errDeep   = errors.New("nested too deeply")
	errRepeat = errors.New("too much is repeated by aliases")
)

// jsonReader reads JSON as nodes of YAML, which have lines.
type jsonReader struct {
	dec    *json.Decoder
	data   []byte
	offset int // up to which line was counted
	line   int
}

// at returns the line of what was read last.
func (r *jsonReader) at() int {
	end := min(int(r.dec.InputOffset()), len(r.data))
	r.line += bytes.Count(r.data[r.offset:end], []byte("\n"))
	r.offset = end

	return r.line
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}

	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.at()}

	switch token := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, errDeep
		}

		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if token == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}

		for r.dec.More() {
			part, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}

			n.Content = append(n.Content, part)
		}

		_, err = r.dec.Token()
	case string:
		n.Tag, n.Value = "!!str", token
	case json.Number:
		n.Tag, n.Value = "!!int", token.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(token)
	default:
		n.Tag = "!!null"
	}

	return n, err
}

// yaml reads a list that is YAML, and reports whether it was.
func (p *parser) yaml(data []byte) bool {
	dec := yaml.NewDecoder(bytes.NewReader(data))

	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil || len(doc.Content) == 0 {
		return false
	}

	values := 0

	root, err := expand(doc.Content[0], 0, &values)

	switch {
	case errors.Is(err, errDeep):
		p.whole(0, "it is nested deeper than %d levels", maxDepth)
	case err != nil:
		p.whole(0, "%v", err)
	case root.Kind == yaml.ScalarNode:
		return false
	default:
		p.document(root)

		if err := dec.Decode(&doc); !errors.Is(err, io.EOF) {
			p.whole(0, "it holds more than one document")
		}
	}

	return true
}

// expand returns a copy without aliases and merge keys.
func expand(n *yaml.Node, depth int, values *int) (*yaml.Node, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}

	if *values++; *values > maxValues {
		return nil, errRepeat
	}

	if depth > maxDepth {
		return nil, errDeep
	}

	out := &yaml.Node{Kind: n.Kind, Tag: n.ShortTag(), Value: n.Value, Line: n.Line}

	var merged []*yaml.Node

	for i, part := range n.Content {
		e, err := expand(part, depth+1, values)
		if err != nil {
			return nil, err
		}

		isMerge := n.Kind == yaml.MappingNode && i%2 == 1 && out.Content[len(out.Content)-1].Tag == "!!merge"
		if !isMerge {
			out.Content = append(out.Content, e)
			continue
		}

		out.Content = out.Content[:len(out.Content)-1]
		merged = append(merged, e)

		if e.Kind == yaml.SequenceNode {
			merged = append(merged[:len(merged)-1], e.Content...)
		}
	}

	// What is there comes before what is merged.
	for _, m := range merged {
		for i := 0; m.Kind == yaml.MappingNode && i+1 < len(m.Content); i += 2 {
			if get(out, m.Content[i].Value) == nil {
				out.Content = append(out.Content, m.Content[i], m.Content[i+1])
			}
		}
	}

	return out, nil
}

// get returns the value of a key of a mapping, or nil.
func get(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}

	return nil
}

// pairs calls each for the keys of a mapping in their order. A repeated key is a mistake.
func (p *parser) pairs(n *yaml.Node, each func(key, value *yaml.Node)) {
	seen := map[string]bool{}

	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if seen[key.Value] {
			p.whole(key.Line, "%s is there twice", short(key.Value))
			continue
		}

		seen[key.Value] = true

		each(key, n.Content[i+1])
	}
}

// yamlOrINI reads a list of YAML, or an inventory that begins without a section.
func (p *parser) yamlOrINI(data []byte) {
	if p.yaml(data) {
		return
	}

	first := firstLine(data)

	// YAML that does not parse has a key, or an element of a list, in its first line.
	if strings.HasPrefix(first, "- ") || strings.HasSuffix(first, ":") || yamlKey.MatchString(first) {
		err := yaml.Unmarshal(data, new(yaml.Node))
		if err == nil {
			err = errors.New("it holds no list")
		}

		p.whole(0, "it is not YAML: %v", yamlfile.Plain(err))

		return
	}

	// Any word could be the name of a host.
	if !strings.Contains(first, "=") && !anySection.Match(data) {
		p.whole(0, "it is a list in no known form")
		return
	}

	p.ini(data)
}

var anySection = regexp.MustCompile(`(?m)^\[[A-Za-z0-9_.:-]+\]`)

var yamlKey = regexp.MustCompile(`^["']?[\w.-]+["']?:(\s|$)`)

// document reads a list of JSON or YAML.
func (p *parser) document(root *yaml.Node) {
	switch {
	case root.Kind == yaml.SequenceNode:
		p.list(root)
	case root.Kind != yaml.MappingNode:
		p.whole(root.Line, "it is no list of machines")
	case get(root, "nodes") != nil:
		p.pairs(root, func(key, value *yaml.Node) {
			switch {
			case key.Value == "_comment":
			case key.Value != "nodes":
				p.whole(key.Line, "%s is unknown beside nodes", short(key.Value))
			case value.Kind != yaml.SequenceNode:
				p.whole(key.Line, "nodes is no list")
			default:
				p.list(value)
			}
		})
	case isAnsible(root):
		p.ansible(root)
	default:
		p.bifrost(root)
	}
}

// list reads entries with the fields of instackenv.
func (p *parser) list(n *yaml.Node) {
	for _, e := range n.Content {
		r := raw{line: e.Line}
		if r.bad = e.Kind != yaml.MappingNode; r.bad {
			p.problems = append(p.problems, Problem{
				Entry: len(p.raws) + 1, Line: e.Line, Message: "it is no mapping of fields",
			})
		}

		if name := get(e, "name"); name != nil && name.Tag != "!!null" {
			r.name = name.Value
		}

		p.pairs(e, func(key, value *yaml.Node) { r.add(key.Value, value) })

		if !p.push(r) {
			return
		}
	}
}

// push adds an entry, unless there are too many.
func (p *parser) push(r raw) bool {
	if len(p.raws) == MaxEntries {
		p.whole(r.line, "it has more than %d entries", MaxEntries)
		return false
	}

	p.raws = append(p.raws, r)

	return true
}

// bifrostFields are the fields of Bifrost and their names in instackenv. Fields without a name are left out.
var bifrostFields = map[string]string{
	"name": "name", "uuid": "uuid", "driver": "pm_type", "instance_info": "", "host_groups": "", "ipv4_address": "addr",
	"provisioning_ipv4_address": "", "ansible_ssh_host": "", "addressing_mode": "", "inventory_dhcp": "",
	"nics":                "ports",
	"properties.cpu_arch": "arch", "properties.ram": "memory", "properties.memory_mb": "memory",
	"properties.disk_size": "disk", "properties.local_gb": "disk", "properties.cpus": "cpu",
	"properties.capabilities": "capabilities", "properties.root_device": "root_device",
	"driver_info.deploy_kernel": "kernel_id", "driver_info.deploy_ramdisk": "ramdisk_id",
}

// bifrostInfo are the ends of the names of the fields in driver_info.
var bifrostInfo = map[string]string{
	"address": "pm_addr", "username": "pm_user", "password": "pm_password", "port": "pm_port",
	"system_id": "pm_system_id", "verify_ca": "redfish_verify_ca",
}

// bifrost reads the map of Bifrost: its keys are names, its values what ironic is told.
func (p *parser) bifrost(root *yaml.Node) {
	p.pairs(root, func(key, value *yaml.Node) {
		r := raw{name: key.Value, line: key.Line}

		if value.Kind != yaml.MappingNode || get(value, "driver") == nil && get(value, "nics") == nil {
			p.whole(key.Line, "%s is neither a list of nodes, nor a machine of Bifrost, nor a group of Ansible",
				short(key.Value))

			return
		}

		if name := get(value, "name"); name == nil {
			r.add("name", key)
		} else if name.Tag != "!!null" {
			r.name = name.Value
		}

		p.bifrostOne(&r, "", value)
		p.push(r)
	})
}

func (p *parser) bifrostOne(r *raw, prefix string, n *yaml.Node) {
	p.pairs(n, func(key, value *yaml.Node) {
		name := prefix + key.Value

		// Older files sort driver_info by power and deploy.
		if value.Kind == yaml.MappingNode &&
			(name == "driver_info" || name == "properties" || prefix == "driver_info.") {
			within := prefix
			if within == "" {
				within = name + "."
			}

			p.bifrostOne(r, within, value)

			return
		}

		if prefix == "driver_info." {
			_, end, _ := strings.Cut(key.Value, "_")
			if known, ok := bifrostInfo[end]; ok && bifrostFields[name] == "" {
				r.add(known, value)
				return
			}
		}

		known, ok := bifrostFields[name]

		switch {
		case known == "ports" && value.Kind == yaml.SequenceNode:
			ports := &yaml.Node{Kind: yaml.SequenceNode, Line: value.Line}
			for _, nic := range value.Content {
				ports.Content = append(ports.Content, cmpNode(get(nic, "mac"), nic))
			}

			r.add("ports", ports)
		case known != "":
			r.add(known, value)
		case !ok:
			r.add(name, value)
		}
	})
}

func cmpNode(a, b *yaml.Node) *yaml.Node {
	if a != nil {
		return a
	}
	return b
}

// csvColumns are the columns of a CSV list without a header. The last one may be missing.
var csvColumns = []string{"pm_type", "pm_addr", "pm_user", "pm_password", "mac", "pm_port"}

// csvForm are these columns in words.
var csvForm = strings.Join(csvColumns[:5], ",") + "[," + csvColumns[5] + "]"

// separatorOf returns what separates the columns of a CSV list that a line begins, or 0 if it begins none: it names the
// first column or a driver, or has more columns than anything else. Spreadsheets write semicolons where a comma is the
// decimal point.
func separatorOf(line string) rune {
	for _, separator := range []string{",", ";"} {
		first, _, found := strings.Cut(line, separator)
		if !found || strings.ContainsAny(first, ",: {[") {
			continue
		}

		_, known := fields[strings.Trim(first, `"`)]
		_, _, driver := driverOf(strings.Trim(first, `"`))

		if known || driver || strings.Count(line, separator) >= 3 {
			return rune(separator[0])
		}
	}

	return 0
}

// csv reads a CSV list, with a header or with csvColumns.
func (p *parser) csv(data []byte, separator rune) {
	r := csv.NewReader(bytes.NewReader(data))
	r.Comma = separator
	r.FieldsPerRecord, r.Comment, r.TrimLeadingSpace = -1, '#', true

	columns := csvColumns[:5]

	for first := true; ; first = false {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return
		}

		if err != nil {
			p.whole(0, "it is not CSV: %v", err)
			return
		}

		line, _ := r.FieldPos(0)

		if _, isField := fields[cells[0]]; first && isField {
			if columns = cells; !slices.Contains(cells, "pm_type") {
				p.whole(line, "the header lacks the column pm_type")
				return
			}

			for i, name := range cells {
				if slices.Contains(cells[:i], name) {
					p.whole(line, "the header has the column %s twice", short(name))
					return
				}
			}

			continue
		}

		names := columns
		row := raw{line: line, bare: &columns[0] == &csvColumns[0]}

		if row.bare && len(cells) == len(csvColumns) {
			names = csvColumns
		}

		// The cells of such a row are under wrong names, so that a message about one could show the password.
		if row.bad = len(cells) != len(names); row.bad {
			p.problems = append(p.problems, Problem{
				Entry: len(p.raws) + 1, Line: line,
				Message: "it has " + strconv.Itoa(len(cells)) + " columns; needed are " + strings.Join(names, ","),
			})
		}

		for i, name := range names {
			if row.bad || cells[i] == "" {
				continue
			}

			line, _ := r.FieldPos(i)
			row.addText(name, cells[i], line)

			if name == "name" {
				row.name = cells[i]
			}
		}

		if !p.push(row) {
			return
		}
	}
}
