// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	bundled "github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/step/playbook"
)

// Report is the result of a check of a folder of playbooks. Its JSON is the
// output of a command and only grows.
type Report struct {
	Folder    string            `json:"folder"` // empty: the bundled playbooks
	OK        bool              `json:"ok"`     // no problem is an error
	Playbooks []CheckedPlaybook `json:"playbooks"`
	Groups    []CheckedGroup    `json:"groups"`
	Problems  []Problem         `json:"problems"`
}

// CheckedPlaybook is one of the playbooks that the manager runs.
type CheckedPlaybook struct {
	File    string        `json:"file"`
	Missing bool          `json:"missing,omitempty"`
	Broken  bool          `json:"broken,omitempty"` // it does not parse
	Plays   []CheckedPlay `json:"plays"`
}

// CheckedPlay is one play.
type CheckedPlay struct {
	Name    string   `json:"name"`
	Hosts   []string `json:"hosts"`   // the pattern
	Groups  []string `json:"groups"`  // that it acts on
	Helpers bool     `json:"helpers"` // it names job_helpers, so it acts on the helper of a job
}

// CheckedGroup is a group of the configuration with the playbooks that act on it.
type CheckedGroup struct {
	Name      string   `json:"name"`
	Playbooks []string `json:"playbooks"`
}

// Problem is an error, with which jobs would be refused or fail, or a
// warning.
type Problem struct {
	Severity string `json:"severity"` // SeverityError or SeverityWarning
	File     string `json:"file,omitempty"`
	Message  string `json:"message"`
	Remedy   string `json:"remedy,omitempty"`
}

// The severities of a Problem.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// uses lists the playbooks that the manager runs. A missing one is an error
// if the manager runs it in every life of a node.
var uses = []struct {
	file, use string
	required  bool
}{
	{job.PlaybookSite, "commission, apply, update and discover", true},
	{job.PlaybookCleanup, "decommission, clear, update, and after failures", true},
	{job.PlaybookUpgrade, "maintenance", false},
	{job.PlaybookVerify, "", false},
	{job.PlaybookClean, "", false},
}

// CheckFolder checks a folder of playbooks without a manager and without hosts. An empty folder is that of the
// configuration, or the bundled one. unread is why the settings that were set at run time are no part of the
// configuration, or nil. The error is that of a check that cannot be made; it is KindInvalid for a folder that the
// manager could not copy.
func CheckFolder(ctx context.Context, config playbook.Config, folder string, unread error) (Report, error) {
	if _, err := ansible.Check(ctx, config.Ansible); err != nil {
		return Report{}, err
	}

	if folder == "" {
		folder = config.Playbooks
	}

	begin := func() (*check, func(), error) { return newCheck(ctx, config, folder, "") }
	if folder == "" && config.Repository.Used() {
		begin = func() (*check, func(), error) { return newRepositoryCheck(ctx, config, "") }
	}
	c, done, err := begin()
	if err != nil {
		return Report{}, err
	}
	defer done()

	if unread != nil {
		c.add(SeverityWarning, "",
			fmt.Sprintf("the settings that were set at run time, such as groups, cannot be read: %v", unread),
			"check as root, on the host of the manager")
	}

	if err := c.playbooks(ctx, c.plays); err != nil {
		return Report{}, err
	}

	c.coverage()

	if err := c.variables(ctx); err != nil {
		return Report{}, err
	}

	if folder != "" {
		c.owned(folder)

		if err := c.files(folder); err != nil {
			return Report{}, err
		}
	}

	c.report.OK = !slices.ContainsFunc(c.report.Problems, func(p Problem) bool {
		return p.Severity == SeverityError
	})

	return c.report, nil
}

// check is a check under way.
type check struct {
	report Report
	dir    string // the copy
	roles  string // the bundled roles
	// outline shows the plays of a playbook in the copy.
	outline func(playbook string) configuration.Outline
	groups  []string
	syntax  ansible.SyntaxChecker
	open    bool // no vault password is configured
	locked  bool // a vault password cannot be read
}

// newCheck copies the playbooks as for a job: those of the folder, or the
// bundled ones. The copy is below temp until done is called.
func newCheck(
	ctx context.Context, config playbook.Config, folder, temp string,
) (c *check, done func(), err error) {
	return keepAndCheck(ctx, config, folder, temp, func(store *repository.Store) (string, error) {
		if folder == "" {
			return store.Keep(ctx, bundled.FS())
		}
		return store.KeepDir(ctx, folder)
	})
}

