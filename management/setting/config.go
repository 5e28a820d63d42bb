// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"cmp"
	_ "embed" // for the example file
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/yamlfile"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/hardware"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/scan"
	"github.com/contiv/cluster/management/step/playbook"
	"github.com/contiv/cluster/monitor"
)

// Example is a configuration file with every key at its default, and a comment
// on each.
//
//go:embed clusterm.yaml
var Example []byte

// Config is the configuration of a daemon. Its yaml tags are the keys, in the
// order of the example file, which documents them.
type Config struct {
	DataDir   string           `yaml:"data_dir"`
	Socket    string           `yaml:"socket"`
	Listen    string           `yaml:"listen"`
	TLS       TLS              `yaml:"tls"`
	Metrics   string           `yaml:"metrics_listen"`
	PlainHTTP string           `yaml:"plain_http"`
	PlainRole string           `yaml:"plain_http_role"`
	OIDC      OIDC             `yaml:"oidc"`
	Node      monitor.Identity `yaml:"node"` // of the daemon's own host
	Gossip    Gossip           `yaml:"gossip"`
	// MonitorTimeout is the silence after which the reports of a monitor are void.
	MonitorTimeout Duration `yaml:"monitor_timeout"`
	// Discovered is the status, in lower case, of a node whose agent speaks for the first time.
	Discovered string            `yaml:"discovered"`
	Etcd       Etcd              `yaml:"etcd"`
	Instances  Instances         `yaml:"instances"`
	Groups     inventory.Groups  `yaml:"groups"`
	Playbooks  string            `yaml:"playbooks"`
	Repository repository.Config `yaml:"repository"`
	Ansible    string            `yaml:"ansible_playbook"`
	// AcceptVulnerable runs jobs with an ansible-playbook that evaluates text of hosts.
	AcceptVulnerable bool               `yaml:"accept_vulnerable_ansible"`
	VaultIDs         []string           `yaml:"vault_ids"`
	Vars             configuration.Vars `yaml:"vars"`

	SecretVars configuration.Secrets `yaml:"secret_vars"`
	Secrets    Secrets               `yaml:"secrets"`

	SSH      SSH                                 `yaml:"ssh"`
	GroupSSH map[string]configuration.Connection `yaml:"group_ssh"`
	Jobs     Jobs                                `yaml:"jobs"`
	// GateCommands are the commands that a gate of a rollout may have, by name.
	GateCommands map[string][]string `yaml:"gate_commands"`

	Windows  []Window `yaml:"windows"`
	Policies Policies `yaml:"policies"`
	MaxBody  int64    `yaml:"max_body"` // bytes
	// MaxRequests and MaxStreams bound what each caller has open at once.
	MaxRequests int   `yaml:"max_requests"`
	MaxStreams  int   `yaml:"max_streams"`
	Audit       Audit `yaml:"audit"`

	Notifications []Notification `yaml:"notifications"`
	Scan          Scan           `yaml:"scan"`
	Inspection    Inspection     `yaml:"inspection"`
	Images        Images         `yaml:"images"`
	Boot          Boot           `yaml:"boot"`

	LogLevel string `yaml:"log_level"`
}

// SSH holds the ssh parameters of the site.
type SSH struct {
	configuration.Connection `yaml:",inline"`

	// HostCA lists the keys of the CAs that sign the host certificates of the site.
	HostCA []string `yaml:"host_ca"`
}

// TLS names a site's own certificate and client CA for Listen. Empty files: those
// of the manager.
type TLS struct {
	Names        []string `yaml:"names"` // more host names and addresses in the manager's certificate
	CertFile     string   `yaml:"cert_file"`
	KeyFile      string   `yaml:"key_file"`
	ClientCAFile string   `yaml:"client_ca_file"`
}

// OIDC names the issuer of bearer tokens outside of the manager, and what they are
// worth. Without an issuer there are none.
type OIDC struct {
	Issuer    string     `yaml:"issuer"` // URL
	Audience  string     `yaml:"audience"`
	CAFile    string     `yaml:"ca_file"`
	NameClaim string     `yaml:"name_claim"`
	Claim     string     `yaml:"claim"`
	Rules     []OIDCRule `yaml:"rules"`
}

// OIDCRule gives a role, perhaps with a scope, to the callers with a value of the claim.
type OIDCRule struct {
	Value    string   `json:"value" yaml:"value"`
	Role     string   `json:"role" yaml:"role"`
	Groups   []string `json:"groups,omitempty" yaml:"groups,omitempty"`
	Selector string   `json:"selector,omitempty" yaml:"selector,omitempty"`
}

// Scope returns the scope of the rule.
func (r OIDCRule) Scope() access.Scope { return access.Scope{Groups: r.Groups, Selector: r.Selector} }

