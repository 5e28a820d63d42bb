// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// Defaults of a Spec.
const (
	DefaultForks       = 20
	DefaultOutputLimit = 16 << 20 // bytes
	DefaultGraceInt    = 10 * time.Second
	DefaultGraceTerm   = 5 * time.Second

	maxLease = 24 * time.Hour // a longer one is cut to this
)

// Spec says what one run is.
type Spec struct {
	ID  string // of the job's run; only shown
	Dir string // private to the run; made with mode 0700; kept until the caller removes it

	Tree         string // absolute path of a pinned folder
	Playbook     string // within Tree
	BundledRoles string // folder of roles that every playbook may use; may be empty
	CallbackDir  string // folder of the callback plugin clusterm_events; may be empty: then there are no events

	Hosts     []configuration.Host
	ExtraVars configuration.Vars // of the request

	Forks       int           // at most this many hosts at a time; 0: DefaultForks
	Deadline    time.Time     // when the run is ended; must be set
	Lease       time.Time     // the first lease; zero: none is needed until Renew is called
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
	fileConfig     = "ansible.cfg"
	fileSSHConfig  = "ssh_config"
	fileKnownHosts = "known_hosts"
	fileLock       = "lock"        // locked by the runner for its life
	fileAlive      = "alive"       // FIFO that the runner holds open for writing
	filePlugin     = "events.fifo" // where the callback plugin writes
	fileLease      = "lease"       // when the lease ends, on the clock since boot
	fileOutput     = "output"
	fileEvents     = "events"
	fileRunner     = "runner.json"
	fileRunnerLog  = "runner.log"
	fileExit       = "exit.json"
	dirTmp         = "tmp"
	dirHome        = "home"
)

// launch is what spec.json holds: what the runner needs, and no secret.
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
	Known       []string      `json:"known,omitempty"` // hosts whose key was known before
	Unknown     []string      `json:"unknown,omitempty"`
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (s Spec) check() error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	add(safePath("the run's directory", s.Dir))
	add(safePath("the playbook tree", s.Tree))

	if s.BundledRoles != "" {
		add(safePath("the folder of bundled roles", s.BundledRoles))
	}

	if s.CallbackDir != "" {
		add(safePath("the folder of the callback plugin", s.CallbackDir))
	}

	if s.Deadline.IsZero() {
		add(errors.New("the run has no deadline"))
	}

	for _, n := range s.Env {
		if !envName.MatchString(n) || strings.HasPrefix(n, "ANSIBLE_") || strings.HasPrefix(n, "CLUSTERM_") ||
			strings.HasPrefix(n, "LD_") {
			add(fmt.Errorf("the environment variable %q cannot be passed on to a run", n))
		}
	}

	if err := configuration.CheckHosts(s.Hosts); err != nil {
		add(err)
	}

	for _, h := range s.Hosts {
		if k := h.Connection.KeyFile; k != "" && h.Role != configuration.RolePeer {
			if f, err := os.Open(k); err != nil {
				add(fmt.Errorf("the ssh key of %s cannot be read: %w; correct key_file of its connection", h.Name, err))
			} else {
				add(f.Close())
			}
		}
	}

	if len(errs) > 0 {
		words := make([]string, len(errs))
		for i, err := range errs {
			words[i] = err.Error()
		}

		return inventory.Errorf(inventory.KindInvalid, "the run cannot be prepared: %s", strings.Join(words, "; "))
	}

	return checkPlaybook(s.Tree, s.Playbook)
}

func checkPlaybook(tree, playbook string) error {
	if !fs.ValidPath(playbook) || safePath("", filepath.Join("/", playbook)) != nil ||
		strings.HasPrefix(playbook, "-") {
		return inventory.Errorf(inventory.KindInvalid, "%q is not the path of a playbook within its folder", playbook)
	}

	info, err := os.Stat(filepath.Join(tree, playbook))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return inventory.Errorf(inventory.KindInvalid, "the playbook folder has no %s", playbook).
			Do("add it, or configure another folder")
	case err != nil:
		return inventory.Errorf(inventory.KindInvalid, "the playbook %s cannot be read: %w", playbook, err)
	case !info.Mode().IsRegular():
		return inventory.Errorf(inventory.KindInvalid, "the playbook %s is not a file", playbook)
	}

	return nil
}