// keepAndCheck begins a check of the playbooks that keep adds to a store below temp,
// until done is called. shown is their place in messages.
func keepAndCheck(
	ctx context.Context, config playbook.Config, shown, temp string, keep func(*repository.Store) (string, error),
) (c *check, done func(), err error) {
	if temp != "" {
		if err := os.MkdirAll(temp, 0o700); err != nil {
			return nil, nil, err
		}
	}

	if temp, err = os.MkdirTemp(temp, "clusterm-playbooks-"); err != nil {
		return nil, nil, err
	}

	remove := func() { os.RemoveAll(temp) } // a leftover is harmless
	defer func() {
		if err != nil {
			remove()
		}
	}()

	store := &repository.Store{Dir: filepath.Join(temp, "kept")}
	if store.Roles, err = fs.Sub(bundled.FS(), bundled.RolesDir); err != nil {
		return nil, nil, err
	}
	digest, err := keep(store)
	if err != nil {
		return nil, nil, err
	}
	c = checkOf(config, store, digest, temp)
	c.report.Folder = shown

	return c, remove, nil
}

// checkOf begins a check of kept playbooks.
func checkOf(config playbook.Config, store *repository.Store, digest, temp string) *check {
	c := &check{
		report: Report{Problems: []Problem{}},
		dir:    store.Path(digest), roles: store.RolesPath(digest), open: len(config.VaultIDs) == 0,
		syntax: ansible.SyntaxChecker{AnsiblePlaybook: config.Ansible, TempDir: temp},
	}
	c.outline = func(playbook string) configuration.Outline { return store.Outline(digest, playbook, c.roles) }
	c.passwords(config.VaultIDs)

	for _, g := range config.Groups {
		c.groups = append(c.groups, g.Name)
	}

	c.groups = append(c.groups, inventory.GroupPrepare)

	return c
}

// err returns the first error that was found in the folder, or nil.
func (c *check) err(folder string) error {
	e := c.first()
	if e == nil {
		return nil
	}
	return e.Do("%s; to check the folder: clusterm playbooks check %s", e.Remedy, folder)
}

// refusal checks playbooks and variables, and returns the first error that was found, or nil.
func (c *check) refusal(ctx context.Context) error {
	if err := c.playbooks(ctx, c.parse); err != nil {
		return err
	}

	if err := c.variables(ctx); err != nil {
		return err
	}

	if e := c.first(); e != nil {
		return e
	}

	return nil
}

// first returns the first error that was found, or nil.
func (c *check) first() *inventory.Error {
	isError := func(p Problem) bool { return p.Severity == SeverityError }

	at := slices.IndexFunc(c.report.Problems, isError)
	if at < 0 {
		return nil
	}
	p := c.report.Problems[at]
	message := p.Message

	// A message about the syntax names its file.
	if p.File != "" && !strings.Contains(message, p.File) {
		message = p.File + ": " + message
	}

	return inventory.Errorf(inventory.KindInvalid, "%s", message).Do("%s", p.Remedy)
}

func (c *check) add(severity, file, message, remedy string) {
	c.report.Problems = append(c.report.Problems, Problem{severity, file, message, remedy})
}

// passwords takes the vault passwords that this account can read.
func (c *check) passwords(ids []string) {
	for _, id := range ids {
		f, err := os.Open(configuration.VaultPath(id))
		if err != nil {
			c.add(SeverityWarning, "", fmt.Sprintf("a password of vault_ids cannot be read: %v", err), "check as root")
			c.locked = true
			continue
		}

		f.Close() // it was opened to see that it can be

		c.syntax.VaultIDs = append(c.syntax.VaultIDs, id)
	}
}

// variables reports variables that the manager refuses: without their vault password, or
// because they cannot be loaded. It checks those of every host.
func (c *check) variables(ctx context.Context) error {
	hosts, err := ansible.HostsWithVars(c.dir)
	if err != nil {
		return err
	}
	if c.open {
		err = ansible.CheckEncrypted(c.dir, c.groups, hosts)
	}

	// An unreadable password is a warning already, and says nothing about the files.
	if err == nil && !c.locked {
		err = c.syntax.CheckVars(ctx, c.dir, c.groups, hosts)
	}

	if e, ok := errors.AsType[*inventory.Error](err); ok {
		c.add(SeverityError, "", e.Message, strings.TrimSuffix(e.Remedy, " and repeat the request"))
		return nil
	}

	return err
}

