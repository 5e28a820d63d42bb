// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"encoding/base64"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/cluster/datadir"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// every is the time between two looks at the members of etcd.
const every = 5 * time.Second

// Member is an instance that belongs to the manager, whether it is alive or not. The instance whose etcd was alone gets
// its record when the first other one joins.
type Member struct {
	cluster.Identity

	Addr   string    `json:"addr"` // at which the others reach it
	Peer   string    `json:"peer"` // the URL of its etcd for the others
	Joined time.Time `json:"joined"`
	By     string    `json:"by,omitempty"` // who let it join
}

// Kind are the members, by the ids of the instances.
var Kind = record.Kind[Member]{
	Name:  "members",
	Key:   func(m *Member) string { return m.ID },
	Nodes: func(m *Member) []string { return []string{m.Node} },
}

// Several reports whether there are other instances with an etcd inside, alive or not.
func Several(r record.Reader) bool { return len(record.List(r, &Kind)) > 1 }

// IDs returns the ids of the instances that belong to the manager, alive or not.
func IDs(r record.Reader) []string {
	var ids []string
	for _, m := range record.List(r, &Kind) {
		ids = append(ids, m.ID)
	}

	return ids
}

// Etcd is the etcd inside of this instance.
type Etcd interface {
	// Open makes the etcd reachable by those of other instances.
	Open(ctx context.Context, m etcd.Member) error
	// Members asks every member for its condition.
	Members(ctx context.Context) ([]etcd.ClusterMember, error)
	// AddLearner adds a member that does not vote yet, unless it is there.
	AddLearner(ctx context.Context, name, peerURL string) (etcd.Joining, error)
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
}

// Tokens makes tokens.
type Tokens interface {
	Create(
		ctx context.Context, c access.Caller, by access.Identity, r access.TokenRequest,
	) (access.Token, string, error)
}

// Options are the parameters of a Service.
type Options struct {
	Self cluster.Identity
	Addr string // of this host
	// ClientPort and PeerPort are those of the etcd inside, for other instances.
	ClientPort, PeerPort uint16
	Store                record.Store
	Tokens               Tokens
	// Fingerprint returns that of the CA of the API; empty without HTTPS.
	Fingerprint func() string
	Etcd        Etcd // nil: an existing etcd, which has members of its own
	Peers       pki.Peers
	// Files returns what all instances have in common.
	Files  func() ([]File, error)
	Leads  func() bool
	Audit  access.Auditor
	Logger logrus.FieldLogger
}

// Service lets instances join and leave. Its Loop runs while it is in use.
type Service struct {
	Options
	*control.Loop

	mu       sync.Mutex
	warnings []string
}

// New returns the service of an instance.
func New(o Options) *Service {
	s := &Service{Options: o}
	s.Loop = control.New(control.Options{
		Name: "members", Every: every, Logger: o.Logger, Round: s.look,
		Trouble: "the members of etcd were not looked at; retrying",
	})

	return s
}

// The time to the end of an invitation.
const (
	inviteFor    = time.Hour
	maxInviteFor = 24 * time.Hour
)

// Invite makes a token with which one instance can join.
func (s *Service) Invite(
	ctx context.Context, c access.Caller, by access.Identity, r api.InviteRequest,
) (made api.Invite, err error) {
	age := inviteFor
	if r.Expires != "" {
		if age, err = time.ParseDuration(r.Expires); err != nil || age < time.Minute || age > maxInviteFor {
			return made, inventory.Errorf(inventory.KindInvalid, "expires: %q is not between 1m and 24h", r.Expires).
				Do("write it like 30m or 2h")
		}
	}

	if err := s.joinable(); err != nil {
		return made, err
	}

	now, _ := s.Store.Latest()
	for _, i := range record.List(now, &state.Instances) {
		for _, url := range i.API {
			if strings.HasPrefix(url, "https://") {
				made.URLs = append(made.URLs, url)
			}
		}
	}

	if made.Fingerprint = s.Fingerprint(); made.Fingerprint == "" || len(made.URLs) == 0 {
		return made, inventory.Errorf(inventory.KindRefused, "the manager serves no HTTPS, so no other host can join").
			Do("set listen in the configuration file, for example to %s, and restart clusterm",
				net.JoinHostPort(cmp.Or(s.Addr, "ADDRESS"), "9443"))
	}

	token, text, err := s.Tokens.Create(ctx, c, by, access.TokenRequest{Role: access.RoleInstance, Expires: age})
	made.Token, made.Expires = text, token.Expires

	return made, err
}