// Secrets has the key that encrypts secret variables, and the sources of those that are
// not stored.
type Secrets struct {
	KeyFile string                                `yaml:"key_file"` // empty: see clusterm.yaml
	Sources map[string]configuration.SecretSource `yaml:"sources"`  // by variable
}

// Gossip selects the source of membership: an agent inside the process, an
// existing serf agent (RPC), or none (Off). Its adapter checks the values.
type Gossip struct {
	Off         bool     `yaml:"-"`
	Bind        string   `yaml:"bind"`
	Advertise   string   `yaml:"advertise"`
	KeyFile     string   `yaml:"key_file"`
	Join        []string `yaml:"join"`
	RPC         string   `yaml:"rpc"`
	RPCAuthFile string   `yaml:"rpc_auth_file"`
}

// Etcd selects an existing etcd, or the embedded one if there are no endpoints.
// Its adapter checks the values.
type Etcd struct {
	Endpoints    []string `yaml:"endpoints"`
	CAFile       string   `yaml:"ca_file"`
	CertFile     string   `yaml:"cert_file"`
	KeyFile      string   `yaml:"key_file"`
	User         string   `yaml:"user"`
	PasswordFile string   `yaml:"password_file"`
	Prefix       string   `yaml:"prefix"`
}

// Instances says where the etcd inside listens for those of other instances, once there are others, and what this one
// does when all others are gone. It listens at the address of the own node.
type Instances struct {
	ClientPort    uint16   `yaml:"client_port"`
	PeerPort      uint16   `yaml:"peer_port"`
	Availability  string   `yaml:"availability"`
	SurvivorAfter Duration `yaml:"survivor_after"`
}

// The values of Instances.Availability.
const (
	Consistency = "consistency"
	Survivor    = "survivor"
)

// Patience is how long all others have to be gone until this instance goes on alone; 0: it never does by itself.
func (i Instances) Patience() time.Duration {
	if i.Availability != Survivor {
		return 0
	}
	return time.Duration(i.SurvivorAfter)
}

// Used reports whether an existing etcd is configured.
func (e Etcd) Used() bool { return len(e.Endpoints) > 0 }

// Jobs limits jobs and their retention.
type Jobs struct {
	Limit       int      `yaml:"limit"` // jobs that run at a time
	Timeout     Duration `yaml:"timeout"`
	Forks       int      `yaml:"forks"` // hosts of one job at a time
	Appear      Duration `yaml:"appear"`
	RunnerLease Duration `yaml:"runner_lease"`
	Keep        int      `yaml:"keep"` // ended jobs
	KeepFor     Duration `yaml:"keep_for"`
	KeepBytes   int64    `yaml:"keep_bytes"`   // of all logs
	OutputLimit int64    `yaml:"output_limit"` // bytes per stream of one job
	PlanFor     Duration `yaml:"plan_for"`     // how long a plan can be applied
	Plans       int      `yaml:"plans"`        // that can be applied at a time
}

// Policies configure the automation of the manager.
type Policies struct {
	// Commission are the rules for newly discovered nodes, by the name of their policy.
	Commission map[string]CommissionRule `yaml:"commission"`
	// Upgrade are the rules for nodes that follow the repository, by the name of their policy.
	Upgrade map[string]UpgradeRule `yaml:"upgrade"`
	// Verify are the rules for scheduled verifications, by the name of their policy.
	Verify map[string]VerifyRule `yaml:"verify"`
	Settle Duration              `yaml:"settle"`
	Jobs   int                   `yaml:"jobs"` // automatic ones at a time
	Rate   int                   `yaml:"rate"` // automatic jobs within policy.RateWindow
	Brake  Brake                 `yaml:"brake"`
}

// Brake says when automation stops.
type Brake struct {
	Share        int      `yaml:"share"` // percent of the visible nodes
	Minimum      int      `yaml:"minimum"`
	Within       Duration `yaml:"within"`
	ReleaseAfter Duration `yaml:"release_after"` // 0: never
}

// Audit bounds the audit trail.
type Audit struct {
	Keep    int      `yaml:"keep"` // entries
	KeepFor Duration `yaml:"keep_for"`
}

// Scan says where the BMCs of the site are, and how often to look for them.
type Scan struct {
	Ranges []string `yaml:"ranges"` // see scan.ParseRange
	Every  Duration `yaml:"every"`  // 0: only when asked to
	Rate   int      `yaml:"rate"`   // addresses in a second
}

// Images says where the content of images is.
type Images struct {
	Folder string `yaml:"folder"` // empty: images in the data directory
}

// ImageFolder returns the folder with the content of images.
func (c *Config) ImageFolder() string {
	return cmp.Or(c.Images.Folder, filepath.Join(c.DataDir, "images"))
}

