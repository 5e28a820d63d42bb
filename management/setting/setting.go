// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/monitor"
)

// Membership is this daemon's part in the gossip. Its methods do not block.
type Membership interface {
	// Own returns the name of the daemon's own node, or "" if it has none.
	Own() string
	// AgentVars returns the variables for hosts that join the gossip, or the
	// reason why hosts cannot join.
	AgentVars() (map[string]any, error)
	// Manager returns the identity of the manager, or "" if it is not known.
	Manager() string
}

// Options are the dependencies of Settings.
type Options struct {
	File       File          // as loaded at the start
	Path       func() string // of the file to reload; "": none
	Node       monitor.Identity
	State      state.Reader
	Store      record.Store
	Adapters   Adapters
	Membership Membership
	// Pin keeps a copy of the configured playbooks as they are now.
	Pin func(ctx context.Context) (digest string, err error)
	// KeyRotation returns the running rotation of the ssh key, or nil. It must not block.
	KeyRotation func() *merge.KeyRotation
	FolderVars  merge.FolderVars // may be nil
	// Apply puts a changed configuration into force outside the use cases, e.g.
	// the log level. It must not block or call Settings.
	Apply func(Config)
	// Reloaded is called after a reload of the file, with the reason if it was refused.
	Reloaded func(ctx context.Context, refused error)
	Audit    access.Auditor
	Logger   logrus.FieldLogger
}

// Settings is the configuration in force. All methods may be called at once.
type Settings struct {
	opts Options

	note     fileNote
	calendar calendarCache

	mu      sync.Mutex
	file    File
	overlay map[string]any // the overlay that current was made with
	current Config
	refused error // the reason why the overlay is not in force
	reload  refusal
}

// refusal is a file that the last reload refused, and the reason.
type refusal struct {
	file File
	err  error // nil: the last reload succeeded
}

// New returns the settings of the file. The overlay comes into force with the
// first look at the configuration.
func New(o Options) *Settings {
	return &Settings{
		opts: o, note: fileNote{changed: make(chan struct{}, 1)}, file: o.File, current: o.File.Config,
	}
}

// Current returns the configuration in force: the file's with the overlay of the
// newest view over it. If the overlay no longer fits the file, it is the file's
// alone, and Engine accepts no job; see Problem. The caller must not change it.
func (s *Settings) Current() Config {
	c, _ := s.inForce()
	return c
}

// inForce returns the configuration in force, and the reason why the overlay is no
// part of it, or nil.
func (s *Settings) inForce() (Config, error) {
	overlay := state.OverlayOf(s.opts.State.View())

	s.mu.Lock()
	if len(overlay) == 0 && len(s.overlay) == 0 || reflect.DeepEqual(overlay, s.overlay) {
		defer s.mu.Unlock()
		return s.current, s.refused
	}

	merged, err := overlaid(s.file.Config, overlay)
	if err != nil {
		// The file was changed so that the overlay no longer fits it.
		merged, err = s.file.Config, misfit(err, s.file.Config, overlay)
		s.opts.Logger.WithError(err).
			Error("the overlay does not fit the configuration file; no job is accepted until it does")
	}

	s.overlay, s.current, s.refused = overlay, merged, err
	s.mu.Unlock()

	// Outside the lock: the hook takes locks of its own.
	s.opts.Apply(merged)

	return merged, err
}

// Problem returns the reason why the overlay or the file on disk is not in force,
// or a file of the configuration that is missing on this host; nil if there is no
// problem. It reads the file.
func (s *Settings) Problem() error {
	current, refused := s.inForce()
	if refused != nil {
		return refused
	}

	if err := s.fileProblem(); err != nil {
		return err
	}

	return current.checkFiles(Default(), s.opts.Adapters)
}

// fileProblem returns the reason why a reload of the file on disk would fail, as
// far as the file itself or the last reload shows it.
func (s *Settings) fileProblem() error {
	file, err := Load(s.opts.Path(), s.opts.Adapters)
	if err != nil {
		return notInForce(err, "until then the former file stays in force, and a restart would fail")
	}

	s.mu.Lock()
	running, last := s.file, s.reload
	s.mu.Unlock()

	if fixed := changedStartKeys(running.Config, file.Config); len(fixed) > 0 {
		return notInForce(errNeedsRestart(fixed), "")
	}

	if last.err != nil && reflect.DeepEqual(last.file, file) {
		return notInForce(last.err, "until then the former file stays in force")
	}

	return nil
}

