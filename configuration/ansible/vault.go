// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

const (
	vaultMark     = "$ANSIBLE_VAULT;"
	vaultMissing  = "no vault secrets found" // Ansible's message
	remedyVault   = "set vault_ids in the configuration file of the manager and reload it: systemctl reload clusterm"
	maxNamedFiles = 3
	maxVarsDepth  = 20
)

// CheckEncrypted refuses a folder of playbooks with encrypted variables that a run
// without a vault password loads: ansible-playbook would break off before the first
// task, in the cleanup as well. Those are the files in group_vars and host_vars for
// the groups, for all hosts and for the hosts. A task, not the run, fails with other
// encrypted files, and the syntax check loads those of roles and vars_files.
func CheckEncrypted(folder string, groups, hosts []string) error {
	found := slices.DeleteFunc(varsFiles(folder, groups, hosts), func(name string) bool {
		return !isEncrypted(filepath.Join(folder, name))
	})
	if len(found) == 0 {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused,
		"variables in the playbook folder are encrypted with Ansible Vault, and no password is configured: %s",
		named(found)).
		Do(remedyVault)
}

// named lists the first files, and counts the others.
func named(files []string) string {
	text := strings.Join(files[:min(len(files), maxNamedFiles)], ", ")
	if more := len(files) - maxNamedFiles; more > 0 {
		text += " and " + inventory.Count(more, "more file", "more files")
	}
	return text
}

// usualGroups are groups of every run.
var usualGroups = []string{
	"all", "ungrouped", inventory.GroupPrepare, configuration.TargetsGroup, configuration.HelpersGroup,
}

// varsFiles returns the files in group_vars and host_vars that a run loads for the
// groups, for all hosts and for the hosts, sorted.
func varsFiles(folder string, groups, hosts []string) []string {
	var found []string
	for dir, names := range map[string][]string{"group_vars": slices.Concat(usualGroups, groups), "host_vars": hosts} {
		for _, name := range names {
			found = append(found, varsFilesOf(folder, filepath.Join(dir, name))...)
		}
	}

	slices.Sort(found)

	return slices.Compact(found)
}

// varsFilesOf returns the files that Ansible loads for a name, such as group_vars/all:
// the first one of a file or folder, and the file with each extension.
func varsFilesOf(folder, name string) []string {
	for _, extension := range []string{"", ".yml", ".yaml", ".json"} {
		info, err := os.Stat(filepath.Join(folder, name+extension))

		switch {
		case err != nil:
			continue
		case info.IsDir() && extension == "":
			return varsFilesIn(folder, name, 0)
		case info.Mode().IsRegular():
			return []string{name + extension}
		default:
			return nil
		}
	}

	return nil
}

// varsFilesIn returns the files of variables in a folder and below it. A link may lead
// back to a folder above.
func varsFilesIn(folder, dir string, depth int) (found []string) {
	entries, err := os.ReadDir(filepath.Join(folder, dir))
	if err != nil || depth > maxVarsDepth {
		return nil // Ansible reports it
	}

	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), "~") {
			continue
		}
		info, err := os.Stat(filepath.Join(folder, name))

		switch {
		case err != nil:
		case info.IsDir():
			found = append(found, varsFilesIn(folder, name, depth+1)...)
		case isVarsFile(e.Name()) && info.Mode().IsRegular():
			found = append(found, name)
		}
	}

	return found
}

func isVarsFile(name string) bool {
	return slices.Contains([]string{"", ".yml", ".yaml", ".json"}, filepath.Ext(name))
}

func isEncrypted(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()

	start := make([]byte, len(vaultMark))
	_, err = io.ReadFull(f, start)

	return err == nil && bytes.Equal(start, []byte(vaultMark))
}

// FolderVars returns the variables that the folder sets for a host of the group on which a job acts. Files that are
// encrypted as a whole, or do not parse, are left out.
func FolderVars(folder, host, group string) configuration.FolderVars {
	// Of groups side by side, Ansible prefers the last by name.
	groups := []string{group, configuration.TargetsGroup}
	slices.Sort(groups)

	found := configuration.FolderVars{
		Host: fileVars(folder, filepath.Join("host_vars", host)), Group: fileVars(folder, "group_vars/all"),
	}
	for _, name := range groups {
		maps.Copy(found.Group, fileVars(folder, filepath.Join("group_vars", name)))
	}

	return found
}

// fileVars returns the variables in the files that Ansible loads for a name, such as host_vars/web-1.
func fileVars(folder, name string) map[string]configuration.FileVar {
	found := map[string]configuration.FileVar{}

	for _, file := range varsFilesOf(folder, name) {
		text, err := os.ReadFile(filepath.Join(folder, file))

		var values map[string]yaml.Node
		if err != nil || yaml.Unmarshal(text, &values) != nil {
			continue
		}

		for name, node := range values {
			var value any
			if node.Tag == "!vault" || node.Decode(&value) != nil {
				value = nil
			}

			// Ansible loads the files by name, and the last one counts.
			found[name] = configuration.FileVar{File: file, Value: value}
		}
	}

	return found
}

// HostsWithVars returns the hosts for which the folder has variables in host_vars. Other
// files there, such as a README, are of no host.
func HostsWithVars(folder string) (names []string, err error) {
	entries, err := fs.Glob(os.DirFS(folder), "host_vars/*")
	for _, e := range entries {
		name := filepath.Base(e)
		if isVarsFile(name) {
			name = strings.TrimSuffix(name, filepath.Ext(name))
		}
		_, notAddr := netip.ParseAddr(name)
		isNode := strings.Contains(name, "-") && inventory.CheckName(name) == nil

		if isNode || notAddr == nil {
			names = append(names, name)
		}
	}

	return names, err
}
