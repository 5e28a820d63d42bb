// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/evidence"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/inventory/yamlfile"
)

// reader is an entry that is being read.
type reader struct {
	*Entry
	*parser

	number int
	host   bool // of Ansible
	bmc    machine.BMC
	given  map[string]int // the fields that are there, with their lines
	field  string         // that is being read
	line   int
}

func (r *reader) problem(field string, line int, format string, args ...any) {
	r.problems = append(r.problems, Problem{r.number, r.label(), line, field, fmt.Sprintf(format, args...)})
}

// wrong notes a mistake of the field that is being read.
func (r *reader) wrong(format string, args ...any) {
	if r.bare {
		format, args = "the value is wrong, and not shown: it may be a password; without a header the columns are %s",
			[]any{csvForm}
	}

	r.problem(r.field, r.line, format, args...)
}

func (r *reader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, Problem{r.number, r.label(), r.line, r.field, fmt.Sprintf(format, args...)})
}

func (r *reader) label() string { return r.Node }

// short is text of a list in a message.
func short(text string) string { return strconv.Quote(inventory.Shorten(text, 60)) }

// fields are the fields of an entry: those of instackenv, and some of our own.
var fields = map[string]func(*reader, *yaml.Node){
	"name": func(r *reader, n *yaml.Node) {
		r.Named = true
		if err := inventory.CheckName(r.Node); err != nil {
			r.wrong("%v", err)
		}
	},
	"_comment": func(*reader, *yaml.Node) {},

	"pm_type": func(r *reader, n *yaml.Node) {
		word := r.text(n)

		driver, alias, known := driverOf(word)
		if !known {
			r.wrong("%s is no type; use %s", short(word), driverNames())
			return
		}

		if r.bmc.Driver = driver; driver == "" {
			r.wrong("%s is not supported; supported are %s", inventory.Shorten(word, 60), driverNames())
		} else if alias {
			r.warn("%s is an old word for %s", inventory.Shorten(word, 60), driver)
		}
	},
	"pm_addr":     (*reader).address,
	"pm_port":     func(r *reader, n *yaml.Node) { r.bmc.Port = r.number1(n, 65535) },
	"pm_user":     func(r *reader, n *yaml.Node) { r.bmc.User = r.bounded(n, 128) },
	"pm_password": func(r *reader, n *yaml.Node) { r.bmc.Password = r.bounded(n, 256) },
	"pm_system_id": func(r *reader, n *yaml.Node) {
		r.bmc.System = strings.TrimRight(r.bounded(n, 256), "/")
		if !strings.HasPrefix(r.bmc.System, "/") && r.bmc.System != "" {
			r.bmc.System = "/redfish/v1/Systems/" + r.bmc.System
		}
	},
	"redfish_verify_ca": func(r *reader, n *yaml.Node) { r.bmc.Verify = r.flag(n) },

	"ports": func(r *reader, n *yaml.Node) { r.ports(n) },
	"mac": func(r *reader, n *yaml.Node) {
		// In a CSV list it is the only form.
		if n.Kind == yaml.SequenceNode {
			r.warn("mac is an old form of ports")
		}
		r.ports(n)
	},

	"uuid": func(r *reader, n *yaml.Node) {
		r.UUID = strings.ToLower(r.text(n))
		if !uuid.MatchString(r.UUID) {
			r.wrong("%s is no UUID", short(r.UUID))
		} else if evidence.MadeUp(r.UUID) {
			r.warn("%s is made up by a vendor, so it identifies nothing", short(r.UUID))
		}
	},
	"cpu":    func(r *reader, n *yaml.Node) { r.CPUs = r.number1(n, 1<<20) },
	"memory": func(r *reader, n *yaml.Node) { r.MemoryMB = r.number1(n, 1<<40) },
	"disk":   func(r *reader, n *yaml.Node) { r.DiskGB = r.number1(n, 1<<40) },
	"arch":   func(r *reader, n *yaml.Node) { r.Arch = r.bounded(n, 64) },
	"platform": func(r *reader, n *yaml.Node) {
		if r.keep(n, 64); r.given["arch"] == 0 {
			r.wrong("platform needs arch beside it")
		}
	},

	"capabilities": (*reader).capabilities,
	"profile": func(r *reader, n *yaml.Node) {
		r.capability("profile", r.bounded(n, 256))
	},
	"root_device": (*reader).rootDevice,

	"image":       func(r *reader, n *yaml.Node) { r.Image = r.bounded(n, machine.MaxText) },
	"kernel_args": func(r *reader, n *yaml.Node) { r.KernelArgs = r.bounded(n, machine.MaxText) },

	"kernel_id":  func(r *reader, n *yaml.Node) { r.keep(n, 1024) },
	"ramdisk_id": func(r *reader, n *yaml.Node) { r.keep(n, 1024) },

	"addr": func(r *reader, n *yaml.Node) {
		r.Addr = canonical(r.text(n))
		if err := inventory.CheckAddr(r.Addr); err != nil {
			r.wrong("%v", err)
		}
	},
	"connection": func(r *reader, n *yaml.Node) {
		var c configuration.Connection
		if err := strict(n, &c); err != nil {
			r.wrong("%s", decodedAt.ReplaceAllString(yamlfile.Plain(err), ""))
		} else if err := c.Check(); err != nil {
			r.wrong("%v", err)
		}

		r.Connection = c
	},
	"labels": func(r *reader, n *yaml.Node) {
		r.Labels = map[string]string{}

		n, err := labelsOf(n)
		if err != nil {
			r.wrong("%v", err)
			return
		}

		r.pairs(n, func(key, value *yaml.Node) {
			r.Labels[key.Value] = r.text(value)

			err := inventory.CheckLabelKey(key.Value)
			if err == nil {
				err = inventory.CheckLabelValue(value.Value)
			}

			if err != nil {
				r.wrong("%v", err)
			}
		})
	},
	"vars": func(r *reader, n *yaml.Node) {
		r.Vars = configuration.Vars{}
		if n.Kind != yaml.MappingNode {
			r.wrong("it is no mapping")
		}

		r.pairs(n, func(key, value *yaml.Node) {
			if v, err := valueOf(value); err != nil {
				r.wrong("%s: %v", short(key.Value), err)
			} else {
				r.Vars[key.Value] = v
			}
		})

		if err := configuration.CheckVars(r.Vars); err != nil {
			r.wrong("%v", err)
		}
	},
}

