// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// Defaults of a Spec.
const (
	DefaultForks       = 20
	DefaultOutputLimit = 16 << 20 // bytes
	DefaultGraceInt    = 10 * time.Second
	DefaultGraceTerm   = 5 * time.Second

	maxLease = 24 * time.Hour
)

// Spec describes a run.
type Spec struct {
	ID  string // of the run; only shown
	Dir string // private to the run; created with mode 0700; the caller removes it

	Playbooks    string // absolute path of a folder that does not change during the run
	Playbook     string // path within Playbooks
	BundledRoles string // folder of roles that every playbook may use; may be empty
	// CallbackDir is the folder of the callback plugin clusterm_events. Without it,
	// the run reports no events, and no play acts on a helper.
	CallbackDir string
	// CacheDir is the folder of the cache plugin clusterm_facts. Without it, facts of
	// a host may replace its variables.
	CacheDir string
	// ConnectionDir is the folder of the connection plugin ssh, which carries the Fence. Without either, the hosts
	// have no fence.
	ConnectionDir string
	Fence         configuration.Fence

	Hosts []configuration.Host
	// JumpKeys is the file with the keys of jump hosts, see Prober.
	JumpKeys  string
	ExtraVars configuration.Vars // of the request
	Options   configuration.AnsibleOptions

	Secrets []string // texts to hide in the output and in the events

	VaultIDs []string // passwords of Ansible Vault: PATH or ID@PATH

	Forks       int           // largest number of hosts at a time; 0: DefaultForks
	Deadline    time.Time     // ends the run; required
	Lease       time.Time     // the first lease; zero: the run needs none until the first Renew
	OutputLimit int64         // bytes of output, and of events, kept; 0: DefaultOutputLimit
	GraceInt    time.Duration // from SIGINT to SIGTERM; 0: DefaultGraceInt
	GraceTerm   time.Duration // from SIGTERM to SIGKILL; 0: DefaultGraceTerm

	Env             []string // names of further environment variables to pass on
	AnsiblePlaybook string   // path or name; empty: ansible-playbook in PATH
}

// Files in a run's directory.
const (
	fileSpec       = "spec.json"
	fileInventory  = "inventory.yml"
	fileExtraVars  = "extra-vars.yml"
	fileSSHVars    = "ssh-vars.json"
	fileConfig     = "ansible.cfg"
	fileSSHConfig  = "ssh_config"
	fileKnownHosts = "known_hosts"
	fileTakenKeys  = "taken_keys"
	fileJumpKeys   = "jump_known_hosts"
	fileReserved   = "reserved-facts.json"
	fileSecrets    = "secrets.json" // values that output and events hide
	fileLock       = "lock"         // the runner locks it while it exists
	fileAlive      = "alive"        // FIFO, open for writing while the runner exists
	filePlugin     = "events.fifo"  // FIFO from the callback plugin
	fileLease      = "lease"        // expiry of the lease, on the clock since boot
	fileOutput     = "output"
	fileEvents     = "events"
	fileRunner     = "runner.json"
	fileRunnerLog  = "runner.log"
	fileExit       = "exit.json"
	fileNotBegun   = "not-begun" // exists until just before ansible-playbook is executed
	fileGivenUp    = "given-up"  // why the runner was killed after it got the permit
	dirTmp         = "tmp"
	dirHome        = "home"
	dirSockets     = "ssh" // ssh's control sockets
)