// joinable refuses for a manager that none can join.
func (s *Service) joinable() error {
	switch {
	case s.Etcd == nil:
		return inventory.Errorf(inventory.KindRefused, "this manager uses an existing etcd with members of its own").
			Do("give the other host the same etcd section, playbooks and keys, and start clusterm there")
	case s.Addr == "":
		return inventory.Errorf(inventory.KindRefused, "this host has no address at which others reach it").
			Do("set node.addr in the configuration file, and restart clusterm")
	}

	return nil
}

// Join admits another instance. id is that of the caller: a token of the role instance is spent by it.
func (s *Service) Join(
	ctx context.Context, c access.Caller, id access.Identity, r api.JoinRequest,
) (answer api.JoinAnswer, err error) {
	entry := access.Record{Action: "instances.join", Targets: []string{r.ID, r.Node, r.Addr}}
	err = access.Audited(ctx, s.Audit, c, entry, func(ctx context.Context, _ *access.Record) error {
		answer, err = s.join(ctx, c, id, r)
		return err
	})

	return answer, err
}

func (s *Service) join(
	ctx context.Context, c access.Caller, id access.Identity, r api.JoinRequest,
) (answer api.JoinAnswer, err error) {
	if err := s.check(r); err != nil {
		return answer, err
	}

	// All that may fail comes before the token is spent. The others must know both by their certificates.
	own := s.peer(s.Self, s.Addr, int(s.PeerPort))
	name := pki.PeerName{ID: s.Self.ID, Addr: s.Addr}

	if _, err := s.Peers.Refresh(name); err != nil {
		return answer, err
	}

	request, key, err := decoded(r)
	if err != nil {
		return answer, err
	}
	certificate, err := s.Peers.Sign(request, pki.PeerName{ID: r.ID, Addr: r.Addr})
	if err != nil {
		return answer, err
	}

	handover := Handover{}
	if handover.CA, err = s.Peers.CA(); err != nil {
		return answer, err
	}
	if handover.Files, err = s.Files(); err != nil {
		return answer, err
	}
	sealed, err := handover.seal(key)
	if err != nil {
		return answer, err
	}
	answer.Certificate, answer.Sealed = string(certificate), base64.StdEncoding.EncodeToString(sealed)

	joins := s.peer(cluster.Identity{ID: r.ID, Node: r.Node}, r.Addr, r.PeerPort)
	joins.By = c.Principal

	if err := s.makeWay(ctx, own, joins); err != nil {
		return answer, err
	}

	_, _, err = access.Decide(ctx, s.Store, c, nil, func(tx *record.Tx) (struct{}, error) {
		return struct{}{}, s.admit(tx, id, own, joins)
	})
	if err != nil {
		return answer, err
	}

	added, err := s.Etcd.AddLearner(ctx, r.ID, joins.Peer)
	if err != nil {
		return answer, err
	}
	answer.Members, answer.Endpoints = added.InitialCluster, added.Endpoints

	s.Kick()

	return answer, nil
}

// decoded returns the request for a certificate, and the key to seal for.
func decoded(r api.JoinRequest) (request, key []byte, err error) {
	request, err = base64.StdEncoding.DecodeString(r.CertificateRequest)
	if err == nil {
		key, err = base64.StdEncoding.DecodeString(r.Key)
	}
	if err != nil {
		return nil, nil, inventory.Errorf(inventory.KindInvalid, "certificate_request and key are no base64: %w", err).
			Do("join with clusterm join, of the same version as this manager")
	}

	return request, key, nil
}

// makeWay makes the etcd of this instance reachable where it is not: that of the first one, and one after a restore. It
// refuses an instance whose etcd has started: with an empty store in the place of its data, it would forget its votes.
func (s *Service) makeWay(ctx context.Context, own, joins Member) error {
	members, err := s.Etcd.Members(ctx)
	if err != nil {
		return err
	}

	reachable := false

	for _, m := range members {
		if slices.Contains(m.PeerURLs, joins.Peer) && len(m.ClientURLs) > 0 {
			return inventory.Errorf(inventory.KindRefused, "the etcd of the instance %s on %s has started already",
				joins.ID, joins.Node).
				Do("start clusterm there; if its data is lost, remove it and join again: clusterctl instance remove %s",
					joins.ID)
		}

		reachable = reachable || slices.Contains(m.PeerURLs, own.Peer)
	}

	if reachable {
		return nil
	}

	return s.open(ctx)
}

// open makes the etcd of this instance reachable for others.
func (s *Service) open(ctx context.Context) error {
	addr, err := netip.ParseAddr(s.Addr)
	if err != nil {
		return err
	}
	ca, pair := s.Peers.Files()

	return s.Etcd.Open(ctx, etcd.Member{
		Name: s.Self.ID, Address: addr, ClientPort: s.ClientPort, PeerPort: s.PeerPort,
		CAFile: ca, CertFile: pair, KeyFile: pair,
	})
}

