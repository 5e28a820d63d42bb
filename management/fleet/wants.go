// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/selector"
)

// document turns the merged elements into a document, and checks every name in it.
func (r *reader) document(root *element) (*Document, error) {
	d := &Document{
		Members: map[string]Member{}, Selectors: map[string]Selected{}, Sections: map[string]Place{},
		Places: map[string]Place{},
	}

	for _, section := range root.keys {
		if section != "fleet" {
			d.Sections[section] = root.parts[section].at
		}
	}

	r.level(d, Cell{Level: api.LevelManager}, root)

	if groups := root.parts["groups"]; groups != nil {
		for _, name := range groups.keys {
			r.group(d, name, groups.parts[name])
		}
	}

	if nodes := root.parts["nodes"]; nodes != nil {
		for _, name := range nodes.keys {
			r.node(d, name, nodes.parts[name])
		}
	}

	r.checkSecrets(d)

	if err := asError(r.problems); err != nil {
		return nil, err
	}

	return d, nil
}

// checkSecrets refuses a variable that is a secret at another level: the manager keeps a
// name that is secret somewhere secret everywhere.
func (r *reader) checkSecrets(d *Document) {
	secrets := map[string]Want{}

	for _, w := range d.Wants {
		if _, found := secrets[w.Key]; w.Part == api.PartSecrets && w.Value != nil && !found {
			secrets[w.Key] = w
		}
	}

	for _, w := range d.Wants {
		secret, found := secrets[w.Key]
		refused := secret.Level == w.Level && secret.Name == w.Name

		if w.Part != api.PartVars || w.Value == nil || !found || refused {
			continue
		}

		r.refuse(w.At, fmt.Errorf("%s is a secret (%s), and so it is one everywhere; write it under secrets",
			w.Key, secret.At))
	}
}

