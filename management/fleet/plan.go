// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Options control a comparison; see api.FleetRequest.
type Options struct {
	Prune, IgnoreMissing, RewriteSecrets bool
}

// shownBefore stands for the value of a variable that becomes secret.
const shownBefore = "(not secret)"

// Change is one value that differs, with what is not shown of it.
type Change struct {
	api.FleetChange

	value  any // as sent to the manager; After without its secrets
	plain  any // the value of a variable that becomes secret, which Before does not show
	source *api.FleetSecret
}

// before returns the value that the change replaces, as the manager shows it.
func (c Change) before() any {
	if c.plain != nil {
		return c.plain
	}
	return c.Before
}

// Plan is the difference between a file and a manager, as steps in order.
type Plan struct {
	api.FleetDiff

	changes []Change
	nodes   map[string]*inventory.Node // as they were compared
	places  map[Cell]Place             // of the values in the file
	groups  []string                   // after the plan, in order
}

// comparison is the state of one Compare.
type comparison struct {
	Options
	doc      *Document
	has      *Snapshot
	cells    map[Cell]any
	secrets  map[string]Cell // by variable, see secretAt
	groups   []string        // after the plan
	members  map[string]Member
	skipped  map[string]bool // nodes of the file that do not exist
	problems []Problem
	plan     *Plan
}

// Compare returns the plan from the manager to the document. An error lists the
// problems of the document on this manager with their positions, and is of KindInvalid.
func Compare(d *Document, s *Snapshot, o Options) (*Plan, error) {
	c := &comparison{
		Options: o, doc: d, has: s, cells: s.Cells(), members: map[string]Member{}, skipped: map[string]bool{},
		plan: &Plan{nodes: map[string]*inventory.Node{}, places: map[Cell]Place{}},
	}

	for _, n := range s.Nodes {
		c.plan.nodes[n.Name] = n
	}

	c.checkNames()
	c.decideGroups()
	c.findMembers()
	c.compareWants()
	c.compareOrder()

	if o.Prune {
		c.prune()
	}

	c.planMoves()
	c.checkRemovedGroups()

	if err := asError(c.problems); err != nil {
		return nil, err
	}

	c.plan.groups = c.groups
	slices.SortStableFunc(c.plan.changes, func(a, b Change) int { return compareCells(a.FleetCell, b.FleetCell) })

	for _, change := range c.plan.changes {
		c.plan.Changes = append(c.plan.Changes, change.FleetChange)
	}

	c.plan.Differs = len(c.plan.Changes)+len(c.plan.Jobs)+len(c.plan.Waits)+len(c.plan.Obstacles) > 0

	return c.plan, c.plan.addSteps()
}

func (c *comparison) problem(at Place, format string, args ...any) {
	c.problems = append(c.problems, Problem{at, fmt.Sprintf(format, args...)})
}

// checkNames finds the nodes of the file that do not exist.
func (c *comparison) checkNames() {
	known := 0

	for _, name := range c.doc.Nodes {
		if c.has.node(name) != nil {
			known++
			continue
		}

		c.skipped[name] = true

		if c.IgnoreMissing {
			c.plan.Skipped = append(c.plan.Skipped, "node "+name)
			continue
		}

		// A comparison with every name takes time, and only some problems are shown.
		hint := ""
		if len(c.problems) < maxProblems {
			hint = nearest(name, c.has.nodeNames())
		}
		c.problem(c.doc.Places["node "+name], "there is no node %s%s", name, hint)
	}

	// Such a file is more likely incomplete, or that of another manager.
	if section, present := c.doc.Sections["nodes"]; c.Prune && present && known == 0 && len(c.has.Nodes) > 0 {
		c.problem(section, "the section names no node of this manager, and with --prune it would take every node out "+
			"of service; leave out the section, or name each node that is to leave with group: %s", NoGroup)
	}
}