// labelsOf returns labels as a mapping. A cell has them as KEY=VALUE, separated by commas.
func labelsOf(n *yaml.Node) (*yaml.Node, error) {
	if n.Kind == yaml.MappingNode {
		return n, nil
	}

	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		return nil, errors.New("it is neither a mapping nor KEY=VALUE")
	}

	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line}

	for part := range strings.SplitSeq(n.Value, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || key == "" {
			return nil, fmt.Errorf("%s is no KEY=VALUE", short(part))
		}

		out.Content = append(out.Content, scalar(key, n.Line), scalar(value, n.Line))
	}

	return out, nil
}

// decodedAt matches the place of a mistake within what strict decodes, which is not the one in the list.
var decodedAt = regexp.MustCompile(`\bline \d+: `)

// kept matches the fields that are kept, and do nothing.
var kept = regexp.MustCompile(`^([a-z]+_interface|conductor_group|resource_class)$`)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// entry reads an entry.
func (p *parser) entry(number int, raw raw) {
	e := Entry{Line: raw.line, bare: raw.bare}

	if raw.bad {
		p.entries = append(p.entries, e)
		return
	}

	e.Node = inventory.Shorten(raw.name, 128)
	r := &reader{Entry: &e, parser: p, number: number, host: raw.host, given: map[string]int{}}

	// Null says nothing.
	for _, f := range raw.fields {
		if f.value.Tag != "!!null" {
			r.given[f.key] = max(1, f.value.Line)
		}
	}

	e.lines = r.given

	for _, f := range raw.fields {
		r.field, r.line = f.key, f.value.Line

		read, known := fields[f.key]

		switch {
		case f.value.Tag == "!vault":
			r.wrong("it is encrypted by ansible-vault; give the value, or set it with clusterctl vars set --secret")
		case known && f.value.Tag == "!!null":
		case known:
			read(r, f.value)
		case kept.MatchString(f.key):
			r.keep(f.value, 1024)
			r.warn("it has no effect here")
		default:
			if similar := inventory.Closest(f.key, slices.Sorted(maps.Keys(fields))); similar != "" {
				r.wrong("there is no such field; did you mean %s?", similar)
			} else {
				r.wrong("there is no such field")
			}
		}
	}

	r.power()

	if err := inventory.CheckName(e.Node); e.Node == "" || err != nil && !e.Named {
		if e.Node = madeName(&e); e.Node == "" && len(raw.fields) > 0 {
			r.problem("", raw.line, "it has neither a name, nor the address of a BMC, a MAC or an addr")
		}
	}

	p.entries = append(p.entries, e)
}