// playbooks checks each playbook that the manager runs.
func (c *check) playbooks(ctx context.Context, check func(context.Context, *CheckedPlaybook) error) error {
	for _, p := range uses {
		checked := CheckedPlaybook{File: p.file, Plays: []CheckedPlay{}}

		if _, err := os.Stat(filepath.Join(c.dir, p.file)); errors.Is(err, fs.ErrNotExist) {
			checked.Missing = true
			c.missing(p.file, p.use, p.required)
		} else if err := check(ctx, &checked); err != nil {
			e, ok := errors.AsType[*inventory.Error](err)
			if !ok || e.Kind != inventory.KindInvalid {
				return err
			}

			checked.Broken = true
			c.add(SeverityError, p.file, e.Message, strings.TrimSuffix(e.Remedy, " and repeat the request"))
		}

		c.report.Playbooks = append(c.report.Playbooks, checked)
	}

	return nil
}

// has reports whether the copy has a file.
func (c *check) has(file string) bool {
	_, err := os.Stat(filepath.Join(c.dir, file))
	return err == nil
}

func (c *check) missing(file, use string, required bool) {
	switch {
	case required:
		remedy := "add it"
		if other := strings.TrimSuffix(file, ".yml") + ".yaml"; c.has(other) {
			remedy = "rename " + other
		}
		c.add(SeverityError, file, "it is missing; the manager runs it for "+use, remedy)
	case use != "":
		c.add(SeverityWarning, file, "it is missing; without it, the manager refuses "+use, "add it, if you need that")
	}
}

// parse checks the syntax of a playbook.
func (c *check) parse(ctx context.Context, p *CheckedPlaybook) error {
	return c.syntax.Check(ctx, c.dir, p.File, c.roles, c.groups...)
}

// plays checks the syntax of a playbook and lists its plays. The inventory has one
// host in each group, and another one as the helper.
func (c *check) plays(ctx context.Context, p *CheckedPlaybook) error {
	if err := c.parse(ctx, p); err != nil {
		return err
	}

	const helper, prefix = "the-helper", "a-host-of-"

	groups := map[string][]string{configuration.HelpersGroup: {helper}}
	for _, g := range c.groups {
		groups[g] = []string{prefix + g}
		groups[configuration.TargetsGroup] = append(groups[configuration.TargetsGroup], prefix+g)
	}

	plays, err := c.syntax.Plays(ctx, c.dir, p.File, c.roles, groups)
	if err != nil {
		return err
	}

	c.unattended(p.File)

	for _, play := range plays {
		checked := CheckedPlay{Name: play.Name, Hosts: play.Pattern, Groups: []string{}}
		for _, g := range c.groups {
			if slices.Contains(play.Hosts, prefix+g) {
				checked.Groups = append(checked.Groups, g)
			}
		}

		checked.Helpers = strings.Contains(strings.Join(play.Pattern, " "), configuration.HelpersGroup)
		p.Plays = append(p.Plays, checked)

		if len(checked.Groups) == 0 && !checked.Helpers {
			c.add(
				SeverityWarning,
				p.File,
				fmt.Sprintf(
					"the play %q (hosts: %s) acts on no host of a job",
					play.Name,
					strings.Join(play.Pattern, ","),
				),
				"name groups of the configuration; for work on the manager's host, use delegate_to: localhost",
			)
		}
	}

	return nil
}

// unattended warns about parts of a playbook that mean something else in a job than in the
// hands of a person.
func (c *check) unattended(file string) {
	var asked, lost []string

	for _, play := range c.outline(file).Plays {
		for _, name := range play.Asks {
			if !slices.Contains(asked, name) {
				asked = append(asked, name)
			}
		}

		for _, found := range play.Executed {
			if found.Loses && !slices.Contains(lost, found.Path) {
				lost = append(lost, found.Path)
			}
		}
	}

	if len(asked) > 0 {
		c.add(
			SeverityWarning,
			file,
			"it asks for "+strings.Join(asked, ", ")+" (vars_prompt), and nobody answers in a job",
			"give a default in the playbook, or the variable with each request",
		)
	}

	if len(lost) > 0 {
		c.add(SeverityWarning, file, "the lookup password keeps its file in the manager's copy of the folder ("+
			strings.Join(lost, ", ")+"), so it makes another password after each edit of the folder",
			"give it an absolute path outside the folder")
	}
}