// notInForce returns the error for a file on disk that does not run.
func notInForce(err error, until string) error {
	out := inventory.Errorf(inventory.KindRefused, "the file on disk is not in force: %s", err)

	e, ok := errors.AsType[*inventory.Error](err)
	if !ok {
		return out.Do("%s", until)
	}
	out.Message = "the file on disk is not in force: " + e.Message

	remedy := slices.DeleteFunc([]string{e.Remedy, until}, func(s string) bool { return s == "" })

	return out.Do("%s", strings.Join(remedy, "; ")).With(e.Actions...)
}

// Pending returns the keys of the file on disk that differ from the file in force:
// a reload would change them. It reads the file.
func (s *Settings) Pending() []string {
	file, err := Load(s.opts.Path(), s.opts.Adapters)
	if err != nil {
		return nil
	}

	s.mu.Lock()
	running := s.file
	s.mu.Unlock()

	return changedKeys(running.Config, file.Config)
}

// Misplaced returns the keys that are set at run time and that only the file sets by
// now. They have no effect.
func (s *Settings) Misplaced() []string { return misplaced(state.OverlayOf(s.opts.State.View())) }

// Config returns the configuration in force with the origin of every key.
func (s *Settings) Config() api.Config {
	c := s.Current()

	s.mu.Lock()
	defer s.mu.Unlock()

	overlay := s.overlay
	if s.refused != nil {
		overlay = nil
	}
	return values(c, s.file.named, overlay, s.opts.Node)
}

// Reload reads the configuration file again. It takes effect as a whole, or is
// refused with the reason and changes nothing. It blocks while a changed
// ansible-playbook is checked. It returns the configuration then in force.
func (s *Settings) Reload(ctx context.Context, c access.Caller) (api.Config, error) {
	folder := s.Current().Playbooks

	err := s.reloadFile(ctx, c)
	s.opts.Reloaded(ctx, err)

	if err != nil {
		return nil, err
	}

	config := s.Config()
	if s.Current().Playbooks != folder {
		if former := s.addFormer(ctx, config); len(former) > 0 {
			s.opts.Logger.Infof("still cleaned with the playbooks that configured them: %s", job.ShortList(former))
		}
	}

	return config, nil
}

func (s *Settings) reloadFile(ctx context.Context, c access.Caller) error {
	record := access.Record{Action: "settings.reload", Targets: []string{s.opts.Path()}}

	return access.Audited(ctx, s.opts.Audit, c, record, func(_ context.Context, _ *access.Record) error {
		file, err := Load(s.opts.Path(), s.opts.Adapters)
		if err == nil {
			err = s.replace(ctx, file)
		}

		s.mu.Lock()
		s.reload = refusal{file, err}
		s.mu.Unlock()

		// The request to reload is valid; the file is not.
		if e, ok := errors.AsType[*inventory.Error](err); ok && e.Kind == inventory.KindInvalid {
			refused := *e
			refused.Kind = inventory.KindRefused
			return &refused
		}

		return err
	})
}

// replace puts a file into force.
func (s *Settings) replace(ctx context.Context, file File) error {
	s.mu.Lock()
	old := s.file
	s.mu.Unlock()

	if fixed := changedStartKeys(old.Config, file.Config); len(fixed) > 0 {
		return errNeedsRestart(fixed)
	}

	overlay := state.OverlayOf(s.opts.State.View())

	merged, err := overlaid(file.Config, overlay)
	if err != nil {
		return err
	}
	if err := s.check(ctx, merged); err != nil {
		return err
	}

	// The overlay may have changed during the check. Then it differs from
	// s.overlay, and the next call of Current merges it.
	s.mu.Lock()
	s.file, s.overlay, s.current, s.refused = file, overlay, merged, nil
	s.mu.Unlock()

	s.opts.Apply(merged)
	s.note.request()

	return nil
}

func errNeedsRestart(keys []string) error {
	return inventory.Errorf(inventory.KindRefused, "%s cannot change while clusterm runs", strings.Join(keys, ", ")).
		Do("restart it: systemctl restart clusterm")
}

