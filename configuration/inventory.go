// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

// Role says what a run does with a host.
type Role string

const (
	RoleTarget Role = "target" // the job's node: plays act on it
	RoleHelper Role = "helper" // held by the job as well: plays act on it
	RolePeer   Role = "peer"   // only named, so that templates can refer to it
)

// Inventory groups that name a run's hosts by role; a run is limited to both.
const (
	TargetsGroup = "job_targets"
	HelpersGroup = "job_helpers"
)

// Host is one host of a run.
type Host struct {
	Name         string         `json:"name"` // of the node, or its address before it has one; also the inventory's name and the ssh host key's
	Addr         string         `json:"addr"`
	Label        string         `json:"label"`
	Serial       string         `json:"serial"`
	Group        string         `json:"group,omitempty"`
	Commissioned bool           `json:"commissioned,omitempty"`
	Role         Role           `json:"role"`
	Vars         map[string]Var `json:"vars,omitempty"`      // merged; those of a request are left to ExtraVars
	Extra        map[string]any `json:"extra,omitempty"`     // the manager's own, named clusterm_…; may be secret
	Connection   Connection     `json:"connection,omitzero"` // site, group and node already laid over each other
	HostKeys     []string       `json:"host_keys,omitempty"` // as in known_hosts, without the name: "ssh-ed25519 AAAA…"; none before the first contact
}

var hostKey = regexp.MustCompile(`^[a-z0-9][a-z0-9@.-]{2,63} [A-Za-z0-9+/]{16,}={0,2}$`)

// checkHostName accepts the name of a node, and an address where a host is
// prepared that has no name yet.
func checkHostName(name string) error {
	if a, err := netip.ParseAddr(name); err == nil && a.Zone() == "" {
		return nil
	}

	return inventory.CheckName(name)
}

// CheckHosts reports everything about a run's hosts that Ansible or ssh could
// not safely be given. Inventory refuses what it refuses.
func CheckHosts(hosts []Host) error {
	var errs []error
	seen := map[string]string{}

	targets := 0
	for _, h := range hosts {
		add := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("host %q: %s", h.Name, fmt.Sprintf(format, args...)))
		}
		if err := checkHostName(h.Name); err != nil {
			add("%v", err)
		}

		// ssh looks host keys up without regard to case.
		if other, twice := seen[strings.ToLower(h.Name)]; twice {
			add("is named twice in one run (as %q)", other)
		}

		seen[strings.ToLower(h.Name)] = h.Name
		if err := inventory.CheckAddr(h.Addr); err != nil {
			add("%v", err)
		}

		switch err := inventory.CheckGroup(h.Group); {
		case h.Group == "":
		case err != nil:
			add("%v", err)
		case slices.Contains([]string{"all", "ungrouped", TargetsGroup, HelpersGroup}, h.Group):
			add("the group name %q is reserved", h.Group)
		}

		switch h.Role {
		case RoleTarget:
			targets++
		case RoleHelper, RolePeer:
		default:
			add("the role %q is not one of target, helper and peer", h.Role)
		}

		if err := h.Connection.Check(); err != nil {
			add("%v", err)
		}

		for _, k := range h.HostKeys {
			if !hostKey.MatchString(k) {
				add("host key %q is not of the form \"ssh-ed25519 AAAA…\"", k)
			}
		}

		for _, n := range Names(h.Vars) {
			if reason := nameProblem(n); reason != "" {
				add("variable %q: %s", n, reason)
			}
		}

		for _, n := range slices.Sorted(maps.Keys(h.Extra)) {
			if !strings.HasPrefix(n, "clusterm_") || !identifier.MatchString(n) {
				add("the manager's own variable %q does not begin with clusterm_", n)
			}
		}
	}

	if targets == 0 {
		errs = append(errs, errors.New("no host is a target"))
	}

	return invalid(errs)
}

