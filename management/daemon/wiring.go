// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/access/mtls"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/enroll"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/gossip"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/hardware"
	"github.com/contiv/cluster/management/health"
	"github.com/contiv/cluster/management/image"
	"github.com/contiv/cluster/management/instance"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/rollout/gate"
	"github.com/contiv/cluster/management/scan"
	"github.com/contiv/cluster/management/secret/keyring"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/appear"
	"github.com/contiv/cluster/management/step/credentials"
	"github.com/contiv/cluster/management/step/inspect"
	"github.com/contiv/cluster/management/step/install"
	"github.com/contiv/cluster/management/step/netboot"
	"github.com/contiv/cluster/management/step/playbook"
	"github.com/contiv/cluster/management/step/power"
	"github.com/contiv/cluster/management/step/probe"
	"github.com/contiv/cluster/management/variable"
	"github.com/contiv/cluster/management/window"
)

// wireUseCases makes the use cases and the server, and starts none of them.
func (d *Daemon) wireUseCases() {
	log := d.opts.Logger
	d.nodes = node.New(node.Options{
		State: d.store, Store: d.store, Settings: d.settings.Nodes, Leads: d.member.Leads, Audit: d.audit, Logger: log,
		Prober: func(caller string) node.Prober { return d.programs.Pinger.For(caller) },
		Yield: func(ctx context.Context, who string, nodes []string) error {
			return d.policies.Yield(ctx, who, nodes)
		},
	})
	d.judge = node.NewJudge(d.store, d.store, log)
	d.variables = variable.New(variable.Options{
		Store: d.store, Settings: d.settings.Variables, Audit: d.audit, Marked: d.secrets.Kick,
	})
	d.desired = desired.New(d.identity.ID, d.settings.Variables)
	d.bmcs = bmc.New()
	ranges, _ := d.file.Scan.Parsed() // the file was checked
	d.scanner = scan.New(scan.Options{
		Config: ranges, Store: d.store, Sync: d.store.Sync, Leads: d.member.Leads, Watch: d.store.Changed,
		Greet: bmc.Greet, Audit: d.audit, Logger: log,
	})
	d.images = image.New(image.Options{
		Store: d.store, Sync: d.store.Sync, Changed: d.store.Changed, Self: d.identity, Folder: d.file.ImageFolder(),
		Owner: d.gossip.Manager, Members: func() []string { return instance.IDs(d.store.View()) }, Users: boot.UsersOf,
		Audit: d.audit, Logger: log,
	})
	d.boot = boot.New(boot.Options{
		Store: d.store, Sync: d.store.Sync, Leads: d.member.Leads, Node: d.identity.Node, Config: d.settings.Boot,
		Ports: d.opts.BootPorts, Stale: func() bool { return d.store.View().Stale },
		Environments: image.Environments{Images: d.images}, Disks: d.images, Audit: d.audit, Logger: log,
	})
	executors, playbooks := d.newExecutors()
	d.engine = engine.New(engine.Options{
		State: d.store, Store: d.store, Results: d.store, Records: d.store, Metrics: d.metrics, Executors: executors,
		Playbooks: playbooks, Settings: d.settings.Engine, Self: d.identity,
		Membership: d.member, Audit: d.audit, Troubles: &d.troubles, Logger: log,
	})

	d.imports = enroll.New(enroll.Options{
		State: d.store, Store: d.store, Jobs: d.engine, Leads: d.member.Leads, Audit: d.audit, Logger: log,
	})
	d.rollouts = d.newRollouts()
	d.policies = d.newPolicies()

	d.tokens = access.NewTokens(d.store, d.audit, func() inventory.Groups { return d.settings.Current().Groups })

	d.clients = access.NewCertificates(d.store, d.audit, mtls.Issued(d.pkiDir()))
	d.tokens.WatchCertificates(d.clients)

	if d.issuer != nil {
		d.tokens.Trust(d.issuer)
	}

	d.instances = d.newInstances()
	d.metrics.MustRegister(metrics.Snapshot(d.snapshot))

	d.wireNotifier()

	api := server.New(server.Options{
		State:      d.store,
		Jobs:       d.engine,
		Plans:      d.engine,
		PlanReader: d.engine,
		Logs:       d.engine,
		Nodes:      d.nodes,
		Ping:       d.nodes,
		Alerts:     d.nodes,
		BMCLogins:  &power.Logins{State: d.store, Store: d.store, Audit: d.audit, BMCs: d.bmcs},
		Importer:   d.imports,
		Members:    d.instances,
		Scanner:    d.scanner,
		Classes:    hardware.NewClasses(hardware.Options{Store: d.store, Audit: d.audit, Groups: d.settings.Groups}),
		Images:     d.images,
		Contents:   d.images,
		Boot:       d.boot,
		Variables:  d.variables,
		VarsPast:   d.variables,
		Explain:    explain.New(d.store, d.desired, d.explainSettings, d.policies),
		Desired:    d.desired,
		Settings:   d.settings,
		Backup:     d.store.Backup,

		Automation: server.Automation{
			Policies: d.policies,
			Windows:  window.NewKeeper(window.Options{Store: d.store, Calendar: d.settings.Windows, Audit: d.audit}),
			Rollouts: d.rollouts, Repository: d.repository,
			Notifier: d.notifier,
		},
		Keys: server.Keys{HostKeys: d.nodes, GossipKey: d.gossipKey, SSHKey: d.sshKey, Secrets: d.secrets},
		Access: server.Access{
			PlainHTTPRole: access.Role(d.file.PlainRole), CertifiedCaller: mtls.Caller(d.clients),
			Certificates: d.clients, Tokens: d.tokens, Audit: d.audit, Trail: d.trail, Results: d.store,
		},
		Telemetry: server.Telemetry{
			Room:       d.room,
			Health:     d.health,
			Version:    d.version,
			Metrics:    d.metrics.Handler(),
			Registerer: d.metrics,
			Logger:     log,
		},
	})

	d.mu.Lock()
	d.server = api
	d.mu.Unlock()

	// The overlay may have set the body limit before the server existed.
	d.apply(d.settings.Current())
}

