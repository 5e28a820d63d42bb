// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration/image/compression"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
)

// OrderFile is where an environment has its Order.
const OrderFile = "boot.json"

// maxOrder is the largest order in bytes.
const maxOrder = 1 << 20

// Order is what a machine does in the boot environment. The zero Order is to print the facts.
type Order struct {
	Interface Interface `json:"interface,omitzero"` // the network port to use; zero: none
	Report    Report    `json:"report,omitzero"`    // the manager to report to; zero: none
	Install   *Install  `json:"install,omitempty"`  // what to install, which needs Report; nil: nothing
}

// Interface is a network port with a static address.
type Interface struct {
	MAC     string       `json:"mac,omitempty"`    // empty: the port that the machine booted from, as BOOTIF names it
	Address netip.Prefix `json:"address,omitzero"` // with the length of its network
	Gateway netip.Addr   `json:"gateway,omitzero"` // zero: none
	DNS     []netip.Addr `json:"dns,omitempty"`    // name servers
}

// Report is where the environment reports to, as package report describes it.
type Report struct {
	URL   string `json:"url"`   // http or https
	Token string `json:"token"` // the manager knows the machine by it: 16 to 200 letters, digits, - or _
}

// Install is what is written to a disk of the machine.
type Install struct {
	Image Image `json:"image"`
	// RootDevice has the hints for the disk, as facts.RootDevice takes them. Without any, it is the smallest disk of at
	// least 4 GiB.
	RootDevice map[string]any `json:"root_device,omitempty"`
	Seed       Seed           `json:"seed,omitzero"` // for cloud-init in the image; zero: none
}

// Image is a raw disk with a partition table, which may be compressed.
type Image struct {
	URL         string `json:"url"`                   // http or https; asked with Report.Token, like the report
	Digest      string `json:"digest"`                // sha256:HEX of the content as it is served
	Size        int64  `json:"size"`                  // bytes of the content as it is served
	Compression string `json:"compression,omitempty"` // gzip, xz or zstd; empty: none
	Virtual     int64  `json:"virtual,omitempty"`     // bytes of the disk in it; 0: unknown
}

// Seed has the files of cloud-init's data source NoCloud.
type Seed struct {
	MetaData      string `json:"meta_data,omitempty"` // has to be there if any other is
	UserData      string `json:"user_data,omitempty"`
	NetworkConfig string `json:"network_config,omitempty"` // empty: no file, and cloud-init's default
}

// maxBytes bounds the size of an image and of the disk in it.
const maxBytes = 1 << 46

var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

var token = regexp.MustCompile(`^[A-Za-z0-9_-]{16,200}$`)

func (r Report) isZero() bool { return r == Report{} }

func (i Interface) isZero() bool {
	return i.MAC == "" && i.Address == netip.Prefix{} && i.Gateway == netip.Addr{} && len(i.DNS) == 0
}

// Decode reads an order strictly: a program that does not know a part of its order must not carry out the rest.
func Decode(b []byte) (Order, error) {
	var o Order

	if len(b) > maxOrder {
		return o, invalid("it has %d bytes, more than %d", len(b), maxOrder)
	}

	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()

	if err := dec.Decode(&o); err != nil {
		return Order{}, invalid("%s", strings.TrimPrefix(err.Error(), "json: "))
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Order{}, invalid("something follows the order")
	}

	if err := o.Interface.check(); err != nil {
		return Order{}, err
	}
	if err := o.Report.check(o.Interface); err != nil {
		return Order{}, err
	}

	if err := o.Install.check(o.Report); err != nil {
		return Order{}, err
	}

	return o, nil
}

// check returns an error if the image could not be installed on any machine.
func (i *Install) check(over Report) error {
	if i == nil {
		return nil
	}

	image, seed := i.Image, i.Seed

	if err := checkURL(image.URL); err != nil {
		return invalid("install.image.url %w", err)
	}
	if err := facts.CheckHints(i.RootDevice); err != nil {
		return invalid("install.root_device: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}

	switch {
	case over.isZero():
		return invalid("install needs report: a machine is installed for a manager")
	case !digest.MatchString(image.Digest):
		return invalid("install.image.digest is not sha256: and 64 hexadecimal digits")
	case image.Size < 1 || image.Size > maxBytes || image.Virtual < 0 || image.Virtual > maxBytes:
		return invalid("install.image has an impossible size")
	case image.Compression != "" && !slices.Contains(compression.Names(), image.Compression):
		return invalid("install.image.compression %q is none of %s", inventory.Shorten(image.Compression, 40),
			strings.Join(compression.Names(), ", "))
	case seed != Seed{} && seed.MetaData == "":
		return invalid("install.seed has no meta_data, without which cloud-init ignores it")
	}

	return nil
}

// checkURL checks a URL that the token is sent to. The error goes after what the URL is for, and does not show it.
func checkURL(text string) error {
	switch u, err := url.Parse(text); {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("is not like http://10.9.1.1:9480/boot")
	case u.User != nil:
		return errors.New("has a user: only report.token logs in")
	}

	return nil
}

// check returns an error if nothing could be reported. It shows neither the token nor the password in a URL.
func (r Report) check(over Interface) error {
	if r.isZero() {
		return nil
	}

	err := checkURL(r.URL)

	switch {
	case err != nil:
		return invalid("report.url %w", err)
	case !token.MatchString(r.Token):
		return invalid("report.token is not 16 to 200 letters, digits, - or _")
	case over.isZero():
		return invalid("report needs interface: without a network nothing is reported")
	}

	return nil
}

// check returns an error if the port cannot be brought up like that on any machine.
func (i Interface) check() error {
	if i.isZero() {
		return nil
	}

	if i.MAC != "" {
		if mac, err := net.ParseMAC(i.MAC); err != nil || len(mac) != 6 {
			return invalid("interface.mac %q is not like 52:54:00:12:34:56", inventory.Shorten(i.MAC, 40))
		}
	}

	address, gateway := i.Address.Addr(), i.Gateway
	noHost := func(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() || a.IsMulticast() }

	switch {
	case !i.Address.IsValid():
		return invalid("interface.address is missing")
	case !address.IsGlobalUnicast() && !address.IsLoopback() || address.Is4In6():
		return invalid("interface.address %s is no address of a host", i.Address)
	case slices.ContainsFunc(i.DNS, noHost):
		return invalid("interface.dns has an address of no host")
	case !gateway.IsValid():
		return nil
	case gateway == address || !gateway.IsGlobalUnicast() && !gateway.IsLinkLocalUnicast():
		return invalid("interface.gateway %s is no address of another host", gateway)
	case gateway.Is4() != address.Is4():
		return invalid("interface.gateway %s is of another family than %s", gateway, i.Address)
	case !i.Address.Contains(gateway) && !gateway.IsLinkLocalUnicast():
		return invalid("interface.gateway %s is not in the network of %s", gateway, i.Address)
	}

	return nil
}

func invalid(format string, args ...any) error {
	return inventory.Errorf(inventory.KindInvalid, "invalid order in "+OrderFile+": "+format, args...).
		Do("correct the file, make the initrd again, and boot it")
}