// launch is the content of spec.json: the input of the runner, without secrets.
type launch struct {
	ID          string        `json:"id"`
	Path        string        `json:"path"`
	Args        []string      `json:"args"`
	Cwd         string        `json:"cwd"`
	PassEnv     []string      `json:"pass_env,omitempty"`
	Deadline    time.Time     `json:"deadline"`
	OutputLimit int64         `json:"output_limit"`
	GraceInt    time.Duration `json:"grace_int"`
	GraceTerm   time.Duration `json:"grace_term"`
	Known       []string      `json:"known,omitempty"`   // hosts with a recorded key
	Unknown     []string      `json:"unknown,omitempty"` // hosts at their first contact
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// check reports every problem of the spec in one error of kind invalid.
func (s Spec) check() error {
	var problems []string

	add := func(err error) {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	checkOptional := func(what, path string) {
		if path != "" {
			add(configuration.CheckPath(what, path))
		}
	}

	add(configuration.CheckPath("the run's directory", s.Dir))
	add(configuration.CheckPath("the playbook folder", s.Playbooks))
	checkOptional("the folder of bundled roles", s.BundledRoles)
	checkOptional("the folder of the callback plugin", s.CallbackDir)
	checkOptional("the folder of the cache plugin", s.CacheDir)
	checkOptional("the folder of the connection plugin", s.ConnectionDir)

	if s.Deadline.IsZero() {
		add(errors.New("the run has no deadline"))
	}

	for _, name := range s.Env {
		add(checkEnv(name))
	}

	for _, id := range s.VaultIDs {
		add(configuration.CheckVaultID(id))
	}

	add(s.Options.Validate())
	add(configuration.CheckHosts(s.Hosts))

	for _, h := range s.Hosts {
		add(checkKeyFile(h))
	}

	if len(problems) > 0 {
		return inventory.Errorf(inventory.KindInvalid, "the run cannot be prepared: %s", strings.Join(problems, "; "))
	}

	return checkPlaybook(s.Playbooks, s.Playbook)
}

// checkEnv refuses variables that would change Ansible, this program or the
// dynamic linker.
func checkEnv(name string) error {
	reserved := strings.HasPrefix(name, "ANSIBLE_") || strings.HasPrefix(name, "CLUSTERM_") ||
		strings.HasPrefix(name, "LD_")
	if reserved || !envName.MatchString(name) {
		return fmt.Errorf("the environment variable %q cannot be passed on to a run", name)
	}
	return nil
}

// checkKeyFile opens the ssh key of a host that plays act on. Without the check,
// ssh would report a missing key as a denied login.
func checkKeyFile(h configuration.Host) error {
	path := h.Connection.KeyFile
	if path == "" || h.Role == configuration.RolePeer {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("the ssh key of %s cannot be read: %w; correct key_file of its connection", h.Name, err)
	}
	return f.Close()
}

// prepare writes the files of the run into its directory, durably and readable by this
// account only. No secret appears on a command line or in an environment. prepare may be
// repeated until a runner has begun in the directory.
func (s Spec) prepare() error {
	if err := s.makeDir(); err != nil {
		return err
	}

	files, err := s.files()
	if err != nil {
		return err
	}
	if err := localfile.ReplaceAll(s.Dir, files); err != nil {
		return err
	}

	for _, name := range []string{fileAlive, filePlugin} {
		if err := unix.Mkfifo(filepath.Join(s.Dir, name), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("mkfifo %s: %w", filepath.Join(s.Dir, name), err)
		}
	}

	// The FIFOs, and the directory itself.
	return errors.Join(localfile.SyncDir(s.Dir), localfile.SyncDir(filepath.Dir(s.Dir)))
}

// makeDir creates the run's directory, which must not contain a run that has
// begun.
func (s Spec) makeDir() error {
	for _, d := range []string{s.Dir, filepath.Join(s.Dir, dirTmp), filepath.Join(s.Dir, dirHome)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}

	//nolint:gosec // a directory needs its x bit
	if err := os.Chmod(s.Dir, 0o700); err != nil {
		return err
	}

	return checkUnused(s.Dir)
}

// checkUnused refuses a directory in which a runner has begun.
func checkUnused(dir string) error {
	for _, f := range []string{fileRunner, fileExit} {
		if _, err := os.Lstat(filepath.Join(dir, f)); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(
				fmt.Errorf("a run has already begun in %s; give every run a directory of its own", dir), err)
		}
	}

	return nil
}

// files returns the contents of the run's files by name.
func (s Spec) files() (map[string][]byte, error) {
	spec, err := s.launch()
	if err != nil {
		return nil, err
	}

	hosts := slices.Clone(s.Hosts)
	for i, h := range hosts {
		hosts[i].TakenFile = takenFile(s.Dir, h)
		if s.fenced() && h.Role != configuration.RolePeer {
			extra := maps.Clone(h.Extra)
			if extra == nil {
				extra = map[string]any{}
			}
			extra[heldVar] = true
			hosts[i].Extra = extra
		}
	}

	inv, err := configuration.Inventory(hosts)
	if err != nil {
		return nil, err
	}

	vars, err := configuration.ExtraVars(s.ExtraVars)
	if err != nil {
		return nil, err
	}

	sshVars, err := s.sshVars()
	if err != nil {
		return nil, err
	}

	reserved, err := json.Marshal(configuration.ReservedNames(s.Hosts))
	if err != nil {
		return nil, err
	}

	isEmpty := func(text string) bool { return text == "" }

	secrets, err := json.Marshal(slices.DeleteFunc(slices.Clone(s.Secrets), isEmpty))
	if err != nil {
		return nil, err
	}

	files := map[string][]byte{
		fileSecrets:    secrets,
		fileInventory:  inv,
		fileExtraVars:  vars,
		fileSSHVars:    sshVars,
		fileConfig:     s.config(),
		fileSSHConfig:  sshConfig(s.Hosts, cmp.Or(s.JumpKeys, filepath.Join(s.Dir, fileJumpKeys))),
		fileTakenKeys:  takenKeys(s.Hosts),
		fileKnownHosts: configuration.KnownHosts(s.Hosts),
		fileReserved:   reserved,
		fileOutput:     nil,
		fileEvents:     nil,
		fileNotBegun:   nil,
		fileSpec:       spec,
	}
	if !s.Lease.IsZero() {
		files[fileLease] = leaseRecord(s.Lease)
	}
	return files, nil
}

// takenFile returns the path of the file with the keys that a host must not show; empty:
// its own are recorded, or there are none.
func takenFile(dir string, h configuration.Host) string {
	if len(h.HostKeys) > 0 || len(h.Taken) == 0 {
		return ""
	}
	return filepath.Join(dir, fileTakenKeys)
}

// takenKeys returns the keys that some of the hosts must not show, one in a line.
func takenKeys(hosts []configuration.Host) []byte {
	i := slices.IndexFunc(hosts, func(h configuration.Host) bool { return len(h.Taken) > 0 })
	if i < 0 {
		return nil
	}

	var b bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(hosts[i].Taken)) {
		b.WriteString(key + "\n")
	}

	return b.Bytes()
}