// changedStartKeys returns the keys that differ, and that only a restart can change.
func changedStartKeys(old, c Config) []string {
	return slices.DeleteFunc(changedKeys(old, c), func(key string) bool { return !isStartKey(key) })
}

// NeedsRestart returns the keys that only a restart changes, and that have another value in a running manager.
func (f File) NeedsRestart(running api.Config) (keys []string) {
	for _, e := range entries(f.Config) {
		now, known := running[e.key]
		if !known || !isStartKey(e.key) || now.Origin == OriginFound && e.value == "" {
			continue
		}

		// The values of the manager came as JSON.
		want, errWant := json.Marshal(e.value)

		have, errHave := json.Marshal(now.Value)
		if errWant != nil || errHave != nil || !bytes.Equal(want, have) {
			keys = append(keys, e.key)
		}
	}

	return keys
}

// changedKeys returns the keys of c that differ in old.
func changedKeys(old, c Config) []string {
	before := map[string]any{}
	for _, e := range entries(old) {
		before[e.key] = e.value
	}

	var changed []string
	for _, e := range entries(c) {
		if value, existed := before[e.key]; !existed || !reflect.DeepEqual(value, e.value) {
			changed = append(changed, e.key)
		}
	}

	return changed
}

// check refuses a configuration that this host cannot serve, or that lacks the
// group of a node.
func (s *Settings) check(ctx context.Context, c Config) error {
	if err := c.CheckHost(ctx, s.Current(), s.opts.Adapters); err != nil {
		return err
	}

	groups := map[string]string{}
	for _, n := range s.opts.State.View().Nodes() {
		groups[n.Name] = n.Group
	}

	return c.keepsGroups(groups)
}

// keepsGroups refuses a configuration that lacks the group of a node. groups has those of the nodes by name.
func (c *Config) keepsGroups(groups map[string]string) error {
	// Without its group, a node would have no rule and no variables.
	var orphans []string
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if _, err := c.Groups.Get(groups[name]); groups[name] != "" && err != nil {
			orphans = append(orphans, fmt.Sprintf("%s is in %s", name, groups[name]))
		}
	}

	if len(orphans) == 0 {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused,
		"groups: the new configuration lacks the groups of some nodes: %s", strings.Join(orphans, ", ")).
		Do("decommission the nodes, or keep the groups")
}

// Patch sets keys of the overlay; a nil value removes one. The change takes
// effect as a whole before Patch returns, or is refused with the reason. Patch
// returns the configuration then in force.
func (s *Settings) Patch(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error) {
	record := access.Record{Action: "settings.patch", Targets: slices.Sorted(maps.Keys(patch))}

	err := access.Audited(ctx, s.opts.Audit, c, record, func(ctx context.Context, _ *access.Record) error {
		return s.patch(ctx, c, patch)
	})
	if err != nil {
		return nil, err
	}

	config := s.Config()
	if _, ok := patch[keyPlaybooks]; ok {
		s.addFormer(ctx, config)
	}

	return config, nil
}

func (s *Settings) patch(ctx context.Context, c access.Caller, patch map[string]any) error {
	_, _, err := access.Decide(ctx, s.opts.Store, c, nil, func(tx *record.Tx) (next, error) {
		n, err := s.prepare(ctx, tx, patch)
		if err == nil {
			record.Put(tx, &state.Overlays, &state.Overlay{Keys: n.overlay})
		}
		return n, err
	})

	return err
}

// Preview checks a patch as Patch does, and changes nothing. It returns the
// configuration that Patch would put into force. Preview may run ansible-playbook and
// fetch a repository to check them.
func (s *Settings) Preview(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error) {
	n, _, err := access.Decide(ctx, s.opts.Store, c, nil, func(tx *record.Tx) (next, error) {
		return s.prepare(ctx, tx, patch)
	})
	if err != nil {
		return nil, err
	}
	return values(n.config, n.file.named, n.overlay, s.opts.Node), nil
}

// next is a configuration that passed every check and is not in force yet.
type next struct {
	file    File
	overlay map[string]any
	config  Config
}