// power checks the fields about the BMC with each other.
func (r *reader) power() {
	line := r.Line
	if at := r.given["pm_type"]; at > 0 {
		line = at
	}

	switch {
	case r.given["pm_type"] > 0:
	case r.host, r.Addr != "" && r.bmc == (machine.BMC{}):
		return // reached by ssh alone
	default:
		r.problem("pm_type", line, "it is missing; use %s", driverNames())
		return
	}

	if r.bmc.Driver == "" {
		return
	}

	need := func(field string, has bool) {
		if !has {
			r.problem(field, line, "%s needs it", r.bmc.Driver)
		}
	}

	if r.bmc.Driver != machine.Manual {
		need("pm_addr", r.given["pm_addr"] > 0)
	}

	if r.bmc.Driver == machine.Redfish {
		need("pm_system_id", r.bmc.System != "")
	}

	if r.bmc.Driver.SpeaksRedfish() {
		need("pm_user", r.bmc.User != "")
	}

	if r.bmc.Plain && !r.bmc.Driver.SpeaksRedfish() {
		r.problem("pm_addr", r.given["pm_addr"], "%s takes no http://", r.bmc.Driver)
	}

	if r.bmc.Port == r.bmc.DefaultPort() {
		r.bmc.Port = 0
	}

	b := r.bmc
	r.BMC = &b
}

// address reads pm_addr, which may be a URL.
func (r *reader) address(n *yaml.Node) {
	text := r.text(n)

	rest, isPlain := strings.CutPrefix(text, "http://")
	r.bmc.Plain = isPlain
	rest = strings.TrimRight(strings.TrimPrefix(rest, "https://"), "/")

	// A host, or a host and a port; an IPv6 address has brackets before a port.
	host := rest
	if h, port, err := net.SplitHostPort(rest); err == nil {
		host = h

		number, err := strconv.Atoi(port)
		if err != nil || number < 1 || number > 65535 {
			r.wrong("%s has no port from 1 to 65535", short(text))
		}

		if r.given["pm_port"] == 0 {
			r.bmc.Port = number
		}
	}

	r.bmc.Address = canonical(strings.ToLower(strings.Trim(host, "[]")))
	if err := inventory.CheckAddr(r.bmc.Address); err != nil {
		r.wrong("%v", err)
	}
}

// canonical returns the one form of an IP address, and other addresses as they are.
func canonical(addr string) string {
	if ip, err := netip.ParseAddr(addr); err == nil {
		return ip.String()
	}
	return addr
}

// ports reads a list of MACs or of ports.
func (r *reader) ports(n *yaml.Node) {
	list := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		list = n.Content
	} else if n.Kind == yaml.ScalarNode && strings.ContainsAny(n.Value, " ") {
		list = nil
		for mac := range strings.FieldsSeq(n.Value) {
			list = append(list, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: mac, Line: n.Line})
		}
	}

	for _, e := range list {
		r.line = e.Line

		port, address := machine.Port{}, e
		if e.Kind == yaml.MappingNode {
			address = nil

			r.pairs(e, func(key, value *yaml.Node) {
				if key.Value == "address" || key.Value == "mac" {
					address = value
					return
				}

				v, err := valueOf(value)
				if err != nil {
					r.wrong("%s: %v", short(key.Value), err)
				}

				if port.Extra == nil {
					port.Extra = map[string]any{}
				}

				port.Extra[key.Value] = v
			})
		}

		if address == nil {
			r.wrong("a port lacks its address")
			continue
		}

		text := r.text(address)

		mac, err := net.ParseMAC(text)
		if err != nil || len(mac) != 6 {
			r.wrong("%s is no MAC such as 52:54:00:aa:00:01", short(text))
			continue
		}

		port.MAC = mac.String()
		r.Ports = append(r.Ports, port)
	}
}

// capabilities reads an object, or text such as "profile:compute,boot_option:local".
func (r *reader) capabilities(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		r.pairs(n, func(key, value *yaml.Node) { r.capability(key.Value, r.text(value)) })
		return
	}

	text := r.text(n)
	if text == "" {
		return
	}

	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok || key == "" {
			r.wrong("%s is no KEY:VALUE", short(part))
			return
		}

		r.capability(key, value)
	}
}

func (r *reader) capability(key, value string) {
	if r.Capabilities == nil {
		r.Capabilities = map[string]string{}
	}

	if former, twice := r.Capabilities[key]; twice && former != value {
		r.wrong("the capability %s is both %s and %s", short(key), short(former), short(value))
	}

	r.Capabilities[key] = value
}

