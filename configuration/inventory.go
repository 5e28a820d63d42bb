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

// Role is the role of a host in a run.
type Role string

// The roles of hosts.
const (
	RoleTarget Role = "target" // a node of the job: plays act on it
	RoleHelper Role = "helper" // reserved by the job: plays that name HelpersGroup act on it
	RolePeer   Role = "peer"   // templates may refer to it; no play acts on it
)

// Inventory groups of a run's hosts by role. Plays act on the targets only, and
// those that name HelpersGroup in their hosts act on the helpers as well.
const (
	TargetsGroup = "job_targets"
	HelpersGroup = "job_helpers"
)

// Host is a host of a run.
type Host struct {
	// Name of the node, or the address of a host that has no name yet. It is also
	// the name in the inventory and the alias of the ssh host key.
	Name         string `json:"name"`
	Addr         string `json:"addr"`
	Label        string `json:"label"`
	Serial       string `json:"serial"`
	Group        string `json:"group,omitempty"`
	Commissioned bool   `json:"commissioned,omitempty"`
	// Labels are those of the node, set by operators. There are none before the
	// first discover.
	Labels map[string]string `json:"labels,omitempty"`
	// Hardware is what the newest inspection found, as the host itself says it; nil: none was made.
	Hardware   *inventory.Hardware `json:"hardware,omitempty"`
	Role       Role                `json:"role"`
	Vars       map[string]Var      `json:"vars,omitempty"`      // merged; Inventory omits those of a request
	Extra      map[string]any      `json:"extra,omitempty"`     // of the manager, named clusterm_…; may be secret
	Connection Connection          `json:"connection,omitzero"` // merged from site, group and node
	// HostKeys are lines of known_hosts without the name ("ssh-ed25519 AAAA…").
	// There are none before the first contact.
	HostKeys []string `json:"host_keys,omitempty"`
	// HostCAs are the keys of CAs, in the same form. A host without HostKeys must show
	// a certificate of one of them for its Addr; without HostCAs, its key is accepted
	// at the first contact.
	HostCAs []string `json:"host_cas,omitempty"`
	// Taken are the recorded keys of other nodes, with their names. A host without HostKeys
	// that shows one of them is refused. The hosts of a run share one map.
	Taken map[string]string `json:"-"`
	// TakenFile has the keys in Taken, one in a line; empty: they are not refused.
	TakenFile string `json:"-"`
	// JumpKeyFile is offered to the jump host of a probe, in place of the keys of the
	// connection. It is no part of a run.
	JumpKeyFile string `json:"-"`
}

// certified reports whether ssh checks the certificate of the host.
func (h Host) certified() bool { return len(h.HostKeys) == 0 && len(h.HostCAs) > 0 }

// alias returns the name under which ssh looks up the key of the host. A certificate
// names the address, because its host has no other name before the first contact.
func (h Host) alias() string {
	if h.certified() {
		return h.Addr
	}
	return h.Name
}

// checkHostName accepts the name of a node, and the address of a host that has
// no name yet.
func checkHostName(name string) error {
	if a, err := netip.ParseAddr(name); err == nil && a.Zone() == "" {
		return nil
	}
	return inventory.CheckName(name)
}

// CheckHosts refuses hosts that are not safe as input of Ansible and ssh, and
// runs without a target. Its error is of kind invalid and names every problem.
// Inventory makes the same checks.
func CheckHosts(hosts []Host) error {
	var errs []error

	names := map[string]string{}
	for _, h := range hosts {
		for _, problem := range h.problems() {
			errs = append(errs, fmt.Errorf("host %q: %s", h.Name, problem))
		}

		// ssh ignores case when it looks up host keys.
		key := strings.ToLower(h.Name)
		if other, found := names[key]; found {
			errs = append(errs, fmt.Errorf("host %q: is named twice in one run (as %q)", h.Name, other))
		}
		names[key] = h.Name
	}

	if !slices.ContainsFunc(hosts, func(h Host) bool { return h.Role == RoleTarget }) {
		errs = append(errs, errors.New("no host is a target"))
	}

	return invalid(errs)
}

var (
	roles          = []Role{RoleTarget, RoleHelper, RolePeer}
	reservedGroups = []string{"all", "ungrouped", TargetsGroup, HelpersGroup}
)

// problems describes everything wrong with a host by itself.
func (h Host) problems() []string {
	var found []string

	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	addError := func(err error) {
		if err != nil {
			add("%v", err)
		}
	}

	addError(checkHostName(h.Name))
	addError(inventory.CheckAddr(h.Addr))
	addError(h.Connection.Check())
	addError(Connection{KeyFile: h.JumpKeyFile}.Check())

	if h.Group != "" {
		addError(inventory.CheckGroup(h.Group))
	}

	if slices.Contains(reservedGroups, h.Group) {
		add("the group name %q is reserved", h.Group)
	}

	if !slices.Contains(roles, h.Role) {
		add("the role %q is not one of target, helper and peer", h.Role)
	}

	for _, k := range slices.Concat(h.HostKeys, h.HostCAs) {
		if !hostKey().MatchString(k) {
			add("host key %q is not of the form \"ssh-ed25519 AAAA…\"", k)
		}
	}

	for _, n := range Names(h.Vars) {
		if problem := nameProblem(n); problem != "" {
			add("variable %q: %s", n, problem)
		}
	}

	for _, n := range slices.Sorted(maps.Keys(h.Extra)) {
		if !strings.HasPrefix(n, "clusterm_") || !identifier().MatchString(n) {
			add("the manager's own variable %q does not begin with clusterm_", n)
		}
	}

	return found
}