// coverage lists the playbooks that act on each group, and warns about a group that
// no play of a required playbook acts on.
func (c *check) coverage() {
	for _, g := range c.groups {
		checked := CheckedGroup{Name: g, Playbooks: []string{}}

		for _, p := range c.report.Playbooks {
			if slices.ContainsFunc(p.Plays, func(play CheckedPlay) bool { return slices.Contains(play.Groups, g) }) {
				checked.Playbooks = append(checked.Playbooks, p.File)
			}
		}

		c.report.Groups = append(c.report.Groups, checked)

		for i, p := range uses {
			// A playbook that is missing or does not parse is a problem already.
			listed := len(c.report.Playbooks[i].Plays) > 0
			if p.required && listed && !slices.Contains(checked.Playbooks, p.file) {
				c.add(SeverityWarning, p.file, fmt.Sprintf("no play acts on the group %s", g), notCovered(g, p.file))
			}
		}
	}
}

func notCovered(group, file string) string {
	switch {
	case group == inventory.GroupPrepare && file == job.PlaybookSite:
		return "hosts cannot be discovered with it; add a play with the role agent"
	case group == inventory.GroupPrepare:
		return "the agent of a host cannot be removed with it; add a play with the role agent"
	case file == job.PlaybookSite:
		return "its nodes cannot be configured; add a play, or remove the group from the configuration"
	default:
		return "its nodes are not cleaned; add a play, or remove the group from the configuration"
	}
}

// owned reports a folder that others than root may change, which the manager refuses.
// Another account may check its own draft: the folder changes hands later.
func (c *check) owned(folder string) {
	_, err := repository.CheckOwned(folder)
	if err == nil {
		return
	}

	severity := SeverityWarning
	if os.Geteuid() == 0 {
		severity = SeverityError
	}

	message, remedy := err.Error(), ""
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		message, remedy = e.Message, e.Remedy
	}
	c.add(severity, "", message, remedy)
}

// files warns about files of the folder that do not behave as their author may
// expect.
func (c *check) files(folder string) error {
	if _, err := os.Stat(filepath.Join(folder, "ansible.cfg")); err == nil {
		c.add(SeverityWarning, "ansible.cfg", "the manager does not use it",
			"set variables, connections and jobs.forks in the configuration of the manager")
	}

	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}

		info, err := d.Info()
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}

		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}

		if d.Type().IsRegular() && info.Mode()&0o111 == 0 && isScript(path) {
			c.add(SeverityWarning, name, "it is a script without the permission to execute it",
				"chmod +x, if a task runs it in place")
		}

		return nil
	})
}

// isScript reports whether a file begins like a script. Modules, plugins and templates,
// which Ansible loads, need no permission.
func isScript(path string) bool {
	if ext := filepath.Ext(path); ext == ".py" || ext == ".j2" {
		return false
	}

	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()

	start := make([]byte, 3)
	n, _ := f.Read(start)

	return bytes.Equal(start[:n], []byte("#!/"))
}

// Export writes the bundled playbooks into a folder, which must be empty or
// missing unless force is set. It returns the number of files. With force, it
// replaces files of the same name and leaves the others.
func Export(folder string, force bool) (files int, err error) {
	entries, err := os.ReadDir(folder)

	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return 0, inventory.Errorf(inventory.KindInvalid, "the folder cannot be read: %w", err).Do("give another one")
	case len(entries) > 0 && !force:
		return 0, inventory.Errorf(inventory.KindRefused, "%s is not empty; nothing was written", folder).
			Do("give an empty or a new folder; --force replaces files of the same name")
	}

	err = fs.WalkDir(bundled.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		target := filepath.Join(folder, path)
		if d.IsDir() {
			//nolint:gosec // public playbooks, to edit
			return os.MkdirAll(target, 0o755)
		}

		content, err := fs.ReadFile(bundled.FS(), path)
		if err != nil {
			return err
		}

		files++

		//nolint:gosec // public playbooks, to edit
		return os.WriteFile(target, content, 0o644)
	})
	if err != nil {
		return files, inventory.Errorf(inventory.KindUnavailable, "the playbooks cannot be written: %w", err).
			Do("check the permissions and the free space")
	}

	return files, nil
}