// launch returns the content of spec.json.
func (s Spec) launch() ([]byte, error) {
	command, err := lookPath(s.AnsiblePlaybook)
	if err != nil {
		return nil, err
	}

	l := launch{
		ID: s.ID, Path: command, Args: s.args(), Cwd: s.Playbooks, PassEnv: s.Env, Deadline: s.Deadline,
		OutputLimit: cmp.Or(max(0, s.OutputLimit), DefaultOutputLimit),
		GraceInt:    cmp.Or(max(0, s.GraceInt), DefaultGraceInt),
		GraceTerm:   cmp.Or(max(0, s.GraceTerm), DefaultGraceTerm),
	}
	for _, h := range s.Hosts {
		if len(h.HostKeys) > 0 {
			l.Known = append(l.Known, h.Name)
		} else {
			l.Unknown = append(l.Unknown, h.Name)
		}
	}

	b, err := json.MarshalIndent(l, "", "  ")

	return append(b, '\n'), err
}

// args returns the arguments of ansible-playbook. The limit excludes the helpers:
// the callback plugin admits them to the plays that name them, so no play reaches
// a helper without the plugin.
func (s Spec) args() []string {
	args := []string{
		"-i", filepath.Join(s.Dir, fileInventory),
		"-e", "@" + filepath.Join(s.Dir, fileSSHVars),
		"-e", "@" + filepath.Join(s.Dir, fileExtraVars),
		"--limit", configuration.TargetsGroup,
	}

	return append(append(args, optionArgs(s.Options)...), filepath.Join(s.Playbooks, s.Playbook))
}

// optionArgs returns the arguments for the options. A tag cannot become an option of
// its own.
func optionArgs(o configuration.AnsibleOptions) []string {
	var args []string
	if o.Check {
		args = append(args, "--check")
	}

	if o.Diff {
		args = append(args, "--diff")
	}

	if len(o.Tags) > 0 {
		args = append(args, "--tags="+strings.Join(o.Tags, ","))
	}

	if len(o.SkipTags) > 0 {
		args = append(args, "--skip-tags="+strings.Join(o.SkipTags, ","))
	}

	if o.Verbosity > 0 {
		args = append(args, "-"+strings.Repeat("v", o.Verbosity))
	}

	return args
}