// prepare makes the configuration that a patch leads to, or refuses it.
func (s *Settings) prepare(ctx context.Context, tx *record.Tx, patch map[string]any) (next, error) {
	if len(patch) == 0 {
		return next{}, inventory.Errorf(inventory.KindInvalid, "the request has no key").
			Do("list the settings").With(inventory.ShowSettings(""))
	}

	overlay, err := s.patched(state.OverlayOf(tx), patch)
	if err != nil {
		return next{}, err
	}

	s.mu.Lock()
	file := s.file
	s.mu.Unlock()

	merged, err := overlaid(file.Config, overlay)
	if err != nil {
		return next{}, err
	}
	if err := s.check(ctx, merged); err != nil {
		return next{}, err
	}

	return next{file, overlay, merged}, nil
}

// patched returns a copy of the overlay with the patch applied.
func (s *Settings) patched(overlay, patch map[string]any) (map[string]any, error) {
	current := s.Current()
	out := map[string]any{}
	maps.Copy(out, overlay)

	for _, key := range slices.Sorted(maps.Keys(patch)) {
		if value := patch[key]; value != nil {
			if isFileKey(key) {
				return nil, errFileKey(key)
			}

			out[key] = value

			continue
		}

		// A key that only an older version had, or took, can still be removed.
		_, set := out[key]

		switch {
		case set:
		case isFileKey(key):
			return nil, errFileKey(key)
		case !exists(current, key):
			return nil, errUnknown(key)
		}

		delete(out, key)
	}

	// A hidden secret that is written back keeps its value.
	if vars, ok := patch["vars"].(map[string]any); ok {
		restored, err := current.SecretVars.Restore(vars, current.Vars)
		if err != nil {
			return nil, err
		}
		out["vars"] = map[string]any(restored)
	}

	return out, nil
}

// Groups returns the configured groups.
func (s *Settings) Groups() inventory.Groups { return s.Current().Groups }

// Engine returns the settings of the job engine.
func (s *Settings) Engine() engine.Settings {
	c, refused := s.inForce()
	out := engine.Settings{
		Settings: step.Settings{
			Settings: s.variables(c),
			Appear:   time.Duration(c.Jobs.Appear),
			Lease:    time.Duration(c.Jobs.RunnerLease),
			Manager:  s.opts.Membership.Manager(),
			HostCAs:  c.hostCAs(),
		},
		JobLimit:   c.Jobs.Limit,
		Timeout:    time.Duration(c.Jobs.Timeout),
		Retention:  job.Retention{Count: c.Jobs.Keep, Age: time.Duration(c.Jobs.KeepFor), Bytes: c.Jobs.KeepBytes},
		PlanFor:    time.Duration(c.Jobs.PlanFor),
		PlanLimit:  c.Jobs.Plans,
		EventLimit: c.Jobs.OutputLimit,
		Own:        s.opts.Membership.Own(),
		Windows:    s.Windows(),
		Incomplete: refused,
	}
	out.AgentVars, out.NoAgents = s.opts.Membership.AgentVars()

	return out
}

// Variables returns the settings of the variables.
func (s *Settings) Variables() merge.Settings { return s.variables(s.Current()) }

func (s *Settings) variables(c Config) merge.Settings {
	out := merge.Settings{
		Groups: c.Groups, Vars: c.Vars, Secrets: c.SecretVars, Sources: slices.Sorted(maps.Keys(c.Secrets.Sources)),
		Connection: c.SSH.Connection, Connections: c.GroupSSH, FolderVars: s.opts.FolderVars,
	}
	if s.opts.KeyRotation != nil {
		out.Rotation = s.opts.KeyRotation()
	}
	return out
}

// Nodes returns the settings of the nodes.
func (s *Settings) Nodes() node.Settings {
	c := s.Current()
	discovered, _ := inventory.ParseStatus(c.Discovered) // it is checked

	return node.Settings{
		Groups:         c.Groups,
		Discovered:     discovered,
		Own:            s.opts.Membership.Own(),
		MonitorTimeout: time.Duration(c.MonitorTimeout),
		Connect:        s.variables(c).Connect,
		HostCAs:        c.hostCAs(),
	}
}

// GossipKey returns the settings of the gossip key.
func (s *Settings) GossipKey() gossipkey.Settings {
	c := s.Current()
	return gossipkey.Settings{Connect: s.variables(c).Connect, HostCAs: c.hostCAs()}
}