// invalid makes one error of many, of the kind that says the request is wrong.
func invalid(errs []error) error {
	if len(errs) == 0 {
		return nil
	}

	words := make([]string, len(errs))
	for i, err := range errs {
		words[i] = err.Error()
	}

	return inventory.Errorf(inventory.KindInvalid, "%s", strings.Join(words, "; "))
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// Inventory writes the YAML inventory of a run: every host with its variables
// and its connection, the groups they are in, and the groups TargetsGroup and
// HelpersGroup. Strings are tagged !unsafe, at any depth and as keys too, save
// those of trusted variables. The same hosts give the same bytes.
//
// Each host has node_name, node_addr, node_label, node_serial, node_group (""
// where it has none) and node_commissioned.
func Inventory(hosts []Host) ([]byte, error) {
	if err := CheckHosts(hosts); err != nil {
		return nil, err
	}

	hosts = slices.SortedFunc(slices.Values(hosts), func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
	members := map[string][]string{}

	all := mapping()
	for _, h := range hosts {
		vars, err := hostVars(h)
		if err != nil {
			return nil, fmt.Errorf("host %q: %w", h.Name, err)
		}

		put(all, quoted(h.Name), vars)

		if h.Group != "" {
			members[h.Group] = append(members[h.Group], h.Name)
		}

		switch h.Role {
		case RoleTarget:
			members[TargetsGroup] = append(members[TargetsGroup], h.Name)
		case RoleHelper:
			members[HelpersGroup] = append(members[HelpersGroup], h.Name)
		}
	}

	children := mapping()
	for _, g := range slices.Sorted(maps.Keys(members)) {
		names := mapping()
		for _, n := range members[g] {
			put(names, quoted(n), mapping())
		}

		group := mapping()
		put(group, plain("hosts"), names)
		put(children, quoted(g), group)
	}

	root, top := mapping(), mapping()
	put(top, plain("hosts"), all)
	put(top, plain("children"), children)
	put(root, plain("all"), top)

	return document(root)
}

func hostVars(h Host) (*yaml.Node, error) {
	values := map[string]*yaml.Node{}

	set := func(name string, v any, trusted bool) error {
		n, err := data(v, trusted)
		if err != nil {
			return fmt.Errorf("variable %q %w", name, err)
		}

		values[name] = n

		return nil
	}
	for name, v := range h.Vars {
		if v.Origin == OriginRequest {
			continue
		}

		if err := set(name, v.Value, v.Trusted); err != nil {
			return nil, err
		}
	}

	c := h.Connection
	own := map[string]any{
		"node_name": h.Name, "node_addr": h.Addr, "node_label": h.Label, "node_serial": h.Serial,
		"node_group": h.Group, "node_commissioned": h.Commissioned,
		"ansible_connection": "ssh",
		"ansible_host":       h.Addr,
		// One master connection per node as well as per user and way, even
		// where two nodes claim one address. ssh expands %C.
		"ansible_control_path":    "%(directory)s/" + shortHash(h.Name) + "-%%C",
		"ansible_ssh_common_args": strings.Join(sshArgs(h), " "),
	}
	maps.Copy(own, h.Extra)
	optional := func(name string, value string) {
		if value != "" {
			own[name] = value
		}
	}
	optional("ansible_user", c.User)
	optional("ansible_ssh_private_key_file", c.KeyFile)
	optional("ansible_become_user", c.BecomeUser)
	optional("ansible_python_interpreter", c.Python)

	if c.Port != 0 {
		own["ansible_port"] = c.Port
	}

	if c.Become != nil {
		own["ansible_become"] = *c.Become
	}

	for name, v := range own {
		if err := set(name, v, false); err != nil {
			return nil, err
		}
	}

	m := mapping()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		put(m, quoted(name), values[name])
	}

	return m, nil
}

// sshArgs are the options of ssh that differ from host to host. Every part was
// checked by CheckHosts.
func sshArgs(h Host) []string {
	strict := "accept-new" // the first contact records the key
	if len(h.HostKeys) > 0 {
		strict = "yes"
	}

	args := []string{"-o", "HostKeyAlias=" + h.Name, "-o", "StrictHostKeyChecking=" + strict}
	if h.Connection.KeyFile != "" {
		args = append(args, "-o", "IdentitiesOnly=yes")
	}

	if h.Connection.Jump != "" {
		if j, err := ParseJump(h.Connection.Jump); err == nil {
			args = append(args, "-o", "ProxyJump="+j.String())
		}
	}

	return args
}

// ExtraVars writes a request's variables as the YAML document that
// ansible-playbook reads with -e @FILE; every string is tagged !unsafe.
func ExtraVars(v Vars) ([]byte, error) {
	if err := CheckVars(v); err != nil {
		return nil, err
	}

	m := mapping()
	for _, name := range slices.Sorted(maps.Keys(v)) {
		n, err := data(v[name], false)
		if err != nil {
			return nil, fmt.Errorf("variable %q %w", name, err)
		}

		put(m, quoted(name), n)
	}

	return document(m)
}

// KnownHosts writes the ssh known_hosts lines of hosts whose key is known, each
// under the node's name (ssh is given it as HostKeyAlias). A key that is not
// one is left out; ssh then refuses the host, as Inventory does.
func KnownHosts(hosts []Host) []byte {
	var b bytes.Buffer
	for _, h := range hosts {
		if checkHostName(h.Name) != nil {
			continue
		}

		for _, k := range h.HostKeys {
			if hostKey.MatchString(k) {
				fmt.Fprintf(&b, "%s %s\n", h.Name, k)
			}
		}
	}

	return b.Bytes()
}

// ParseKnownHosts returns the keys of a known_hosts file by the name they are
// under, in lower case as ssh writes it. Lines that are not a plain name and a
// key are skipped.
func ParseKnownHosts(data []byte) map[string][]string {
	keys := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		name, key, ok := strings.Cut(strings.TrimSpace(line), " ")

		name = strings.ToLower(name)
		if !ok || checkHostName(name) != nil || !hostKey.MatchString(key) || slices.Contains(keys[name], key) {
			continue
		}

		keys[name] = append(keys[name], key)
	}

	return keys
}