// Parsed returns the ranges, and the error of the first one that is none.
func (s Scan) Parsed() (scan.Config, error) {
	parsed := scan.Config{Every: time.Duration(s.Every), Rate: s.Rate}

	for _, text := range s.Ranges {
		r, err := scan.ParseRange(text)
		if err != nil {
			return parsed, err
		}
		parsed.Ranges = append(parsed.Ranges, r)
	}

	if n := parsed.Size(); n > scan.MaxAddresses {
		return parsed, inventory.Errorf(inventory.KindInvalid, "the ranges have %d addresses, and may have %d", n,
			scan.MaxAddresses).Do("name smaller ranges, of BMCs only")
	}

	return parsed, nil
}

// The defaults of the adapters' sections.
const (
	DefaultBind   = "0.0.0.0:7946"
	DefaultPrefix = "/clusterm"
	DefaultSocket = "/run/clusterm/clusterm.sock"
)

// Default returns the configuration without a file.
func Default() Config {
	return Config{
		DataDir:        "/var/lib/clusterm",
		Socket:         DefaultSocket,
		PlainRole:      string(access.RoleViewer),
		TLS:            TLS{Names: []string{}},
		OIDC:           OIDC{NameClaim: "sub", Claim: "groups", Rules: []OIDCRule{}},
		Gossip:         Gossip{Bind: DefaultBind, Join: []string{}},
		MonitorTimeout: Duration(5 * time.Minute),
		Discovered:     discovered[0],
		Etcd:           Etcd{Endpoints: []string{}, Prefix: DefaultPrefix},
		Instances: Instances{
			ClientPort: 12379, PeerPort: 12380, Availability: Consistency, SurvivorAfter: Duration(time.Minute),
		},
		Groups:     inventory.DefaultGroups(),
		Repository: repository.DefaultConfig(),
		Ansible:    "ansible-playbook",
		VaultIDs:   []string{},
		Vars:       configuration.Vars{},
		SecretVars: configuration.DefaultSecrets(),
		Secrets:    Secrets{Sources: map[string]configuration.SecretSource{}},
		SSH:        SSH{HostCA: []string{}},
		GroupSSH:   map[string]configuration.Connection{},
		Jobs: Jobs{
			Limit: 4, Timeout: Duration(time.Hour), Forks: 50, Appear: Duration(2 * time.Minute),
			RunnerLease: Duration(10 * time.Minute), Keep: 1000, KeepFor: Duration(30 * 24 * time.Hour),
			KeepBytes: 256 << 20, OutputLimit: 16 << 20, PlanFor: Duration(24 * time.Hour), Plans: 100,
		},
		GateCommands: map[string][]string{},
		Windows:      []Window{},
		Policies: Policies{
			Commission: map[string]CommissionRule{},
			Upgrade:    map[string]UpgradeRule{},
			Verify:     map[string]VerifyRule{},
			Settle:     Duration(time.Minute),
			Jobs:       2,
			Rate:       20,
			Brake: Brake{
				Share: 30, Minimum: 3, Within: Duration(5 * time.Minute), ReleaseAfter: Duration(time.Hour),
			},
		},
		MaxBody: 1 << 20,

		MaxRequests:   64,
		MaxStreams:    64,
		Audit:         Audit{Keep: 100_000, KeepFor: Duration(365 * 24 * time.Hour)},
		Notifications: []Notification{},
		Scan:          Scan{Ranges: []string{}, Rate: 20},
		Inspection:    Inspection{Rules: []hardware.Rule{}},
		Boot: Boot{
			Interfaces: []string{},
			Pool:       []string{},
			DNS:        []string{},
			Lease:      Duration(time.Hour),
			IPXE:       "/usr/lib/ipxe",
		},
		LogLevel: "info",
	}
}

// UnmarshalYAML accepts a mapping, or the word off.
func (g *Gossip) UnmarshalYAML(n *yaml.Node) error {
	// A type without this method, so that the decoding does not recurse.
	type plain Gossip
	decoded := plain(*g)
	decoded.Bind = ""

	off, err := yamlfile.DecodeOrOff(n, "gossip", &decoded)
	if err != nil {
		return err
	}

	// The default address applies to an agent inside only.
	if decoded.Bind == "" && decoded.RPC == "" {
		decoded.Bind = g.Bind
	}

	*g = Gossip(decoded)
	g.Off = off

	return nil
}

// Programs returns the part that the programs behind a run of a playbook depend on.
func (c Config) Programs() playbook.Config {
	return playbook.Config{
		Playbooks: c.Playbooks, Repository: c.Repository, Ansible: c.Ansible, AcceptVulnerable: c.AcceptVulnerable,
		VaultIDs: c.VaultIDs, Groups: c.Groups, Forks: c.Jobs.Forks, OutputLimit: c.Jobs.OutputLimit,
	}
}

// Duration is a time.Duration in the form "1h30m" in YAML and JSON.
type Duration = inventory.Duration