// invalid joins errors into one of kind invalid. Without errors it returns nil.
func invalid(errs []error) error {
	if len(errs) == 0 {
		return nil
	}

	messages := make([]string, len(errs))
	for i, err := range errs {
		messages[i] = err.Error()
	}

	return inventory.Errorf(inventory.KindInvalid, "%s", strings.Join(messages, "; "))
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// Inventory returns the YAML inventory of a run: the hosts with their variables
// and connections, their groups, and the groups TargetsGroup and HelpersGroup.
// Every string has the tag !unsafe, at any depth and also as a key, except in
// trusted variables. The same hosts give the same bytes.
//
// Each host has the variables node_name, node_addr, node_label, node_serial,
// node_group (may be empty), node_commissioned, node_labels and node_facts (objects,
// maybe without keys).
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
	// Groups refer to hosts by name; the variables are with the hosts.
	for _, g := range slices.Sorted(maps.Keys(members)) {
		names := mapping()
		for _, n := range members[g] {
			put(names, quoted(n), mapping())
		}

		group := mapping()
		put(group, plain("hosts"), names)
		put(children, quoted(g), group)
	}

	// Plain keys are words of the inventory's format, quoted ones are data.
	root, top := mapping(), mapping()
	put(top, plain("hosts"), all)
	put(top, plain("children"), children)
	put(root, plain("all"), top)

	return document(root)
}

// ReservedNames returns the names of all variables in the inventory of the hosts,
// sorted. No fact may have one of them: in Ansible, facts of a host replace
// variables of the inventory.
func ReservedNames(hosts []Host) []string {
	names := map[string]bool{}
	for _, h := range hosts {
		for name := range h.Vars {
			names[name] = true
		}

		for name := range managerVars(h) {
			names[name] = true
		}
	}

	return slices.Sorted(maps.Keys(names))
}

// HostVars are the variables of one host in an inventory, without those of a
// request.
type HostVars struct {
	Data      map[string]any // never templates
	Templates map[string]any // trusted: of the configuration file, maybe templates
}

// InventoryVars returns the variables that Inventory writes for the host. It refuses
// a host as CheckHosts does.
func (h Host) InventoryVars() (HostVars, error) {
	var errs []error
	for _, problem := range h.problems() {
		errs = append(errs, fmt.Errorf("host %q: %s", h.Name, problem))
	}

	return h.inventoryVars(), invalid(errs)
}

func (h Host) inventoryVars() HostVars {
	out := HostVars{Data: managerVars(h), Templates: map[string]any{}}

	for name, v := range h.Vars {
		// The manager's variables replace those of the same name.
		if _, reserved := out.Data[name]; reserved {
			continue
		}

		switch {
		case v.Origin == OriginRequest:
			// ExtraVars writes these; Ansible gives them the highest precedence.
		case v.Trusted:
			out.Templates[name] = v.Value
		default:
			out.Data[name] = v.Value
		}
	}

	return out
}

// hostVars returns the mapping of a host's variables.
func hostVars(h Host) (*yaml.Node, error) {
	vars := h.inventoryVars()
	values := map[string]*yaml.Node{}

	for _, part := range []struct {
		vars    map[string]any
		trusted bool
	}{{vars.Data, false}, {vars.Templates, true}} {
		for name, v := range part.vars {
			n, err := data(v, part.trusted)
			if err != nil {
				return nil, fmt.Errorf("variable %q %w", name, err)
			}
			values[name] = n
		}
	}

	m := mapping()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		put(m, quoted(name), values[name])
	}

	return m, nil
}

// managerVars returns the variables that the manager sets: facts of the node
// and its connection.
func managerVars(h Host) map[string]any {
	c := h.Connection

	// An empty object, so that node_labels.get('rack') works on every host.
	labels := h.Labels
	if labels == nil {
		labels = map[string]string{}
	}

	vars := map[string]any{
		"node_name": h.Name, "node_addr": h.Addr, "node_label": h.Label, "node_serial": h.Serial,
		"node_group": h.Group, "node_commissioned": h.Commissioned, "node_labels": labels,
		"node_facts":         hardwareFacts(h.Hardware),
		"ansible_connection": "ssh",
		"ansible_host":       h.Addr,
		// One ssh master per node, even if two nodes claim the same address. ssh
		// expands %C to a hash of user, host and port.
		"ansible_control_path":    "%(directory)s/" + shortHash(h.Name) + "-%%C",
		"ansible_ssh_common_args": strings.Join(SSHArgs(h), " "),
	}
	maps.Copy(vars, h.Extra)

	optional := func(name string, value string) {
		if value != "" {
			vars[name] = value
		}
	}

	optional("ansible_user", c.User)
	optional("ansible_ssh_private_key_file", c.KeyFile)
	optional("ansible_become_user", c.BecomeUser)
	optional("ansible_python_interpreter", c.Python)

	if c.Port != 0 {
		vars["ansible_port"] = c.Port
	}

	if c.Become != nil {
		vars["ansible_become"] = *c.Become
	}

	return vars
}