// newExecutors returns the executors of all kinds of step, and the playbooks among them.
func (d *Daemon) newExecutors() (step.Executors, *playbook.Executor) {
	settings := func() step.Settings { return d.settings.Engine().Settings }
	bmcs := power.Registered{Pool: d.bmcs}
	playbooks := playbook.New(playbook.Options{
		State: d.store, Inputs: d.store, Runner: d.programs, Playbooks: d.programs, Content: d.programs,
		Sources: d.secrets, Settings: settings, Logger: d.opts.Logger,
	})
	all := step.Executors{
		job.StepPlaybook: playbooks,
		job.StepProbe:    probe.New(probe.Options{State: d.store, Prober: d.programs.Prober, Settings: settings}),
		job.StepAppear: appear.New(appear.Options{
			State: d.store, Store: d.store, Settings: settings, Keys: playbooks.HostKeys,
		}),
		job.StepPower:       power.New(bmcs, power.RecordIn(d.store), power.PasswordsIn(d.store)),
		job.StepCredentials: credentials.New(d.programs.NewProber(), bmcs, power.RecordIn(d.store), settings),
	}

	booter := netboot.Booter{Service: d.boot, Switch: d.bmcs, BMCs: bmcs}
	all[job.StepInspect] = inspect.New(inspect.Options{
		Hosts: d.programs.NewProber(), BMCs: bmcs, Keep: inspect.KeepIn(d.store, d.settings.Inspection),
		Settings: settings, Booter: booter,
	})
	all[job.StepInstall] = install.New(install.Options{
		Booter: booter, Installer: d.boot, Settings: settings, PublicKey: sshkey.PublicOf,
	})
	if d.opts.Executors != nil {
		maps.Copy(all, d.opts.Executors(d.store))
	}

	return all, playbooks
}

// newRollouts makes the part that drives rollout.
func (d *Daemon) newRollouts() *rollout.Loop {
	return rollout.New(rollout.Options{
		State: d.store, Records: d.store, Store: d.store, Jobs: d.engine, Leads: d.member.Leads, Audit: d.audit,
		Settings: d.settings.Rollouts, Allowed: d.settings.AllowsRollout, Permits: d.settings.RolloutPermits,
		Ask:     func(ctx context.Context, url string) (int, error) { return gate.Ask(ctx, d.store.View(), url) },
		Command: gate.Command(d.settings.GateCommand),
		Halted: func(a state.Automation, r rollout.Record) string {
			return policy.HaltedRollout(d.settings.Policies(), a, r)
		},
		Logger: d.opts.Logger.WithField("part", "rollouts"),
	})
}

// newPolicies makes the automation of the manager.
func (d *Daemon) newPolicies() *policy.Loop {
	return policy.New(policy.Options{
		State: d.store, Store: d.store, Jobs: d.engine, Rollouts: d.rollouts, Prober: d.programs.Pinger,
		Settings: d.policySettings,
		Leads:    d.member.Leads, Observed: d.nodes.Observed, Audit: d.audit,
		Logger: d.opts.Logger.WithField("part", "policies"),
		Count:  policy.NewCount(d.metrics),
		Halted: d.noteBrake,
	})
}

// policySettings returns the settings of the policies, with the outdated parts of nodes.
func (d *Daemon) policySettings() policy.Settings {
	s := d.settings.Policies()
	s.Outdated = func(v *state.View, n *inventory.Node) []inventory.Part { return d.desired.Of(v).Judge(n).Differs }
	s.TakenBack = func(v *state.View, n *inventory.Node) string { return d.desired.Of(v).TakenBack(n, nil) }
	s.Playbooks = func(v *state.View) state.Playbooks { return d.desired.Of(v).Playbooks() }
	return s
}

// noteBrake shows the state of the brake to the supervisor and in the log.
func (d *Daemon) noteBrake(text string) {
	if text == "" {
		d.opts.Logger.Info("automation goes on")
		d.status(serving)
		return
	}

	d.opts.Logger.Warn(text)
	d.status(serving + "; " + text)
}