// SSHKey returns the settings of the site's ssh key.
func (s *Settings) SSHKey() sshkey.Settings {
	c := s.Current()
	vars := s.variables(c)

	s.mu.Lock()
	_, runTime := s.overlay[keySSHKeyFile]
	s.mu.Unlock()

	return sshkey.Settings{
		KeyFile: c.SSH.KeyFile, RunTime: runTime, Connect: vars.Connect, OwnKey: vars.OwnKey, HostCAs: c.hostCAs(),
	}
}

// keySSHKeyFile is the key of the site's ssh key.
const keySSHKeyFile = "ssh.key_file"

// UseSSHKey puts the site's ssh key into force as a rotation wants it.
func (s *Settings) UseSSHKey(ctx context.Context, k sshkey.Key) error {
	patch := map[string]any{keySSHKeyFile: nil}
	if k.RunTime {
		patch[keySSHKeyFile] = k.Setting
	}
	_, err := s.Patch(ctx, access.Caller{Principal: access.Manager}, patch)
	return err
}

// hostCAs returns the keys of the CAs for host certificates, without comments.
func (c Config) hostCAs() []string {
	keys := make([]string, 0, len(c.SSH.HostCA))
	for _, text := range c.SSH.HostCA {
		if key, err := configuration.ParseHostKey(text); err == nil {
			keys = append(keys, key)
		}
	}

	return keys
}

// Explain returns the settings of the explanations.
func (s *Settings) Explain() explain.Settings {
	c, refused := s.inForce()

	return explain.Settings{
		Groups: c.Groups, JobLimit: c.Jobs.Limit, Windows: s.Windows(), Incomplete: refused,
		Connect: s.variables(c).Connect,
	}
}

// Policies returns the settings of the policies.
func (s *Settings) Policies() policy.Settings {
	c, refused := s.inForce()
	p := c.Policies

	return policy.Settings{
		Commission: c.commissionRules(),
		Upgrade:    c.upgradeRules(),
		Verify:     c.verifyRules(),
		Settle:     time.Duration(p.Settle),
		Jobs:       p.Jobs,
		Rate:       p.Rate,
		Brake: policy.BrakeSettings{
			Share: p.Brake.Share, Minimum: p.Brake.Minimum, Within: time.Duration(p.Brake.Within),
			ReleaseAfter: time.Duration(p.Brake.ReleaseAfter),
		},
		Groups: c.Groups, Limit: c.Jobs.Limit, Windows: s.Windows(),
		Incomplete: refused, Connect: s.variables(c).Connect, HostCAs: c.hostCAs(),
	}
}

// Health returns warnings about settings that are not in force, and the reason why the overlay is not, or nil.
func (s *Settings) Health() (warnings []string, problem error) {
	problem = s.Problem()

	if keys := s.Pending(); problem == nil && len(keys) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"the configuration file on disk has changes that are not in force: %s; "+
				"to apply them: systemctl reload clusterm", strings.Join(keys, ", ")))
	}

	if keys := s.Misplaced(); len(keys) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"settings that were set at run time have no effect, because they belong to the configuration file "+
				"now: %s; move them to the file, then remove them: clusterctl config unset %s",
			strings.Join(keys, ", "), strings.Join(keys, " ")))
	}

	c := s.Current()
	if !c.Etcd.Used() {
		warnings = append(warnings, c.Jobs.LogWarnings()...)
	}

	if c.PlainHTTP != "" && access.Role(c.PlainRole) == access.RoleAdmin {
		warnings = append(warnings, "plain_http_role is admin, so every program on this host controls all nodes; "+
			"set it to viewer or operator in the configuration file, and restart clusterm")
	}

	return warnings, problem
}

// LogRoom is the space in the quota for the logs of jobs, in bytes, in a manager at all
// its other limits.
const LogRoom = 1536 << 20

// LogWarnings returns a warning if the configuration allows for more logs than the store of a large manager has
// room for.
func (j Jobs) LogWarnings() (warnings []string) {
	// Each running job has output and events.
	allowed := j.KeepBytes + 2*int64(j.Limit)*j.OutputLimit
	if allowed <= LogRoom {
		return nil
	}
	return []string{fmt.Sprintf("jobs.keep_bytes and jobs.limit × jobs.output_limit allow for %d MiB of logs; "+
		"the store of a large manager has room for %d MiB", allowed>>20, LogRoom>>20)}
}