// Reachable reports whether an address can be that at which others reach a host.
func Reachable(a netip.Addr) bool { return !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == "" }

func (s *Service) peer(id cluster.Identity, addr string, port int) Member {
	return Member{
		Identity: id, Addr: addr, Peer: "https://" + net.JoinHostPort(addr, strconv.Itoa(port)),
		Joined: time.Now().UTC().Truncate(time.Second),
	}
}

// check refuses what is no instance, or comes to a manager that none can join.
func (s *Service) check(r api.JoinRequest) error {
	invalid := func(field, problem string) error {
		return inventory.Errorf(inventory.KindInvalid, "%s: %s", field, problem).
			Do("join with clusterm join, of the same version as this manager")
	}

	if err := s.joinable(); err != nil {
		return err
	}

	addr, err := netip.ParseAddr(r.Addr)

	switch {
	case !datadir.IsID(r.ID):
		return invalid("id", "it is not that of an instance")
	case r.Node == "":
		return invalid("node", "it is empty")
	case err != nil || !Reachable(addr) || addr.Is4In6() || addr.String() != r.Addr:
		return invalid("addr", "it is no address at which others reach the host, in its usual form")
	case r.PeerPort < 1 || r.PeerPort > 65535:
		return invalid("peer_port", "it is no port")
	case r.ID == s.Self.ID || r.Node == s.Self.Node || r.Addr == s.Addr:
		return inventory.Errorf(inventory.KindRefused, "the instance %s on %s (%s) is this one", r.ID, r.Node, r.Addr).
			Do("run clusterm join on another host, with an empty data directory")
	}

	return nil
}

// admit spends the token, and writes the records of the members.
func (s *Service) admit(tx *record.Tx, id access.Identity, own, joins Member) error {
	members := record.List(tx, &Kind)

	for _, m := range members {
		switch {
		case m.ID == joins.ID && m.Peer == joins.Peer: // it repeats, because the answer was lost
		case m.ID == joins.ID || m.Node == joins.Node || m.Peer == joins.Peer:
			return inventory.Errorf(inventory.KindRefused, "the instance %s on %s (%s) belongs to the manager already",
				m.ID, m.Node, m.Addr).
				Do("if it is lost, remove it and join again: clusterctl instance remove %s", m.ID)
		}
	}

	for _, i := range record.List(tx, &state.Instances) {
		if i.ID == joins.ID || i.Node == joins.Node {
			return inventory.Errorf(inventory.KindRefused, "the instance %s on %s is alive", i.ID, i.Node).
				Do("join from another host, with an empty data directory")
		}
	}

	known := func(id string) bool { return slices.ContainsFunc(members, func(m *Member) bool { return m.ID == id }) }
	if !known(joins.ID) && len(members) >= etcd.MaxMembers {
		return inventory.Errorf(inventory.KindRefused,
			"the manager has %d instances already, the most", etcd.MaxMembers).
			Do("remove one first: clusterctl instance list")
	}

	if !known(own.ID) {
		record.Put(tx, &Kind, &own)
	}
	record.Put(tx, &Kind, &joins)

	return access.Spend(tx, id)
}

// Remove takes an instance away that is not alive: its etcd is no member any more, and it cannot start again.
func (s *Service) Remove(ctx context.Context, c access.Caller, ref string) (revision int64, err error) {
	entry := access.Record{Action: "instances.remove", Targets: []string{ref}}
	err = access.Audited(ctx, s.Audit, c, entry, func(ctx context.Context, entry *access.Record) error {
		if s.Etcd == nil {
			return inventory.Errorf(inventory.KindRefused, "an existing etcd has members of its own").
				Do("stop clusterm on the other host")
		}

		r, _ := s.Store.Latest()
		m, err := s.removable(r, ref)
		if err != nil {
			return err
		}
		entry.Targets = []string{m.ID, m.Node}

		members, err := s.Etcd.Members(ctx)
		if err != nil {
			return err
		}

		for _, at := range members {
			if slices.Contains(at.PeerURLs, m.Peer) {
				if err := s.Etcd.Remove(ctx, at.ID); err != nil {
					return err
				}
			}
		}

		_, revision, err = access.Decide(ctx, s.Store, c, nil, func(tx *record.Tx) (struct{}, error) {
			if _, err := s.removable(tx, ref); err != nil {
				return struct{}{}, err
			}
			record.Remove(tx, &Kind, m.ID)

			// It may have gone on alone.
			epoch := record.One(tx, &state.Epochs).Remove(m.ID)
			record.Put(tx, &state.Epochs, &epoch)

			return struct{}{}, nil
		})

		return err
	})

	return revision, err
}