func (r *reader) rootDevice(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		r.wrong("it is no mapping of hints: %s", strings.Join(facts.HintNames(), ", "))
		return
	}

	r.RootDevice = map[string]any{}

	r.pairs(n, func(key, value *yaml.Node) {
		v, err := valueOf(value)
		if err == nil {
			err = facts.CheckHints(map[string]any{key.Value: v})
		}

		if err != nil {
			r.wrong("%v", err)
		}

		r.RootDevice[key.Value] = v
	})
}

// keep stores the field as it is.
func (r *reader) keep(n *yaml.Node, limit int) {
	if r.Extra == nil {
		r.Extra = map[string]any{}
	}

	r.Extra[r.field] = r.bounded(n, limit)
}

// text returns a scalar as text.
func (r *reader) text(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.wrong("it is no text")
		return ""
	}

	return strings.TrimSpace(n.Value)
}

// bounded returns a scalar as text of at most limit bytes, on one line.
func (r *reader) bounded(n *yaml.Node, limit int) string {
	r.text(n)

	text := n.Value
	if len(text) > limit || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' }) {
		r.wrong("it is longer than %d bytes, or has control characters", limit)
		return ""
	}

	return text
}

// number1 returns a whole number from 1 to limit, which may be text.
func (r *reader) number1(n *yaml.Node, limit int) int {
	text := r.text(n)

	i, err := strconv.Atoi(text)
	if err != nil || i < 1 || i > limit {
		if text != "" {
			r.wrong("%s is no whole number from 1 to %d", short(text), limit)
		}

		return 0
	}

	return i
}

func (r *reader) flag(n *yaml.Node) bool {
	b, err := strconv.ParseBool(strings.ToLower(r.text(n)))
	if err != nil {
		r.wrong("it is neither true nor false")
	}

	return b
}

// valueOf returns a value as JSON has it.
func valueOf(n *yaml.Node) (out any, err error) {
	if tag := n.Tag; strings.HasPrefix(tag, "!") && !strings.HasPrefix(tag, "!!") {
		return nil, fmt.Errorf("the tag %s is not supported", short(tag))
	}

	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}

	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}

	return out, err
}

// strict decodes a mapping into what v points to, without unknown fields.
func strict(n *yaml.Node, v any) error {
	b, err := yaml.Marshal(n)
	if err != nil {
		return err
	}

	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	dec.KnownFields(true)

	return dec.Decode(v)
}

// madeName returns a name for an entry without one: its BMC, its first MAC or its address.
func madeName(e *Entry) string {
	name := ""

	switch {
	case e.BMC != nil && e.BMC.Address != "":
		name = "bmc-" + e.BMC.Address
		if e.BMC.Port != 0 {
			name += "-" + strconv.Itoa(e.BMC.Port)
		}

		if at := strings.LastIndex(e.BMC.System, "/"); at >= 0 {
			name += "-" + e.BMC.System[at+1:]
		}
	case len(e.Ports) > 0:
		name = "mac-" + strings.ReplaceAll(e.Ports[0].MAC, ":", "")
	case e.Addr != "":
		name = "host-" + e.Addr
	default:
		return ""
	}

	return strings.TrimRight(notInName.ReplaceAllString(name[:min(len(name), 100)], "-"), "-._")
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// drivers are the patterns of the words for drivers, as TripleO has them.
var drivers = []struct {
	words  *regexp.Regexp
	driver machine.Driver
}{
	{regexp.MustCompile(`^(ipmi|.*_ipmitool)$`), machine.IPMI},
	{regexp.MustCompile(`^(idrac|.*_drac)$`), machine.IDRAC},
	{regexp.MustCompile(`^(ilo5?|.*_ilo)$`), machine.ILO},
	{regexp.MustCompile(`^(irmc|.*_irmc)$`), machine.IRMC},
	{regexp.MustCompile(`^redfish$`), machine.Redfish},
	{regexp.MustCompile(`^(manual-management|fake_pxe|fake-hardware|fake)$`), machine.Manual},
	// Known, and not supported.
	{regexp.MustCompile(`^(staging-ovirt|pxe_ssh|xclarity|snmp|cisco-ucs-(managed|standalone)|.*_ucs|.*_cimc)$`), ""},
}

// driverOf returns the driver of a word. A known one that is not supported is empty. alias: the word is an old one.
func driverOf(word string) (driver machine.Driver, alias, known bool) {
	word = strings.ToLower(word)
	for _, d := range drivers {
		if d.words.MatchString(word) {
			return d.driver, string(d.driver) != word, true
		}
	}

	return "", false, false
}

func driverNames() string {
	names := make([]string, len(machine.Drivers))
	for i, d := range machine.Drivers {
		names[i] = string(d.Driver)
	}

	return inventory.Choices(names)
}