// decideGroups decides which groups there are after the plan.
func (c *comparison) decideGroups() {
	c.groups = c.has.Config.names()
	named := slices.DeleteFunc(slices.Clone(c.doc.Groups), func(name string) bool {
		return name == inventory.GroupPrepare
	})

	// A caller with a scope removes no group.
	if section, present := c.doc.Sections["groups"]; c.Prune && present && !c.has.Partial {
		c.groups = slices.DeleteFunc(c.groups, func(name string) bool { return !slices.Contains(named, name) })

		if len(named) == 0 {
			c.problem(section, "the section names no group, and a manager needs one; leave out the section or --prune")
		}
	}

	for _, name := range named {
		if !slices.Contains(c.groups, name) {
			c.groups = append(c.groups, name)
		}
	}

	// A file that names every group decides on their order.
	if len(named) == len(c.groups) {
		c.groups = named
	}
}

// findMembers decides which node is to be in which group: by its name, else by the
// selectors.
func (c *comparison) findMembers() {
	for _, name := range slices.Sorted(maps.Keys(c.doc.Members)) {
		m := c.doc.Members[name]
		if c.skipped[name] {
			continue
		}
		if m.Group != NoGroup && !slices.Contains(c.groups, m.Group) {
			c.problem(m.At, "there is no group %s%s", m.Group, nearest(m.Group, c.groups))
		}

		c.members[name] = m
	}

	c.selectMembers()
}

// compareWants compares every value of the file.
func (c *comparison) compareWants() {
	for _, w := range c.doc.Wants {
		c.plan.places[w.Cell] = w.At

		switch {
		case w.Level == api.LevelNode && c.skipped[w.Name]:
		case w.Part == api.PartSettings:
			c.compareSetting(w)
		case w.Part == api.PartSecrets:
			c.compareSecret(w)
		case w.Part == api.PartVars:
			c.compareVar(w)
		default:
			c.compareValue(w)
		}
	}
}

// change adds a change.
func (c *comparison) change(at Cell, before, after any) {
	action := api.FleetReplace

	switch {
	case before == nil:
		action = api.FleetAdd
	case after == nil:
		action = api.FleetRemove
	}

	shown := api.FleetChange{FleetCell: at, Action: action, Before: before, After: after}
	c.plan.changes = append(c.plan.changes, Change{FleetChange: shown, value: after})
}

// permitted reports whether the caller can see the cell at all. If not, a value of the
// file is a problem.
func (c *comparison) permitted(w Want) bool {
	hidden := w.Level == api.LevelManager || w.Part == api.PartConnection && w.Level == api.LevelGroup
	if !c.has.Partial || !hidden {
		return true
	}

	c.problem(w.At, "%s concerns the whole manager, and your scope is %s", w.Cell, c.has.Scope)

	return false
}

func (c *comparison) compareValue(w Want) {
	if !c.permitted(w) {
		return
	}

	has, isSet := c.cells[w.Cell]

	switch {
	case isSet && same(w.Cell, has, w.Value), !isSet && absent(w.Cell, w.Value):
	case absent(w.Cell, w.Value):
		// Only a value that was set at run time can be removed.
		if w.Value == nil && !c.has.Config.removable(w.Cell) {
			return
		}

		c.change(w.Cell, has, nil)
		// An empty value overrides the configuration file of the manager.
		c.plan.changes[len(c.plan.changes)-1].value = w.Value
	default:
		if c.has.Partial && w.Level == api.LevelGroup && (w.Part == api.PartGroup || w.Part == api.PartRules) {
			c.problem(
				w.At,
				"%s is to be set, which concerns the whole manager, and your scope is %s",
				w.Cell,
				c.has.Scope,
			)

			return
		}

		c.change(w.Cell, has, w.Value)
	}
}

func (c *comparison) compareSetting(w Want) {
	if !c.permitted(w) {
		return
	}

	setting, exists := c.has.Config.Settings[w.Key]

	switch {
	case w.Key == settingGroups, w.Key == settingGroupSSH:
		c.problem(w.At, "%s is no key of settings; write it in the section groups", w.Key)
	case isConnection(w.Key):
		c.problem(w.At, "%s is no key of settings; write %s in the section connection", w.Key,
			strings.TrimPrefix(w.Key, settingSSH))
	case !exists:
		c.problem(w.At, "there is no setting %q%s", w.Key, c.nearestSetting(w.Key))
	case !setting.Settable:
		c.problem(w.At, "%s belongs to the configuration file of the manager", w.Key)
	case w.Value == nil:
		if setting.Origin == originOverlay {
			c.change(w.Cell, setting.Value, nil)
		}
	case !sameSetting(setting.Value, w.Value):
		if path := hidesWithin(w.Key, setting.Value, w.Value); path != "" {
			c.problem(w.At, "%s is a secret; a fleet file holds no secrets", path)
			return
		}

		if c.missing(w, keepsHidden(w.Key, setting.Value, w.Value)) {
			return
		}

		c.change(w.Cell, setting.Value, w.Value)
	}
}