// Prepare checks the spec and writes everything that the run needs into its
// directory, durably and readable for this account only. Nothing secret is on a
// command line or in an environment. A directory in which a runner has begun is
// refused; one that was only prepared is prepared anew.
func Prepare(s Spec) error {
	if err := s.check(); err != nil {
		return err
	}

	return s.prepare()
}

func (s Spec) prepare() error {
	command, err := lookPath(s.AnsiblePlaybook)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}

	if err := os.Chmod(s.Dir, 0o700); err != nil {
		return err
	}

	for _, f := range []string{fileRunner, fileExit} {
		if _, err := os.Lstat(filepath.Join(s.Dir, f)); err == nil {
			return fmt.Errorf("a run has already begun in %s; give every run a directory of its own", s.Dir)
		}
	}

	inv, err := configuration.Inventory(s.Hosts)
	if err != nil {
		return err
	}

	vars, err := configuration.ExtraVars(s.ExtraVars)
	if err != nil {
		return err
	}

	l := launch{
		ID: s.ID, Path: command, Args: s.args(), Cwd: s.Tree, PassEnv: s.Env, Deadline: s.Deadline,
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

	spec, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}

	for _, d := range []string{dirTmp, dirHome} {
		if err := os.MkdirAll(filepath.Join(s.Dir, d), 0o700); err != nil {
			return err
		}
	}

	files := map[string][]byte{
		fileInventory:  inv,
		fileExtraVars:  vars,
		fileConfig:     s.config(),
		fileSSHConfig:  sshConfig(s.Hosts),
		fileKnownHosts: configuration.KnownHosts(s.Hosts),
		fileOutput:     nil,
		fileEvents:     nil,
		fileSpec:       append(spec, '\n'),
	}
	if !s.Lease.IsZero() {
		files[fileLease] = leaseRecord(s.Lease)
	}

	for name, content := range files {
		if err := writeFile(filepath.Join(s.Dir, name), content); err != nil {
			return err
		}
	}

	for _, name := range []string{fileAlive, filePlugin} {
		if err := unix.Mkfifo(filepath.Join(s.Dir, name), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("mkfifo %s: %w", filepath.Join(s.Dir, name), err)
		}
	}

	if err := syncDir(s.Dir); err != nil {
		return err
	}

	return syncDir(filepath.Dir(s.Dir))
}

func (s Spec) args() []string {
	limit := configuration.TargetsGroup
	if slices.ContainsFunc(s.Hosts, func(h configuration.Host) bool { return h.Role == configuration.RoleHelper }) {
		limit += ":" + configuration.HelpersGroup
	}

	return []string{
		"-i", filepath.Join(s.Dir, fileInventory),
		"-e", "@" + filepath.Join(s.Dir, fileExtraVars),
		"--limit", limit,
		filepath.Join(s.Tree, s.Playbook),
	}
}

// acted counts the hosts that plays act on.
func (s Spec) acted() int {
	n := 0
	for _, h := range s.Hosts {
		if h.Role != configuration.RolePeer {
			n++
		}
	}

	return n
}

