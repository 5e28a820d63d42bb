// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// Default ports of a member. They differ from the usual ones of etcd, which an etcd
// that a playbook installs on the same host keeps.
const (
	DefaultClientPort = 12379
	DefaultPeerPort   = 12380
)

// MaxMembers is the largest number of members, learners included, that a cluster of
// embedded etcds has. Every further voter slows each change down.
const MaxMembers = 5

const (
	memberFile    = "member.json" // below the directory of the server
	maxMemberFile = 64 << 10      // bytes
)

// Member is the network side of an embedded etcd. It is kept in member.json in the
// directory of the server. Without that file, the server is reachable from its own
// host only.
type Member struct {
	// Name identifies the member in its cluster; it is the id of the instance.
	Name string `json:"name"`
	// Address is where the others reach this member. It belongs to this host.
	Address netip.Addr `json:"address"`
	// ClientPort and PeerPort are TCP ports; 0: the default ones.
	ClientPort uint16 `json:"client_port"`
	PeerPort   uint16 `json:"peer_port"`
	// CAFile, CertFile and KeyFile are absolute paths of PEM files. The authority is for
	// instances only, because each of its certificates may read and write everything.
	// The certificate has the address as a subject alternative name, and is for servers
	// and clients. A renewed pair is read at the next handshake, a changed authority at
	// the next start.
	CAFile   string `json:"ca_file"`
	CertFile string `json:"cert_file"`
	KeyFile  string `json:"key_file"`
	// InitialCluster has the peer URL of each member by name, this one included, as
	// AddLearner returns it. It is for the first start of a joining member, and ignored
	// by a server with data.
	InitialCluster map[string]string `json:"initial_cluster,omitempty"`
	// Endpoints are the client URLs of other voters, as far as they are known. A client
	// needs them while this member is a learner, or cannot serve.
	Endpoints []string `json:"endpoints,omitempty"`
	// Learners are the client URLs of other members without a vote; see Ask.
	Learners []string `json:"learners,omitempty"`
}

// ClientURL is the URL of this member for clients.
func (m Member) ClientURL() string { return m.clientURL().String() }

// PeerURL is the URL of this member for the others.
func (m Member) PeerURL() string { return m.peerURL().String() }

func (m Member) clientURL() *url.URL { return m.url(cmp.Or(m.ClientPort, DefaultClientPort)) }
func (m Member) peerURL() *url.URL   { return m.url(cmp.Or(m.PeerPort, DefaultPeerPort)) }

func (m Member) url(port uint16) *url.URL {
	return &url.URL{Scheme: "https", Host: netip.AddrPortFrom(m.Address, port).String()}
}

// memberName keeps a name from changing the meaning of etcd's list of members.
var memberName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Check validates the values and reads the files. Errors are of KindInvalid.
func (m Member) Check() error {
	a := m.Address

	switch {
	case !memberName.MatchString(m.Name):
		return invalidMember("name", "%q is not an id of an instance", m.Name)
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" || a.Is4In6():
		return invalidMember("address", "%q is not the address of one host", a)
	case m.clientURL().Host == m.peerURL().Host:
		return invalidMember("peer_port", "it is the client port too")
	case len(m.InitialCluster) > MaxMembers || len(m.Endpoints)+len(m.Learners) > MaxMembers:
		return invalidMember("initial_cluster", "a cluster has at most %d members", MaxMembers)
	case len(m.InitialCluster) > 0 && m.InitialCluster[m.Name] != m.PeerURL():
		return invalidMember("initial_cluster", "it has %q for this member, whose peer URL is %s",
			m.InitialCluster[m.Name], m.PeerURL())
	}

	for name, u := range m.InitialCluster {
		if !memberName.MatchString(name) || !isMemberURL(u) {
			return invalidMember("initial_cluster", "%q at %q is not a member with a URL like %s", name, u, m.PeerURL())
		}
	}

	for _, u := range slices.Concat(m.Endpoints, m.Learners) {
		if !isMemberURL(u) {
			return invalidMember("endpoints", "%q is not a URL like %s", u, m.ClientURL())
		}
	}

	_, err := m.tlsConfig()

	return err
}

