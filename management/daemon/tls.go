// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/access/mtls"
	"github.com/contiv/cluster/management/access/oidc"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/setting"
)

// pkiDir returns the folder of the CA and the server certificate.
func (d *Daemon) pkiDir() string { return pkiDir(d.file) }

func pkiDir(f setting.File) string { return filepath.Join(f.DataDir, "pki") }

// OpenCA reads the CA of the configuration file; see mtls.OpenCA.
func OpenCA(path string) (mtls.CA, error) {
	file, err := setting.Load(path, adapters{})
	if err != nil {
		return mtls.CA{}, err
	}
	return mtls.OpenCA(pkiDir(file))
}

// openCertificates opens the certificates of the API over HTTPS. The first start
// with HTTPS makes them.
func (d *Daemon) openCertificates() (err error) {
	o := d.opts.Certificates
	o.Dir, o.Names = d.pkiDir(), d.hostNames
	o.Site = pki.Site{
		CertFile: d.file.TLS.CertFile, KeyFile: d.file.TLS.KeyFile, ClientCAFile: d.file.TLS.ClientCAFile,
	}

	if d.certificates, err = pki.Open(o); err != nil {
		return err
	}

	d.troubles.Stand(d.certificates.Trouble)

	if pin := d.certificates.Fingerprint(); pin != "" {
		d.opts.Logger.WithField("fingerprint", pin).Info("clients pin the CA of this manager by its fingerprint")
	}

	d.refresh = control.New(control.Options{
		Name: "certificates", Every: cmp.Or(d.opts.CertificatesEvery, time.Minute), Logger: d.opts.Logger,
		Trouble: "the certificates were not refreshed; the former ones stay in force",
		Round: func(context.Context) (control.Next, error) {
			changes, err := d.certificates.Refresh()
			for _, change := range changes {
				d.opts.Logger.Info(change)
			}
			return control.Next{}, err
		},
	})
	d.parts.Run(context.Background(), d.refresh)

	return nil
}

// hostNames returns the names and addresses under which clients may reach this
// manager.
func (d *Daemon) hostNames() []string {
	names := slices.Concat([]string{"localhost", d.node.Label}, d.file.TLS.Names)
	if d.node.Addr != "" {
		names = append(names, d.node.Addr)
	}
	if listen, err := netip.ParseAddrPort(d.file.Listen); err == nil && !listen.Addr().IsUnspecified() {
		names = append(names, listen.Addr().WithZone("").String())
	}

	return append(names, pki.HostNames()...)
}

// openIssuer prepares the verification of an issuer's tokens, if one is configured. It
// does not ask the issuer: the manager starts without it.
func (d *Daemon) openIssuer() (err error) {
	c := d.file.OIDC
	if c.Issuer == "" {
		return nil
	}
	o := oidc.Options{Issuer: c.Issuer, Audience: c.Audience, NameClaim: c.NameClaim, Claim: c.Claim}

	for _, r := range c.Rules {
		o.Rules = append(o.Rules, oidc.Rule{Value: r.Value, Role: access.Role(r.Role), Scope: r.Scope()})
	}

	if c.CAFile != "" {
		if o.Roots, err = oidc.ReadRoots(c.CAFile); err != nil {
			return err
		}
	}

	d.issuer = oidc.New(o)

	return nil
}