// removable returns the member with the id or the node.
func (s *Service) removable(r record.Reader, ref string) (*Member, error) {
	members := record.List(r, &Kind)

	at := slices.IndexFunc(members, func(m *Member) bool { return m.ID == ref || m.Node == ref })
	if at < 0 {
		return nil, inventory.Errorf(inventory.KindNotFound, "no instance %q belongs to the manager", ref).
			Do("list them: clusterctl instance list")
	}

	if alive := record.Get(r, &state.Instances, members[at].ID); alive != nil {
		return nil, inventory.Errorf(inventory.KindRefused, "the instance %s on %s is alive", alive.ID, alive.Node).
			Do("stop clusterm there first, and wait 15 s: systemctl disable --now clusterm")
	}

	return members[at], nil
}

// Members returns the instances that belong to the manager, alive or not, the oldest first.
func (s *Service) Members(ctx context.Context, r record.Reader) ([]api.Member, error) {
	var found []etcd.ClusterMember

	if s.Etcd != nil {
		var err error
		if found, err = s.Etcd.Members(ctx); err != nil {
			return nil, err
		}
	}

	lead, all := record.One(r, &state.Lead), map[string]api.Member{}

	for _, m := range record.List(r, &Kind) {
		out := api.Member{ID: m.ID, Node: m.Node, Addr: m.Addr, Joined: &m.Joined, Etcd: api.EtcdMissing}

		for _, at := range found {
			if slices.Contains(at.PeerURLs, m.Peer) {
				out.Etcd = roleOf(at)
			}
		}

		all[m.ID] = out
	}

	for _, i := range record.List(r, &state.Instances) {
		out, known := all[i.ID]
		if !known {
			out = api.Member{ID: i.ID, Node: i.Node, Addr: i.Addr, Etcd: api.EtcdAlone}
			if s.Etcd == nil {
				out.Etcd = api.EtcdExisting
			}
		}

		out.Alive, out.Leads, out.Version = true, lead.ID == i.ID, i.Version
		all[i.ID] = out
	}

	list := make([]api.Member, 0, len(all))
	for _, m := range all {
		list = append(list, m)
	}

	slices.SortFunc(list, func(a, b api.Member) int {
		if a.Joined != nil && b.Joined != nil {
			return cmp.Or(a.Joined.Compare(*b.Joined), strings.Compare(a.Node, b.Node))
		}
		return strings.Compare(a.Node, b.Node)
	})

	return list, nil
}

func roleOf(m etcd.ClusterMember) string {
	switch {
	case !m.Healthy:
		return api.EtcdDown
	case m.Learner:
		return api.EtcdLearner
	default:
		return api.EtcdVoter
	}
}

// look lets the leader promote the members that have caught up.
func (s *Service) look(ctx context.Context) (control.Next, error) {
	r, _ := s.Store.Latest()
	if s.Etcd == nil || !Several(r) {
		return control.Next{}, nil
	}

	if _, err := s.Peers.Refresh(pki.PeerName{ID: s.Self.ID, Addr: s.Addr}); err != nil {
		return control.Next{}, err
	}

	if !s.Leads() {
		s.setWarnings(nil)
		return control.Next{}, nil
	}

	members, err := s.Etcd.Members(ctx)
	if err != nil {
		return control.Next{}, err
	}

	// People know an instance by its node.
	for i := range members {
		for _, m := range record.List(r, &Kind) {
			if slices.Contains(members[i].PeerURLs, m.Peer) {
				members[i].Name = m.Node
			}
		}
	}

	growth := etcd.Grow(members)

	warnings := make([]string, len(growth.Warnings))
	for i, w := range growth.Warnings {
		warnings[i] = w.Message
	}
	s.setWarnings(warnings)

	for _, m := range growth.Promote {
		if err := s.Etcd.Promote(ctx, m.ID); err != nil {
			return control.Next{}, err
		}

		s.Logger.Infof("the etcd of the instance %s votes", m.Title())
	}

	return control.Next{}, nil
}

// setWarnings keeps what the members lack, and logs what is new of it.
func (s *Service) setWarnings(warnings []string) {
	s.mu.Lock()
	before := s.warnings
	s.warnings = warnings
	s.mu.Unlock()

	for _, w := range warnings {
		if !slices.Contains(before, w) {
			s.Logger.Warn(w)
		}
	}
}

// Warnings returns what the members lack, as the leader sees it.
func (s *Service) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.warnings
}
