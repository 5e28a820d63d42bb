// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
)

// The defaults of Options.
const (
	defaultCALife   = 10 * 365 * 24 * time.Hour
	defaultLeafLife = 90 * 24 * time.Hour
)

// Options are the parameters of a Keeper.
type Options struct {
	// Dir holds the CA and the server certificate. Open makes it with mode 0700.
	Dir string
	// Names returns the host names and IP addresses under which clients reach this
	// manager.
	Names func() []string
	// Site selects a site's own files.
	Site Site
	// CALife and LeafLife are the lifetimes of new certificates. 0: ten years and
	// 90 days.
	CALife, LeafLife time.Duration
	// Now is the clock. nil: time.Now.
	Now func() time.Time
}

// Keeper holds the certificates of a manager. Its methods may be called
// concurrently.
type Keeper struct {
	options Options

	mu      sync.Mutex
	current held
	problem error // of the last Refresh
}

// held are the certificates in force. They are replaced as a whole.
type held struct {
	ca     *pair
	own    *pair // the server certificate of the own CA
	site   siteFiles
	config *tls.Config
}

// server is the certificate that clients see.
func (h held) server() *x509.Certificate {
	if h.site.server != nil {
		return h.site.server.Leaf
	}
	return h.own.cert
}

// Open reads the certificates, and makes those that are missing. It refuses files
// that others may read, and a folder without its CA.
func Open(o Options) (*Keeper, error) {
	o.CALife, o.LeafLife = cmp.Or(o.CALife, defaultCALife), cmp.Or(o.LeafLife, defaultLeafLife)

	if o.Now == nil {
		o.Now = time.Now
	}

	k := &Keeper{options: o}
	if _, err := k.Refresh(); err != nil {
		return nil, err
	}
	return k, nil
}

// Refresh renews the certificates that are due, and reads the files of the site
// again. It returns a description of each change. After an error the former
// certificates stay in force, and Check returns the error.
func (k *Keeper) Refresh() (changes []string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	next := k.current
	changes, k.problem = k.refresh(&next)

	// A change that succeeded holds, even if another one failed.
	if next.config != nil {
		k.current = next
	}

	return changes, k.problem
}

func (k *Keeper) refresh(next *held) ([]string, error) {
	started := next.config != nil

	changes, err := k.options.refreshOwn(next, k.options.Now())
	if err != nil && !started {
		return nil, err
	}

	site, siteErr := k.options.Site.read()

	switch {
	case siteErr != nil && !started:
		return nil, siteErr
	case siteErr == nil && !site.equal(next.site):
		next.site = site

		if started {
			changes = append(changes, "the files of the site's own certificates were read again")
		}
	}

	next.config = next.serverConfig(k.options.Now)

	return changes, errors.Join(err, siteErr)
}

// ServerConfig returns the configuration of a listener. Every handshake uses the
// certificates in force.
func (k *Keeper) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.current.config, nil
		},
	}
}

// protocols are the application protocols that a listener offers.
var protocols = []string{"h2", "http/1.1"}

// serverConfig returns the configuration of one handshake.
func (h held) serverConfig(now func() time.Time) *tls.Config {
	server, clients := h.own.tls(h.ca.cert), h.site.clients
	if h.site.server != nil {
		server = h.site.server
	}

	if clients == nil {
		clients = x509.NewCertPool()
		clients.AddCert(h.ca.cert)
	}

	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   protocols,
		Certificates: []tls.Certificate{*server},
		Time:         now,
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    clients,
		// A resumed session would skip the check of the client certificate.
		SessionTicketsDisabled: true,
	}
}

// Fingerprint returns the fingerprint for clients to pin: that of the CA, or
// empty for a site's own server certificate: the site distributes its CA.
func (k *Keeper) Fingerprint() string {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.current.site.server != nil {
		return ""
	}
	return Fingerprint(k.current.ca.cert)
}

// CA returns the certificate of the manager's own CA.
func (k *Keeper) CA() *x509.Certificate {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current.ca.cert
}

// Expiry returns the ends of the server certificate and of the own CA.
func (k *Keeper) Expiry() (server, ca time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current.server().NotAfter, k.current.ca.cert.NotAfter
}

// Check returns the error of the last Refresh, or one about a server certificate
// that clients do not accept at this time. The warning is about one that ends
// soon.
func (k *Keeper) Check() (warning string, problem error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	now, c := k.options.Now(), k.current.server()
	replace := "check the clock of this host, and restart clusterm"

	if k.current.site.server != nil {
		replace = "replace " + k.options.Site.CertFile + " and " + k.options.Site.KeyFile
	}

	end := c.NotAfter.UTC().Format(time.RFC3339)

	switch {
	case now.After(c.NotAfter):
		problem = fmt.Errorf("the server certificate expired at %s; %s", end, replace)
	case now.Before(c.NotBefore):
		problem = fmt.Errorf("the server certificate is not valid before %s; check the clock of this host",
			c.NotBefore.UTC().Format(time.RFC3339))
	case k.current.site.server != nil && now.After(c.NotAfter.Add(-soon)):
		warning = fmt.Sprintf("the server certificate expires at %s; %s", end, replace)
	}

	return warning, errors.Join(k.problem, problem)
}

// Trouble is what Check found, in words; "" if that is nothing.
func (k *Keeper) Trouble() string {
	warning, problem := k.Check()
	if problem != nil {
		return problem.Error()
	}
	return warning
}

// soon is how long before its end a site's own certificate is a warning.
const soon = 14 * 24 * time.Hour

// names returns the sorted names of the configuration, without repetitions.
func (o Options) names() []string {
	var names []string
	if o.Names != nil {
		names = o.Names()
	}

	names = slices.Clone(names)
	for i, name := range names {
		names[i] = strings.ToLower(name)
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// ReadCA reads the certificate of the CA in the folder. It returns KindNotFound if
// there is none yet.
func ReadCA(dir string) (*x509.Certificate, error) {
	ca, err := readCA(dir)
	if err != nil {
		return nil, err
	}
	return ca.cert, nil
}

func readCA(dir string) (*pair, error) {
	ca, err := readPair(caPath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, inventory.Errorf(inventory.KindNotFound, "there is no CA yet: %w", err).
			Do("set listen in clusterm.yaml and restart clusterm: its first start with that key makes the CA")
	}

	return ca, err
}
