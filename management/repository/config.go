// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"time"

	"github.com/contiv/cluster/inventory"
)

// Config selects a git repository with the playbooks, in place of a folder.
type Config struct {
	URL    string `yaml:"url"` // empty: none
	Branch string `yaml:"branch"`
	Tag    string `yaml:"tag"`
	Commit string `yaml:"commit"`
	Folder string `yaml:"folder"` // relative, with site.yml

	KeyFile        string   `yaml:"key_file"`
	KnownHostsFile string   `yaml:"known_hosts_file"`
	CredentialFile string   `yaml:"credential_file"`
	CAFile         string   `yaml:"ca_file"`
	SignedBy       []string `yaml:"signed_by"` // files of public keys

	Submodules         bool   `yaml:"submodules"`
	RequirementsMirror string `yaml:"requirements_mirror"` // a folder or an https URL; empty: none

	Interval inventory.Duration `yaml:"interval"`
	OnMove   string             `yaml:"on_move"`
	Limits   Limits             `yaml:"limits"`
}

// Limits bound a fetch.
type Limits struct {
	Fetch int64              `yaml:"fetch"` // bytes on the wire
	Size  int64              `yaml:"size"`  // bytes of the files of one commit
	Files int                `yaml:"files"` // of one commit
	Time  inventory.Duration `yaml:"time"`
}

// OnMoveNotify is the value of Config.OnMove with which a new commit marks nodes as
// outdated, and changes none.
const OnMoveNotify = "notify"

// DefaultConfig selects none.
func DefaultConfig() Config {
	return Config{
		SignedBy: []string{}, Interval: inventory.Duration(5 * time.Minute), OnMove: OnMoveNotify,
		Limits: Limits{
			Fetch: 256 << 20, Size: 64 << 20, Files: 10_000, Time: inventory.Duration(5 * time.Minute),
		},
	}
}

// Used reports whether a repository is configured.
func (r Config) Used() bool { return r.URL != "" }