// refuse adds the problem of a value, if there is one.
func (r *reader) refuse(at Place, err error) {
	if err != nil {
		r.problems = append(r.problems, Problem{at, strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
}

// level reads the parts that the manager, a group and a node have alike.
func (r *reader) level(d *Document, base Cell, e *element) {
	for _, part := range []string{api.PartSettings, api.PartLabels, api.PartConnection, api.PartVars, api.PartSecrets} {
		section := e.parts[part]
		if section == nil {
			continue
		}

		for _, key := range section.keys {
			v := section.parts[key]

			c := base
			c.Part, c.Key = part, key
			r.refuse(v.at, checkCell(c, v))

			if part == api.PartVars && e.parts[api.PartSecrets] != nil && e.parts[api.PartSecrets].parts[key] != nil {
				r.refuse(v.at, fmt.Errorf("%s is in vars and in secrets", key))
			}

			want := Want{c, v.value, v.at}
			if v.null {
				want.Value = nil
			}
			d.Wants = append(d.Wants, want)
		}
	}
}

// checkCell refuses a key or a value that no manager accepts.
func checkCell(c Cell, v *element) error {
	switch c.Part {
	case api.PartVars, api.PartSecrets:
		// A name that is refused today can still be removed.
		if v.null {
			return nil
		}

		value := v.value
		if c.Part == api.PartSecrets {
			value = ""
		}
		return configuration.CheckVars(configuration.Vars{c.Key: value})
	case api.PartLabels:
		if v.null {
			return nil
		}

		if err := inventory.CheckLabelKey(c.Key); err != nil {
			return err
		}

		text, _ := v.value.(string)

		return inventory.CheckLabelValue(text)
	case api.PartConnection:
		return checkConnection(c.Key, v.value)
	}

	return nil
}

// checkConnection refuses a setting that is not safe as an argument of ssh.
func checkConnection(key string, value any) error {
	if value == nil {
		return nil
	}

	connection, err := connectionOf(map[string]any{key: value})
	if err != nil {
		return err
	}
	return connection.Check()
}

func (r *reader) group(d *Document, name string, e *element) {
	r.refuse(e.at, inventory.CheckGroup(name))
	d.Groups = append(d.Groups, name)
	d.Places["group "+name] = e.at

	base := Cell{Level: api.LevelGroup, Name: name}

	// No node is in the group of the hosts that are being prepared.
	if name == inventory.GroupPrepare {
		r.level(d, base, e)

		for key, part := range e.parts {
			if !slices.Contains([]string{api.PartVars, api.PartSecrets, api.PartConnection}, key) {
				r.refuse(
					part.at,
					fmt.Errorf("%s has no %s; it is the group of hosts that are being prepared", name, key),
				)
			}
		}

		return
	}

	if name == NoGroup {
		r.refuse(e.at, fmt.Errorf("a group cannot have the name %s, which takes a node out of service", name))
	}

	d.Wants = append(d.Wants, Want{Cell{Level: base.Level, Name: base.Name, Part: api.PartGroup}, true, e.at})

	for _, f := range fieldsOf(reflect.TypeFor[inventory.Group]()) {
		if rule := e.parts[f.name]; rule != nil {
			d.Wants = append(
				d.Wants,
				Want{Cell{Level: base.Level, Name: base.Name, Part: api.PartRules, Key: f.name}, rule.tree(), rule.at},
			)
			r.refuse(rule.at, checkTags(f.name, rule.value))
			r.refuse(rule.at, checkBounds(f.name, rule.tree()))
		}
	}

	r.level(d, base, e)

	if text := e.parts["selector"]; text != nil && !text.null {
		s, _ := text.value.(string)
		r.refuse(text.at, checkSelector(s))
		d.Selectors[name] = Selected{s, text.at}
	}
}

// checkBounds refuses a budget or a strategy with a number that the manager refuses.
func checkBounds(rule string, value any) error {
	var bounds interface{ Check() error }

	switch rule {
	case "budget":
		bounds = &inventory.Budget{}
	case "strategy":
		bounds = &inventory.Strategy{}
	default:
		return nil
	}

	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, bounds); err != nil {
		return fmt.Errorf("%s: %w", rule, err)
	}

	if err := bounds.Check(); err != nil {
		return fmt.Errorf("%s: %w", rule, err)
	}

	return nil
}

// checkTags refuses tags that a group cannot have.
func checkTags(rule string, value any) error {
	if rule != "tags" && rule != "skip_tags" {
		return nil
	}

	list, _ := value.([]any) // the reader has refused other shapes

	var tags []string
	for _, tag := range list {
		text, ok := tag.(string)
		if !ok {
			return fmt.Errorf("%s: a tag is a text, not %v; put it in quotes", rule, tag)
		}
		tags = append(tags, text)
	}

	return inventory.CheckGroupTags(rule, tags)
}

// tree returns the value of an element with its parts.
func (e *element) tree() any {
	if e.parts == nil || e.null {
		return e.value
	}

	out := map[string]any{}
	for key, part := range e.parts {
		out[key] = part.tree()
	}

	return out
}

// stableFields are the fields of a node that no step of a plan changes.
var stableFields = []string{"name", "label", "serial", "addr"}

// checkSelector refuses a selector that is empty, or that depends on values that jobs change.
func checkSelector(text string) error {
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("the selector is empty; leave it out, or write a condition such as rack=r1")
	}

	parsed, err := selector.Parse(text, func(string) error { return nil })
	if err != nil {
		return err
	}

	for _, key := range parsed.Keys() {
		if slices.Contains(selector.Fields(), key) && !slices.Contains(stableFields, key) {
			return fmt.Errorf("the selector depends on the %s of nodes, which jobs change; use labels or the fields %s",
				key, strings.Join(stableFields, ", "))
		}
	}

	return nil
}

func (r *reader) node(d *Document, name string, e *element) {
	r.refuse(e.at, inventory.CheckName(name))
	d.Nodes = append(d.Nodes, name)
	d.Places["node "+name] = e.at

	r.level(d, Cell{Level: api.LevelNode, Name: name}, e)

	if group := e.parts["group"]; group != nil && !group.null {
		text, _ := group.value.(string)
		if text != NoGroup {
			r.refuse(group.at, inventory.CheckGroup(text))
		}
		d.Members[name] = Member{text, group.at}
	}
}