// activeHosts counts the hosts that plays may act on.
func (s Spec) activeHosts() int {
	n := 0
	for _, h := range s.Hosts {
		if h.Role != configuration.RolePeer {
			n++
		}
	}

	return n
}

// config returns the run's ansible.cfg. Every path in it needs no quotes, see
// configuration.CheckPath.
func (s Spec) config() []byte {
	forks := max(1, min(s.activeHosts(), cmp.Or(max(0, s.Forks), DefaultForks)))

	var b strings.Builder
	b.WriteString("# Written for this run; an ansible.cfg in the playbook folder is not read.\n")

	section := func(name string, lines ...string) {
		fmt.Fprintf(&b, "[%s]\n%s\n\n", name, strings.Join(lines, "\n"))
	}

	defaults := []string{
		"inventory = " + filepath.Join(s.Dir, fileInventory),
		fmt.Sprintf("forks = %d", forks),
		"timeout = 15",
		"host_key_checking = True",
		"retry_files_enabled = False",
		"nocows = True",
		"nocolor = True",
		"interpreter_python = auto_silent",
		"force_valid_group_names = ignore",
		"localhost_warning = False",
		"stdout_callback = default",
	}

	defaults = append(defaults, searchPaths(s.Dir, s.Playbooks, s.BundledRoles)...)
	defaults = append(defaults, vaultSettings(s.VaultIDs)...)

	if s.CallbackDir != "" {
		defaults = append(defaults, "callback_plugins = "+s.CallbackDir, "callbacks_enabled = clusterm_events")
	}

	if s.CacheDir != "" {
		defaults = append(defaults,
			"cache_plugins = "+s.CacheDir, "fact_caching = clusterm_facts",
			"fact_caching_connection = "+filepath.Join(s.Dir, fileReserved))
	} else {
		defaults = append(defaults, "fact_caching = memory")
	}

	if s.fenced() {
		defaults = append(defaults, "connection_plugins = "+s.ConnectionDir)
	}

	section("defaults", defaults...)
	section("inventory", inventorySettings...)

	if s.fenced() {
		section("clusterm_fence",
			"token = "+s.Fence.Token.String(),
			"manager = "+s.Fence.Manager,
			"job = "+s.Fence.Job,
			fmt.Sprintf("claim = %t", s.Fence.Claim),
		)
	}

	section("ssh_connection",
		"pipelining = True",
		"ssh_args = "+s.sshOptions(),
	)

	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

// heldVar is the variable of the hosts that the job of the run holds. Tasks that are delegated reach others, where
// other jobs may act at the same time.
const heldVar = "clusterm_held"

// fenced reports whether the hosts get a fence.
func (s Spec) fenced() bool { return s.ConnectionDir != "" && s.Fence.Token.Revision > 0 }

// sshVars returns the variables that keep the check of host keys on, as JSON. Many folders switch
// it off for all hosts, in group_vars or in a play. As variables of the command line they win over
// each of these, and ssh takes the first of two values.
func (s Spec) sshVars() ([]byte, error) {
	// At the first contact, a host has no key that could be required.
	const firstContact = "StrictHostKeyChecking=accept-new"

	strict := "StrictHostKeyChecking=yes"
	for _, h := range s.Hosts {
		if slices.Contains(configuration.SSHArgs(h), firstContact) {
			strict = firstContact
		}
	}

	return json.Marshal(map[string]any{
		"ansible_host_key_checking":     true,
		"ansible_ssh_host_key_checking": true,
		"ansible_ssh_args":              s.sshOptions() + " -o " + strict,
	})
}

// sshOptions returns the first options of every ssh.
func (s Spec) sshOptions() string {
	return strings.Join([]string{
		"-F", filepath.Join(s.Dir, fileSSHConfig),
		"-o", "ControlMaster=auto", "-o", "ControlPersist=60s",
		"-o", "UserKnownHostsFile=" + filepath.Join(s.Dir, fileKnownHosts),
		"-o", "GlobalKnownHostsFile=/dev/null",
	}, " ")
}

// vaultSettings names the files with passwords, so that no command line does.
func vaultSettings(ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	return []string{"vault_identity_list = " + strings.Join(ids, ",")}
}

var inventorySettings = []string{
	"enable_plugins = ansible.builtin.yaml",
	"unparsed_is_failed = True",
	"host_pattern_mismatch = ignore",
	"cache = False",
}

// searchPaths returns the settings for the places where Ansible finds roles and
// collections, and for its own files. Nothing of the account's ~/.ansible is
// used except the collections installed there.
func searchPaths(dir, playbooks, bundledRoles string) []string {
	roles := filepath.Join(playbooks, "roles")
	if bundledRoles != "" {
		roles += ":" + bundledRoles
	}

	collections := []string{
		filepath.Join(playbooks, "collections"), "~/.ansible/collections", "/usr/share/ansible/collections",
	}

	return []string{
		"home = " + filepath.Join(dir, dirHome),
		"local_tmp = " + filepath.Join(dir, dirTmp),
		"roles_path = " + roles,
		"collections_path = " + strings.Join(collections, ":"),
	}
}

// sshConfig returns the ssh_config that replaces the account's and the
// machine's. Options that differ between nodes are on ssh's command line. The
// ssh to a jump host reads this file only, and records the host's key in jumpKeys.
// One in the account's own known_hosts still counts, and none is added there.
func sshConfig(hosts []configuration.Host, jumpKeys string) []byte {
	// Hosts may share a jump host and use different keys.
	keys := map[string][]string{}
	for _, h := range hosts {
		j, err := configuration.ParseJump(h.Connection.Jump)
		if err != nil {
			continue
		}

		offered := []string{h.Connection.KeyFile, h.Connection.FormerKeyFile}
		if h.JumpKeyFile != "" {
			offered = []string{h.JumpKeyFile}
		}

		for _, key := range offered {
			if key != "" && !slices.Contains(keys[j.Host], key) {
				keys[j.Host] = append(keys[j.Host], key)
			}
		}
	}

	var b strings.Builder
	b.WriteString("# Written for this run; ssh reads no other configuration.\n")

	for _, host := range slices.Sorted(maps.Keys(keys)) {
		fmt.Fprintf(&b, "Host %s\n", host)

		for _, k := range keys[host] {
			fmt.Fprintf(&b, "  IdentityFile %s\n", k)
		}
	}

	fmt.Fprintf(&b, "Host *\n  UserKnownHostsFile %s ~/.ssh/known_hosts\n", jumpKeys)
	b.WriteString(`  BatchMode yes
  StrictHostKeyChecking accept-new
  UpdateHostKeys no
  HashKnownHosts no
  CheckHostIP no
  VerifyHostKeyDNS no
  ForwardAgent no
  ForwardX11 no
  ServerAliveInterval 15
  ServerAliveCountMax 4
  LogLevel ERROR
`)

	return []byte(b.String())
}

// NewHostKeys returns the ssh host keys that the run in dir accepted at the
// first contact, by host name. Hosts with a recorded key are not included.
func NewHostKeys(dir string) (map[string][]string, error) {
	l, err := readLaunch(dir)
	if err != nil {
		return nil, err
	}

	b, err := os.ReadFile(filepath.Join(dir, fileKnownHosts))
	if err != nil {
		return nil, err
	}

	// ssh writes names in lower case.
	found := configuration.ParseKnownHosts(b)

	keys := map[string][]string{}
	for _, name := range l.Unknown {
		if k := found[strings.ToLower(name)]; len(k) > 0 {
			keys[name] = k
		}
	}

	return keys, nil
}

func readLaunch(dir string) (launch, error) {
	var l launch

	b, err := os.ReadFile(filepath.Join(dir, fileSpec))
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("%s: %w", filepath.Join(dir, fileSpec), err)
	}

	return l, nil
}

// leaseRecord returns the content of a lease file: the expiry on the clock since
// boot, which the daemon and the runner share and which cannot be set. Its
// width is fixed, so that a renewal overwrites it in place.
func leaseRecord(until time.Time) []byte {
	at := sinceBoot() + min(max(time.Until(until), 0), maxLease)
	return fmt.Appendf(nil, "%020d\n", at.Nanoseconds())
}