// config is the run's ansible.cfg. Every path in it was checked by safePath.
func (s Spec) config() []byte {
	forks := max(1, min(s.acted(), cmp.Or(max(0, s.Forks), DefaultForks)))
	var b strings.Builder
	section := func(name string, lines ...string) {
		fmt.Fprintf(&b, "[%s]\n%s\n\n", name, strings.Join(lines, "\n"))
	}
	b.WriteString("# Written for this run; an ansible.cfg in the playbook folder is not read.\n")
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
		"fact_caching = memory",
		"stdout_callback = default",
	}

	defaults = append(defaults, treeSettings(s.Dir, s.Tree, s.BundledRoles)...)
	if s.CallbackDir != "" {
		defaults = append(defaults, "callback_plugins = "+s.CallbackDir, "callbacks_enabled = clusterm_events")
	}

	section("defaults", defaults...)
	section("inventory", inventorySettings...)
	section("ssh_connection",
		"pipelining = True",
		"ssh_args = "+strings.Join([]string{
			"-F", filepath.Join(s.Dir, fileSSHConfig),
			"-o", "ControlMaster=auto", "-o", "ControlPersist=60s",
			"-o", "UserKnownHostsFile=" + filepath.Join(s.Dir, fileKnownHosts),
			"-o", "GlobalKnownHostsFile=/dev/null",
		}, " "),
	)

	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

var inventorySettings = []string{
	"enable_plugins = ansible.builtin.yaml",
	"unparsed_is_failed = True",
	"host_pattern_mismatch = ignore",
	"cache = False",
}

// treeSettings say where Ansible finds what a playbook refers to, and where it
// keeps what is its own: never in the account's ~/.ansible, save collections
// that are installed there.
func treeSettings(dir, tree, bundledRoles string) []string {
	roles := filepath.Join(tree, "roles")
	if bundledRoles != "" {
		roles += ":" + bundledRoles
	}

	return []string{
		"home = " + filepath.Join(dir, dirHome),
		"local_tmp = " + filepath.Join(dir, dirTmp),
		"roles_path = " + roles,
		"collections_path = " + filepath.Join(
			tree,
			"collections",
		) + ":~/.ansible/collections:/usr/share/ansible/collections",
	}
}

// sshConfig is what ssh reads instead of the account's and the machine's
// configuration. What differs from node to node comes on ssh's command line;
// this file also holds for the ssh that leads through a jump host, whose key is
// checked against the account's own known_hosts.
func sshConfig(hosts []configuration.Host) []byte {
	var b strings.Builder
	b.WriteString("# Written for this run; ssh reads no other configuration.\n")

	keys := map[string][]string{}
	for _, h := range hosts {
		j, err := configuration.ParseJump(h.Connection.Jump)
		if err != nil || h.Connection.KeyFile == "" || slices.Contains(keys[j.Host], h.Connection.KeyFile) {
			continue
		}

		keys[j.Host] = append(keys[j.Host], h.Connection.KeyFile)
	}

	jumps := make([]string, 0, len(keys))
	for host := range keys {
		jumps = append(jumps, host)
	}

	slices.Sort(jumps)

	for _, host := range jumps {
		fmt.Fprintf(&b, "Host %s\n", host)

		for _, k := range keys[host] {
			fmt.Fprintf(&b, "  IdentityFile %s\n", k)
		}
	}

	b.WriteString(`Host *
  BatchMode yes
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

// NewHostKeys returns the ssh host keys that the run in dir accepted at first
// contact, by the name of their host. Hosts whose key was known are not in it.
func NewHostKeys(dir string) (map[string][]string, error) {
	l, err := readLaunch(dir)
	if err != nil {
		return nil, err
	}

	b, err := os.ReadFile(filepath.Join(dir, fileKnownHosts))
	if err != nil {
		return nil, err
	}

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

// leaseRecord is how a lease file says when the lease ends: on the clock since
// boot, which the daemon and the runner share and nobody sets. Its width is
// fixed, so a renewal overwrites it in place and needs no space on a full disk.
func leaseRecord(until time.Time) []byte {
	at := sinceBoot() + min(max(time.Until(until), 0), maxLease)
	return fmt.Appendf(nil, "%020d\n", at.Nanoseconds())
}

// writeFile replaces a file durably.
func writeFile(path string, content []byte) error {
	tmp := path + ".new"

	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}

	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}

	return os.Rename(tmp, path)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}

	return errors.Join(d.Sync(), d.Close())
}