// wireNotifier makes the notifier, and starts nothing.
func (d *Daemon) wireNotifier() {
	d.notifier = notify.New(notify.Options{
		Store: d.store, Leads: d.member.Leads,
		Health: func(ctx context.Context) map[string]string { return health.Complaints(d.health(ctx)) },

		Manager: d.node.Name(), Audit: d.audit, Logger: d.opts.Logger.WithField("part", "notifications"),
	})

	config := d.settings.Current()
	d.notifier.SetTargets(config.Targets())
}

// openSSHKey makes the keeper of the manager's ssh key.
func (d *Daemon) openSSHKey() {
	d.sshKey = sshkey.New(sshkey.Options{
		State: d.store, Records: d.store, Hosts: d.programs.NewProber(),
		Settings: d.settings.SSHKey, Switch: d.settings.UseSSHKey, Leads: d.member.Leads,
		Node: d.node.Name(), Dir: filepath.Join(d.file.DataDir, "ssh"), Home: sshkey.Home(),
		Comment: cmp.Or("clusterm@"+d.node.Name(), "clusterm"),
		Audit:   d.audit, Logger: d.opts.Logger.WithField("part", "ssh key"),
	})
}

// keyRotation returns the part of a rotation of the ssh key that connections need, or nil.
func (d *Daemon) keyRotation() *merge.KeyRotation {
	setting, path, former, ok := sshkey.RotationOf(d.store.View()).Former()
	if !ok {
		return nil
	}
	return &merge.KeyRotation{Setting: setting, KeyFile: path, Former: former}
}

// explainSettings returns the settings of the explanations.
func (d *Daemon) explainSettings() explain.Settings {
	s := d.settings.Explain()
	s.KeyLaggard = d.sshKey.Why
	return s
}

// newInstances makes the part that lets other instances join.
func (d *Daemon) newInstances() *instance.Service {
	o := instance.Options{
		Self: d.identity, Addr: d.node.Addr,
		ClientPort: d.file.Instances.ClientPort, PeerPort: d.file.Instances.PeerPort,
		Store: d.store, Tokens: d.tokens,
		Peers: pki.Peers{Dir: instance.PeersDir(d.file.DataDir), Now: d.opts.Certificates.Now},
		Files: d.common, Leads: d.member.Leads, Audit: d.audit, Logger: d.opts.Logger.WithField("part", "instances"),
		Fingerprint: func() string {
			if d.certificates == nil {
				return ""
			}
			return d.certificates.Fingerprint()
		},
	}
	if d.etcd.Embedded != nil {
		o.Etcd = inside{d.etcd}
	}

	return instance.New(o)
}

// inside is the etcd inside, with its server.
type inside struct{ *etcd.Opened }

func (i inside) Open(ctx context.Context, m etcd.Member) error { return i.Embedded.Open(ctx, m) }

// common returns the files that all instances have in common.
func (d *Daemon) common() ([]instance.File, error) {
	path, private, err := d.sshKey.InUse()
	if err != nil {
		return nil, err
	}
	if below, err := filepath.Rel(d.file.DataDir, path); err == nil && filepath.IsLocal(below) {
		path = below
	}

	secrets, err := d.secrets.Content()
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(d.pkiDir(), "ca.pem"))
	if err != nil {
		return nil, err
	}

	files := []instance.File{
		{Path: path, Content: private}, {Path: keyring.FileName, Content: secrets}, {Path: "pki/ca.pem", Content: ca},
	}
	if keys := d.gossip.Keys(); len(keys) > 0 {
		files = append(files, instance.File{Path: gossip.KeyFile, Content: keys})
	}

	return files, nil
}

// openAudit makes the audit trail. Until its loop runs, entries wait in memory.
func (d *Daemon) openAudit() {
	d.trail = audit.New(audit.Options{
		Store: d.store, Instance: d.node.Name(), Keep: d.file.Audit.Keep, KeepFor: time.Duration(d.file.Audit.KeepFor),
		Leads:  d.leads,
		Former: filepath.Join(d.file.DataDir, "audit"), Logger: d.opts.Logger,
	})
	d.audit = audit.Auditor{Trail: d.trail, Log: d.opts.Logger}
}

// leads reports whether this instance leads. None does before it is a member.
func (d *Daemon) leads() bool { return d.member != nil && d.member.Leads() }

// runAudit seals entries until Stop, which stores those that wait.
func (d *Daemon) runAudit(ctx context.Context) {
	d.parts.OnStop("entries of the audit trail", func(ctx context.Context) error { d.trail.Close(ctx); return nil })
	d.parts.Run(ctx, d.trail.Loop)
}

// kinds are the kinds of record that the store keeps for their packages.
var kinds = slices.Concat(state.Kinds, []record.Any{
	&job.Kind, &plan.Kind, &rollout.Kind, &image.Kind, &boot.Kind, &boot.BootsKind,
	&access.TokenKind, &access.TokenUseKind, &access.RevocationKind, &sshkey.Kind, &gossipkey.Kind, &window.FreezeKind,
	&notify.DeliveryKind, &notify.PositionKind, &enroll.Kind, &scan.Kind, &scan.FoundKind, &instance.Kind,
})