// isMemberURL reports whether the text is a URL as PeerURL and ClientURL form them.
func isMemberURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || text != "https://"+u.Host {
		return false
	}

	_, err = netip.ParseAddrPort(u.Host)
	return err == nil
}

func invalidMember(key, format string, args ...any) *inventory.Error {
	return inventory.Errorf(inventory.KindInvalid, "%s: %s: %w", memberFile, key, fmt.Errorf(format, args...))
}

// tlsConfig returns the configuration of a client of the members.
func (m Member) tlsConfig() (*tls.Config, error) {
	for key, path := range map[string]string{"ca_file": m.CAFile, "cert_file": m.CertFile, "key_file": m.KeyFile} {
		if !filepath.IsAbs(path) {
			return nil, invalidMember(key, "%q is not an absolute path", path)
		}
	}

	files := Existing{CAFile: m.CAFile, CertFile: m.CertFile, KeyFile: m.KeyFile}

	config, err := files.tlsConfig()
	if err != nil {
		return nil, invalidMember("tls", "%w", err)
	}

	return config, nil
}

// tlsInfo returns the configuration of a listener that accepts only certificates of
// the authority.
func (m Member) tlsInfo() transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: m.CertFile, KeyFile: m.KeyFile, TrustedCAFile: m.CAFile, ClientCertAuth: true,
		MinVersion: tls.VersionTLS12,
		// A host has several addresses, and a connection may come from any of them. The
		// certificate proves an instance.
		SkipClientSANVerify: true,
	}
}

// initialCluster returns InitialCluster in etcd's form.
func (m Member) initialCluster() string {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(m.InitialCluster)) {
		members = append(members, name+"="+m.InitialCluster[name])
	}

	return strings.Join(members, ",")
}

// ReadMember reads member.json of the directory of a server. The error wraps
// fs.ErrNotExist if there is none.
func ReadMember(dir string) (Member, error) {
	path := filepath.Join(dir, memberFile)

	f, err := os.Open(path)
	if err != nil {
		return Member{}, err
	}
	defer f.Close()

	content, err := io.ReadAll(io.LimitReader(f, maxMemberFile+1))
	if err != nil {
		return Member{}, err
	}

	m, err := parseMember(content)
	if err != nil {
		return Member{}, inventory.Errorf(inventory.KindInvalid, "%s does not describe a member: %w", path, err).
			Do("restore the file from a backup; to begin anew, remove this instance from its cluster by another one, " +
				"empty its data directory and join it again")
	}

	return m, nil
}

func parseMember(content []byte) (m Member, err error) {
	if len(content) > maxMemberFile {
		return m, fmt.Errorf("it has more than %d bytes", maxMemberFile)
	}

	// A newer version may have written more, and an upgrade has a way back.
	decoder := json.NewDecoder(bytes.NewReader(content))

	if err := decoder.Decode(&m); err != nil {
		return m, err
	}

	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("there is something behind the document")
	}

	return m, nil
}

// WriteMember validates the description and replaces member.json of the directory of
// a server, which reads it at its start. The directory exists. A server that runs
// is opened by Server.Open.
func WriteMember(dir string, m Member) error {
	if err := m.Check(); err != nil {
		return err
	}

	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}

	if err := localfile.Replace(filepath.Join(dir, memberFile), append(content, '\n')); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "%s cannot be written: %w", memberFile, err).
			Do("free some space in %s, and check that it is writable", dir)
	}

	return nil
}

// member returns the description of the server's network side, or nil if there is none.
func (o ServerOptions) member() (*Member, error) {
	m, err := ReadMember(o.Dir)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}

	return &m, m.Check()
}

// memberID formats the id of a member as etcd's own tools do.
func memberID(id uint64) string { return strconv.FormatUint(id, 16) }