// nearestSetting suggests a setting: a similar one, or those below the key.
func (c *comparison) nearestSetting(key string) string {
	var known, below []string
	for name, s := range c.has.Config.Settings {
		if s.Settable {
			known = append(known, name)
		}

		if strings.HasPrefix(name, key+".") {
			below = append(below, name)
		}
	}

	if len(below) > 0 {
		return "; write its keys with dots: " + slices.Min(below)
	}

	slices.Sort(known)

	return nearest(key, known)
}

// missing handles a secret that the file keeps, and that the manager does not have. It
// reports whether there is one.
func (c *comparison) missing(w Want, path string) bool {
	if path == "" {
		return false
	}

	if c.IgnoreMissing {
		c.plan.Skipped = append(c.plan.Skipped, fmt.Sprintf("%s: %s", w.Where(), path))
		return true
	}

	c.problem(
		w.At,
		"%s keeps a secret that is not set on this manager: %s; give its source, {file: PATH} or {env: NAME}",
		w.Where(),
		path,
	)

	return true
}

func (c *comparison) compareSecret(w Want) {
	if !c.permitted(w) {
		return
	}

	plain := w.Cell
	plain.Part = api.PartVars

	has, hidden := c.cells[w.Cell]
	was, shown := c.cells[plain]

	switch source, given := w.Value.(Secret); {
	case w.Value == nil:
		if hidden {
			c.change(w.Cell, has, nil)
		} else if shown {
			c.change(plain, was, nil)
		}

	case !given: // keep
		if shown {
			// The manager takes the text for the value that is set.
			c.conceal(w.Cell, was, nil)
		} else if !hidden {
			c.missing(w, w.Key)
		}
	case !hidden || c.RewriteSecrets:
		c.conceal(w.Cell, was, &api.FleetSecret{File: source.File, Env: source.Env, At: w.At})
	}
}

// conceal adds the change that gives a secret the value of the source, or without one that
// which it has. was is the value of a variable that is not secret so far.
func (c *comparison) conceal(at Cell, was any, source *api.FleetSecret) {
	before := c.cells[at]
	if was != nil {
		before = shownBefore
	}
	c.change(at, before, configuration.Hidden)

	last := &c.plan.changes[len(c.plan.changes)-1]
	last.plain, last.source = was, source
}

func (c *comparison) compareVar(w Want) {
	if !c.permitted(w) {
		return
	}

	secret := w.Cell
	secret.Part = api.PartSecrets

	has, isSet := c.cells[w.Cell]
	if hidden, isSecret := c.cells[secret]; isSecret {
		// The text of the manager's answers keeps a secret, as in the API.
		if w.Value != configuration.Hidden && w.Value != nil {
			c.problem(w.At, "%s is a secret on this manager; write it under secrets", w.Key)
		} else if w.Value == nil {
			c.change(secret, hidden, nil)
		}

		return
	}

	if at, elsewhere := c.secretAt(w.Key); elsewhere && w.Value != nil {
		c.problem(w.At, "%s is a secret of %s, and so it is one everywhere; write it under secrets", w.Key, at.Where())
		return
	}

	if path := c.plainSecret(w); path != "" {
		c.problem(w.At, "%s is a secret by its name (%s); write it under secrets", path, settingSecrets)
		return
	}

	switch {
	case w.Value == nil:
		if isSet && has != nil {
			c.change(w.Cell, has, nil)
		}
	case isSet && reflect.DeepEqual(has, w.Value):
	default:
		if path := hidesWithin(w.Key, has, w.Value); path != "" {
			c.problem(w.At, "%s is a secret on this manager; keep it with the text %s", path, configuration.Hidden)
			return
		}

		if !c.missing(w, keepsHidden(w.Key, has, w.Value)) {
			c.change(w.Cell, has, w.Value)
		}
	}
}