// hardwareFacts returns the facts as an object, by their names in the API.
func hardwareFacts(h *inventory.Hardware) map[string]any {
	object := map[string]any{}
	if h == nil {
		return object
	}

	// Both work for every value: these are texts, whole numbers and a time.
	b, _ := json.Marshal(h)
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	_ = d.Decode(&object)

	return object
}

// SSHArgs returns the options of ssh for one host. CheckHosts has checked every
// part.
func SSHArgs(h Host) []string {
	// The first contact records the key; later ones must match it.
	strict := "accept-new"
	if len(h.HostKeys) > 0 || h.certified() {
		strict = "yes"
	}
	args := []string{"-o", "HostKeyAlias=" + h.alias(), "-o", "StrictHostKeyChecking=" + strict}
	if h.TakenFile != "" {
		args = append(args, "-o", "RevokedHostKeys="+h.TakenFile)
	}
	if h.Connection.KeyFile != "" {
		args = append(args, "-o", "IdentitiesOnly=yes")
	}

	if h.Connection.FormerKeyFile != "" {
		args = append(args, "-o", "IdentityFile="+h.Connection.FormerKeyFile)
	}

	if h.Connection.Jump != "" {
		if j, err := ParseJump(h.Connection.Jump); err == nil {
			args = append(args, "-o", "ProxyJump="+j.String())
		}
	}

	return args
}

// ExtraVars returns a request's variables as YAML for ansible-playbook -e @FILE.
// Every string has the tag !unsafe.
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

// KnownHosts returns the lines of known_hosts for hosts with recorded keys, or with
// CAs, each under ssh's HostKeyAlias of the host. It omits malformed keys; ssh then
// refuses the host.
func KnownHosts(hosts []Host) []byte {
	var b bytes.Buffer
	for _, h := range hosts {
		keys, marker, check := h.HostKeys, "", checkHostName
		if h.certified() {
			keys, marker, check = h.HostCAs, "@cert-authority ", inventory.CheckAddr
		}
		if check(h.alias()) != nil {
			continue
		}

		for _, k := range keys {
			if hostKey().MatchString(k) {
				fmt.Fprintf(&b, "%s%s %s\n", marker, h.alias(), k)
			}
		}
	}

	return b.Bytes()
}

// ParseKnownHosts returns the keys of a known_hosts file by host name, in lower
// case as ssh writes it. It skips lines that are not a plain name and a key.
func ParseKnownHosts(data []byte) map[string][]string {
	keys := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		name, key, ok := strings.Cut(strings.TrimSpace(line), " ")
		name = strings.ToLower(name)

		isEntry := ok && checkHostName(name) == nil && hostKey().MatchString(key)
		if isEntry && !slices.Contains(keys[name], key) {
			keys[name] = append(keys[name], key)
		}
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

// quoted returns a string in double quotes, because YAML 1.1, which Ansible
// reads, takes more words for numbers, dates and booleans than this library.
func quoted(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: s}
}

// otherType matches what YAML 1.1 takes for a value of another type than a string where it is not quoted.
var otherType = regexp.MustCompile(`^(?:|~|=|<<|(?i:null|true|false|yes|no|on|off)|[-+.0-9][-+.:0-9A-Za-z_ \t]*)$`)

// unsafe returns a string that Ansible does not evaluate. From ansible-core 2.19 on, the tag !unsafe takes the quotes
// away: a serial of digits would be a number. Such a text cannot be a template, so it needs no tag.
func unsafe(s string) *yaml.Node {
	if otherType.MatchString(s) {
		return quoted(s)
	}

	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!unsafe", Style: yaml.DoubleQuotedStyle | yaml.TaggedStyle, Value: s}
}

// data returns the node of a value. Its strings, including keys, are unsafe
// unless the value is trusted.
func data(v any, trusted bool) (*yaml.Node, error) {
	plain, err := plainOf(v)
	if err != nil {
		return nil, err
	}
	x, err := normal(plain)
	if err != nil {
		return nil, err
	}

	str := unsafe
	if trusted {
		str = quoted
	}
	return node(x, str), nil
}

// node returns the node of a value in the normal form of Vars.
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
	wholeNumber   = lazy(`^-?[0-9]+$`)
	decimalNumber = lazy(`^-?[0-9]+\.[0-9]+$`)
)

// yamlNumber converts the literal of a JSON number to one of YAML 1.1, which
// needs a point in the mantissa and a sign in the exponent.
func yamlNumber(lit string) (tag, value string) {
	switch {
	case wholeNumber().MatchString(lit):
		return "!!int", lit
	case decimalNumber().MatchString(lit):
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