func document(root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)

	if err := enc.Encode(root); err != nil {
		return nil, err
	}

	if err := enc.Close(); err != nil {
		return nil, err
	}

	return b.Bytes(), nil
}

func mapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"} }

func put(m, key, value *yaml.Node) { m.Content = append(m.Content, key, value) }

func plain(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// quoted is always in double quotes, because Ansible's YAML takes more words
// for numbers, dates and booleans than this one does.
func quoted(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: s}
}

func unsafe(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!unsafe", Style: yaml.DoubleQuotedStyle | yaml.TaggedStyle, Value: s}
}

// data writes a value; its strings, keys included, are unsafe unless trusted.
func data(v any, trusted bool) (*yaml.Node, error) {
	x, err := normal(v)
	if err != nil {
		return nil, err
	}

	str := unsafe
	if trusted {
		str = quoted
	}

	return node(x, str), nil
}

func node(x any, str func(string) *yaml.Node) *yaml.Node {
	scalar := func(tag, value string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
	}
	switch x := x.(type) {
	case bool:
		return scalar("!!bool", strconv.FormatBool(x))
	case int64:
		return scalar("!!int", strconv.FormatInt(x, 10))
	case json.Number:
		return scalar(yamlNumber(x.String()))
	case string:
		return str(x)
	case []any:
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, e := range x {
			list.Content = append(list.Content, node(e, str))
		}

		return list
	case map[string]any:
		m := mapping()
		for _, k := range slices.Sorted(maps.Keys(x)) {
			put(m, str(k), node(x[k], str))
		}

		return m
	default:
		return scalar("!!null", "null")
	}
}

var (
	wholeNumber   = regexp.MustCompile(`^-?[0-9]+$`)
	decimalNumber = regexp.MustCompile(`^-?[0-9]+\.[0-9]+$`)
)

// yamlNumber writes the literal of a JSON number so that YAML 1.1 reads the
// number: it wants a point in the mantissa and a sign in the exponent.
func yamlNumber(lit string) (tag, value string) {
	switch {
	case wholeNumber.MatchString(lit):
		return "!!int", lit
	case decimalNumber.MatchString(lit):
		return "!!float", lit
	}

	mantissa, exponent, _ := strings.Cut(strings.ToLower(lit), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}

	if !strings.HasPrefix(exponent, "-") {
		exponent = "+" + strings.TrimPrefix(exponent, "+")
	}

	return "!!float", mantissa + "e" + exponent
}