// secretAt returns the first place where the variable of that name is a secret. The
// manager keeps it secret in every other place as well.
func (c *comparison) secretAt(name string) (Cell, bool) {
	if c.secrets == nil {
		c.secrets = map[string]Cell{}

		for cell := range c.cells {
			first, found := c.secrets[cell.Key]
			if cell.Part == api.PartSecrets && (!found || compareCells(cell, first) < 0) {
				c.secrets[cell.Key] = cell
			}
		}
	}

	at, found := c.secrets[name]

	return at, found
}

// plainSecret returns the path of a value of the file that the manager would hide, or
// "". It could not be compared with the next file.
func (c *comparison) plainSecret(w Want) string {
	var patterns configuration.Secrets

	list, _ := c.has.Config.Settings[settingSecrets].Value.([]any)
	for _, p := range list {
		patterns = append(patterns, fmt.Sprint(p))
	}

	// A caller with a scope cannot read the setting.
	if _, shown := c.cells[w.Cell]; c.has.Partial && !shown {
		patterns = configuration.DefaultSecrets()
	}

	hidden := patterns.HideVars(configuration.Vars{w.Key: w.Value})[w.Key]

	return hidesWithin(w.Key, hidden, w.Value)
}

// compareOrder compares the order of the groups that there are before and after.
func (c *comparison) compareOrder() {
	before := c.has.Config.names()
	if c.has.Partial {
		return
	}

	common := func(list, other []string) []any {
		var out []any
		for _, name := range list {
			if slices.Contains(other, name) {
				out = append(out, name)
			}
		}

		return out
	}

	was, will := common(before, c.groups), common(c.groups, before)
	if !reflect.DeepEqual(was, will) {
		c.change(Cell{Level: api.LevelManager, Part: api.PartGroup}, was, will)
	}
}

// prune adds the removal of every value that the sections of the file do not name.
func (c *comparison) prune() {
	named := map[Cell]bool{}
	for _, w := range c.doc.Wants {
		named[w.Cell] = true

		// Either section names the variable.
		if other := w.Cell; other.Part == api.PartVars {
			other.Part = api.PartSecrets
			named[other] = true
		} else if other.Part == api.PartSecrets {
			other.Part = api.PartVars
			named[other] = true
		}
	}

	for cell, value := range c.cells {
		if named[cell] || !c.prunes(cell) {
			continue
		}

		c.change(cell, value, nil)

		// The jobs need the group, and the settings of a node that they clean.
		last := &c.plan.changes[len(c.plan.changes)-1]
		last.Late = c.removesGroup(cell) || cell.Level == api.LevelNode && !c.doc.names(cell.Name)
	}
}

// removesGroup reports whether the cell belongs to a group that the plan removes.
func (c *comparison) removesGroup(cell Cell) bool {
	return cell.Level == api.LevelGroup && cell.Name != inventory.GroupPrepare && !slices.Contains(c.groups, cell.Name)
}

// prunes reports whether the file is complete about the section of the cell.
func (c *comparison) prunes(cell Cell) bool {
	section := cell.Part

	switch cell.Level {
	case api.LevelGroup:
		// Variables of a group that is gone cannot be changed.
		known := cell.Name == inventory.GroupPrepare || slices.Contains(c.has.Config.names(), cell.Name)
		if !known || c.has.Partial && cell.Part != api.PartVars && cell.Part != api.PartSecrets {
			return false
		}

		section = "groups"
	case api.LevelNode:
		section = "nodes"
	default:
		// Values of the configuration file of the manager are not the fleet file's to remove.
		if !c.has.Config.removable(cell) {
			return false
		}

	}

	_, present := c.doc.Sections[section]

	return present
}

// checkRemovedGroups refuses to remove a group that a node is in afterwards.
func (c *comparison) checkRemovedGroups() {
	after := c.groupsAfter()

	for _, name := range c.has.Config.names() {
		if slices.Contains(c.groups, name) {
			continue
		}

		var users []string
		for _, n := range c.has.Nodes {
			if after[n.Name] == name {
				users = append(users, n.Name)
			}
		}

		if len(users) > 0 {
			c.problem(c.doc.Sections["groups"], "the group %s is not in the file, and is in use by %s; "+
				"move the nodes to another group, or keep the group", name, shortList(users))
		}
	}
}
